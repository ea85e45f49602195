"""What cannot be measured is refused with one clear message."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from collapselab.corpus.blocks import Corpus
from collapselab.disk import read_document, sha256, write_document
from collapselab.errors import ConfigError, CorpusError, DamagedError, ModelError
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result, Results, facts_path

TINY: dict[str, Any] = {"tokens": 60, "quiet": True}


def built(**changes: Any) -> Any:
    sizes: dict[str, Any] = {"width": 8, "depth": 1, "vocabulary": 320, "positions": 32}
    return build_model(build_config("gpt-neo", **(sizes | changes)), seed=0)


def test_a_corpus_of_another_tokenizer_is_refused_and_named(corpus: Corpus) -> None:
    with pytest.raises(
        CorpusError, match=r"token 2\d\d occurs, but GPTNeo.* knows only 200 tokens.*tokenizer bpe:300; build one"
    ):
        measure(built(vocabulary=200), corpus, **TINY)


def test_blocks_longer_than_the_context_are_refused_if_asked_to(corpus: Corpus) -> None:
    with pytest.raises(
        CorpusError, match="blocks of 32 tokens, but GPTNeo.* reads 16 at once. Build one with --block 16"
    ):
        measure(built(positions=16), corpus, strict=True, **TINY)


def test_an_empty_split_is_refused(model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus.validation, "blocks", 0)
    with pytest.raises(CorpusError, match="its validation split has no blocks. Build it with more text"):
        measure(model, corpus, **TINY)


def test_nan_in_features_names_layer_and_block(corpus: Corpus) -> None:
    broken = built(depth=2)
    rare = int((corpus.train.token_counts > 0).nonzero().max())
    with torch.no_grad():
        broken.get_input_embeddings().weight[rare] = torch.nan
    broken.lm_head.weight = nn.Parameter(torch.zeros(320, 8))
    first = next(i for i in range(len(corpus.train)) if (corpus.train[i] == rare).any())
    message = rf"layer 1: nan or infinite features at .* the first at token \d+ of block {first} of the training split"
    with pytest.raises(ModelError, match=message):
        measure(broken, corpus, layers="all", quiet=True)


def test_an_output_layer_with_nan_is_refused(corpus: Corpus) -> None:
    broken = built(tied=False)
    with torch.no_grad():
        broken.lm_head.weight[3, 3] = torch.nan
    with pytest.raises(ModelError, match="its output layer holds nan or infinite numbers"):
        measure(broken, corpus, **TINY)


def test_a_model_that_is_not_causal_or_not_of_language_is_refused(corpus: Corpus) -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    with pytest.raises(ModelError, match="a causal language model is needed"):
        measure(BertForMaskedLM(BertConfig(vocab_size=320, **sizes)), corpus, **TINY)
    with pytest.raises(ModelError, match="no output layer over tokens"):
        measure(nn.Linear(3, 3), corpus, **TINY)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"layers": "first"}, "layers: 'first'"),
    "bins": ({"bins": -1}, "bins must be"),
    "tokens": ({"tokens": 0}, "tokens must be"),
    "min_count": ({"min_count": 0}, "min_count must be"),
    "batch": ({"batch": 0}, "batch: "),
    "one resample": ({"bootstrap": 1}, "bootstrap is 1; an interval needs at least 2 resamples"),
    "dtype": ({"dtype": "int8"}, "dtype: 'int8'"),
    "no such count": ({"min_count": 10**6}, r"min_count is 1,000,000, but no class .* the largest has \d+"),
    "one block": ({"bootstrap": 9, "tokens": 3}, "bootstrap: the training split has 1 block; at least 2"),
    "suffix": ({"out": "rows.xlsx"}, r"rows.xlsx: .*'.xlsx'"),
    "device": ({"device": "cuda"}, "device is cuda, but the model is on cpu. Move it first"),
    "precision": ({"dtype": "bfloat16"}, "dtype is bfloat16, but the model is torch.float64. Convert it first"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_that_makes_no_sense_is_refused(model: nn.Module, corpus: Corpus, case: str) -> None:
    options, message = OPTIONS[case]
    with pytest.raises(ConfigError, match=message):
        measure(model, corpus, quiet=True, **options)


def test_half_the_weights_missing_is_refused_and_the_others_are_still_measured(
    folder: Path, corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_bytes((folder / "config.json").read_bytes())
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if ".h.1." not in name}
    save_file(kept, half / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="weights are missing"):
        measure(half, corpus, **TINY)
    results = measure([half, folder], corpus, tokens=60)
    assert isinstance(results, Results)
    assert [result.name for result in results] == [str(folder)]
    assert list(results.failures) == [str(half)]
    assert "weights are missing" in capsys.readouterr().err


def test_a_hub_id_without_a_network_says_how_to_use_a_folder(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from collapselab.models import find

    monkeypatch.setattr(find, "hub_answers", lambda: False)
    with pytest.raises(ModelError, match="hub cannot be reached.*name that folder"):
        measure("nobody/no-such-model", corpus, **TINY)


SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "row": lambda document: document["rows"][0].pop("value"),
    "rows": lambda document: document.pop("rows"),
    "facts": lambda document: document.pop("facts"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_file_that_is_no_measurement_is_refused(model: nn.Module, corpus: Corpus, case: str, tmp_path: Path) -> None:
    result = measure(model, corpus, **TINY)
    assert isinstance(result, Result)
    document = json.loads(result.to_json())
    SPOILT[case](document)
    (tmp_path / "result.json").write_text(json.dumps(document))
    with pytest.raises(DamagedError, match="damaged or edited"):
        Result.load(tmp_path / "result.json")
    del document["checksum"]
    write_document(tmp_path / "result.json", document)
    with pytest.raises(DamagedError, match="not a measurement"):
        Result.load(tmp_path / "result.json")


# One message and exit 2 from the command --------------------------------------------------------------------------------


def refused(words: list[str | Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says as it ends with exit status 2: one message, no traceback."""
    from collapselab.cli import main

    monkeypatch.setattr("sys.argv", ["collapselab", "measure", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "Traceback" not in said
    return " ".join(said.replace("│", " ").split())


WORDS: dict[str, tuple[list[str], str]] = {
    "tokens 0": (["--tokens", "0"], "tokens must be"),
    "tokens -1": (["--tokens", "-1"], "tokens must be"),
    "tokens 1.5": (["--tokens", "1.5"], "tokens: '1.5'"),
    "tokens nan": (["--tokens", "nan"], "tokens: 'nan'"),
    "seed of 20 digits": (["--seed", "12345678901234567890"], "seed must be"),
    "seed -1": (["--seed", "-1"], "seed must be"),
    "batch ²": (["--batch", "²"], "batch: '²'"),
    "batch 0": (["--batch", "0"], "batch: "),
    "bins": (["--bins", "1000000000"], "bins must be"),
    "bootstrap": (["--bootstrap", "1000000000"], "bootstrap must be"),
    "out x.txt": (["--out", "x.txt"], "'.txt'"),
}


@pytest.mark.parametrize("case", WORDS)
def test_an_option_that_cannot_be_is_refused_by_the_command(
    folder: Path,
    corpus: Corpus,
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, message = WORDS[case]
    said = refused([folder, "--corpus", corpus.path, "--state", tmp_path, *words], monkeypatch, capsys)
    assert message in said


@pytest.mark.parametrize("option", ["--out", "--state"])
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    folder: Path,
    corpus: Corpus,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "notes").write_text("a file")
    for below in ("rows.csv", "deeper/rows.csv"):
        words: list[str | Path] = [folder, "--corpus", corpus.path, "--tokens", "60", "--state", tmp_path / "state"]
        said = refused([*words, option, tmp_path / "notes" / below], monkeypatch, capsys)
        assert str(tmp_path / "notes") in said
        assert "a file, where a folder is needed" in said or "Not a directory" in said
    (tmp_path / "folder.csv").mkdir()
    assert "folder" in refused([folder, "--corpus", corpus.path, "--out", tmp_path / "folder.csv"], monkeypatch, capsys)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("place", ["plan.json", "safetensors", "finished", "rows.csv", "rows.facts.json"])
def test_a_disk_that_refuses_any_of_the_files_is_one_message(
    folder: Path,
    corpus: Corpus,
    code: int,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real, hits = os.replace, []

    def replace(source: Any, target: Any) -> None:
        if place in str(target):
            hits.append(target)
            raise OSError(code, os.strerror(code), str(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    words: list[str | Path] = [folder, "--corpus", corpus.path, "--tokens", "60", "--state", tmp_path / "state"]
    said = refused([*words, "--out", tmp_path / "rows.csv"], monkeypatch, capsys)
    assert hits
    assert place in said
    assert ("the disk is full" if code == errno.ENOSPC else "cannot be written") in said
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_table_has_its_facts_in_a_file_beside_it(model: nn.Module, corpus: Corpus, tmp_path: Path) -> None:
    for name in ("rows.csv", "table.parquet"):
        result = measure(model, corpus, out=tmp_path / name, **TINY)
        assert isinstance(result, Result)
        document = read_document(facts_path(tmp_path / name))
        assert document["facts"] == [json.loads(result.to_json())["facts"]]
        assert document["table"] == {"name": name, "sha256": sha256(tmp_path / name)}
    assert (tmp_path / "rows.facts.json").exists()
    measure(model, corpus, out=tmp_path / "alone.json", **TINY)
    assert not (tmp_path / "alone.facts.json").exists()
