"""What the trends say of one metric along one axis: in a few words for a panel, in full for its alternative text."""

from collapselab.analysis.relate import CANNOT_TELL
from collapselab.analysis.trends import AXES, Trend
from collapselab.report.story import Story
from collapselab.report.words import regime_name, setting_name


def _trend(story: Story, axis: str, metric: str) -> list[Trend]:
    rows = story.analysis.trends if story.analysis else []
    return [row for row in rows if (row.axis, row.metric) == (axis, metric) and row.groups]


def trend_words(story: Story, axis: str, metric: str) -> str:
    return " ".join(
        f"With {setting_name(axis)}{f' ({regime_name(row.where)})' if row.where else ''}: rises in {row.rises} of "
        f"{row.groups}, falls in {row.falls}; {row.verdict or CANNOT_TELL}."
        for row in _trend(story, axis, metric)
    )  # fmt: skip


def trend_note(story: Story, axis: str, metric: str) -> str:
    """In how many groups the metric moves which way, and whether that is the way of collapse."""
    rows = _trend(story, axis, metric)
    if not rows:
        return ""
    rises, falls = sum(row.rises for row in rows), sum(row.falls for row in rows)
    way, more = ("rises", rises) if rises > falls else ("falls", falls)
    noun = {"epoch": "runs"}.get(axis, "groups" if axis in AXES else "pairs")
    of = f"of {sum(row.groups for row in rows)} {noun}"
    if rises == falls:
        return f"rises in {rises}, falls in {falls} {of}"
    toward = {row.toward for row in rows}
    goal = "better" if metric == story.outcome else "toward collapse"
    away = "worse" if metric == story.outcome else "away from collapse"
    meaning = "" if len(toward) > 1 or None in toward else f" ({goal if way in toward else away})"
    return f"{way} in {more} {of}{meaning}"
