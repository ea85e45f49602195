"""No p and no verdict from too few models, whatever their numbers look like."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from analysis.planted import row_of, run_of, table
from collapselab.analysis.analyze import Analysis, analyze
from collapselab.analysis.controls import controls
from collapselab.analysis.families import FAMILY_SIZES, smallest_permutation_p, why_no_permutation
from collapselab.analysis.models import RELATED, Models
from collapselab.analysis.relate import relate
from collapselab.analysis.resampling import LEVEL
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.core.catalogue import METRICS
from collapselab.records.tables import RESULTS, RUNS, Run

KINDS = ("architectures", "seeds", "pairs", "checkpoints")
TESTED = [metric for metric in METRICS if metric not in ("model_accuracy", "etf_floor")]


def runs_of(rng: np.random.Generator, kind: str, models: int) -> list[Run]:
    """Models that differ in size, in their seed, in both, or that are checkpoints of two runs."""
    settings = {
        "architectures": lambda i: {"width": 2 ** (i + 3), "depth": i + 1, "parameters": 10 ** (i + 3)},
        "seeds": lambda i: {"seed": i},
        "pairs": lambda i: {"width": 8 * (i // 2 + 1), "parameters": 100 * (i // 2 + 1), "seed": i % 2},
        "checkpoints": lambda i: {"checkpoint": str(i), "epoch": i + 1.0, "epochs": float(models)},
    }[kind]
    name = (lambda i: f"run-{i % 2}") if kind == "checkpoints" else (lambda i: f"run-{i}")
    losses = 3 - np.arange(models) / 4 + 0.1 * rng.standard_normal(models)
    return [
        run_of(name(i), **settings(i), val_loss=float(loss), train_loss=float(loss - 0.1))
        for i, loss in enumerate(losses)
    ]


def analysed(folder: Path, rng: np.random.Generator, kind: str, models: int) -> Analysis:
    runs = runs_of(rng, kind, models)
    rows = [
        row_of(run, metric, 1 + run["val_loss"] + 1e-6 * rng.random(), null=2.0) for metric in TESTED for run in runs
    ]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return analyze(folder, permutations=999, seed=int(rng.integers(1000)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("models", [3, 4, 5])
def test_three_to_five_models_never_give_a_p_or_a_verdict(tmp_path: Path, kind: str, models: int) -> None:
    """Every metric follows the loss almost exactly: the strongest relation there can be."""
    analysis = analysed(tmp_path, np.random.default_rng(models), kind, models)
    rows = [*analysis.tables["relate"], *analysis.tables["controls"], *analysis.tables["trends"]]
    assert len(rows) > 100
    for row in rows:
        p = [getattr(row, name, None) for name in ("p", "p_clustered", "p_permutation", "p_sign", "p_holm")]
        assert p == [None] * len(p), row
        assert row.verdict in (Verdict.TOO_FEW, Verdict.DESCRIPTION)
        assert row.why, row
    told = [sentence for sentence in analysis.sentences if sentence.topic not in ("models", "diagnosis")]
    across = set() if kind == "seeds" else {"across models"}  # seeds alone: there is nothing across
    assert {sentence.topic for sentence in told} >= {*across, "scale held fixed", "controls"}


def random_models(rng: np.random.Generator, models: int) -> Models:
    runs = [
        run_of(f"{i}", width=int(rng.choice([8, 16, 32])), depth=int(rng.integers(1, 3)), seed=i,
               weight_decay=float(rng.choice([0, 0.1])), parameters=int(rng.integers(100, 10_000)),
               val_loss=float(rng.random() + 1), train_loss=float(rng.random() + 1))
        for i in range(models)
    ]  # fmt: skip
    return table(runs, {metric: rng.random(models) + 0.5 for metric in ("agreement", "cdnv_k2", "cdnv")})


def test_random_tables_of_few_models_never_give_a_verdict() -> None:
    rng = np.random.default_rng(7)
    for number in range(60):
        models = random_models(rng, 3 + number % 4)
        relations = relate(models, permutations=99, seed=number)
        rows = [*relations, *controls(models)]
        assert rows
        assert not [
            row for row in rows if row.verdict not in (Verdict.TOO_FEW, Verdict.DESCRIPTION) or row.p_holm is not None
        ]


def test_six_seeds_can_carry_a_verdict_and_five_cannot() -> None:
    for count in (5, 6):
        runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i**2) for i in range(count)]
        rows = relate(table(runs, {"agreement": [0.9 - 0.1 * i for i in range(count)]}), permutations=999)
        assert {row.subset for row in rows} == {ALL, WITHIN}
        assert all((row.r or 0) < -0.9 for row in rows), "the correlation itself is there"
        row = next(row for row in rows if row.subset == WITHIN)
        assert row.verdict is (Verdict.TOO_FEW if count == 5 else Verdict.AS_PREDICTED), row
        assert row.why_code is (Cause.TOO_FEW if count == 5 else None)


def test_the_smallest_p_is_that_of_all_orders() -> None:
    values = np.array([0.0, 1.0, 3.0, 7.0])  # not its own mirror image: the order found is alone
    found = [abs(np.corrcoef(values, order)[0, 1]) for order in permutations(values)]
    assert sum(r >= 1 - 1e-12 for r in found) / len(found) == 1 / 24 <= smallest_permutation_p([4])
    level = np.array([0.0, 1.0, 2.0, 3.0])  # its own mirror image
    found = [abs(np.corrcoef(level, order)[0, 1]) for order in permutations(level)]
    assert sum(r >= 1 - 1e-12 for r in found) / len(found) == smallest_permutation_p([4]) == 2 / 24
    assert smallest_permutation_p([2, 2, 2]) == 2 / 8
    assert smallest_permutation_p([1]) == 1


def test_the_fewest_are_what_their_argument_says() -> None:
    tests = FAMILY_SIZES["paper"]
    assert tests == sum(metric.in_paper for metric in METRICS.values()) == 7
    assert tests * smallest_permutation_p([6]) <= LEVEL < tests * smallest_permutation_p([5])
    assert why_no_permutation([6], "models", tests=tests) is None
    assert "6 in one cell" in (why_no_permutation([5], "models", tests=tests) or "")


def test_a_longer_catalogue_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninety toy metrics."""
    runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i**2) for i in range(7)]
    values = {name: [0.9 - 0.1 * i for i in range(7)] for name in ("agreement", "norm_cv")}
    before = relate(table(runs, values), permutations=999)
    for number in range(90):
        toy = replace(METRICS["norm_cv"], id=f"toy_{number}", in_paper=False)
        monkeypatch.setitem(METRICS, toy.id, toy)
        monkeypatch.setitem(RELATED, toy.id, replace(RELATED["norm_cv"], name=toy.id))
    assert relate(table(runs, values), permutations=999) == before
    rng = np.random.default_rng(0)
    measured = relate(table(runs, {**values, "toy_0": rng.random(7)}), permutations=999)
    own = [row for row in measured if row.family == "paper"]
    assert own == [row for row in before if row.family == "paper"], "what explores is in a family of its own"
    assert {row.verdict for row in own} == {Verdict.DESCRIPTION, Verdict.AS_PREDICTED}
