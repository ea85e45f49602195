"""Which further columns of runs.csv are numbers to relate to, and which are settings."""

import pytest

from collapselab.core.catalogue import CONTEXT_METRICS
from collapselab.records.outcomes import ContextColumn, direction


@pytest.mark.parametrize("metric", CONTEXT_METRICS)
def test_a_metric_of_contexts_is_a_column_where_collapse_moves_it_one_way(metric: str) -> None:
    expected = {"falls": -1, "rises": 1, None: None}[CONTEXT_METRICS[metric].direction]
    assert direction(ContextColumn(metric, 2).name) == expected


@pytest.mark.parametrize("name", ["context_within", "context_within_", "context_within_two", "lr_2", "cdnv_k2", "_1"])
def test_other_names_are_none(name: str) -> None:
    assert direction(name) is None
