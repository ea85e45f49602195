"""Every weight in its place, or one message that says what is wrong."""

import json
import os
import pickle
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from collapselab.disk import sha256
from collapselab.errors import ConfigError, DamagedError, ModelError, RunError
from collapselab.hub import HUB_SECONDS
from collapselab.models import find, load
from collapselab.models.find import HubModel, LocalModel, ModelSource, find_models
from collapselab.models.fused_kernels import FusedSelfAttention
from collapselab.models.load import find_device, load_model, model_hash
from collapselab.models.weight_files import quantised_as, stored_weights
from collapselab.records.run import CheckpointRecord
from models.families import FAMILIES, VOCABULARY, model_of


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port that discards


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


def saved(folder: Path, family: str = "llama", **settings: Any) -> Path:
    """A folder with a tiny model; settings go to its config.json afterwards."""
    model_of(family).save_pretrained(folder)
    edit(folder / "config.json", **settings)
    return folder


def edit(file: Path, **settings: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def opened(folder: Path, **options: Any) -> Any:
    (source,) = find_models([str(folder)])
    return load_model(source, **options)


def with_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def copied_checkpoint(folder: Path) -> Path:
    """A checkpoint as a run writes it, outside of any run."""
    saved(folder)
    files = {file.name: sha256(file) for file in folder.iterdir()}
    values = {"run": "0" * 8, "checkpoint": "1", "step": 1, "epoch": 1.0, "tokens": 10, "seconds": 1.0, "files": files}
    values |= dict.fromkeys(("train_loss", "val_loss", "val_accuracy", "perplexity"), 1.0)
    CheckpointRecord.model_validate(values).write(folder / "training.json")
    return folder


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_checkpoint_copied_out_of_its_run_is_verified(file: str, tmp_path: Path) -> None:
    folder = copied_checkpoint(tmp_path / "copy")
    assert opened(folder).config.model_type == "llama"
    content = bytearray((folder / file).read_bytes())
    content[-3] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(DamagedError, match=file):
        opened(folder)
    (folder / "training.json").write_text("")
    with pytest.raises(DamagedError, match=r"training\.json"):
        opened(folder)


def test_a_file_of_another_tool_beside_the_weights_is_no_record(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "training.json").write_text('{"lr": 0.1}')
    assert opened(folder).config.model_type == "llama"


@pytest.mark.parametrize("name", ["../moved.safetensors", "{}/moved.safetensors", "link/moved.safetensors", ".moved"])
def test_weights_outside_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    keys = list(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").rename(tmp_path / "moved.safetensors")
    (folder / "link").symlink_to(tmp_path)
    index = {"metadata": {}, "weight_map": dict.fromkeys(keys, name.format(tmp_path))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index\.json.*moved"):
        opened(folder)


def test_a_configuration_that_names_the_file_of_weights_is_refused(tmp_path: Path) -> None:
    config = saved(tmp_path / "model") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"transformers_weights": "link/w.safetensors"}))
    with pytest.raises(ModelError, match=r"config\.json.*transformers_weights"):
        opened(config.parent)


def test_a_model_that_would_return_tuples_is_measured(tmp_path: Path) -> None:
    model = opened(saved(tmp_path / "model", return_dict=False))
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(model(ids).logits, opened(saved(tmp_path / "plain"))(ids).logits)


# Names


def test_a_name_that_is_nothing_here_is_an_id_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_models(["gpt2", "EleutherAI/pythia-70m@step3000", "a/b@refs/pr/1"]) == [
        ModelSource("gpt2", HubModel("gpt2")),
        ModelSource("EleutherAI/pythia-70m@step3000", HubModel("EleutherAI/pythia-70m", "step3000")),
        ModelSource("a/b@refs/pr/1", HubModel("a/b", "refs/pr/1")),
    ]


def test_a_folder_wins_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved(tmp_path / "gpt2@main").parent)
    (source,) = find_models(["gpt2@main"])
    assert source == ModelSource("gpt2@main", LocalModel(Path("gpt2@main")))
    assert load_model(source).config.model_type == "llama"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "02x0128-1a2b3c4d"
    for name in ("10", "0", "2", "0.5", ".3.tmp"):
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "config.json").write_text("{}")
    (run / "run.json").write_text("{}")
    return run


