"""Metrics of contexts beside those of tokens: related, corrected and described like them, in a family of their own."""

import numpy as np
import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.models import RELATED, Models, combine
from collapselab.analysis.relate import Relation, relate
from collapselab.analysis.subsets import WITHIN
from collapselab.analysis.trends import trends
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.core.catalogue import CONTEXT_METRICS, METRICS
from collapselab.errors import RunError
from collapselab.records.outcomes import ContextColumn, context_columns
from collapselab.records.tables import ContextRow, Run


def context_row(run: Run, metric: str, n: int, value: float | None, *, layer: str = "last") -> ContextRow:
    return ContextRow(
        run=run["run"], checkpoint=run["checkpoint"], layer=layer, n=n, metric=metric, value=value, null=0.9,
        contexts=10, tokens=500, coverage=0.99, left_out=0, version=1, why="none." if value is None else None,
    )  # fmt: skip


def seeds(count: int = 12, *, outcome: str = "val_loss") -> Models:
    """Seeds whose loss follows `context_within` of 2 tokens; that of 1 token and the alignment are noise."""
    rng = np.random.default_rng(0)
    within, noise = rng.uniform(0.1, 0.6, count), rng.uniform(0.1, 0.6, (3, count))
    runs = [run_of(f"{i}", seed=i, val_loss=2 + np.log(within[i]), context_within_2=within[i]) for i in range(count)]
    rows = [row_of(run, "agreement", noise[0, i]) for i, run in enumerate(runs)]
    contexts = [
        row
        for i, run in enumerate(runs)
        for row in (
            context_row(run, "context_within", 1, noise[1, i]),
            context_row(run, "context_within", 2, within[i]),
            context_row(run, "context_within", 2, 0.5, layer="1"),
            context_row(run, "context_cka", 2, noise[2, i]),
            context_row(run, "entropy_gap", 2, run["val_loss"]),
        )
    ]
    return combine(runs, rows, contexts, outcome=outcome)


def at_fixed_scale(models: Models) -> dict[str, Relation]:
    rows = [row for row in relate(models, permutations=500) if row.subset == WITHIN]
    return {row.metric: row for row in rows if row.transform == RELATED[row.metric].transform}


def test_every_metric_is_there_once_and_contexts_are_a_family_of_their_own() -> None:
    assert set(METRICS) | set(context_columns()) == set(RELATED)
    assert not set(METRICS) & set(context_columns())
    for name, key in context_columns().items():
        assert (RELATED[name].family, RELATED[name].direction) == ("contexts", CONTEXT_METRICS[key.metric].direction)
    for name, metric in METRICS.items():
        assert RELATED[name].in_paper == metric.in_paper
        assert RELATED[name].ideal == metric.ideal


def test_a_metric_of_contexts_is_related_to_the_loss_like_any_other() -> None:
    models = seeds()
    assert models.metrics == ("agreement", "context_within_1", "context_within_2", "context_cka_2", "entropy_gap_2")
    assert models.frame["context_within_2 null"].tolist() == [0.9] * 12
    found = at_fixed_scale(models)
    assert found["context_within_2"].r == pytest.approx(1)
    assert found["context_within_2"].verdict is Verdict.AS_PREDICTED
    assert found["context_within_2"].family == "contexts"
    assert found["context_within_1"].verdict is Verdict.NOT_SHOWN
    assert found["context_cka_2"].family == "contexts"


def test_contexts_leave_the_corrections_of_other_metrics_as_they_were() -> None:
    models = seeds()
    lines = [Run(**line) for line in models.frame.to_dict("records")]
    rows = [row_of(line, "agreement", value) for line, value in zip(lines, models.frame["agreement"], strict=True)]
    alone = combine(lines, rows)
    assert alone.metrics == ("agreement",)
    assert at_fixed_scale(alone)["agreement"].p_holm == at_fixed_scale(models)["agreement"].p_holm


def test_the_gap_is_the_loss_by_another_name() -> None:
    row = at_fixed_scale(seeds())["entropy_gap_2"]
    assert (row.verdict, row.why_code) == (Verdict.DESCRIPTION, Cause.NOT_A_TEST)


def test_what_is_the_outcome_is_no_metric() -> None:
    models = seeds(outcome="context_within_2")
    assert "context_within_2" not in models.metrics
    assert models.frame["context_within_2"].notna().all()


def test_a_gap_below_zero_still_falls() -> None:
    runs = [run_of(f"{i}", val_loss=1.0) for i in range(2)]
    models = combine(runs, [], [context_row(run, "entropy_gap", 1, -0.5) for run in runs])
    assert models.toward["entropy_gap_1"] == -1


@pytest.mark.parametrize(("metric", "n"), [("context_with", 2), ("context_within", 65)])
def test_rows_of_no_metric_of_contexts_are_refused(metric: str, n: int) -> None:
    run = run_of("a", val_loss=1.0)
    with pytest.raises(RunError, match=f"contexts.csv: '{ContextColumn(metric, n).name}' is not a metric"):
        combine([run], [], [context_row(run, metric, n, 0.1)])
    with pytest.raises(RunError, match="contexts.csv: run b, checkpoint 1 is not in runs.csv"):
        combine([run], [], [context_row(run_of("b"), "context_within", 2, 0.1)])


def test_contexts_have_trends() -> None:
    wide = [run_of(f"{w}", width=w, val_loss=1.0) for w in (16, 32, 64)]
    grown = combine(wide, [], [context_row(run, "context_within", 2, 1 / (run["width"] or 1)) for run in wide])
    row = next(row for row in trends(grown) if (row.axis, row.metric) == ("width", "context_within_2"))
    assert (row.family, row.falls) == ("contexts", 1)


def test_a_column_has_one_name() -> None:
    assert context_columns()[ContextColumn("context_within", 2).name] == ("context_within", 2)
