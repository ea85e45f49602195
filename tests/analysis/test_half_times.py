"""Half times of planted curves are where they were planted."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planted import row_of, run_of
from collapselab.analysis.curves import MIN_CHECKPOINTS, Phase, half_time, half_times, of_half_times
from collapselab.analysis.models import Models, combine

TIMES = np.geomspace(1e3, 1e7, 9)


@given(st.integers(2, 20), st.floats(-9, 9), st.floats(0.01, 9), st.sampled_from([-1, 1]))
def test_a_line_in_log_time_is_half_done_at_the_geometric_mean(
    points: int, start: float, slope: float, way: int
) -> None:
    times = np.geomspace(1e3, 1e7, points)
    assert half_time(times, start + way * slope * np.log(times)) == pytest.approx(1e5, rel=1e-6)


def test_a_step_is_half_done_between_its_two_checkpoints() -> None:
    values = np.where(TIMES < 5e4, 7.0, 3.0)
    assert half_time(TIMES, values) == pytest.approx(math.sqrt(TIMES[3] * TIMES[4]))


def test_a_quarter_of_the_way_is_a_quarter_in_log_time() -> None:
    """From 0 to 8 where the second checkpoint has 3 and the third 7: half, 4, is a quarter of the way between them."""
    times = np.array([1.0, 10.0, 1000.0, 2000.0])
    assert half_time(times, np.array([0.0, 3.0, 7.0, 8.0])) == pytest.approx(10 * 100**0.25)


def test_a_series_that_turns_has_its_first_crossing() -> None:
    assert half_time(np.array([1.0, 4.0, 16.0, 64.0, 256.0]), np.array([0.0, 2.0, 0.0, 2.0, 2.0])) == pytest.approx(2.0)


def test_half_at_a_checkpoint_is_its_time() -> None:
    assert half_time(np.array([1.0, 3.0, 7.0, 9.0]), np.array([0.0, 1.0, 1.0, 2.0])) == pytest.approx(3.0)


def test_no_change_has_no_half_time() -> None:
    assert half_time(TIMES, np.full(9, 2.0)) is None


def models_of(halves: list[float], *, points: int = 9, tokens: bool = True, width: int = 64) -> Models:
    """A run for each half time, with a loss that steps there and an agreement that is a line in log time."""
    times = np.geomspace(1e3, 1e7, points)
    runs = [
        run_of(
            f"{seed}", checkpoint=f"{i}", seed=seed, epochs=1.0, epoch=float(f"{time / 1e7:.3g}"), width=width,
            tokens=int(time) if tokens else None, val_loss=float(-np.tanh(np.log(time / half))),
        )
        for seed, half in enumerate(halves) for i, time in enumerate(times)
    ]  # fmt: skip
    return combine(runs, [row_of(run, "agreement", math.log(1 + run["epoch"])) for run in runs])


def rows_of(models: Models) -> dict[str, Phase]:
    return {row.metric: row for row in half_times(models)}


def test_seeds_of_a_cell_are_one_row_with_students_interval_of_log_times() -> None:
    """Half times of 10⁴, 10⁵ and 10⁶ are in the mean 10⁵; t of 2 degrees of freedom is 4.303, the error ln 10 / √3."""
    row = rows_of(models_of([1e4, 1e5, 1e6]))["val_loss"]
    assert (row.seeds, row.unit) == (3, "tokens")
    assert row.half_time == pytest.approx(1e5, rel=0.02)
    assert row.high is not None
    assert math.log10(row.high / row.half_time) == pytest.approx(4.3027 / math.sqrt(3), rel=0.02)


def test_a_single_seed_has_no_interval() -> None:
    row = rows_of(models_of([1e5]))["val_loss"]
    assert (row.seeds, row.low, row.high) == (1, None, None)


def test_without_tokens_the_time_is_in_epochs() -> None:
    row = rows_of(models_of([1e5, 1e5], tokens=False))["val_loss"]
    assert row.unit == "epochs"
    assert row.half_time == pytest.approx(0.01, rel=0.02)


def test_few_checkpoints_have_no_rows() -> None:
    assert half_times(models_of([1e5], points=MIN_CHECKPOINTS))
    assert half_times(models_of([1e5], points=MIN_CHECKPOINTS - 1)) == []


def test_a_cell_has_one_sentence_at_most() -> None:
    models = models_of([1e5, 1e5])
    (sentence,) = of_half_times(models, half_times(models))
    assert (sentence.topic, sentence.table) == ("phases", "phases")
