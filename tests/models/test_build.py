import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GPTNeoForCausalLM, OPTConfig, PreTrainedConfig

from collapselab.errors import ModelError
from collapselab.models.build import architecture, build_config, build_model
from collapselab.models.families import FAMILIES
from collapselab.models.fused_kernels import FusedSelfAttention

TINY = {"width": 32, "depth": 2, "vocabulary": 41, "positions": 12}
DROPOUTS = {
    "gpt-neo": ["resid_dropout", "embed_dropout", "attention_dropout"],
    "gpt2": ["resid_pdrop", "embd_pdrop", "attn_pdrop"],
    "llama": ["attention_dropout"],
    "pythia": ["attention_dropout", "hidden_dropout"],
    "qwen3": ["attention_dropout"],
}
# The part of real config.json files that matters here: other names, other ratios, lists of layers, tokens out of range.
FILES: dict[str, dict[str, object]] = {
    "gpt2": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "bos_token_id": 50256, "embd_pdrop": 0.1},
    "opt": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072, "word_embed_proj_dim": 768, "pad_token_id": 1, "dropout": 0.1},
    "gpt_neo": {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]], "window_size": 5},
    "mistral": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "sliding_window": 5, "torch_dtype": "bfloat16"},
    "gemma2": {"hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 8, "vocab_size": 250880},
    "mamba": {"hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280},
}  # fmt: skip


def config_file(folder: Path, model_type: object, settings: dict[str, object]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **settings}))
    return str(path)


