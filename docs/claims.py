"""The numbers in the findings of README.md and docs/results, recomputed from the packed tables.

Findings are the bold sentences of docs/results/*.md and the numbered items of README.md. `claim_list.py` has a function
for each that returns its numbers; `tests/test_claims.py` compares them with the pages.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "results" / "tables"
BEGIN = "<!-- made by docs/make_results.py -->"
README_HEADING = "## What the tables show"

Numbers = Sequence[float | str]
Interval = tuple[float, float, float]
"""Mean, lower and upper end of the 95 % interval."""


CLAIMS: list[tuple[str, Callable[[], Numbers]]] = []
"""Of each finding its page and the function that returns its numbers, in the order of the page."""

NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]\d+)?(?![\w])")
WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twice|half|third|quarter|double"


def claim(page: str) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    """Register the decorated function as the source of the numbers in the next finding of a page."""

    def register(numbers: Callable[[], Numbers]) -> Callable[[], Numbers]:
        CLAIMS.append((page, numbers))
        return numbers

    return register


def mismatches(page: str) -> list[str]:
    """What differs between the findings of a page and the tables; a finding without numbers of its own is one, too."""
    findings, sources = stated(page), [numbers for name, numbers in CLAIMS if name == page]
    found = [] if len(findings) == len(sources) else [f"{len(findings)} findings, {len(sources)} claims"]
    for finding, numbers in zip(findings, sources, strict=False):
        found += [f"{numbers.__name__}: {text}" for text in compared(finding, numbers())]
    return found


def compared(finding: str, numbers: Numbers) -> list[str]:
    """Where a sentence differs from the numbers that it should have, each rounded and signed as the sentence has it."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", finding).replace("−", "-")
    written = NUMBER.findall(plain)
    names = [name for name in numbers if isinstance(name, str) and not name.isdecimal()]
    given = [float(number) for number in numbers if number not in names]
    found = [f"{name} is not there" for name in names if name not in finding]
    found += [f"{word} is a number in words" for word in re.findall(rf"\b(?:{WORDS})\b", plain, re.IGNORECASE)]
    if len(written) != len(given):
        return [*found, f"{len(written)} numbers in place of {len(given)}: {', '.join(map(str, given))}"]
    pairs = [(text, _as_written(number, text)) for number, text in zip(given, written, strict=True)]
    return [*found, *(f"{text} should be {right}" for text, right in pairs if text != right)]


def _as_written(number: float, text: str) -> str:
    """The number with the sign, digits and commas of this text."""
    mantissa, exponent, _ = text.partition("e")
    digits, kind = len(mantissa.partition(".")[2]), "e" if exponent else "f"
    return format(number, f"{'+' if text[0] == '+' else ''}{',' if abs(number) >= 1000 else ''}.{digits}{kind}")


def one_line(text: str) -> str:
    return " ".join(text.split())


def stated(page: str) -> list[str]:
    """The findings that a page states: its bold sentences, or the numbered findings of the README."""
    if page == "README.md":
        section = (ROOT / page).read_text("utf-8").partition(f"\n{README_HEADING}\n")[2].partition("\n## ")[0]
        items = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\S|\Z)", section, flags=re.MULTILINE | re.DOTALL)
        return [one_line(item) for item in items]
    written = (ROOT / "docs" / "results" / page).read_text("utf-8").partition(BEGIN)[0]
    return [one_line(bold) for bold in re.findall(r"\*\*(.+?)\*\*", written, flags=re.DOTALL)]


# Tables


@cache
def table(suite: str, name: str) -> pd.DataFrame:
    """A packed table, as it is."""
    return pd.read_csv(TABLES / suite / f"{name}.csv.gz", low_memory=False)


@cache
def checkpoints(suite: str, layer: str = "last", column: str = "value") -> pd.DataFrame:
    """A row for each checkpoint: its columns of runs.csv and its metrics, of all classes, on the training split.

    Metrics of the validation split have ` (validation)` after their name. With `column="null"` metrics have the
    values of shuffled labels.
    """
    results = table(suite, "results")
    results = results[(results["layer"].astype(str) == layer) & (results["bin"] == "all")]
    names = results["metric"].where(results["split"] == "train", results["metric"] + " (" + results["split"] + ")")
    wide = results.assign(metric=names).pivot(index=["run", "checkpoint"], columns="metric", values=column)
    runs = table(suite, "runs").copy()
    runs["corpus"] = runs["corpus"].str.partition(" ")[0]
    missing = pd.Series(None, index=runs.index, dtype=object)
    runs["intervene"] = runs.get("intervene", missing).fillna("none")
    runs["coupling"] = runs.get("coupling", missing).astype(float).fillna(0.0)
    runs["tokens"] = runs["tokens"].fillna(0)  # unknown of models that were not trained here
    return runs.merge(wide.reset_index(), on=["run", "checkpoint"])


