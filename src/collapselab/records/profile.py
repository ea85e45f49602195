"""The profile of one model: a line for each property of neural collapse, with its value between null and ideal."""

from collections.abc import Iterable
from dataclasses import dataclass

from collapselab.records.tables import Row


@dataclass(frozen=True)
class Headline:
    """The metric that represents a property, its value in a collapsed model, and a sentence about it."""

    code: str
    metric: str
    ideal: float
    words: str
    """A sentence; `{value}` is the value, `{percent}` the same in percent."""
    alternatives: tuple[str, ...] = ()
    """Other metrics of the property; their range is shown if they disagree."""


HEADLINES = (
    Headline("NC1", "within_share", 0, "{percent} of the variance is within classes (next tokens).", ("vci",)),
    Headline("NC2 norms", "norm_cv", 0, "The norms of class means vary by {percent} of their average."),
    Headline("NC2 angles", "cosine_error", 0, "Cosines between class means differ from a simplex by {value}."),
    Headline("GNC2", "logdist_std", 0, "Log distances between class means have a spread of {value}."),
    Headline("NC3", "duality_cos_mean", 1, "Class mean and output-layer row have a cosine of {value}."),
    Headline("UNC3", "duality_cos_std", 0, "Across classes, this cosine has a spread of {value}."),
    Headline("NC4", "agreement", 1, "Nearest class mean and model agree on {percent} of tokens."),
)


HEADLINE_METRICS = tuple(headline.metric for headline in HEADLINES)


@dataclass(frozen=True)
class Bar:
    """One line of the profile."""

    headline: Headline
    value: float
    null: float | None
    share: float | None
    """Position of the value between null (0) and ideal (1), clipped to this range."""
    low: float | None = None
    high: float | None = None
    """Range of the share over the metrics of the property, if they disagree."""

    @property
    def sentence(self) -> str:
        return self.headline.words.format(
            value=f"{round(self.value, 2) + 0:.2f}", percent=f"{self.value:.0%}".replace("%", " %")
        )

    @property
    def standing(self) -> str:
        """The position on the bar in words."""
        if self.share is None or self.null is None:
            return "no null was measured"
        if self.share == 0:
            return "no closer to collapse than with shuffled labels"
        if self.low is not None and self.high is not None:
            return f"{self.low:.0%} to {self.high:.0%} of the way to collapse".replace("%", " %")
        return f"{self.share:.0%} of the way to collapse".replace("%", " %")


def profile(rows: Iterable[Row]) -> list[Bar]:
    """Return the bars of one model from its rows, without properties that were not measured."""
    last = {row.metric: row for row in rows if (row.split, row.layer, row.bin) == ("train", "last", "all")}
    bars = []
    for headline in HEADLINES:
        row = last.get(headline.metric)
        if row is None or row.value is None:
            continue
        alternatives = (last[name] for name in headline.alternatives if name in last)
        shares = [share for one in (row, *alternatives) if (share := _share(one, headline.ideal)) is not None]
        disagree = len(shares) > 1 and max(shares) - min(shares) >= 0.1
        ends = (min(shares), max(shares)) if disagree else (None, None)
        bars.append(Bar(headline, row.value, row.null, _share(row, headline.ideal), *ends))
    return bars


def verdict(bars: Iterable[Bar]) -> str:
    """Say whether a model has collapsed: how many properties are nearer to collapse than to shuffled labels."""
    judged = [bar for bar in bars if bar.share is not None]
    near = [bar.headline.code for bar in judged if bar.share is not None and bar.share > 0.5]
    if not judged:
        return "Shuffled labels were not measured, so nothing says how far the model has collapsed."
    # One of seven can be due to the sample: the means of rare classes are noisy, those of shuffled labels too.
    word = "Collapsed" if len(near) == len(judged) else "Partly collapsed" if len(near) > 1 else "Not collapsed"
    names = f" ({', '.join(near)})" if near else ""
    verb = "is" if len(near) == 1 else "are"
    return f"{word}: {len(near) or 'none'} of {len(judged)} properties {verb} more than half of the way there{names}."


def _share(row: Row, ideal: float) -> float | None:
    if row.value is None or row.null is None or row.null == ideal:
        return None
    return min(max((row.null - row.value) / (row.null - ideal), 0.0), 1.0)
