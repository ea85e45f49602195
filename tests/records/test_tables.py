import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collapselab.disk import first_error
from collapselab.errors import RunError
from collapselab.records.tables import RESULTS, RUNS, Row

ROW = Row(
    run="a-1", checkpoint="3", metric="cdnv", value=0.1, null=0.2, low=0.05, high=0.15, classes=100, tokens=1000,
    min_count=1, left_out=2,
)  # fmt: skip
RUN: dict[str, Any] = {
    "run": "a-1", "checkpoint": "3", "family": "gpt-neo", "width": 64, "depth": 2, "epochs": 3.0, "epoch": 3.0,
    "weight_decay": 5e-4, "lr": 5e-5, "seed": 0, "parameters": 1000, "tokens": None, "train_loss": 1.5,
    "train_loss_running": 1.75, "val_loss": 1 / 3, "val_accuracy": 0.5, "perplexity": 1.3, "seconds": 12.5,
    "clipped": 0.25, "why": None,
}  # fmt: skip


def changed(path: Path, column: str, text: str, *, line: int = 1) -> Path:
    """The table with one field replaced."""
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    lines[line][lines[0].index(column)] = text
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    RESULTS.write(
        tmp_path / "results.csv", [ROW, replace(ROW, metric="cdnv_k2", value=None, why="one class, no pairs.")]
    )
    return tmp_path / "results.csv"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    RUNS.write(tmp_path / "runs.csv", [RUN])
    return tmp_path / "runs.csv"


def test_the_columns_are_those_of_the_design() -> None:
    assert ", ".join(RESULTS.columns) == (
        "run, checkpoint, split, layer, bin, metric, value, null, low, high, classes, tokens, min_count, left_out, version, why"
    )
    assert ", ".join(RUNS.columns) == (
        "run, checkpoint, family, width, depth, epochs, epoch, weight_decay, lr, seed, parameters, tokens, train_loss, "
        "train_loss_running, val_loss, val_accuracy, perplexity, seconds, clipped, why"
    )


@pytest.mark.parametrize(("stored", "name"), [("flatness", "curvature"), ("flatness_relative", "curvature_relative")])
def test_a_row_with_the_earlier_name_of_a_metric_is_read_under_its_new_one(
    results: Path, stored: str, name: str
) -> None:
    (row, _) = RESULTS.read(changed(results, "metric", stored))
    assert row == replace(ROW, metric=name)


finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(values=st.lists(finite, min_size=1, max_size=5), run=text, why=text)
def test_results_come_back_exactly(
    values: list[float], run: str, why: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("t") / "results.csv"
    rows = [replace(ROW, run=run, bin=f"{i}-{i}", value=value, null=value) for i, value in enumerate(values)]
    rows.append(replace(ROW, run=run, value=None, classes=None, why=why))
    RESULTS.write(path, rows)
    assert RESULTS.read(path) == rows


@given(value=finite)
def test_runs_come_back_exactly(value: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / "runs.csv"
    RUNS.write(path, [{**RUN, "val_loss": value}])
    assert RUNS.read(path) == [{**RUN, "val_loss": value}]


def test_numpy_floats_are_written_as_numbers(tmp_path: Path) -> None:
    RESULTS.write(tmp_path / "r.csv", [replace(ROW, value=np.float64(0.1))])
    assert RESULTS.read(tmp_path / "r.csv")[0].value == 0.1


def test_further_settings_stand_between_seed_and_parameters_and_are_kept(tmp_path: Path) -> None:
    RUNS.write(tmp_path / "runs.csv", [{**RUN, "dropout": 0.1, "corpus": "1234e567"}])
    header = (tmp_path / "runs.csv").read_text().splitlines()[0].split(",")
    assert header[header.index("seed") + 1 : header.index("parameters")] == ["dropout", "corpus"]
    found = RUNS.read(tmp_path / "runs.csv")[0]
    assert (found["dropout"], found["corpus"]) == ("0.1", "1234e567")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"why": "a reason"}, "cdnv"),
        ({"value": None}, "cdnv"),
        ({"value": float("inf")}, "value"),
        ({"null": float("nan")}, "null"),
        ({"split": "test"}, "split"),
        ({"classes": -1}, "classes"),
        ({"classes": 1.5}, "classes"),
        ({"tokens": True}, "tokens"),
        ({"layer": 1}, "layer"),
        ({"layer": "two"}, "layer"),
        ({"layer": "0"}, "layer"),
        ({"bin": "1..9"}, "bin"),
        ({"version": None}, "version"),
        ({"value": None, "why": ""}, "why"),
    ],
)
def test_a_row_that_means_nothing_cannot_be_made(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        replace(ROW, **change)
    assert first_error(raised.value).startswith(field)


@pytest.mark.parametrize(
    ("column", "text", "place"),
    [
        ("value", "inf", "line 2: value is 'inf'"),
        ("value", "nan", "line 2: value is 'nan'"),
        ("value", "0,1", "line 2: value is '0,1'"),
        ("value", "", "line 2: cdnv must have a value or a reason"),
        ("classes", "3.5", "line 2: classes is '3.5'"),
        ("split", "dev", "line 2: split is 'dev'"),
        ("metric", "cdnv_k2", "lines 2 and 3: two rows for a-1 / 3 / train / last / all / cdnv_k2."),
    ],
)
def test_a_wrong_cell_of_results_is_named_with_its_line(results: Path, column: str, text: str, place: str) -> None:
    with pytest.raises(RunError) as error:
        RESULTS.read(changed(results, column, text))
    assert place in str(error.value)
    assert str(results) in str(error.value)


def test_a_table_of_version_0_1_has_a_running_training_loss_and_no_clipped_share(tmp_path: Path) -> None:
    RUNS.write(tmp_path / "runs.csv", [RUN])
    with (tmp_path / "runs.csv").open(newline="") as file:
        header, row = csv.reader(file)
    keep = [i for i, name in enumerate(header) if name not in ("train_loss_running", "clipped")]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[line[i] for i in keep] for line in (header, row)])
    (found,) = RUNS.read(tmp_path / "old.csv")
    assert (found["train_loss"], found["train_loss_running"], found.get("clipped")) == (None, 1.5, None)
    assert RUNS.frame([found])["clipped"].isna().all()
    with pytest.raises(RunError, match="clipped is 'half'"):
        RUNS.read(changed(tmp_path / "runs.csv", "clipped", "half"))


