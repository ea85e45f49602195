"""What a measurement says about the model beside its numbers: that they are its own, and what to beware of."""

import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from rich.console import Console
from tokenizers import Tokenizer

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.tokenizer import tokenizer_hash
from collapselab.disk import write_document
from collapselab.errors import CorpusError, ModelError
from collapselab.measurement.measure import measure
from collapselab.measurement.show import shown
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result
from models.test_load import write_gguf


def llama(**changes: Any) -> Any:
    sizes: dict[str, Any] = {"width": 32, "depth": 1, "vocabulary": 320, "positions": 32}
    return build_model(build_config("llama", **sizes | changes), seed=0)


# The logits are the model's own


def test_the_loss_of_an_adapted_model_is_its_own(corpus: Corpus) -> None:
    model = llama(tied=False)
    torch.manual_seed(0)
    config = LoraConfig(r=4, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=["lm_head"], lora_alpha=64)
    adapted = get_peft_model(model, config).eval()
    blocks = torch.stack([corpus.validation[i] for i in range(len(corpus.validation))])
    with torch.no_grad():
        own = float(adapted(input_ids=blocks, labels=blocks).loss)
        with adapted.disable_adapter():
            base = float(adapted(input_ids=blocks, labels=blocks).loss)
    result = measure(adapted, corpus, null=False, quiet=True)
    assert isinstance(result, Result)
    assert abs(own - base) > 1
    assert result.facts["splits"]["validation"]["loss"] == pytest.approx(own, rel=1e-5)


def test_a_model_whose_logits_are_not_those_measured_is_refused_before_it_is_measured(corpus: Corpus) -> None:
    model = llama()
    original = model.lm_head.forward
    model.lm_head.forward = lambda hidden: original(hidden) + hidden.norm(dim=-1, keepdim=True)
    with pytest.raises(ModelError, match="its own logits differ from those of its features and output layer"):
        measure(model, corpus, quiet=True)


def test_the_check_makes_logits_once_and_for_a_few_tokens(corpus: Corpus) -> None:
    model = llama()
    shapes: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda _, __, logits: shapes.append(tuple(logits.shape)))
    measure(model, corpus, null=False, quiet=True)
    logits = [shape for shape in shapes if shape[-1] == 320 and shape[:2] != (1, 1)]
    assert logits == [(4, 32, 320)]


# The tokenizer is the corpus's


@pytest.fixture
def saved(corpus: Corpus, tmp_path: Path) -> Path:
    """A model with the corpus's tokenizer beside it."""
    folder = tmp_path / "model"
    llama(tied=False).save_pretrained(folder)
    shutil.copytree(corpus.path / "tokenizer", folder, dirs_exist_ok=True)
    return folder


