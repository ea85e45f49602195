"""Learning speed and generalisation: the sentence about a suite, and comparisons at equal training loss."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.arms import Registered, comparisons
from collapselab.analysis.effects import _judged as judged
from collapselab.analysis.effects import effects
from collapselab.analysis.models import Models
from collapselab.analysis.paired import at_equal_training_loss, equal_loss_differences
from collapselab.analysis.verdict import Role, Verdict
from collapselab.analysis.words import about_speed
from collapselab.records.suite import Primary

ARMS = [
    Planted("within:+0.1", {"cdnv_log": -0.3, "val_loss": 0.1}),
    Planted("within:-0.1", {"cdnv_log": 0.3, "val_loss": -0.05}),
    Planted("simreg:0.1", {"cdnv_log": -0.2}),
]


def suite(*, epochs: float = 2.0, gap: float = 0.0, seeds: int = 8) -> Models:
    """Runs of this many epochs; the first arm changes the gap by `gap`."""
    models = arms_table(ARMS, seeds=seeds, rng=np.random.default_rng(0))
    rng, frame = np.random.default_rng(1), models.frame
    gaps = 0.05 + 0.003 * rng.standard_normal(len(frame)) + gap * frame["intervene"].eq("within:+0.1")
    return replace(
        models,
        frame=frame.assign(epoch=epochs * frame["epoch"], epochs=epochs, gap=gaps, train_loss=frame["val_loss"] - gaps),
    )


def test_less_than_an_epoch_is_about_learning_speed() -> None:
    assert about_speed(suite(epochs=0.5), None) is not None
    assert about_speed(suite(epochs=2.0), None) is None


def test_a_gap_that_stays_within_the_margin_is_about_learning_speed() -> None:
    assert about_speed(suite(), 0.02) is not None
    assert about_speed(suite(gap=0.04), 0.02) is None
    assert about_speed(suite(), None) is None, "without a margin nothing is shown to be small"
    assert about_speed(suite(), 0.001) is None
    assert about_speed(suite(seeds=2), 0.02) is None


def test_the_gap_is_a_further_outcome_with_a_verdict() -> None:
    models = suite(gap=0.04)
    registered = Registered(Primary(outcomes=("gap",), smallest_effect=0.02), beforehand=True)
    rows = effects(models, registered, permutations=999, seed=0)
    gaps = {row.label: row for row in rows if row.role is Role.FURTHER}
    assert gaps["within:+0.1"].verdict is Verdict.HARMS
    assert gaps["simreg:0.1"].verdict is Verdict.EQUIVALENT
    assert all(row.registered for row in gaps.values())
    assert gaps["within:+0.1"].effect == pytest.approx(0.04, abs=0.005)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-0.2, -0.1, Verdict.UNDECIDED), (-0.1, 0.1, Verdict.HARMS), (0.1, 0.2, Verdict.HARMS)]
)
def test_a_gap_that_is_reversed_at_equal_training_loss_is_undecided(low: float, high: float, verdict: Verdict) -> None:
    """A larger gap harms, unless it is smaller at equal training loss: then the training text is fitted more closely."""
    row = next(
        row
        for row in effects(suite(gap=0.04), Registered(), permutations=999, seed=0)
        if (row.role, row.metric, row.label) == (Role.FURTHER, "gap", "within:+0.1")
    )
    row = replace(row, equal_loss=(low + high) / 2, equal_loss_low=low, equal_loss_high=high)
    assert judged(row, checked=True).verdict is verdict


def curve(train: list[float], gap: float, tokens: list[int] | None = None) -> pd.DataFrame:
    tokens = tokens or [200 + 20 * i for i in range(len(train))]
    return pd.DataFrame({"train_loss": train, "val_loss": [loss + gap for loss in train], "tokens": tokens})


def test_a_slower_run_with_the_same_gap_is_equal_at_equal_training_loss() -> None:
    slow, fast = curve([4.0, 3.5, 3.2], 0.1), curve([3.8, 3.3, 3.0], 0.1)
    assert at_equal_training_loss(slow, fast) == pytest.approx(0.0)
    assert at_equal_training_loss(curve([4.0, 3.5, 3.2], 0.15), fast) == pytest.approx(0.05)
    assert at_equal_training_loss(fast, curve([4.0, 3.5, 3.2], 0.15)) == pytest.approx(-0.05)


def test_the_interpolation_is_linear_in_the_training_loss() -> None:
    fast = pd.DataFrame({"train_loss": [3.4, 3.0], "val_loss": [3.6, 3.1], "tokens": [95, 100]})
    slow = curve([3.1], 0.0)
    assert at_equal_training_loss(slow, fast) == pytest.approx(3.1 - (3.1 + 0.25 * 0.5))


def test_a_level_without_a_checkpoint_near_it_is_not_compared() -> None:
    slow = curve([3.25], 0.1)
    near, far = curve([3.5, 3.0], 0.1, [90, 100]), curve([3.5, 3.0], 0.1, [40, 100])
    assert at_equal_training_loss(slow, near) == pytest.approx(0.0)
    assert at_equal_training_loss(slow, far) is None
    assert at_equal_training_loss(curve([4.0], 0.1), near) is None, "the faster run was never at this loss"


def test_running_means_are_not_compared_at_equal_loss() -> None:
    models = suite()
    old = replace(models, frame=models.frame.assign(train_loss=np.nan))
    assert len(equal_loss_differences(old, comparisons(old)[0])) == 0
    row = next(row for row in effects(old, Registered(), permutations=99, seed=0) if row.role is Role.OUTCOME)
    assert row.equal_loss is None


def test_the_comparison_covers_the_truth_for_slower_arms() -> None:
    """Arms 5 to 15 % slower, with no other effect: the interval covers 0 in nine of ten suites or more."""
    rng, covered = np.random.default_rng(3), []
    for _ in range(60):
        speed, differences = rng.uniform(0.85, 0.95), []
        for _seed in range(8):
            tokens, runs = np.linspace(0.5, 1, 8), []
            for pace in (speed, 1.0):
                train = 3 + 0.5 * (pace * tokens) ** -0.5 + 0.004 * rng.standard_normal()
                val = train + 0.02 + 0.003 * rng.standard_normal()
                runs.append(pd.DataFrame({"train_loss": train, "val_loss": val, "tokens": tokens}))
            differences.append(at_equal_training_loss(runs[0], runs[1]))
        known = np.array([value for value in differences if value is not None])
        half = 2.365 * known.std(ddof=1) / np.sqrt(len(known))
        covered.append(abs(known.mean()) <= half)
    assert np.mean(covered) >= 0.88
