"""Verdicts: what a corrected test allows to say of one row of a table, and why there is sometimes nothing to say.

A verdict is a code, never a sentence: `words.py` has the sentences. A row without a value, or with a value and no test,
has a reason in place of a verdict: a code for programs and a text for people.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypedDict, TypeVar, final

import numpy as np
from scipy.stats import false_discovery_control

from collapselab.analysis.attainable import LEVEL


@final
class Verdict(StrEnum):
    """What a corrected test allows to say, and no more."""

    AS_PREDICTED = "as predicted"
    """Significant, in the direction that collapse predicts; of an outcome: it gets better."""
    OPPOSITE = "opposite direction"
    """Significant in the opposite direction; of an outcome: it gets worse."""
    NO_DIRECTION = "no direction predicted"
    """Significant, where collapse predicts no direction."""
    NOT_SHOWN = "not shown"
    """Tested and not significant, which does not mean absent."""
    CANNOT_TELL = "cannot tell"
    """No result could have been significant with so few models or groups, or no test of them would hold its level; the
    row's reason says why."""
    DESCRIPTION = "description"
    """A number about these models that no test judges: its error rate is not known, or it has no direction."""


@final
class Goes(StrEnum):
    """The direction of a correlation, by its sign alone."""

    WITH = "with"
    """More collapse, better outcome."""
    AGAINST = "against"
    """More collapse, worse outcome."""


@final
class Cause(StrEnum):
    """Why a row has no value, or a value without a test."""

    NOT_A_TEST = "not a test"
    """The metric says nothing of its own about the outcome."""
    TOO_FEW = "too few"
    """Too few models, cells, architectures, groups or degrees of freedom."""
    NO_VARIATION = "no variation"
    """Metric or outcome is the same in all models, or the controls determine it."""
    MISSING = "missing"
    """A column that the statement needs is incomplete."""
    NO_FIT = "no fit"
    """The model of the statement cannot be fitted to these numbers."""


class ReasonColumns(TypedDict):
    """The two columns that every table has for a reason."""

    why: str
    why_code: Cause


@final
class Reason(NamedTuple):
    """Why a row has no value or no test: a code for programs, a text for people."""

    code: Cause
    text: str

    @property
    def columns(self) -> ReasonColumns:
        return {"why": self.text, "why_code": self.code}


class Tested(Protocol):
    """A row that a corrected test belongs to."""

    @property
    def p_holm(self) -> float | None: ...


def is_shown(row: Tested) -> bool:
    """Whether the corrected test is significant; a p of 0, as a tiny one is printed, is."""
    return row.p_holm is not None and row.p_holm < LEVEL


def direction_of(effect: float, expected: int) -> Goes | None:
    """The direction of an effect whose sign is `expected` where more collapse means a better outcome; None for 0."""
    if expected == 0 or effect == 0:
        return None
    return Goes.WITH if effect * expected > 0 else Goes.AGAINST


def verdict_of(goes: Goes | None, *, shown: bool) -> Verdict:
    """The verdict of a corrected test on an effect of this direction."""
    if not shown:
        return Verdict.NOT_SHOWN
    if goes is None:
        return Verdict.NO_DIRECTION
    return Verdict.AS_PREDICTED if goes is Goes.WITH else Verdict.OPPOSITE


@final
class Corrected(NamedTuple):
    """A p after the corrections over its family, and the number of tests in that family."""

    holm: float
    bh: float
    family_size: int


TableRow = TypeVar("TableRow")


def judged(
    rows: Iterable[TableRow],
    *,
    family: Callable[[TableRow], Hashable],
    p: Callable[[TableRow], float | None],
    with_verdict: Callable[[TableRow, Corrected], TableRow],
) -> list[TableRow]:
    """The rows with their verdicts: each p is corrected over the rows of its family; a row without a p is unchanged."""
    rows = list(rows)
    families: dict[Hashable, dict[int, float]] = {}
    for i, row in enumerate(rows):
        if (value := p(row)) is not None:
            families.setdefault(family(row), {})[i] = value
    for tested in families.values():
        values = list(tested.values())
        for i, p_holm, p_bh in zip(tested, holm(values), benjamini_hochberg(values), strict=True):
            rows[i] = with_verdict(rows[i], Corrected(p_holm, p_bh, len(tested)))
    return rows


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the i-th smallest of n times n - i, never smaller than the one before, at most 1.

    statsmodels' function collects the whole program's garbage at every call; a test compares the two.
    """
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p, for the share of false discoveries."""
    return [float(value) for value in false_discovery_control(np.asarray(p, dtype=float))]
