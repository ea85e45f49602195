from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.planted import row_of, run_of, table
from collapselab import METRICS
from collapselab.analysis.models import combine, row_tuples
from collapselab.analysis.subsets import codes_of
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.errors import ConfigError, RunError
from collapselab.records.tables import RUNS


def test_an_outcome_of_a_measurement_is_a_column_with_a_direction_and_no_setting(tmp_path: Path) -> None:
    runs = [run_of(name, val_loss=1.0) | {"ece": value} for name, value in (("a", 0.1), ("b", 0.3))]
    RUNS.write(tmp_path / "runs.csv", runs)
    models = combine(RUNS.read(tmp_path / "runs.csv"), [row_of(run, "cdnv", 1.0) for run in runs], outcome="ece")
    assert models.frame["ece"].tolist() == [0.1, 0.3]
    assert "ece" not in models.varying
    with pytest.raises(RunError, match="no model has a gap. Measure it"):
        combine(runs, [], outcome="gap")
    with pytest.raises(RunError, match="no model has a loss_on:imdb"):
        combine(runs, [], outcome="loss_on:imdb")
    with pytest.raises(ConfigError, match="'eec' is not one. Did you mean ece?"):
        combine(runs, [], outcome="eec")


def test_models_of_one_cell_differ_in_nothing_but_seeds() -> None:
    runs = [
        run_of("a", seed=0, data_seed="1", val_loss=1.0),
        run_of("b", seed=1, data_seed="2", val_loss=1.1),
        run_of("c", seed=1, weight_decay=0.1, val_loss=1.2),
        run_of("d", seed=1, width=128, val_loss=1.3),
    ]
    frame = table(runs, {"cdnv": [1, 2, 3, 4]}).frame
    assert frame["cell"].nunique() == 3
    assert frame["cell"][0] == frame["cell"][1]
    assert frame["regime"].tolist() == ["weight_decay=0", "weight_decay=0", "weight_decay=0.1", "weight_decay=0"]