def test_a_run_is_all_its_checkpoints_in_the_order_of_their_numbers(run: Path) -> None:
    sources = find_models([str(run)])
    assert [source.checkpoint.name for source in sources if source.checkpoint] == ["0", "0.5", "2", "10"]
    assert {source.checkpoint.run.name for source in sources if source.checkpoint} == {run.name}
    assert sources[-1].name == f"{run.name}/10"
    assert sources[-1].path == run / "checkpoints" / "10"


def test_a_checkpoint_knows_its_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run / "checkpoints" / "2")
    (source,) = find_models(["."])
    assert source.checkpoint is not None
    assert (source.checkpoint.run.name, source.checkpoint.name, source.name) == (run.name, "2", ".")


def test_a_run_without_checkpoints_says_so(run: Path) -> None:
    (run / "checkpoints").rename(run / "elsewhere")
    with pytest.raises(RunError, match="a run without checkpoints"):
        find_models([str(run)])


def test_a_checkpoint_that_is_no_model_is_refused(run: Path) -> None:
    (run / "checkpoints" / "2" / "config.json").rename(run / "checkpoints" / "2" / "notes.txt")
    with pytest.raises(ModelError, match="2: not a model; it has no config.json, and holds notes.txt"):
        find_models([str(run)])


def test_names_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights.bin").touch()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "a.gguf").touch()
    (tmp_path / "two" / "b.gguf").touch()
    refused = {
        str(tmp_path / "empty"): "has no config.json, and holds nothing",
        str(tmp_path / "weights.bin"): "a file. A model is a folder",
        str(tmp_path / "none"): "no such folder or file",
        "none.gguf": "no such folder or file",
        "../none": "no such folder or file",
        "owner/model@": "no such folder or file",
        "": "no such folder or file",
        str(tmp_path / "two"): r"holds 2 GGUF files \(a.gguf, b.gguf\). Name one of them",
    }
    for name, message in refused.items():
        with pytest.raises(ModelError, match=message):
            find_models([name])


# Loading


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_comes_back_ready_to_be_measured(family: str, ids: Tensor, tmp_path: Path) -> None:
    model = opened(saved(tmp_path, family))
    original = model_of(family)
    with torch.no_grad():
        found, expected = (one(input_ids=ids, use_cache=False).logits for one in (model, original))
    assert_close(found, expected, rtol=1e-5, atol=1e-5)  # other kernels for GPT-Neo; the same for all others
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model_hash(model) == model_hash(original)


@pytest.mark.parametrize("family", FAMILIES)
def test_half_the_weights_are_not_a_model(family: str, tmp_path: Path) -> None:
    def halve(weights: dict[str, Tensor]) -> None:
        for name in sorted(weights)[::2]:
            del weights[name]

    with pytest.raises(ModelError, match=r"\d+ of \d+ weights are missing: .* and \d+ more"):
        opened(with_weights(saved(tmp_path, family), halve))


def test_the_library_prints_nothing_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path)
    capfd.readouterr()
    opened(tmp_path)
    with_weights(tmp_path, lambda weights: weights.pop("model.norm.weight"))
    with pytest.raises(ModelError, match="model.norm.weight"):
        opened(tmp_path)
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "llama (tied)", "gpt-neo"])
def test_no_weight_may_be_missing(family: str, tmp_path: Path) -> None:
    names = list(load_file(saved(tmp_path, family) / "model.safetensors"))
    whole = (tmp_path / "model.safetensors").read_bytes()
    assert ("lm_head.weight" in names) == (family == "llama")
    for name in names:
        (tmp_path / "model.safetensors").write_bytes(whole)
        with_weights(tmp_path, lambda weights, name=name: weights.pop(name))  # type: ignore[misc]
        with pytest.raises(ModelError, match=f"1 of .* weights are missing: .*{name}|2 of .* lm_head.weight, .*{name}"):
            opened(tmp_path)


