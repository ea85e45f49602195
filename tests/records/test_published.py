from pathlib import Path

import numpy as np
import pytest

from collapselab.errors import RunError
from collapselab.records.published import COLUMNS, import_published
from collapselab.records.tables import Row

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "reference" / "lc-2024_05_18.csv"
needs_published = pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published table is not beside this checkout")

CELLS = dict.fromkeys(COLUMNS, "2.0") | {
    "model": "02x0768_10L07@5",
    "n_params": "1000",
    "matches": "30",
    "misses": "70",
    "norms_log_std": "0.5",
    "norms_log_mean": "4",
}


def write(path: Path, *tables: dict[str, str]) -> Path:
    columns = list(tables[0])
    lines = [",".join(columns)] + [",".join(table[column] for column in columns) for table in tables]
    path.write_text("\n".join(lines) + "\n")
    return path


def value_of(rows: list[Row], metric: str) -> Row:
    return next(row for row in rows if row.metric == metric)


def test_a_name_says_what_the_model_is(tmp_path: Path) -> None:
    runs, rows = import_published(write(tmp_path / "p.csv", CELLS))
    run = runs[0]
    assert (run["run"], run["checkpoint"]) == ("02x0768_10L07", "6")
    assert (run["depth"], run["width"], run["epochs"], run["epoch"]) == (2, 768, 10, 6)
    assert (run["weight_decay"], run["seed"], run["parameters"]) == (0.1, 7, 1000)
    assert {(row.run, row.checkpoint, row.split, row.layer, row.bin) for row in rows} == {
        ("02x0768_10L07", "6", "train", "last", "all")
    }


def test_a_model_without_a_seed_in_its_name_has_none(tmp_path: Path) -> None:
    runs, _ = import_published(write(tmp_path / "p.csv", CELLS | {"model": "01x0064_01d@0"}))
    assert runs[0]["seed"] is None
    assert runs[0]["weight_decay"] == 5e-4


def test_ratios_and_shares_are_what_the_contract_says(tmp_path: Path) -> None:
    _, rows = import_published(write(tmp_path / "p.csv", CELLS | {"interfere_std": "3", "interfere_mean": "-0.5"}))
    found = {row.metric: row.value for row in rows}
    assert found["agreement"] == 0.3
    assert value_of(rows, "agreement").tokens == 100
    assert found["lognorm_cv"] == 0.125
    assert (found["cosine_mean"], found["cosine_std"], found["cosine_cv"]) == (-0.5, 3.0, -6.0)
    assert "norm_cv" not in found


@pytest.mark.parametrize(("text", "shown"), [("", "empty"), ("inf", "inf"), ("nan", "nan")])
def test_a_cell_without_a_number_is_a_reason_and_never_a_number(tmp_path: Path, text: str, shown: str) -> None:
    runs, rows = import_published(write(tmp_path / "p.csv", CELLS | {"cdnv_mean": text, "val_loss": text}))
    row = value_of(rows, "cdnv_k2")
    assert (row.value, row.why) == (None, f"cdnv_mean is {shown} in the published table.")
    assert (runs[0]["val_loss"], runs[0]["why"]) == (None, f"val_loss is {shown} in the published table.")
    assert value_of(rows, "agreement").value == 0.3


def test_a_ratio_to_zero_is_a_reason(tmp_path: Path) -> None:
    _, rows = import_published(write(tmp_path / "p.csv", CELLS | {"interfere_mean": "0"}))
    assert value_of(rows, "cosine_cv").value is None
    assert "division by zero" in (value_of(rows, "cosine_cv").why or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "2x768"}, "line 2: '2x768' is not a model's name"),
        ({"cdnv_mean": "many"}, "line 2: cdnv_mean is 'many', not a number"),
        ({"n_params": "1.5"}, "line 2: n_params is '1.5', not a count"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=message):
        import_published(write(tmp_path / "p.csv", CELLS | change))


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_that_is_needed_is_missed(tmp_path: Path, column: str) -> None:
    cells = {name: text for name, text in CELLS.items() if name != column}
    with pytest.raises(RunError, match=f"no column '{column}'"):
        import_published(write(tmp_path / "p.csv", cells))


def test_a_misspelt_column_is_named(tmp_path: Path) -> None:
    cells = {name.replace("interfere_mean", "interfer_mean"): text for name, text in CELLS.items()}
    with pytest.raises(RunError, match="no column 'interfere_mean'. The nearest is 'interfer_mean'"):
        import_published(write(tmp_path / "p.csv", cells))


def test_a_model_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="line 3: 02x0768_10L07@5 is there twice"):
        import_published(write(tmp_path / "p.csv", CELLS, CELLS))


@needs_published
def test_the_published_table_has_its_models_and_regimes() -> None:
    runs, rows = import_published(PUBLISHED)
    assert len(runs) == 230
    assert len(rows) == 230 * 12
    assert all(row.value is not None for row in rows)
    assert {row.classes for row in rows} == {29233}
    regimes = {(run["epochs"], run["epoch"], run["weight_decay"]) for run in runs}
    assert len(regimes) == 7
    for run in runs:  # the parameters by the paper's formula: depth and width were read right
        depth, width = run["depth"], run["width"]
        assert run["parameters"] == 52305 * width + depth * (12 * width**2 + 10 * width) + 2 * width
    seeds = [
        run for run in runs if (run["depth"], run["width"], run["epochs"], run["weight_decay"]) == (2, 768, 1, 5e-4)
    ]
    assert len(seeds) == 21
    assert np.unique([run["val_loss"] for run in seeds]).size == 21


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_params": "²"}, "n_params is '²', not a count"),
        ({"n_params": "9" * 400}, "n_params is '999"),
        ({"model": f"02x{'9' * 400}_10L07@5"}, "is not a model's name"),
        ({"matches": "-300"}, "agreement, from matches and misses: tokens is -230, below 0"),
    ],
)
def test_an_odd_cell_is_one_message(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=f"line 2: .*{message}") as error:
        import_published(write(tmp_path / "p.csv", CELLS | change))
    assert len(str(error.value)) < 300


def test_a_ratio_that_overflows_is_a_reason(tmp_path: Path) -> None:
    _, rows = import_published(write(tmp_path / "p.csv", CELLS | {"sims_std": "1e300", "sims_mean": "1e-300"}))
    assert value_of(rows, "duality_cos_cv").value is None
    assert "it is inf" in (value_of(rows, "duality_cos_cv").why or "")
