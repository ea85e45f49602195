"""Ticks of axes: of whole numbers, and of lines whose values are alike though those of other models are not."""

from types import SimpleNamespace
from typing import Any

import altair as alt
import numpy as np
import pytest

from collapselab.report.charts.axes import if_logarithmic, value_axis, whole_ticks


@pytest.mark.parametrize("last", [1, 2, 3, 8, 9, 13, 30, 97])
def test_whole_numbers_are_ticked_once_each_and_thinned_where_they_are_many(last: int) -> None:
    ticks = whole_ticks(range(1, last + 1))
    assert ticks[0] == 1
    assert ticks[-1] <= last
    assert len(set(ticks)) == len(ticks) <= 9
    assert last > 8 or ticks == list(range(1, last + 1))


def test_values_that_are_alike_have_a_straight_axis_though_others_of_the_metric_are_far() -> None:
    """Ends of runs lie between 0.12 and 0.18; at the first checkpoints the same metric is 5 and -0.2."""
    data: Any = SimpleNamespace(logarithmic=set())
    ends, all_values = np.array([0.12, 0.14, 0.18]), np.array([-0.2, 0.12, 0.14, 0.18, 5.0])
    assert if_logarithmic(data, "lognorm_cv", ends) is None
    far = if_logarithmic(data, "lognorm_cv", all_values)
    assert far is not None
    axis = value_axis("lognorm_cv", far, alt.Y)
    assert isinstance(axis["axis"], alt.Axis)
    assert not [tick for tick in axis["axis"]["values"] if ends.min() < tick < ends.max()]  # why: nothing to read there