@cache
def contexts() -> pd.DataFrame:
    """A row for each checkpoint and length n of contexts, with the metrics of contexts at the last layer."""
    rows = table("contexts", "contexts")
    rows = rows[rows["layer"] == "last"]
    wide = rows.pivot(index=["run", "checkpoint", "n"], columns="metric", values="value").reset_index()
    return wide.merge(checkpoints("contexts")[["run", "checkpoint", "corpus", "seed", "tokens"]])


def last(suite: str, **settings: object) -> pd.DataFrame:
    """The final checkpoint of every run with these settings."""
    rows = checkpoints(suite)
    return where(rows[rows["tokens"] == rows.groupby("run")["tokens"].transform("max")], **settings)


def at(suite: str, **settings: object) -> pd.DataFrame:
    """The checkpoints with these settings."""
    return where(checkpoints(suite), **settings)


def where(rows: pd.DataFrame, **settings: object) -> pd.DataFrame:
    """The rows with these settings; none at all is an error."""
    for column, value in settings.items():
        rows = rows[rows[column] == value]
    if rows.empty:
        raise ValueError(f"no rows with {settings}")
    return rows


# Statistics


def interval(values: "Iterable[float]") -> Interval:
    """Mean of independent values with its 95 % t interval."""
    sample = np.asarray(list(values), dtype=float)
    half = float(stats.sem(sample) * stats.t.ppf(0.975, len(sample) - 1))
    mean = float(sample.mean())
    return mean, mean - half, mean + half


def differences(
    arm: pd.DataFrame, control: pd.DataFrame, column: str, on: Sequence[str] = ("seed",)
) -> "pd.Series[float]":
    """Arm minus control in each pair; both must have the same pairs."""
    left, right = (rows.set_index(list(on))[column].sort_index() for rows in (arm, control))
    if not left.index.is_unique or not left.index.equals(right.index):
        raise ValueError(f"arm and control are not paired by {on}")
    return left - right


def ratio(arm: pd.DataFrame, control: pd.DataFrame, column: str, on: Sequence[str] = ("seed",)) -> Interval:
    """Ratio of geometric means of arm and control, with the 95 % t interval of the paired log ratios."""
    logs = [rows.assign(**{column: np.log(rows[column])}) for rows in (arm, control)]
    mean, low, high = np.exp(interval(differences(logs[0], logs[1], column, on)))
    return float(mean), float(low), float(high)


def up(effect: Interval) -> Interval:
    """The effect, which must lie above 0."""
    if effect[1] <= 0:
        raise ValueError(f"not shown to rise: {effect}")
    return effect


def down(effect: Interval) -> Interval:
    """The size of an effect, which must lie below 0."""
    mean, low, high = effect
    return up((-mean, -high, -low))


def r(first: "pd.Series[float]", second: "pd.Series[float]") -> float:
    """Pearson correlation."""
    return float(np.corrcoef(first, second)[0, 1])


def r_interval(first: "pd.Series[float]", second: "pd.Series[float]") -> Interval:
    """Pearson correlation with its 95 % interval by Fisher's z."""
    value, half = r(first, second), stats.norm.ppf(0.975) / np.sqrt(len(first) - 3)
    return value, float(np.tanh(np.arctanh(value) - half)), float(np.tanh(np.arctanh(value) + half))


def partial_r(first: "pd.Series[float]", second: "pd.Series[float]", given: "pd.Series[float]") -> float:
    """Correlation of two columns with a third held fixed."""
    a, b, c = r(first, second), r(first, given), r(second, given)
    return float((a - b * c) / np.sqrt((1 - b**2) * (1 - c**2)))


def moved(
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    rise: Sequence[str] = (),
    fall: Sequence[str] = (),
    on: Sequence[str] = ("seed",),
) -> None:
    """Raise unless these columns rise, and those fall, in every pair."""
    for column in (*rise, *fall):
        changes = differences(after, before, column, on)
        if not ((changes > 0) if column in rise else (changes < 0)).all():
            raise ValueError(f"{column} does not move in one direction in all pairs")


def from_to(before: pd.DataFrame, after: pd.DataFrame, *columns: str) -> list[float]:
    """Means before and after, column by column."""
    return [float(rows[column].mean()) for column in columns for rows in (before, after)]


def tokens_per_parameter(rows: pd.DataFrame) -> "pd.Series[float]":
    return rows["tokens"] / rows["parameters"]
