"""A model on memory and disk: the same features, head, hash and numbers as one that is whole."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from collapselab import measure
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, ModelError
from collapselab.models.find import find_models
from collapselab.models.load import load_model, model_hash, parsed_device_map
from collapselab.models.taps import check_logits, features, layer_features, output_layer
from collapselab.records.measurement import Result
from models.families import VOCABULARY, model_of

ON_DISK = {
    "model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
    "model.layers.2": "disk", "model.norm": "disk", "lm_head": "disk",
}  # fmt: skip


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_of("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def loaded(folder: Path, **options: Any) -> Any:
    (source,) = find_models([str(folder)])
    return load_model(source, **options)


def offloaded(folder: Path, tmp_path: Path, kind: str) -> Any:
    if kind == "disk":
        return loaded(folder, device_map=ON_DISK, offload=tmp_path / "offloaded")
    from accelerate import cpu_offload

    return cpu_offload(copy.deepcopy(loaded(folder)), execution_device=torch.device("cpu"))


@pytest.mark.parametrize("kind", ["disk", "cpu"])
@torch.no_grad()
def test_features_head_and_hash_are_those_of_the_whole_model(
    kind: str, folder: Path, tmp_path: Path, ids: Tensor
) -> None:
    plain, spread = loaded(folder), offloaded(folder, tmp_path, kind)
    assert any(parameter.is_meta for parameter in spread.parameters()), "something is offloaded"
    head = output_layer(spread)
    assert_close(head.weight, plain.lm_head.weight, rtol=0, atol=0)
    assert_close(features(spread, ids), features(plain, ids))
    ours, theirs = layer_features(spread, ids), layer_features(plain, ids)
    assert list(ours) == list(theirs) == ["1", "2", "3", "last"]
    for layer, expected in theirs.items():
        assert_close(ours[layer], expected)
    check_logits(spread, head, ids, name="spread")
    assert model_hash(spread) == model_hash(plain)


def test_a_measurement_of_it_has_the_same_numbers(tmp_path: Path) -> None:
    from collapselab.models.build import build_config, build_model

    source = open_source(["storyworld:stories=12,validation=4"])
    corpus = build_corpus(source, tmp_path / "corpus", Recipe(tokenizer="bpe:300", block=32))
    model = build_model(build_config("llama", width=32, depth=3, vocabulary=300, positions=32, tied=False), seed=0)
    model.save_pretrained(tmp_path / "model")  # type: ignore[operator]
    options: dict[str, Any] = {"layers": "all", "tokens": 300, "quiet": True}
    plain = measure(tmp_path / "model", corpus, **options)
    spread = measure(tmp_path / "model", corpus, device_map=ON_DISK, state=tmp_path / "state", **options)
    assert isinstance(plain, Result)
    assert isinstance(spread, Result)
    assert spread.facts["model_hash"] == plain.facts["model_hash"]
    compared = 0
    for ours, theirs in zip(spread.rows, plain.rows, strict=True):
        assert ours.key == theirs.key
        if theirs.value is not None:
            assert ours.value == pytest.approx(theirs.value, rel=1e-4, abs=1e-6), ours.key
            compared += 1
    assert compared > 100


def test_an_output_layer_that_is_split_over_devices_is_refused_by_name() -> None:
    class DTensor(torch.nn.Parameter):
        """As torch.distributed calls a tensor whose parts are on several devices."""

    model = model_of("llama")
    model.lm_head.weight = DTensor(torch.ones(VOCABULARY, 32))
    with pytest.raises(ModelError, match="is split over devices"):
        output_layer(model)


def test_a_map_is_a_strategy_a_dict_or_a_file(tmp_path: Path) -> None:
    assert parsed_device_map("auto") == "auto"
    assert parsed_device_map(None) is None
    assert parsed_device_map(ON_DISK) == ON_DISK
    (tmp_path / "map.json").write_text(json.dumps(ON_DISK))
    assert parsed_device_map(str(tmp_path / "map.json")) == ON_DISK
    with pytest.raises(ConfigError, match="'everywhere' is none of auto, balanced"):
        parsed_device_map("everywhere")


def test_on_one_device_auto_is_the_plain_model(folder: Path, ids: Tensor) -> None:
    model = loaded(folder, device_map="auto")
    with torch.no_grad():
        assert_close(model(ids).logits, loaded(folder)(ids).logits)
    check_logits(model, output_layer(model), ids, name="auto")
