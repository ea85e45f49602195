from dataclasses import replace

from collapselab.core.catalogue import FIRST, METRICS
from collapselab.records.measurement import Result
from records.test_tables import ROW

CATALOGUE = {(metric.id, metric.version) for metric in METRICS.values()}
LATER = {(metric.id, metric.version) for metric in METRICS.values() if metric.since != FIRST}


def outdated(measured: set[tuple[str, int]]) -> str | None:
    rows = [replace(ROW, metric=metric, version=version) for metric, version in measured]
    return Result(rows, {}).outdated()  # type: ignore[typeddict-item]


def test_a_measurement_of_before_a_metric_was_added_is_valid() -> None:
    assert LATER
    assert outdated(CATALOGUE) is None
    assert outdated(CATALOGUE - LATER) is None


def test_one_that_lacks_a_metric_of_the_first_version_is_not() -> None:
    assert outdated(CATALOGUE - {("head_sum", 2)}) == "it lacks the metric head_sum"


def test_one_of_an_earlier_version_of_a_metric_is_valid_and_says_the_version() -> None:
    assert outdated((CATALOGUE - {("head_sum", 2)}) | {("head_sum", 1)}) is None


def test_one_of_a_later_version_of_a_metric_is_not_also_where_the_metric_was_added_later() -> None:
    name, version = min(LATER)
    why = outdated((CATALOGUE - {(name, version)}) | {(name, version + 1)})
    assert why == f"its {name} follows version {version + 1} of the definition, not version {version}"
