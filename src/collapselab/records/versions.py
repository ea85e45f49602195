"""Which definition a measured number follows: a metric's version rises when its number changes for the same input.

Numbers of two versions are never compared: a measurement of an earlier version is made again, and no table mixes them.
"""

from collections.abc import Iterable, Sequence

from collapselab.core.metrics import FIRST, METRICS


def outdated(measured: Iterable[tuple[str, int]]) -> str | None:
    """Why these pairs of metric and version are not today's catalogue; None if they are.

    A metric that the catalogue no longer has does not matter; nor does one that was added to it later. One that it has
    had from the first and the measurement lacks does.
    """
    found = set(measured)
    names = {metric for metric, _ in found}
    lacking = [name for name, metric in METRICS.items() if metric.since == FIRST and name not in names]
    if lacking:
        more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
        return f"it lacks the metric {lacking[0]}{more}"
    others = sorted((name, version) for name, version in found if name in METRICS and version != METRICS[name].version)
    for name, version in others[:1]:
        return f"its {name} follows version {version} of the definition, not version {METRICS[name].version}"
    return None


def mixed(measured: Sequence[tuple[str, int]]) -> tuple[int, int] | None:
    """The places of the first two numbers of one metric that follow different versions, None if there are none."""
    first: dict[str, int] = {}
    for place, (metric, version) in enumerate(measured):
        if metric in first and measured[first[metric]][1] != version:
            return first[metric], place
        first.setdefault(metric, place)
    return None
