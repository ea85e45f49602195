"""Ticks of axes that hold whole numbers."""

import pytest

from collapselab.report.charts.axes import MOST_WHOLE, whole_ticks


@pytest.mark.parametrize("last", [1, 2, 3, 8, 9, 13, 30, 97])
def test_whole_numbers_are_ticked_once_each_and_thinned_where_they_are_many(last: int) -> None:
    ticks = whole_ticks(range(1, last + 1))
    assert ticks[0] == 1
    assert ticks[-1] <= last
    assert len(set(ticks)) == len(ticks) <= MOST_WHOLE + 1
    assert last > MOST_WHOLE or ticks == list(range(1, last + 1))