def test_a_misspelt_column_is_named_with_the_nearest(results: Path, runs: Path) -> None:
    with pytest.raises(RunError, match="metrik"):
        RESULTS.read(changed(results, "metric", "metrik", line=0))
    with pytest.raises(RunError, match="widht"):
        RUNS.read(changed(runs, "width", "widht", line=0))


def test_a_column_too_many_is_an_error_in_results(results: Path) -> None:
    results.write_text("\n".join(line + ",x" for line in results.read_text().splitlines()))
    with pytest.raises(RunError, match="'x'"):
        RESULTS.read(results)


def test_a_missing_column_is_named(runs: Path) -> None:
    lines = [line.rsplit(",", 1)[0] for line in runs.read_text().splitlines()]
    runs.write_text("\n".join(lines))
    with pytest.raises(RunError, match="'why'"):
        RUNS.read(runs)


def test_a_model_that_is_there_twice_is_an_error(runs: Path) -> None:
    runs.write_text(runs.read_text() + runs.read_text().splitlines()[1] + "\n")
    with pytest.raises(RunError, match="lines 2 and 3: .*a-1 / 3"):
        RUNS.read(runs)
    with pytest.raises(RunError, match="a-1 / 3"):
        RUNS.write(runs, [RUN, RUN])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "runs.csv"),
        (b"run,run\n1,2\n", "'run'"),
        (b"run,checkpoint\n1,2,3\n", "line 2"),
        (b"run\n\xff\xfe\n", "utf-8"),
    ],
)
def test_what_is_no_table_is_said_to_be_none(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "runs.csv").write_bytes(content)
    with pytest.raises(RunError, match=message):
        RUNS.read(tmp_path / "runs.csv")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="results.csv"):
        RESULTS.read(tmp_path / "results.csv")


def test_the_line_is_that_of_the_file_also_after_a_reason_of_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    RESULTS.write(path, [replace(ROW, metric="cdnv_log", value=None, why="one\ntwo"), ROW])
    path.write_text(path.read_text().replace(",0.1,", ",x,"))
    with pytest.raises(RunError, match="line 4: value is 'x'"):
        RESULTS.read(path)


def test_a_write_that_fails_leaves_what_was_there(results: Path) -> None:
    before = results.read_bytes()
    with pytest.raises(RunError):
        RESULTS.write(results, [ROW, ROW])
    assert results.read_bytes() == before
    assert [path.name for path in results.parent.iterdir()] == ["results.csv"]


def test_a_run_that_lacks_a_column_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="val_loss\n *Field required"):
        RUNS.write(tmp_path / "runs.csv", [{key: value for key, value in RUN.items() if key != "val_loss"}])


def test_a_frame_has_numbers_where_numbers_are() -> None:
    frame = RESULTS.frame([ROW, replace(ROW, metric="cdnv_k2", value=None, classes=None, why="one class.")])
    assert list(frame.columns) == list(RESULTS.columns)
    assert frame["value"].dtype == float
    assert frame["value"].isna().tolist() == [False, True]
    assert frame["classes"].tolist()[0] == 100
    assert RESULTS.frame([]).empty


def test_a_table_that_mixes_two_versions_of_a_metric_is_refused(tmp_path: Path) -> None:
    RESULTS.write(tmp_path / "results.csv", [ROW, replace(ROW, run="b-2", version=99)])
    with pytest.raises(RunError, match="cdnv.* 99"):
        RESULTS.read(tmp_path / "results.csv")