def add(name: str, *shape: int) -> Callable[[dict[str, Tensor]], None]:
    return lambda weights: weights.update({name: torch.ones(shape)})


@pytest.mark.parametrize(
    "name", ["model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "lm_head.bias"]
)
def test_weights_that_the_model_would_leave_out_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"1 of .* weights have no place in the model: {name}"):
        opened(with_weights(saved(tmp_path), add(name, 3)))


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.attn.masked_bias", "v_head.summary.weight"]
)
def test_buffers_and_heads_beside_the_model_do_no_harm(name: str, tmp_path: Path) -> None:
    assert model_hash(opened(with_weights(saved(tmp_path), add(name, 3)))) == model_hash(model_of("llama"))


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"9 of 30 weights have another shape .*down_proj.weight \(\(32, 48\), not \(32, 40\)\)"
    ):
        opened(saved(tmp_path, intermediate_size=40))


def test_gpt_neo_attends_through_the_fused_kernels(tmp_path: Path) -> None:
    model = opened(saved(tmp_path, "gpt-neo"))
    assert sum(isinstance(module, FusedSelfAttention) for module in model.modules()) == model.config.num_layers


def test_half_precision_is_float32_on_a_cpu_unless_asked_for(tmp_path: Path) -> None:
    model_of("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    assert {parameter.dtype for parameter in opened(tmp_path).parameters()} == {torch.float32}
    kept = opened(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in kept.parameters()} == {torch.bfloat16}


def test_a_pickle_of_tensors_is_read_and_one_of_anything_else_is_not_run(tmp_path: Path, ids: Tensor) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "harm"),)

    model = model_of("gpt2")
    saved(tmp_path, "gpt2")
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    read = opened(tmp_path).state_dict()
    assert all(torch.equal(read[name], weight) for name, weight in model.state_dict().items())
    for write in (torch.save, lambda what, file: file.write_bytes(pickle.dumps(what, protocol=2))):
        write({**model.state_dict(), "harm": Harm()}, tmp_path / "pytorch_model.bin")
        with pytest.raises(ModelError, match="cannot be loaded: .*[Ww]eights.only"):
            opened(tmp_path)
    assert not (tmp_path / "harm").exists()