def test_a_setting_that_follows_from_the_architecture_makes_no_regime() -> None:
    runs = [run_of(f"{d}{s}", depth=d, seed=s, batch=str(16 // d), val_loss=1.0 + d) for d in (1, 2) for s in (0, 1)]
    frame = table(runs, {"cdnv": [1, 2, 3, 4]}).frame
    assert set(frame["regime"]) == {"the only one"}


def test_any_further_setting_that_varies_makes_regimes() -> None:
    runs = [run_of(f"{p}", dropout=p, val_loss=1.0) for p in ("0.0", "0.1")]
    assert set(table(runs, {"cdnv": [1, 2]}).frame["regime"]) == {"dropout=0.0", "dropout=0.1"}


def test_initialisations_are_not_among_the_trained() -> None:
    runs = [run_of("a", checkpoint=str(e), epoch=float(e), val_loss=5.0 - e) for e in (0, 1)]
    models = table(runs, {"cdnv": [2, 1]})
    assert models.trained["checkpoint"].tolist() == ["1"]
    assert models.frame["last"].tolist() == [False, True]


def test_an_epoch_that_ends_with_a_whole_step_is_an_epoch() -> None:
    """A batch that does not divide the corpus ends at 0.99997 of an epoch, another batch at exactly one."""
    runs = [
        run_of(f"{width}", checkpoint=name, width=width, epoch=epoch, val_loss=1.0)
        for width, ends in ((64, (0.000406, 0.999969)), (128, (0.000406, 1.0)))
        for name, epoch in zip(("0.0004", "1"), ends, strict=True)
    ]
    models = table(runs, {"cdnv": [1, 2, 3, 4]})
    assert set(models.frame["regime"]) == {"epoch=0.000406", "epoch=1"}
    assert models.frame["last"].tolist() == [False, True, False, True]
    assert len(models.trained) == 4


def test_only_the_last_layer_all_classes_and_training_are_taken() -> None:
    run = run_of("a", val_loss=1.0)
    from dataclasses import replace

    row = row_of(run, "cdnv", 1.0)
    others = [
        replace(row, layer="1", value=9.0),
        replace(row, bin="1-9", value=9.0),
        replace(row, split="validation", value=9.0),
    ]
    assert combine([run], [row, *others]).frame["cdnv"].tolist() == [1.0]


def test_a_metric_that_the_catalogue_lacks_is_an_error() -> None:
    run = run_of("a", val_loss=1.0)
    with pytest.raises(RunError, match="'cdvn' is not a metric of the catalogue. Did you mean cdnv?"):
        combine([run], [row_of(run, "cdvn", 1.0)])


def test_results_of_a_run_that_is_not_there_are_an_error() -> None:
    with pytest.raises(RunError, match="run b, checkpoint 1 is not in runs.csv"):
        combine([run_of("a", val_loss=1.0)], [row_of(run_of("b"), "cdnv", 1.0)])


def test_an_outcome_must_be_one_and_be_there() -> None:
    with pytest.raises(ConfigError, match="'val_los' is not one. Did you mean val_loss?"):
        table([run_of("a", val_loss=1.0)], {"cdnv": [1]}, outcome="val_los")
    with pytest.raises(RunError, match="no model has a val_loss"):
        table([run_of("a")], {"cdnv": [1]})
    with pytest.raises(RunError, match="no models"):
        combine([], [])


def test_a_logarithm_is_taken_where_the_catalogue_says_so_and_never_by_the_values() -> None:
    runs = [run_of(f"{i}", val_loss=1.0 + i) for i in range(3)]
    models = table(runs, {"cdnv": [0, 1, 2], "norm_cv": [1, 5, 1000], "cosine_mean": [-1, 5, 50]})
    assert [(v.metric, v.transform) for v in models.variables] == [
        ("cdnv", "raw"), ("cdnv", "log"), ("norm_cv", "raw"), ("cosine_mean", "raw")
    ]  # fmt: skip
    log = models.variables[1].values
    assert np.isnan(log[0]), "0 has no logarithm"
    assert list(log[1:]) == pytest.approx([0, np.log(2)])


def test_what_is_described_and_not_judged_says_why() -> None:
    runs = [run_of(f"{i}", val_loss=1.0 + i) for i in range(3)]
    models = table(runs, {"cdnv": [1, 2, 3], "cosine_cv": [1, 2, 3]})
    raw, log, ratio = (variable.why_description for variable in models.variables)
    for reason in (raw, ratio):
        assert reason is not None
        assert (reason.code, reason.verdict) == (Cause.NOT_A_TEST, Verdict.DESCRIPTION)
    assert log is None


def test_directions_follow_the_catalogue_and_the_ideal() -> None:
    runs = [run_of(f"{i}", val_loss=1.0 + i) for i in range(2)]
    ideal = METRICS["cosine_mean"].ideal_at(classes=100, dim=64)
    assert ideal is not None
    signs = {
        ("cdnv", (1, 2)): -1,
        ("agreement", (0.1, 0.2)): 1,
        ("cosine_mean", (ideal + 0.1, ideal + 0.2)): -1,
        ("cosine_mean", (ideal - 0.1, ideal - 0.2)): 1,
        ("cosine_mean", (ideal - 0.1, ideal + 0.2)): 0,
        ("cosine_cv", (70, 80)): 0,
        ("logdist_uncentred_cv", (-0.5, -0.4)): 0,
        ("lognorm_cv", (0.1, 0.2)): -1,
        ("lognorm_cv", (-0.1, 0.2)): 0,
        ("effective_rank", (5, 6)): 0,
    }
    for (metric, values), sign in signs.items():
        assert table(runs, {metric: values}).toward[metric] == sign, (metric, values)
        assert table(runs, {metric: values}).expected(metric) == -sign


def test_a_better_accuracy_is_a_higher_one() -> None:
    runs = [run_of(f"{i}", val_accuracy=0.1 * i) for i in range(2)]
    assert table(runs, {"agreement": [0.1, 0.2]}, outcome="val_accuracy").expected("agreement") == 1


def test_a_row_without_columns_is_a_row_in_every_version_of_pandas() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    assert row_tuples(frame, []) == [(), (), ()]
    assert row_tuples(frame, ["b", "a"]) == [("x", 1), ("y", 2), ("z", 3)]


def test_models_without_a_label_are_one_group() -> None:
    assert codes_of(pd.Series([None, "a", None, "b"])).tolist() == [0, 1, 0, 2]
    assert codes_of(pd.Series([2.0, np.nan, 2.0])).tolist() == [0, 1, 0]
