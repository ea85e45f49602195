"""No p and no verdict from too few models, whatever their numbers look like."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from analysis.planted import row_of, run_of, table
from collapselab.analysis.analyze import analyze
from collapselab.analysis.attainable import (
    FEWEST_CLUSTERS,
    FEWEST_FREEDOM,
    FEWEST_MODELS,
    LEVEL,
    TESTS,
    smallest_permutation_p,
)
from collapselab.analysis.controls import MIXED, Control, controls
from collapselab.analysis.models import Models
from collapselab.analysis.relate import relate
from collapselab.analysis.stored import Analysis
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.verdict import Verdict, is_shown
from collapselab.analysis.words import CANNOT_TELL
from collapselab.core.metrics import METRICS
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("models", [3, 4, 5, 6])
def test_three_to_six_models_never_give_a_p_or_a_verdict(tmp_path: Path, kind: str, models: int) -> None:
    """Every metric follows the loss almost exactly: the strongest relation there can be."""
    analysis = analysed(tmp_path, np.random.default_rng(models), kind, models)
    rows = [*analysis.relations, *analysis.controls, *analysis.trends]
    assert len(rows) > 100
    for row in rows:
        p = [getattr(row, name, None) for name in ("p", "p_clustered", "p_permutation", "p_sign", "p_holm", "p_bh")]
        assert p == [None] * 6, row
        assert row.verdict is None
        assert row.verdict_code in (Verdict.CANNOT_TELL, Verdict.DESCRIPTION)
        assert row.why, row
    assert all(row.gain is None and row.low is None and row.why for row in analysis.predictions)
    told = [sentence for sentence in analysis.sentences if sentence.topic not in ("models", "diagnosis")]
    across = set() if kind == "seeds" else {"across models"}  # seeds alone: there is nothing across
    assert {sentence.topic for sentence in told} >= {*across, "scale held fixed", "controls", "prediction"}
    firsts = {sentence.topic: sentence.text for sentence in reversed(told)}
    for topic, text in firsts.items():
        words = (CANNOT_TELL, "say nothing", "no answer", "describes")
        assert any(word in text for word in words) or topic == "controls", text
    assert not any(word in s.text for s in told for word in ("these go with", "shown after", "wrong way", "toward "
                   "collapse agreement", "interval above 0"))  # fmt: skip


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
        rows = [*relations, *controls(models, relations)]
        assert rows
        assert not [row for row in rows if row.verdict is not None or is_shown(row)]


def mixed(architectures: int, each: int) -> Control:
    rng = np.random.default_rng(0)
    runs = [
        run_of(f"{a}-{s}", width=8 * (a + 1), parameters=1000 * 2**a, seed=s, val_loss=float(rng.random()))
        for a in range(architectures) for s in range(each)
    ]  # fmt: skip
    models = table(runs, {"agreement": rng.random(len(runs)) + 1})
    rows = controls(models, relate(models, permutations=99))
    return next(row for row in rows if row.controls == MIXED)


def test_the_mixed_model_needs_architectures_and_models_beyond_one_each() -> None:
    few, alone, enough = mixed(FEWEST_CLUSTERS - 1, 4), mixed(FEWEST_CLUSTERS, 1), mixed(FEWEST_CLUSTERS, 2)
    assert few.why == "9 architectures; random intercepts need 10."
    assert (alone.why or "").startswith("10 models of 10 architectures; random intercepts need 6 models more")
    assert enough.p is not None
    assert enough.verdict_code is Verdict.DESCRIPTION


def test_seven_seeds_can_carry_a_verdict_and_six_cannot() -> None:
    for count in (6, 7):
        runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i**2) for i in range(count)]
        rows = relate(table(runs, {"agreement": [0.9 - 0.1 * i for i in range(count)]}), permutations=999)
        assert {row.subset for row in rows} == {ALL, WITHIN}
        assert all((row.r or 0) < -0.9 for row in rows), "the correlation itself is there"
        row = next(row for row in rows if row.subset == WITHIN)
        assert (row.verdict is not None) == (count == 7), row
        if count == 6:
            assert "6 models have 720 orders" in (row.why or "")


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
    assert (FEWEST_MODELS, FEWEST_FREEDOM) == (7, 6)
    assert TESTS * smallest_permutation_p([7]) <= LEVEL < TESTS * smallest_permutation_p([6])


def test_a_p_of_zero_is_shown() -> None:
    assert is_shown(Control("nothing", "agreement", 9, p_holm=0.0))
    assert not is_shown(Control("nothing", "agreement", 9))
