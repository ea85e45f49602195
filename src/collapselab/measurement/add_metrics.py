"""Metrics that came after a measurement, added to it from its kept class moments: no forward pass, no model.

The moments of the training split's last layer are kept beside the measurement of a run's checkpoint, and of any model
that was measured with `--classes`. What needs the output layer, another layer or split, or the null is not in them;
`--again` measures these.
"""

from copy import copy
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from collapselab.core.catalogue import METRICS, Need
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.errors import DamagedError
from collapselab.measurement.catalogue import row_order
from collapselab.records.measurement import Result
from collapselab.records.result_folder import load_moments, moments_identity
from collapselab.records.tables import Row

OF_MOMENTS = frozenset({Need.MEANS, Need.SCATTER, Need.COVARIANCE, Need.SPECTRUM, Need.DIRECTIONS, Need.PAIRS})
"""What class moments alone are enough for."""


def lacking_metrics(result: Result) -> list[str]:
    """Metrics of today's catalogue that the result lacks and its moments have."""
    measured = {row.metric for row in result.rows}
    return [id for id, metric in METRICS.items() if id not in measured and metric.needs <= OF_MOMENTS]


def with_added_metrics(result: Result, moments: ClassMoments, names: list[str]) -> Result:
    """The result with a row for each of these metrics; ValueError if the moments are not those of its last layer."""
    like = next(row for row in result.rows if (row.split, row.layer, row.bin) == ("train", "last", "all"))
    assert like.min_count is not None
    measured = collapse_metrics(moments, min_count=like.min_count, only=names)
    rows = [
        replace(
            like,
            metric=id,
            value=measurement.value,
            null=None,
            low=None,
            high=None,
            classes=measurement.classes,
            tokens=measurement.tokens,
            left_out=measurement.left_out,
            version=measurement.version,
            why=measurement.why,
        )
        for id, measurement in measured.items()
    ]
    _check_same_sample(rows, result)
    before = result.facts["added"]["metrics"] if "added" in result.facts else []
    facts = copy(result.facts)
    facts["added"] = {"metrics": [*before, *names], "version": version("collapselab")}
    return replace(result, rows=sorted([*result.rows, *rows], key=row_order), facts=facts)


def kept_moments(path: Path | None, result: Result) -> ClassMoments | None:
    """The moments in a file; None where there is none, or it is damaged or of another measurement."""
    if path is None or not path.is_file():
        return None
    try:
        return load_moments(path, moments_identity(result.facts))
    except DamagedError:
        return None


def _check_same_sample(rows: list[Row], result: Result) -> None:
    """Moments of a measurement that was replaced since would have other classes or tokens."""
    measured = {
        (row.classes, row.tokens)
        for row in result.rows
        if (row.split, row.layer, row.bin) == ("train", "last", "all")
        and row.metric in METRICS
        and METRICS[row.metric].needs & {Need.MEANS}
    }
    if not {(row.classes, row.tokens) for row in rows} <= measured:
        raise ValueError("the kept moments are of another sample.")