def small(kind: str, **settings: Any) -> Any:
    sizes = {
        "vocab_size": 60,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    return transformers.AutoConfig.for_model(kind, **sizes | settings)


def save(kind: str, model_type: str, **settings: Any) -> Callable[[Path], Any]:
    return lambda folder: getattr(transformers, kind)(small(model_type, **settings)).save_pretrained(folder)


SEQ2SEQ = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2}  # fmt: skip
NOT_CAUSAL = {
    "encoder": (save("BertModel", "bert"), "bert is an encoder"),
    "masked": (save("RobertaForMaskedLM", "roberta", pad_token_id=0), "roberta is an encoder"),
    "permuted": (save("XLNetLMHeadModel", "xlnet", d_model=16, n_layer=1, n_head=2, d_inner=16), "xlnet is an encoder"),
    "without a causal form": (save("DistilBertModel", "distilbert", dim=16, n_layers=1, n_heads=2, hidden_dim=16), "distilbert is (an encoder|not a language model)"),
    "turned to look both ways": (save("Gemma3TextModel", "gemma3_text", head_dim=8, num_key_value_heads=1, use_bidirectional_attention=True, pad_token_id=0, bos_token_id=1, eos_token_id=2), "gemma3_text is an encoder"),
    "sequence to sequence": (save("T5ForConditionalGeneration", "t5", **SEQ2SEQ), "t5 is an encoder-decoder"),
    "sequence to sequence with a decoder's name": (save("BartForConditionalGeneration", "bart", **SEQ2SEQ, pad_token_id=0, bos_token_id=1, eos_token_id=2), "bart is an encoder-decoder"),
    "classifier": (save("GPT2ForSequenceClassification", "gpt2", n_inner=16, bos_token_id=0, eos_token_id=0, pad_token_id=0), "was saved as GPT2ForSequenceClassification"),
    "vision": (save("ViTModel", "vit", image_size=32), "vit is not a language model"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_CAUSAL)
def test_what_is_not_a_causal_language_model_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, message = NOT_CAUSAL[case]
    make(tmp_path)
    with pytest.raises(ModelError, match=f"{message}.* A causal language model is needed"):
        opened(tmp_path)


def cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def in_shards_but_one(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    model_of("llama").save_pretrained(folder, max_shard_size="20KB")
    next(folder.glob("model-00002-*.safetensors")).unlink()


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 538090408\n"


def pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text(POINTER)


def shard_pointer(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    model_of("llama").save_pretrained(folder, max_shard_size="20KB")
    next(folder.glob("model-00002-*.safetensors")).write_text(POINTER)


DAMAGE = {
    "cut off": (cut, "cannot be loaded: .*(deserializ|incomplete|invalid|header)"),
    "without weights": (lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded: .*no file named model.safetensors"),
    "a shard missing": (in_shards_but_one, "cannot be loaded: .*model-00002"),
    "not JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded: .*not a valid JSON"),
    "unknown": (lambda folder: edit(folder / "config.json", model_type="llamma"), "its config.json names the model_type 'llamma', which transformers does not know"),
    "unnamed": (lambda folder: (folder / "config.json").write_text("{}"), "its config.json names the model_type None"),
    "a git-LFS pointer": (pointer, r"model.safetensors is a git-LFS pointer of \d+ bytes.* Run git lfs pull"),
    "a shard that is a git-LFS pointer": (shard_pointer, r"model-00002-of-0000\d.safetensors is a git-LFS pointer"),
    "no heads": (lambda folder: edit(folder / "config.json", num_attention_heads=0), "cannot be loaded: .*(ZeroDivision|num_attention_heads)"),
    "negative sizes": (lambda folder: edit(folder / "config.json", intermediate_size=-4), "cannot be loaded: "),
    "negative heads": (lambda folder: edit(folder / "config.json", num_attention_heads=-2, num_key_value_heads=-2, head_dim=8), "cannot be loaded: "),
    "far too wide": (lambda folder: edit(folder / "config.json", intermediate_size=10**10), r"its configuration asks for 2,880,000,0\d\d,\d\d\d parameters \(11,520.0 GB in float32\), but the disk holds 2\d,\d\d\d\."),
    "an adapter beside it": (lambda folder: (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "a/b"}'), r"an adapter \(LORA\) of a/b beside a whole model. Move the two apart"),
    "a settings list": (lambda folder: (folder / "config.json").write_text("[1]"), "cannot be loaded: "),
    "impossible": (lambda folder: edit(folder / "config.json", num_attention_heads=5), "cannot be loaded: "),
    "of a wrong type": (lambda folder: edit(folder / "config.json", hidden_size="wide"), "cannot be loaded: .*hidden_size"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_folders_are_one_error_that_names_them(case: str, tmp_path: Path) -> None:
    damage, message = DAMAGE[case]
    damage(saved(tmp_path))
    with pytest.raises(ModelError, match=f"^{tmp_path}: {message}"):
        opened(tmp_path)


OWN_CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path(r"{ran}").touch()
class OwnConfig(LlamaConfig):
    model_type = "own"
class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_that_comes_with_a_model_runs_only_if_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    folder = saved(tmp_path / "model", model_type="own", auto_map=names)
    (folder / "own.py").write_text(OWN_CODE.format(ran=tmp_path / "ran"))
    with pytest.raises(ModelError, match="own that comes with its own code"):
        opened(folder)
    edit(folder / "config.json", model_type="llama")  # a known name is built from the library's code
    assert type(opened(folder)) is transformers.LlamaForCausalLM
    assert not (tmp_path / "ran").exists()
    edit(folder / "config.json", model_type="own")
    assert type(opened(folder, trust_code=True)).__name__ == "OwnForCausalLM"
    assert (tmp_path / "ran").exists()


# The hub


def test_a_hub_that_cannot_be_reached_is_said_soon_and_with_what_to_do() -> None:
    start = time.monotonic()
    with pytest.raises(
        ModelError, match="owner/model: no such folder here.* the hub cannot be reached.* --local-dir DIR"
    ):
        load_model(ModelSource("owner/model", HubModel("owner/model")))
    assert time.monotonic() - start < 2 + HUB_SECONDS


def test_the_library_asks_the_hub_if_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def ask(**where: Any) -> Any:
        asked.update(where)
        raise OSError("no such model on the hub")

    monkeypatch.setattr(find, "hub_answers", lambda: True)
    monkeypatch.setattr("transformers.utils.peft_utils.find_adapter_config_file", lambda *_, **__: None)
    monkeypatch.setattr(transformers.PreTrainedConfig, "get_config_dict", ask)
    with pytest.raises(ModelError, match="no such model on the hub"):
        load_model(ModelSource("a/b@v1", HubModel("a/b", "v1")))
    assert asked == {"pretrained_model_name_or_path": "a/b", "revision": "v1", "local_files_only": False}


NO_NETWORK = """
import socket, sys, time
def look_up(*_, **__):
    print("asked", file=sys.stderr, flush=True)
    time.sleep(60)  # as long as a resolver without an answer may take
    raise socket.gaierror("no name server")
socket.getaddrinfo = look_up
from collapselab.models.find import find_models
from collapselab.models.load import load_model
from collapselab.errors import ModelError
try:
    load_model(find_models(["nosuch/model@v1"])[0])
except ModelError as error:
    print(error)
print("transformers" in sys.modules)
"""


@pytest.mark.slow
def test_a_cold_process_without_a_network_asks_once_and_loads_no_library_to_say_so(tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://hub.invalid"}
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    command = [sys.executable, "-c", NO_NETWORK]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=40, check=True)
    assert done.stderr == "asked\n"
    assert "hub cannot be reached" in done.stdout
    assert "(hf download nosuch/model --revision v1 --local-dir DIR)" in done.stdout
    assert done.stdout.endswith("False\n")


def test_a_model_in_the_cache_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "models--owner--model"
    saved(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = load_model(ModelSource("owner/model@v1", HubModel("owner/model", "v1")))
    assert model_hash(model) == model_hash(model_of("llama"))


# GGUF


def permuted(weight: Tensor, heads: int) -> Tensor:
    """Rows in the order of llama.cpp: the two halves of each head in turn."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: Any, kind: gguf.GGMLQuantizationType | None = None) -> None:
    config, weights = model.config, {name: tensor.detach() for name, tensor in model.state_dict().items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}  # fmt: skip
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    tensors = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    if not config.tie_word_embeddings:
        tensors["output.weight"] = weights["lm_head.weight"]
    for layer in range(config.num_hidden_layers):
        for theirs, ours in names.items():
            weight = weights[f"model.layers.{layer}.{theirs}.weight"]
            tensors[f"blk.{layer}.{ours}.weight"] = permuted(weight, heads[theirs]) if theirs in heads else weight
    for name, tensor in tensors.items():
        numbers = np.ascontiguousarray(tensor.numpy())
        packed = kind is not None and tensor.ndim == 2 and tensor.shape[1] % 32 == 0
        writer.add_tensor(
            name, gguf.quants.quantize(numbers, kind) if packed else numbers, raw_dtype=kind if packed else None
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("family", ["llama", "llama (tied)"])
def test_a_gguf_file_gives_the_logits_of_the_model_it_was_made_of(
    family: str, ids: Tensor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    original = model_of(family)
    write_gguf(tmp_path / "tiny.gguf", original)
    capfd.readouterr()
    model = opened(tmp_path / "tiny.gguf")
    assert_close(model(ids).logits, original(ids).logits.detach(), rtol=1e-5, atol=1e-5)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    first = model_hash(model)
    (tmp_path / "tiny.gguf").rename(tmp_path / "moved.gguf")
    assert model_hash(opened(tmp_path / "moved.gguf")) == first


def test_the_format_of_weights_on_disk_is_known(tmp_path: Path) -> None:
    model = model_of("llama")

    def format_of(path: Path) -> tuple[str, str | None]:
        weights = stored_weights(path, name="it")
        assert weights is not None
        return weights.format, quantised_as(None, weights)

    write_gguf(tmp_path / "plain.gguf", model)
    assert format_of(tmp_path / "plain.gguf") == ("float32", None)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1):
        write_gguf(tmp_path / "packed.gguf", model_of("llama"), kind)
        assert format_of(tmp_path / "packed.gguf") == (kind.name, kind.name)
    saved(tmp_path / "a")
    assert format_of(tmp_path / "a") == ("float32", None)
    model.to(torch.float16).save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert format_of(tmp_path / "shards") == ("float16", None)
    (tmp_path / "pickle").mkdir()
    torch.save(model.to(torch.bfloat16).state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    assert format_of(tmp_path / "pickle") == ("bfloat16", None)
    save_file({"a.weight": torch.zeros(4, 4, dtype=torch.uint8)}, tmp_path / "pickle" / "model.safetensors")
    assert format_of(tmp_path / "pickle") == ("uint8", "uint8")
    assert stored_weights(tmp_path, name="it") is None


def test_a_gguf_file_is_parsed_again_only_if_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[object] = []
    start = gguf.GGUFReader.__init__
    monkeypatch.setattr(gguf.GGUFReader, "__init__", lambda self, path: (parsed.append(path), start(self, path))[1])
    file = tmp_path / "tiny.gguf"
    for model, times in (("llama", 1), ("llama (tied)", 2)):
        write_gguf(file, model_of(model))
        assert stored_weights(file, name="it") == stored_weights(file, name="it")
        opened(file)  # the library reads the configuration and the weights
        assert len(parsed) == times


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", model_of("llama"))
    assert find_models([str(tmp_path)]) == [ModelSource(str(tmp_path), LocalModel(tmp_path / "tiny.gguf"))]
    (tmp_path / "config.json").write_text("{}")  # as on the hub, beside files for other programs
    assert model_hash(opened(tmp_path)) == model_hash(opened(tmp_path / "tiny.gguf"))
    saved(tmp_path)
    assert find_models([str(tmp_path)]) == [ModelSource(str(tmp_path), LocalModel(tmp_path))]


def written(path: Path, **values: Any) -> bytes:
    """A GGUF file with metadata and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in values.items():
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


HEADER = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
DAMAGED = "not a GGUF file, cut off or damaged"
SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "four bytes": (lambda whole: whole[:4], DAMAGED),
    "nothing": (lambda whole: b"", DAMAGED),
    "a page": (lambda whole: b"<html>not found</html>", DAMAGED),
    "a pointer": (lambda whole: POINTER.encode(), "tiny.gguf is a git-LFS pointer of 74 bytes"),
    "another version": (lambda whole: b"GGUF" + struct.pack("<I", 9) + whole[8:], DAMAGED),
    "a quarter": (lambda whole: whole[: len(whole) // 4], DAMAGED),
    "all but the last byte": (lambda whole: whole[:-1], DAMAGED),
    "a string without end": (lambda whole: HEADER + struct.pack("<Q", 2**60), DAMAGED),
    "an array without end": (lambda whole: HEADER + text("x") + struct.pack("<IIQ", 9, 4, 2**62), DAMAGED),
    "an array of arrays": (lambda whole: HEADER + text("x") + struct.pack("<IIQ", 9, 9, 4), DAMAGED),
    "a kind that is none": (lambda whole: HEADER + text("x") + struct.pack("<I", 77) + bytes(9), DAMAGED),
    "many values": (lambda whole: b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), DAMAGED),
    "a tensor of no kind": (lambda whole: retyped(whole, 77), DAMAGED),
    "a tensor too large": (lambda whole: resized(whole, 2**61), DAMAGED),
    "another width": (lambda whole: changed(whole, "llama.embedding_length", 32, 64), r"embedding_length is 64, but token_embd.weight has the shape \[32"),
    "more blocks": (lambda whole: changed(whole, "llama.block_count", 3, 80), "block_count is 80, but its tensors are those of 3 blocks"),
    "no heads": (lambda whole: changed(whole, "llama.attention.head_count", 4, 0), "cannot be loaded: "),
    "a wide feed-forward": (lambda whole: changed(whole, "llama.feed_forward_length", 48, 2**31 - 1), r"its configuration asks for 618,\d+,\d+,\d+ parameters"),
}  # fmt: skip


def changed(whole: bytes, name: str, old: int, new: int) -> bytes:
    before, after = (text(name) + struct.pack("<II", 4, value) for value in (old, new))
    assert before in whole
    return whole.replace(before, after)


def retyped(whole: bytes, kind: int) -> bytes:
    """The file with another kind for `token_embd.weight`, which follows its name and two dimensions."""
    at = whole.index(text("token_embd.weight")) + 8 + len("token_embd.weight") + 4 + 16
    return whole[:at] + struct.pack("<I", kind) + whole[at + 4 :]


def resized(whole: bytes, size: int) -> bytes:
    """The file with another second dimension for `token_embd.weight`."""
    at = whole.index(text("token_embd.weight")) + 8 + len("token_embd.weight") + 4 + 8
    return whole[:at] + struct.pack("<Q", size) + whole[at + 8 :]


@pytest.mark.parametrize("case", SPOILT)
def test_a_damaged_gguf_file_is_refused_before_anything_is_built(case: str, tmp_path: Path) -> None:
    spoil, message = SPOILT[case]
    file = tmp_path / "tiny.gguf"
    write_gguf(file, model_of("llama"))
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ModelError, match=f"tiny.gguf: {message}"):
        opened(file)


@pytest.mark.parametrize("content", [b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, b"\x8f" * 3000], ids=["header", "noise"])
def test_bytes_that_are_no_gguf_file_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "junk.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=f"junk.gguf: {DAMAGED}"):
        opened(tmp_path / "junk.gguf")


def test_a_gguf_file_of_three_strings_builds_no_default_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "tiny.gguf", general__name="three", general__author="strings")
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(ModelError, match="tiny.gguf: llama without token_embd.weight"):
        opened(tmp_path / "tiny.gguf")


def test_a_gguf_file_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.gguf").touch()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match=r"tiny.gguf: GGUF files need the package gguf. Install collapselab\[gguf\]"):
        opened(tmp_path / "tiny.gguf")


# Devices and hashes


def accelerators(monkeypatch: pytest.MonkeyPatch, kind: str | None, count: int = 0) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: kind is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind or "cpu"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "xpu", "mps", "gpu", "cpu:1", "cuda:x", ""])
def test_hardware_that_is_not_there_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerators(monkeypatch, None)
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"^device: .*Choose auto"):
        find_device(name)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_hardware_that_is_there_is_found_and_named(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accelerators(monkeypatch, kind, 2)
    assert find_device("auto") == torch.device(kind)
    assert f"Using the device {kind}" in capsys.readouterr().err
    assert find_device(f"{kind}:1") == torch.device(kind, 1)
    with pytest.raises(ConfigError, match=f"{kind}:2 was asked for, but is not here"):
        find_device(f"{kind}:2")


def test_the_hash_is_of_numbers_and_settings_not_of_places(tmp_path: Path) -> None:
    plain = model_hash(opened(saved(tmp_path / "a")))
    assert len(plain) == 16
    assert model_hash(opened(saved(tmp_path / "deeper" / "b"))) == plain
    assert model_hash(opened(saved(tmp_path / "c", rms_norm_eps=1e-3))) != plain
    assert model_hash(model_of("llama (tied)")) != plain
    model = model_of("llama")
    with torch.no_grad():
        model.model.layers[2].mlp.up_proj.weight[-1, -1] += 1e-6
    assert model_hash(model) != plain


def test_the_hash_is_the_same_in_pieces_and_in_a_wider_format(monkeypatch: pytest.MonkeyPatch) -> None:
    half = model_of("llama (tied)").to(torch.bfloat16)
    rounded = model_hash(half)
    assert rounded != model_hash(model_of("llama (tied)"))
    assert model_hash(half.float()) == rounded
    monkeypatch.setattr(load, "HASHED_AT_ONCE", 7)
    assert model_hash(half) == rounded


def test_a_model_whose_weights_are_nowhere_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"weight is not in memory, and nothing says where it is. Load the model again"
    ):
        model_hash(model_of("llama").to("meta"))