def measured(model: Any, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, null=False, tokens=60, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def other_tokenizer(folder: Path) -> None:
    """Exchange two tokens: the same size, the same merges, other ids."""
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    vocabulary = settings["model"]["vocab"]
    vocabulary["O"], vocabulary["o"] = vocabulary["o"], vocabulary["O"]
    file.write_text(json.dumps(settings))
    Tokenizer.from_file(str(file))


def test_the_same_tokenizer_is_recorded(saved: Path, corpus: Corpus) -> None:
    known = tokenizer_hash(corpus.tokenizer())
    assert measured(saved, corpus).facts["tokenizer"] == {"model": known, "corpus": known, "same": True}


def test_a_model_with_another_tokenizer_of_the_same_size_is_refused_with_an_example(
    saved: Path, corpus: Corpus
) -> None:
    other_tokenizer(saved)
    message = (
        r"its tokenizer is not the one of .*stories. The model's has 300 tokens, the corpus's 300; of 'Once upon .*' "
        r"they make \[\d+, .*\] and \[\d+, .*\]. Build a corpus with the model's own .* --other-tokenizer"
    )
    with pytest.raises(CorpusError, match=message):
        measured(saved, corpus)
    result = measured(saved, corpus, other_tokenizer=True)
    facts = result.facts["tokenizer"]
    assert (facts["same"], facts["corpus"]) == (False, tokenizer_hash(corpus.tokenizer()))
    assert codes(result) == ["other-tokenizer"]


def test_the_example_shows_ids_that_differ(saved: Path, corpus: Corpus) -> None:
    """Those of a text may differ only after the first few."""
    file = saved / "tokenizer.json"
    settings = json.loads(file.read_text())
    vocabulary = settings["model"]["vocab"]
    vocabulary["&"], vocabulary["@"] = (
        vocabulary["@"],
        vocabulary["&"],
    )  # far from the beginning of the only text with both
    file.write_text(json.dumps(settings))
    with pytest.raises(CorpusError, match="they make") as refused:
        measured(saved, corpus)
    one, other = re.findall(r"\[[\d, …]+\]", str(refused.value))
    assert one != other


def test_a_kept_result_with_another_tokenizer_is_not_shown_unasked(saved: Path, corpus: Corpus, tmp_path: Path) -> None:
    other_tokenizer(saved)
    measured(saved, corpus, other_tokenizer=True, state=tmp_path / "state")
    with pytest.raises(CorpusError, match="its tokenizer is not the one of"):
        measured(saved, corpus, state=tmp_path / "state")


def test_the_hash_in_the_corpus_is_compared_where_there_is_one(
    saved: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = corpus.record.model_copy(update={"tokenizer_hash": "0123456789abcdef"})
    monkeypatch.setattr(corpus, "record", other)
    with pytest.raises(CorpusError, match="their vocabularies or merges differ"):
        measured(saved, corpus)


def test_a_checkpoint_of_a_run_has_its_corpuss_tokenizer_whatever_class_it_opens_as(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "1"
    llama(tied=False).save_pretrained(checkpoint)
    shutil.copytree(corpus.path / "tokenizer", checkpoint, dirs_exist_ok=True)
    write_document(tmp_path / "run" / "run.json", {})
    monkeypatch.setattr("collapselab.measurement.open_model.verify_checkpoint", lambda _: None)
    assert corpus.record.tokenizer_hash == tokenizer_hash(corpus.tokenizer())
    monkeypatch.setattr("collapselab.measurement.model_corpus.load_tokenizer", None)  # its files are compared
    assert measured(checkpoint, corpus).facts["tokenizer"]["same"] is True


def test_a_model_without_a_tokenizer_is_measured_and_that_is_recorded(folder: Path, corpus: Corpus) -> None:
    for model in (folder, llama()):
        facts = measured(model, corpus).facts["tokenizer"]
        assert (facts["model"], facts["same"]) == (None, None)


def test_a_tokenizer_that_cannot_be_read_is_a_warning(saved: Path, corpus: Corpus) -> None:
    (saved / "tokenizer.json").write_text("{")
    result = measured(saved, corpus)
    assert codes(result) == ["unknown-tokenizer"]
    assert result.facts["tokenizer"]["same"] is None


# Warnings


def codes(result: Result) -> list[str]:
    """The warnings of a result, that of its loss left out: models here were never trained."""
    return [warning["code"] for warning in result.facts["warnings"] if warning["code"] != "loss"]


def test_a_sound_model_has_no_warning(saved: Path, corpus: Corpus) -> None:
    assert codes(measured(saved, corpus)) == []


def test_a_loss_above_that_of_guessing_is_a_warning_beside_the_result(corpus: Corpus) -> None:
    model = llama(tied=False)
    with torch.no_grad():
        model.lm_head.weight.mul_(100)
    result = measured(model, corpus)
    (warning,) = result.facts["warnings"]
    assert warning["code"] == "loss"
    assert result.facts["splits"]["validation"]["loss"] > math.log(320)
    assert f"is above ln(320) = {math.log(320):.4g}" in warning["text"]
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(shown(result))
    assert f"! {warning['text']}" in console.export_text()
    assert json.loads(result.to_json())["facts"]["warnings"] == [warning]
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert measured(model, corpus).facts["warnings"] == []  # equal chances, exactly


@pytest.mark.parametrize("name", ["tiny-Instruct", "tiny-chat-hf", "gemma-3-270m-it", "a.dpo"])
def test_a_name_that_says_conversations_is_a_warning(name: str, saved: Path, corpus: Corpus) -> None:
    result = measured(saved.rename(saved.parent / name), corpus)
    assert codes(result) == ["chat"]
    assert "its name says so" in result.facts["warnings"][0]["text"]


def test_names_that_only_look_so_are_no_warning(saved: Path, corpus: Corpus) -> None:
    parent = saved.parent / "chat-it"
    parent.mkdir()
    assert codes(measured(saved.rename(parent / "chateau-italian-structured"), corpus)) == []


def test_a_chat_template_is_a_warning_unless_the_model_is_of_a_run(
    saved: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collapselab.measurement.open_model.verify_checkpoint", lambda _: None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved, trust_remote_code=False)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(saved)
    assert codes(measured(saved, corpus)) == ["chat"]
    checkpoint = saved.parent / "run" / "checkpoints" / "1"
    shutil.copytree(saved, checkpoint)
    write_document(saved.parent / "run" / "run.json", {})
    assert codes(measured(checkpoint, corpus)) == []


def test_the_format_on_disk_is_recorded(saved: Path, corpus: Corpus) -> None:
    llama(tied=False).to(torch.bfloat16).save_pretrained(saved)
    facts = measured(saved, corpus).facts
    assert (facts["stored_dtype"], facts["quantised"], facts["dtype"]) == ("bfloat16", None, "float32")


def test_quantised_weights_are_a_warning(corpus: Corpus) -> None:
    model = llama()
    model.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    result = measured(model, corpus)
    assert codes(result) == ["quantised"]
    assert result.facts["quantised"] == "bitsandbytes, 4 bits"
    assert "stored as bitsandbytes, 4 bits" in result.facts["warnings"][0]["text"]


def test_a_quantised_file_is_not_passed_off_as_what_it_is_run_in(tmp_path: Path, corpus: Corpus) -> None:
    write_gguf(tmp_path / "tiny.gguf", llama(tied=False), gguf.GGMLQuantizationType.Q4_1)
    result = measured(tmp_path / "tiny.gguf", corpus)
    facts = result.facts
    assert (facts["stored_dtype"], facts["quantised"], facts["dtype"]) == ("Q4_1", "Q4_1", "float32")
    assert "quantised" in codes(result)
