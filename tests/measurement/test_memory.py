"""What does not fit is refused before the model runs, with the figure, what takes it and what to change."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement import measure_model
from collapselab.measurement import measure_model as memory
from collapselab.measurement.collectors.moments import table_bytes
from collapselab.measurement.measure import measure
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.plan import MeasureRequest, make_plan
from collapselab.records.measurement import Result
from collapselab.records.options import Options

OPTIONS: dict[str, Any] = {"tokens": 200, "quiet": True}


def test_a_measurement_that_does_not_fit_is_refused_before_the_model_runs(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(measure_model, "layer_features", lambda *args, **_: ran.append(args))
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1_000_000)
    message = (
        r"GPTNeo.*: needs about [\d.]+ GB of memory beside the model, but 0.0 GB are free. Most of it is tables of \d+ "
        r"classes at all layers. Change one of these: --layers last, --no-null, --tokens N .*--shard-classes.*--force"
    )
    with pytest.raises(ConfigError, match=message):
        measure(model, corpus, layers="all", state=tmp_path, **OPTIONS)
    assert not ran
    assert not list(tmp_path.glob("*/plan.json"))


def test_force_measures_anyway_and_what_fits_is_measured(
    model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1_000_000)
    with pytest.raises(ConfigError, match="at the last layer"):
        measure(model, corpus, **OPTIONS)
    forced = measure(model, corpus, force=True, **OPTIONS)
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2_000_000_000)
    fits = measure(model, corpus, **OPTIONS)
    assert isinstance(forced, Result)
    assert forced.rows == fits.rows


def test_processes_of_one_machine_share_its_memory(
    model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 150_000_000)
    measure(model, corpus, **OPTIONS)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="are free"):
        measure(model, corpus, **OPTIONS)


def test_free_memory_is_the_least_of_what_the_system_and_its_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    without = memory.free_bytes(torch.device("cpu"))
    assert without > 1_000_000_000
    for name, text in (("memory.max", "max"), ("memory.current", "1000"), ("memory.stat", "anon 5")):
        (tmp_path / name).write_text(f"{text}\n")
    assert memory.free_bytes(torch.device("cpu")) > 1_000_000_000
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 200000\nslab 7\n")
    assert memory.free_bytes(torch.device("cpu")) == 700_000
    (tmp_path / "memory.current").write_text("9000000\n")
    assert memory.free_bytes(torch.device("cpu")) == 0


MORE: list[dict[str, Any]] = [
    {"null": True}, {"layers": "all"}, {"train_loss": True, "dtype": None}, {"bootstrap": 4}, {"classes": True},
    {"outcomes": "ece"}, {"push": "default"}, {"batch": 8}, {"contexts": "1", "min_uses": 2}, {"deciders": True},
]  # fmt: skip


@pytest.mark.parametrize("more", MORE, ids=lambda more: next(iter(more)))
def test_an_option_never_takes_less_memory(model: nn.Module, corpus: Corpus, more: dict[str, Any]) -> None:
    def needed(**options: Any) -> float:
        request = MeasureRequest(corpus, Options(**{"null": False, "batch": 4} | options))
        return memory.needed_bytes(make_plan(request, MeasuredModel(model, name="model")))

    assert needed(**more) >= needed()
    if "null" in more or "layers" in more or "batch" in more:
        assert needed(**more) > needed()


@pytest.mark.parametrize("covariance", [False, True])
def test_the_memory_of_moments_is_that_of_their_tensors(covariance: bool) -> None:
    moments = ClassMoments.empty(200, 24, covariance=covariance)
    tensors = (moments.counts, moments.sums, moments.squares)
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == table_bytes(200, 24)


def test_classes_sharded_over_one_process_are_those_of_a_plain_measurement(model: nn.Module, corpus: Corpus) -> None:
    plain, sharded = measure(model, corpus, **OPTIONS), measure(model, corpus, shard_classes=True, **OPTIONS)
    assert isinstance(plain, Result)
    assert isinstance(sharded, Result)
    values = {(row.split, row.metric): row.value for row in plain.rows}
    for row in sharded.rows:
        if row.metric != "ncc_loss":  # which takes all centres in one place
            value = values[row.split, row.metric]
            assert row.value == (None if value is None else pytest.approx(value, rel=1e-11))
