from pathlib import Path

import numpy as np
import pytest

from collapselab.errors import RunError
from collapselab.records.published import FIRST, SECOND, columns_of, import_published
from collapselab.records.tables import Row

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "reference" / "lc-2024_05_18.csv"
needs_published = pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published table is not beside this checkout")

CELLS = dict.fromkeys(columns_of(FIRST), "2.0") | {
    "model": "02x0768_10L07@5",
    "n_params": "1000",
    "matches": "30",
    "misses": "70",
    "norms_log_std": "0.5",
    "norms_log_mean": "4",
}

SECOND_CELLS = dict.fromkeys(columns_of(SECOND), "4.0") | {
    "model": "02x0768_10L07@5",
    "n_params": "1000",
    "val_loss": "2.0",
    "val_acc": "2.0",
    "perplex": "2.0",
    "hits": "30",
    "misses": "70",
    "norms_mean": "8",
    "norms_var": "4",
    "norms_log_mean": "2",
    "norms_log_var": "0.25",
    "log_kern_mean": "-0.5",
    "log_kern_var": "0.04",
    "simcos_mean": "0.2",
    "simcos_var": "0.01",
    "interfere_mean": "-0.002",
    "interfere_var": "474.1",
}
"""As in the published file: 16 columns that are read, and two that are not."""


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
    assert value_of(rows, "cosine_cv").why == "interfere_std is 2.0, interfere_mean is 0.0 in the published table."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "2x768"}, "line 2: model is '2x768'"),
        ({"cdnv_mean": "many"}, "line 2: cdnv_mean is 'many'"),
        ({"n_params": "1.5"}, "line 2: n_params is '1.5'"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=message):
        import_published(write(tmp_path / "p.csv", CELLS | change))


@pytest.mark.parametrize("column", columns_of(FIRST))
def test_every_column_that_is_needed_is_missed(tmp_path: Path, column: str) -> None:
    cells = {name: text for name, text in CELLS.items() if name != column}
    with pytest.raises(RunError, match=f"'{column}'"):
        import_published(write(tmp_path / "p.csv", cells))


def test_a_misspelt_column_is_named(tmp_path: Path) -> None:
    cells = {name.replace("interfere_mean", "interfer_mean"): text for name, text in CELLS.items()}
    with pytest.raises(RunError, match="'interfere_mean'.* interfer_mean"):
        import_published(write(tmp_path / "p.csv", cells))


def test_a_model_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="lines 2 and 3: .*02x0768_10L07@5"):
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
        ({"n_params": "²"}, "n_params is '²'"),
        ({"n_params": "9" * 400}, "n_params is '999"),
        ({"model": f"02x{'9' * 400}_10L07@5"}, "model is '02x999"),
        ({"matches": "-300"}, "matches is '-300'"),
    ],
)
def test_an_odd_cell_is_one_message(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=f"line 2: .*{message}") as error:
        import_published(write(tmp_path / "p.csv", CELLS | change))
    assert len(str(error.value)) < 300


def test_a_ratio_that_overflows_is_a_reason(tmp_path: Path) -> None:
    _, rows = import_published(write(tmp_path / "p.csv", CELLS | {"sims_std": "1e300", "sims_mean": "1e-300"}))
    assert value_of(rows, "duality_cos_cv").value is None
    assert value_of(rows, "duality_cos_cv").why == "sims_std is 1e+300, sims_mean is 1e-300 in the published table."


def test_the_second_table_is_recognised_by_its_header_and_has_its_own_metrics(tmp_path: Path) -> None:
    runs, rows = import_published(write(tmp_path / "p.csv", SECOND_CELLS))
    assert (runs[0]["run"], runs[0]["parameters"], runs[0]["val_loss"]) == ("02x0768_10L07", 1000, 2.0)
    values = {row.metric: row.value for row in rows}
    assert values == {
        metric: pytest.approx(value)
        for metric, value in {
            "cdnv_k2": 4.0,
            "norm_cv": 0.25,
            "lognorm_mean": 2.0,
            "lognorm_cv": 0.25,
            "etf_error": 4.0,
            "logdist_mean": -0.5,
            "logdist_std": 0.2,
            "logdist_cv": -0.4,
            "duality_cos_mean": 0.2,
            "duality_cos_std": 0.1,
            "duality_cos_cv": 0.5,
            "duality_error": 4.0,
            "agreement": 0.3,
        }.items()
    }
    assert not any(row.metric.startswith("cosine") for row in rows)
    assert value_of(rows, "agreement").tokens == 100