def sentences(length: int = 9) -> torch.Tensor:
    return torch.randint(0, TINY["vocabulary"], (3, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("depth", "width", "count"), [(1, 64, 3_397_440), (12, 1024, 204_680_192)])
def test_the_paper_models_have_the_papers_parameters(depth: int, width: int, count: int) -> None:
    config = build_config("gpt-neo", width=width, depth=depth, vocabulary=50_257, positions=2_048)
    assert architecture(config).parameters == count


@pytest.mark.parametrize("width", [64, 128, 256, 512, 768, 1024])
@pytest.mark.parametrize("depth", [1, 2, 4, 8, 12])
def test_parameters_of_gpt_neo_follow_the_formula(depth: int, width: int) -> None:
    config = build_config("gpt-neo", width=width, depth=depth, vocabulary=50_257, positions=2_048)
    assert architecture(config).parameters == 52_305 * width + depth * (12 * width**2 + 10 * width) + 2 * width


def test_gpt_neo_is_the_papers() -> None:
    config = build_config("gpt-neo", width=64, depth=5, vocabulary=100, positions=2_048, end_of_text=7)
    assert config.attention_layers == ["global", "local", "global", "local", "global"]
    assert config.num_heads == 16
    assert config.window_size == 256
    assert config.intermediate_size == 256
    assert config.activation_function == "gelu_new"
    assert config.max_position_embeddings == 2_048
    assert config.tie_word_embeddings
    assert [getattr(config, name) for name in DROPOUTS["gpt-neo"]] == [0, 0, 0]


@pytest.mark.parametrize(("width", "heads"), [(64, 4), (48, 3), (32, 2), (16, 1), (8, 1), (10, 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_size_sets_the_number_of_heads_and_one_serves_a_smaller_width(
    family: str, width: int, heads: int
) -> None:
    config = build_config(family, width=width, depth=1, vocabulary=11, positions=8, head_size=16)
    assert config.num_attention_heads == heads
    build_model(config, seed=0)(torch.tensor([[1, 2, 3]]))


@pytest.mark.parametrize("head_size", [3, 5, 7, 0, -1])
def test_a_head_size_that_does_not_divide_the_width_is_refused(head_size: int) -> None:
    with pytest.raises(ModelError, match=f"head_size: {head_size} does not divide the width 64"):
        build_config("gpt-neo", width=64, depth=1, vocabulary=11, positions=8, head_size=head_size)


def test_a_config_file_has_heads_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ModelError, match="has heads of its own"):
        build_config(str(path), width=64, depth=1, vocabulary=11, positions=8, head_size=16)


@pytest.mark.parametrize(("width", "heads"), [(64, 16), (48, 16), (1024, 16), (24, 8), (20, 4), (6, 2), (7, 1), (2, 2)])
@pytest.mark.parametrize("family", ["gpt-neo", "gpt2"])
def test_heads_are_the_largest_power_of_two_up_to_16_that_divides_the_width(
    family: str, width: int, heads: int
) -> None:
    config = build_config(family, **TINY | {"width": width})
    assert config.num_attention_heads == heads
    assert build_model(config, seed=0)(sentences()).logits.shape == (3, 9, 41)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_and_is_causal(family: str, tied: bool) -> None:
    config = build_config(family, **TINY, tied=tied, end_of_text=40)
    model = build_model(config, seed=0).eval()
    first, last = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert (first is last) == tied
    assert first.shape == last.shape == (41, 32)
    assert architecture(config).parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 32, 16)
    ids = sentences(12)
    changed = ids.clone()
    changed[:, 8] = (changed[:, 8] + 1) % 41
    before, after = model(ids).logits, model(changed).logits
    assert_close(before[:, :8], after[:, :8], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before[:, 8:], after[:, 8:])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_comes_back_from_disk(family: str, tied: bool, tmp_path: Path) -> None:
    model = build_model(build_config(family, **TINY, tied=tied, end_of_text=0), seed=3)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    assert_close(loaded(sentences()).logits, model(sentences()).logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [32, 64, 96, 128, 512])
@pytest.mark.parametrize("family", ["llama", "pythia", "qwen3"])
def test_rotary_families_tell_positions_apart(family: str, width: int) -> None:
    model = build_model(build_config(family, **TINY | {"width": width}), seed=0).eval()
    ids = torch.tensor([[5, 6, 7, 8], [6, 5, 7, 8]])
    logits = model(ids).logits[:, -1]
    assert float((logits[0] - logits[1]).detach().abs().max()) > 1e-7


@pytest.mark.parametrize("width", range(32, 2_049, 32))
def test_pythia_turns_a_quarter_of_each_head_in_whole_pairs(width: int) -> None:
    config = build_config("pythia", **TINY | {"width": width})
    head_size = width // config.num_attention_heads
    turned = int(head_size * config.rope_parameters["partial_rotary_factor"])
    assert turned % 2 == 0
    assert turned == 2 or head_size / 4 - 2 < turned <= head_size / 4


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_depend_on_the_seed_alone(family: str) -> None:
    config = build_config(family, **TINY)
    torch.manual_seed(123)
    one = build_model(config, seed=5).state_dict()
    torch.manual_seed(321)
    same, other = build_model(config, seed=5).state_dict(), build_model(config, seed=6).state_dict()
    assert_close(dict(one), dict(same), rtol=0, atol=0)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert all(tensor.dtype == torch.float32 for tensor in one.values())


def test_building_leaves_the_random_state_as_it_was() -> None:
    torch.manual_seed(9)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    build_model(build_config("gpt-neo", **TINY), seed=5)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_building_leaves_the_config_as_it_was() -> None:
    config = build_config("gpt-neo", **TINY)
    before, implementation = config.to_dict(), config._attn_implementation
    architecture(config)
    build_model(config, seed=0)
    assert config.to_dict() == before
    assert config._attn_implementation == implementation


def test_a_built_gpt_neo_attends_fast_and_its_config_builds_again() -> None:
    model = build_model(build_config("gpt-neo", **TINY), seed=0)
    assert type(model.transformer.h[0].attn.attention) is FusedSelfAttention
    again = build_model(model.config, seed=0)
    assert_close(again(sentences()).logits, model(sentences()).logits, rtol=0, atol=0)
    assert architecture(model.config).parameters == sum(parameter.numel() for parameter in model.parameters())


def test_counting_a_model_of_many_billions_allocates_nothing() -> None:
    config = build_config("llama", width=8192, depth=80, vocabulary=128_000, positions=4_096, tied=False)
    assert architecture(config).parameters > 60e9


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_reaches_the_settings_of_the_family(family: str) -> None:
    for dropout in (0.0, 0.25):
        config = build_config(family, **TINY, dropout=dropout)
        assert [getattr(config, name) for name in DROPOUTS[family]] == [dropout] * len(DROPOUTS[family])
    model = build_model(config, seed=0).train()
    assert float((model(sentences()).logits - model(sentences()).logits).detach().abs().max()) > 0


@pytest.mark.parametrize("end_of_text", [None, 0, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_are_in_the_vocabulary(family: str, end_of_text: int | None) -> None:
    config = build_config(family, **TINY, end_of_text=end_of_text)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (end_of_text, end_of_text, None)
    assert config.vocab_size == 41
    assert config.use_cache


@pytest.mark.parametrize("model_type", FILES)
def test_a_config_file_is_resized(model_type: str, tmp_path: Path) -> None:
    width = {"gemma2": 72, "mistral": 64}.get(model_type, 24)
    config = build_config(
        config_file(tmp_path, model_type, FILES[model_type]),
        width=width,
        depth=3,
        vocabulary=41,
        positions=12,
        end_of_text=2,
    )
    assert config.model_type == model_type
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (width, 3, 41)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (2, 2, None)
    if model_type not in ("bloom", "mamba"):  # these two have no end of positions
        assert config.max_position_embeddings == 12
    model = build_model(config, seed=0).eval()
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.get_output_embeddings().weight.shape == (41, width)
    assert model.dtype == torch.float32
    assert torch.isfinite(model(sentences()).logits).all()


def resized(folder: Path, model_type: str, *, width: int, depth: int = 3, dropout: float = 0.0) -> PreTrainedConfig:
    path = config_file(folder, model_type, FILES[model_type])
    return build_config(path, width=width, depth=depth, vocabulary=41, positions=12, dropout=dropout)


def test_a_resized_config_keeps_its_ratios(tmp_path: Path) -> None:
    config = resized(tmp_path, "mistral", width=64)
    assert (config.intermediate_size, config.head_dim, config.num_key_value_heads) == (224, 2, 8)
    config = resized(tmp_path, "gemma2", width=72)
    assert (config.intermediate_size, config.head_dim, config.num_attention_heads) == (288, 8, 8)
    config = resized(tmp_path, "opt", width=24)
    assert (config.ffn_dim, config.word_embed_proj_dim) == (96, 24)


@pytest.mark.parametrize("depth", [1, 3, 15])
def test_a_resized_config_goes_on_with_its_pattern_of_layers(depth: int, tmp_path: Path) -> None:
    neo = resized(tmp_path, "gpt_neo", width=24, depth=depth)
    assert neo.attention_layers == [("global", "local")[layer % 2] for layer in range(depth)]
    assert neo.window_size == 5
    gemma = resized(tmp_path, "gemma2", width=72, depth=depth)
    assert gemma.layer_types == [("sliding_attention", "full_attention")[layer % 2] for layer in range(depth)]


def test_dropout_of_a_config_file_is_replaced(tmp_path: Path) -> None:
    assert resized(tmp_path, "opt", width=24).dropout == 0.0
    config = resized(tmp_path, "opt", width=24, dropout=0.3)
    assert (config.dropout, config.attention_dropout) == (0.3, 0.3)
    assert config.layerdrop == OPTConfig().layerdrop
    with pytest.raises(ModelError, match=r"config.json: mamba has no dropout, but 0.3 was asked. Leave it at 0\."):
        resized(tmp_path, "mamba", width=24, dropout=0.3)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("gptneo", r"^gptneo: not a family of models. Did you mean gpt-neo\? Choose from gpt-neo, gpt2, llama, pythia, qwen3, or"),
        ("LLAMA2", r"Did you mean llama\?"),
        ("zzz", r"^zzz: not a family of models. Choose from gpt-neo"),
        ("nowhere/config.json", r"^nowhere/config.json: not a family of models"),
    ],
)  # fmt: skip
def test_an_unknown_family_is_refused_with_the_nearest(family: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_config(family, **TINY)


@pytest.mark.parametrize(("width", "head_size"), [(33, 33), (16, 1), (48, 3), (8, 1), (24, 3)])
@pytest.mark.parametrize("family", ["llama", "pythia", "qwen3"])
def test_rotary_families_refuse_heads_of_odd_size(family: str, width: int, head_size: int) -> None:
    with pytest.raises(
        ModelError, match=rf"^{family}: width {width} makes heads of {head_size} numbers, .* Choose a multiple of 32\.$"
    ):
        build_config(family, **TINY | {"width": width})


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("bert", {}, r"config.json: bert is an encoder; .* A causal language model is needed"),
        ("bert-generation", {}, r"bert-generation is an encoder"),
        ("vit", {}, r"vit is not a language model"),
        ("t5", {}, r"config.json: t5 is an encoder-decoder .* A causal language model is needed"),
        ("bart", {}, r"bart is an encoder-decoder"),
        ("gemma3", {}, r"gemma3 has no single width and depth. Give the config.json of its text model"),
        ("gpt9", {}, r"names no model_type that the transformers library knows \('gpt9'\)"),
        (["gpt2"], {}, r"names no model_type"),
        ("llama", {"hidden_size": "wide"}, r"config.json: not a configuration of llama: .*hidden_size"),
        ("gpt2", {"n_head": 0}, r"config.json: gpt2 cannot be built with these sizes"),
        ("gpt2", {"n_embd": 0, "n_head": 1, "n_inner": 4}, r"config.json: gpt2 cannot be built with these sizes"),
        ("gpt2", {"n_head": 12}, r"width 32 does not fit its 12 heads. Choose a multiple of 12\.$"),
        ("gemma", {"hidden_size": 3072, "num_attention_heads": 16, "head_dim": 256}, r"width 32 does not fit its 16 heads. Choose a multiple of 48\.$"),
        ("phi", {"hidden_size": 2048, "num_attention_heads": 16}, r"makes heads of 2 numbers, and positions turn 50% of them in pairs"),
        ("cpmant", {"num_attention_heads": 16, "dim_head": 2}, r"cpmant has embeddings of"),
    ],
)  # fmt: skip
def test_a_config_file_of_no_use_is_refused(
    model_type: object, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        build_config(config_file(tmp_path, model_type, settings), **TINY)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"{}", b'"gpt2"'])
def test_a_broken_config_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config.json: (not readable as JSON|names no model_type)"):
        build_config(str(tmp_path / "config.json"), **TINY)


def test_a_model_that_never_ties_its_embeddings_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPTNeoForCausalLM, "_tied_weights_keys", {})
    with pytest.raises(ModelError, match=r"^gpt_neo: its embeddings are never tied\.$"):
        build_model(build_config("gpt-neo", **TINY), seed=0)


@pytest.mark.parametrize(("family", "attention"), [("mamba", 0), ("rwkv", 0), ("gemma4_text", 64), ("qwen3", 128)])
def test_a_family_of_the_library_has_sizes_whatever_its_layers_are(family: str, attention: int) -> None:
    """Heads × head size; none where there are no heads, the width where layers differ in them."""
    heads = {"num_attention_heads": 4, "head_dim": 32} if attention else {}
    config = CONFIG_MAPPING[family](
        hidden_size=64, num_hidden_layers=2, vocab_size=300, tie_word_embeddings=True, **heads
    )
    found = architecture(config)
    assert (found.width, found.depth, found.vocabulary, found.tied) == (64, 2, 300, True)
    assert found.attention == attention
    assert 0 < found.matrices < found.parameters
