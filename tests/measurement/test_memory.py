"""What does not fit is refused before the model runs, with the figure, what takes it and what to change."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement import estimate, forward_pass
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result

OPTIONS: dict[str, Any] = {"tokens": 200, "quiet": True}


def test_a_measurement_that_does_not_fit_is_refused_before_the_model_runs(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(forward_pass, "layer_features", lambda *args, **_: ran.append(args))
    monkeypatch.setattr(estimate, "free_host_bytes", lambda: 1_000_000)
    message = (
        r"GPTNeo.*: needs about [\d.]+ MB of memory beside the model, but 1.0 MB are free. Most of it is tables of \d+ "
        r"classes at all layers, each twice for the null. Change one of these: --layers last \([\d.]+ MB\), --no-null "
        r"\([\d.]+ MB\), --tokens N .*--min-count N.*--shard-classes.*--force"
    )
    with pytest.raises(ConfigError, match=message):
        measure(model, corpus, layers="all", state=tmp_path, **OPTIONS)
    assert not ran
    assert not list(tmp_path.glob("*/plan.json"))


def test_force_measures_anyway_and_what_fits_is_measured(
    model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "free_host_bytes", lambda: 1_000_000)
    with pytest.raises(ConfigError, match="at the last layer"):
        measure(model, corpus, **OPTIONS)
    forced = measure(model, corpus, force=True, **OPTIONS)
    monkeypatch.setattr(estimate, "free_host_bytes", lambda: 2_000_000_000)
    fits = measure(model, corpus, **OPTIONS)
    assert isinstance(forced, Result)
    assert forced.rows == fits.rows


def test_processes_of_one_machine_share_its_memory(
    model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "free_host_bytes", lambda: 150_000_000)
    measure(model, corpus, **OPTIONS)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="are free"):
        measure(model, corpus, **OPTIONS)


def test_free_memory_is_the_least_of_what_the_system_and_its_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    5000000 kB\n")
    files = [tmp_path / name for name in ("memory.max", "memory.current", "memory.stat")]
    for file, text in zip(files, ("max\n", "1000\n", "anon 5\n"), strict=True):
        file.write_text(text)
    monkeypatch.setattr(estimate, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(estimate, "CGROUPS", [files])
    assert estimate.free_host_bytes() == 5_000_000 * 1024
    files[0].write_text("3000000\n")
    files[1].write_text("2500000\n")
    files[2].write_text("anon 5\ninactive_file 200000\nslab 7\n")
    assert estimate.free_host_bytes() == 700_000
    files[1].write_text("9000000\n")
    assert estimate.free_host_bytes() == 0
    monkeypatch.setattr(estimate, "MEMINFO", tmp_path / "nothing")
    monkeypatch.setattr(estimate, "CGROUPS", [[tmp_path / "nothing"] * 3])
    assert estimate.free_host_bytes() is None


def test_classes_sharded_over_one_process_are_those_of_a_plain_measurement(model: nn.Module, corpus: Corpus) -> None:
    plain, sharded = measure(model, corpus, **OPTIONS), measure(model, corpus, shard_classes=True, **OPTIONS)
    assert isinstance(plain, Result)
    assert isinstance(sharded, Result)
    values = {(row.split, row.metric): row.value for row in plain.rows}
    assert all(row.value == values[row.split, row.metric] for row in sharded.rows if row.metric != "ncc_loss")
