"""What the trends say of one metric along one axis: in a few words for a panel, in full for its alternative text."""

from collapselab.analysis.trends import AXES, Trend
from collapselab.report.names import regime_name, setting_name
from collapselab.report.story import Story


def _trend(story: Story, axis: str, metric: str) -> list[Trend]:
    rows = story.analysis.trends if story.analysis else []
    return [row for row in rows if (row.axis, row.metric) == (axis, metric) and row.why is None]


def trend_words(story: Story, axis: str, metric: str) -> str:
    return " ".join(
        f"With {setting_name(axis)}{f' ({regime_name(row.where)})' if row.where else ''}: rises in {row.rises} of "
        f"{row.groups}, falls in {row.falls}; {row.verdict}."
        for row in _trend(story, axis, metric)
    )  # fmt: skip


def trend_note(story: Story, axis: str, metric: str) -> str:
    rows = _trend(story, axis, metric)
    if not rows:
        return ""
    more, count = max((sum(row.rises for row in rows), "rises"), (sum(row.falls for row in rows), "falls"))
    noun = "groups" if axis in AXES else "pairs"
    return f"{count} in {more} of {sum(row.groups for row in rows)} {noun}"