def test_both_tables_read_the_first_lines_of_the_published_files_alike(tmp_path: Path) -> None:
    """One model of the paper in both tables: what both have is the same to the precision they were computed in."""
    first = {
        "model": "01x0064_01L@0", "n_params": "3397440", "val_acc": "0.2653474864776747",
        "val_loss": "3.890064477920532", "perplex": "48.914040297659625", "sims_mean": "0.1323722600936889",
        "sims_std": "0.3060754239559173", "norms_log_mean": "4.007746696472168", "norms_log_std": "0.533332109451294",
        "misses": "4553451", "matches": "160740", "cdnv_mean": "0.2170268595218658",
        "interfere_mean": "0.0048541724681854", "interfere_std": "0.3552234470844269",
        "log_dist_mean": "-0.1202841326594352", "log_dist_std": "0.3188208341598511",
    }  # fmt: skip
    second = {name: first[name] for name in ("model", "n_params", "val_acc", "val_loss", "perplex", "misses")} | {
        "cdnv": "0.217026799917221", "norms_mean": "7.673639756024962", "norms_var": "3.6960838611008655",
        "etf_error": "1.402278388312318", "log_kern_mean": "-0.2859084010124206", "log_kern_var": "0.092819906771183",
        "dual_error": "1.4119267463684082", "simcos_mean": "0.1323722749948501", "simcos_var": "0.093682199716568",
        "hits": "160740", "norms_log_mean": "2.0038733330729226", "norms_log_var": "0.07111078367084783",
    }  # fmt: skip
    values = [
        {row.metric: row.value for row in import_published(write(tmp_path / f"{i}.csv", cells))[1]}
        for i, cells in enumerate((first, second))
    ]
    both = values[0].keys() & values[1].keys()
    assert both == {"cdnv_k2", "lognorm_cv", "duality_cos_mean", "duality_cos_std", "duality_cos_cv", "agreement"}
    for metric in both:
        assert values[0][metric] == pytest.approx(values[1][metric], rel=2e-5), metric
    floor = (2 - 2 * (64 / 29232) ** 0.5) ** 0.5
    assert floor < (values[1]["etf_error"] or 0) < 2**0.5


def test_both_tables_together_have_centred_and_uncentred_distances(tmp_path: Path) -> None:
    paths = write(tmp_path / "1.csv", CELLS | {"cdnv_mean": "nan"}), write(tmp_path / "2.csv", SECOND_CELLS)
    runs, rows = import_published(*paths)
    assert len(runs) == 1
    assert {row.metric for row in rows} == {*FIRST, *SECOND}
    assert (value_of(rows, "logdist_uncentred_cv").value, value_of(rows, "logdist_cv").value) == (1.0, -0.4)
    assert value_of(rows, "lognorm_cv").value == 0.125, "of a metric that both have, the first table's"
    assert value_of(rows, "cdnv_k2").value == 4.0, "or the second's, where the first has none"
    assert len(rows) == len({row.metric for row in rows})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "02x0768_10L08@5"}, "2.csv: .*02x0768_10L07 at epoch 6.*1.csv"),
        ({"val_loss": "2.001"}, "2.csv: val_loss of 02x0768_10L07 at epoch 6 .*2.001.* 2.0 "),
        ({"n_params": "1001"}, "parameters of 02x0768_10L07 at epoch 6 .*1001.* 1000 "),
        ({"val_loss": ""}, "val_loss of 02x0768_10L07 at epoch 6 .*None.* 2.0 "),
    ],
)
def test_tables_of_different_models_are_not_mixed(tmp_path: Path, change: dict[str, str], message: str) -> None:
    paths = write(tmp_path / "1.csv", CELLS), write(tmp_path / "2.csv", SECOND_CELLS | change)
    with pytest.raises(RunError, match=message):
        import_published(*paths)


def test_no_table_at_all_is_an_error() -> None:
    with pytest.raises(RunError):
        import_published()


def test_a_negative_variance_is_a_reason(tmp_path: Path) -> None:
    _, rows = import_published(write(tmp_path / "p.csv", SECOND_CELLS | {"log_kern_var": "-0.04"}))
    for metric in ("logdist_std", "logdist_cv"):
        assert value_of(rows, metric).value is None
        assert "log_kern_var is -0.04" in (value_of(rows, metric).why or "")


@pytest.mark.parametrize("column", columns_of(SECOND))
def test_every_column_that_the_second_table_needs_is_missed(tmp_path: Path, column: str) -> None:
    cells = {name: text for name, text in SECOND_CELLS.items() if name != column}
    with pytest.raises(RunError, match=f"'{column}'"):
        import_published(write(tmp_path / "p.csv", cells))
