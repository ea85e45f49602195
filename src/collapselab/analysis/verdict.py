"""Verdicts: what a corrected test allows to say of one row of a table, and why there is sometimes nothing to say.

A verdict is a code, never a sentence. A row without a value, or with a value and no test, has a reason: a code for
programs and a text for people.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from collapselab.analysis.resampling import LEVEL

RISES, FALLS = "rises", "falls"
"""Directions in which a value changes, as the tables have them."""


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
    DESCRIPTION = "description"
    """A number about these models that no test judges: its error rate is not known, or it has no direction."""
    HELPS = "helps"
    HARMS = "harms"
    EQUIVALENT = "equivalent"
    """Smaller than the smallest effect that matters."""
    UNDECIDED = "undecided"
    """Neither shown to be there nor shown to be that small."""
    DID_NOT_REACH = "did not reach"
    """The arm did not move the property that it is for."""
    TOWARD = "toward"
    """At least one metric of the property is shown to move toward collapse, and none away."""
    AWAY = "away"
    """At least one is shown to move away from collapse, and none toward it."""
    IN_CONFLICT = "in conflict"
    """Some metrics are shown to move toward collapse and others away."""
    ATTRIBUTED = "attributed"
    """The effect follows this metric, whichever intervention is left out."""
    NOT_ALONE = "not these properties alone"
    """The arms are off the line or plane: they change the outcome in other ways too."""
    INSEPARABLE = "cannot be attributed"
    """The metrics move together, or the arms hardly move one of them."""
    TOO_FEW = "too few runs"
    """No test was made: no result could have been significant, or the numbers that it needs are missing or do not vary.
    The row's reason says which, and how many runs are needed."""


Words = tuple[Verdict, Verdict, Verdict, Verdict]
"""The verdicts that a kind of statement can give on an effect: significant, with the expected sign; with the opposite
sign; where no sign is expected; not significant."""
RELATION = (Verdict.AS_PREDICTED, Verdict.OPPOSITE, Verdict.NO_DIRECTION, Verdict.NOT_SHOWN)
EFFECT = (Verdict.HELPS, Verdict.HARMS, Verdict.UNDECIDED, Verdict.UNDECIDED)
MOVEMENT = (Verdict.TOWARD, Verdict.AWAY, Verdict.NOT_SHOWN, Verdict.NOT_SHOWN)
ATTRIBUTION = (Verdict.ATTRIBUTED, Verdict.ATTRIBUTED, Verdict.ATTRIBUTED, Verdict.UNDECIDED)


class Role(StrEnum):
    """What a row about an arm is for."""

    OUTCOME = "outcome"
    FURTHER = "further outcome"
    """An outcome beside that of the analysis: registered ones, and the gap."""
    TARGET = "target"
    """The metric that this arm must move."""
    PRIMARY = "primary"
    """One of the main metrics."""
    EXPLORATORY = "exploratory"


class Direction(StrEnum):
    """The direction of a correlation, by its sign alone."""

    WITH = "with"
    """More collapse, better outcome."""
    AGAINST = "against"
    """More collapse, worse outcome."""


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
    REVERSED = "reversed"
    """At equal training loss the gap changes the other way."""
    NO_FIT = "no fit"
    """The model of the statement cannot be fitted to these numbers."""


class Reason(NamedTuple):
    """Why a row has no value, no test or no claim: a code for programs, a text for people, and the verdict instead."""

    code: Cause | None
    text: str | None
    verdict: Verdict = Verdict.TOO_FEW

    @classmethod
    def too_few(cls, count: int, nouns: str, needed: int) -> "Reason":
        """The reason of a test that needs more: `too few pairs: 6 needed, 5 found.`"""
        return cls(Cause.TOO_FEW, f"too few {nouns}: {needed} needed, {count} found.")

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a row that has this reason."""
        return {"verdict": self.verdict, "why": self.text, "why_code": self.code}


class Estimate(NamedTuple):
    """An effect and its corrected test, as `judge` needs them."""

    effect: float = 0.0
    p: float | None = None
    """Corrected over its family."""
    sign: int = 0
    """Of an effect as collapse predicts it, or of a better outcome; 0 where none is predicted."""
    p_equivalence: float | None = None
    """Corrected, of the test that the effect is smaller than any of interest."""
    reason: Reason | None = None
    """Forbids the test."""
    doubts: Mapping[Verdict, Reason] = {}
    """Forbid a claim, by the claim."""


def judge(estimate: Estimate, words: Words) -> dict[str, Any]:
    """Return the verdict on an estimate in these words, and the reason where one forbids the test or the claim."""
    (expected, opposite, undirected, verdict), reason = words, estimate.reason
    if reason is None and estimate.p is None:
        reason = Reason(None, None)
    elif estimate.p_equivalence is not None and estimate.p_equivalence < LEVEL:
        verdict = Verdict.EQUIVALENT
    elif estimate.p is not None and estimate.p < LEVEL:
        direction = direction_of(estimate.effect, estimate.sign)
        verdict = {Direction.WITH: expected, Direction.AGAINST: opposite, None: undirected}[direction]
    return (reason or estimate.doubts.get(verdict) or Reason(None, None, verdict)).columns


def direction_of(effect: float, expected: int) -> Direction | None:
    """The direction of an effect whose sign is `expected` where more collapse means a better outcome; None for 0."""
    if expected == 0 or effect == 0:
        return None
    return Direction.WITH if effect * expected > 0 else Direction.AGAINST
