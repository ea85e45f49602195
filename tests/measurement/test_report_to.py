"""A measurement in a tracker: its curves."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.test_tokens import facts
from collapselab.measurement.result import report_measurement
from collapselab.records.measurement import Result
from records.test_tables import ROW


def test_a_model_that_is_no_run_has_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    splits = facts()["splits"] | {"validation": {"blocks": 1, "tokens": 9, "blocks_cut_off": 0, "loss": 2.5}}
    row = replace(ROW, value=0.25, low=None, high=None)
    rows = [row, replace(row, metric="vci", value=None, why="no head")]
    report_measurement("tensorboard", Result(rows, facts(model="hub/m", splits=splits)), None)
    folder = tmp_path / "tracked" / "hub-m" / "tensorboard"
    logged = EventAccumulator(str(folder)).Reload()
    assert logged.Scalars("collapse/cdnv")[0].value == 0.25
    assert logged.Scalars("collapse/val_loss")[0].value == 2.5
