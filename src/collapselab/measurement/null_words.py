"""What the numbers of a result show against their null, in words: one metric of each property, said once.

The null is one shuffle of the labels, and a value has no interval unless it was asked for. So nothing is called shown
here: a value is said to be nearer to collapse than its null, farther from it, or about the same.
"""

from collections.abc import Iterator

from collapselab.core.catalogue import METRICS
from collapselab.records.measurement import Result
from collapselab.records.suite import DEFAULT_METRICS
from collapselab.records.tables import Row

SAME = 0.05
"""A difference of less than this share of the larger of the two is called none."""


def null_words(result: Result) -> str | None:
    """One sentence for the last layer; None where no null was measured."""
    parts = list(_parts(result))
    if not parts:
        return None
    return (
        f"Against shuffled labels: {'; '.join(parts)}. One shuffle, a description and no test: differences below "
        f"{SAME:.0%} are called none."
    )


def _parts(result: Result) -> Iterator[str]:
    half = result.facts.get("half_sample")
    changing = () if half is None else half["changing"]
    rows = {row.metric: row for row in result.rows if (row.split, row.layer, row.bin) == ("train", "last", "all")}
    for name in DEFAULT_METRICS:
        row = rows.get(name)
        if row is None or row.value is None or row.null is None:
            continue
        more = ", still changing with the number of tokens" if name in changing else ""
        yield f"{METRICS[name].property} {_said(row)} ({name} {row.value:.4g}, shuffled {row.null:.4g}{more})"


def _said(row: Row) -> str:
    """How a value is to its null, as collapse would move it."""
    assert row.value is not None
    assert row.null is not None
    apart = row.value - row.null
    if abs(apart) <= SAME * max(abs(row.value), abs(row.null)):
        return "about the same"
    direction = METRICS[row.metric].direction
    if direction not in ("falls", "rises"):
        return "different"
    return "nearer to collapse" if (apart < 0) == (direction == "falls") else "farther from collapse"
