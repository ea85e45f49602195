"""The catalogue of metrics, read from `metrics.toml`, and why a metric may have no value. Imports no torch.

To add a metric, write its entry in `metrics.toml`, a function of the same name in `metrics.py`, and its definition in
`tests/oracles.py`.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple

Direction = Literal["falls", "rises", "approaches"]
Transform = Literal["raw", "log"]

FIRST = "0.1.0"
"""The version of this package whose measurements have the metrics that do not say otherwise."""


class Need(Enum):
    """What a metric is computed from."""

    MEANS = "class means"
    SCATTER = "scatter of each class"
    COVARIANCE = "the pooled covariance within classes"
    SPECTRUM = "the covariance of all features"
    DIRECTIONS = "the sum of the features' directions"
    PAIRS = "all pairs of classes"
    HEAD = "the rows of the output layer for the classes"
    OUTPUT_LAYER = "all rows of the output layer"
    DECISIONS = "decisions on validation tokens"
    CENTRE_LOSS = "losses of validation tokens by class centres and by the model"
    CURVATURE = "the curvature of the loss in the output layer, on some tokens"


class ReasonCode(Enum):
    """Why a metric has no value."""

    FEW_CLASSES = "too few classes are kept"
    FEW_DIMENSIONS = "features vary in too few directions"
    NO_COVARIANCE = "the pooled covariance was not collected"
    NO_DIRECTIONS = "the directions of the features were not collected"
    NO_HEAD = "there is no output layer"
    NO_DECISIONS = "there are no decisions"
    NO_CENTRE_LOSS = "the loss by class centres was not computed"
    NO_CURVATURE = "the curvature of the loss was not computed"
    NOTHING_LEFT = "every pair or token was left out"
    COINCIDENT = "class means coincide"
    ZERO = "a norm, a mean or a matrix is zero"
    OUT_OF_RANGE = "numbers leave the range of float64"


class Missing(Exception):
    """Raised where a metric has no value; the message is the reason reported in place of the value."""

    def __init__(self, code: ReasonCode, why: str, *, left_out: int = 0) -> None:
        super().__init__(why)
        self.code, self.left_out = code, left_out


class IdealOfSize(NamedTuple):
    """An ideal that depends on the number of classes and of dimensions."""

    text: str
    at: Callable[[int, int], float | None]


Ideal = float | IdealOfSize | None


def ideal_at(ideal: Ideal, classes: int, dim: int) -> float | None:
    return ideal.at(classes, dim) if isinstance(ideal, IdealOfSize) else ideal


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    id: str
    name: str
    property: str
    formula: str
    reference: str
    needs: frozenset[Need]
    direction: Direction | None = None
    """Where the value moves as a model collapses; None where collapse predicts nothing."""
    ideal: Ideal = None
    """The value of a collapsed model."""
    in_paper: bool = False
    version: int = 1
    """Rises when the value changes for the same input."""
    since: str = FIRST
    """The version of this package that added it: older measurements lack it and are valid."""
    transform: Transform = "raw"
    """The scale on which it is related to outcomes and drawn: "log" for positive values that span decades."""
    parts: tuple[str, str] | None = None
    """Numerator and denominator of a ratio whose denominator may change its sign. Only the parts have a verdict."""
    directions_of: Literal["centred classes", "centred tokens", "tokens"] | None = None
    """Set where the value is a number of directions: which points they are directions of."""
    varies_with: frozenset[str] = frozenset()
    """What changes the value though it leaves the geometry as it is: the "unit" of the features, or their "origin"."""
    meaning: str = ""
    """Two sentences for a reader who does not know the metric."""
    range: str = ""
    pitfalls: str = ""
    variants: str = ""
    """What other tools and papers compute under this or a similar name."""

    @cached_property  # `property` is a field here
    def ideal_text(self) -> str:
        """The ideal as it is shown."""
        if isinstance(self.ideal, IdealOfSize):
            return self.ideal.text
        return "–" if self.ideal is None else "−∞" if self.ideal == -math.inf else f"{self.ideal:g}"

    def ideal_at(self, *, classes: int, dim: int) -> float | None:
        """Return the ideal for this number of kept classes and dimensions, None where there is none."""
        return ideal_at(self.ideal, classes, dim)

    def at_most(self, *, classes: int, tokens: int, dim: int) -> int | None:
        """Return the largest possible number of directions; None for a metric that is not such a number."""
        # N centred points span at most N - 1 directions.
        points = {"centred classes": classes - 1, "centred tokens": tokens - 1, "tokens": tokens}
        return None if self.directions_of is None else min(points[self.directions_of], dim)


@dataclass(frozen=True, kw_only=True)
class ContextMetric:
    """One entry of the catalogue of contexts; the fields are those of `Metric`."""

    id: str
    name: str
    formula: str
    reference: str
    ideal_text: str
    direction: Literal["falls", "rises"] | None = None
    of_head: bool = False
    """Whether it is about the output layer, so that only the last layer has it."""
    version: int = 1
    transform: Transform = "raw"
    least: float | None = None
    """The ideal, where it is the smallest possible value; a gap may be below 0."""
    meaning: str = ""
    range: str = ""
    pitfalls: str = ""


def smallest_etf_error(classes: int, dim: int) -> float | None:
    """Return the smallest `etf_error` of any frame of this size."""
    if classes < 2:
        return None
    return math.sqrt(2 - 2 * math.sqrt(dim / (classes - 1))) if classes - 1 > dim else 0.0


def uniform_logdist(classes: int, dim: int) -> float | None:
    """Mean of log(1/|u - v|) for u, v uniform on the sphere: |u - v|²/4 is Beta(a, a) with a = (dim - 1)/2."""
    if dim < 2:
        return None
    from scipy.special import digamma  # takes a tenth of a second to import

    a = (dim - 1) / 2
    return float(-math.log(2) - (digamma(a) - digamma(2 * a)) / 2)


IDEALS = {
    "simplex cosine": IdealOfSize("−1/(K−1)", lambda classes, dim: -1 / (classes - 1) if classes > 1 else None),
    "etf floor": IdealOfSize("`etf_floor`", smallest_etf_error),
    "uniform sphere": IdealOfSize("uniform sphere", uniform_logdist),
}


def _metric(id: str, fields: dict[str, Any]) -> Metric:
    """Return the entry with the lists and names of the file as the types of the fields."""
    fields["needs"] = frozenset(Need[need.upper()] for need in fields["needs"])
    fields["varies_with"] = frozenset(fields.get("varies_with", ()))
    if "parts" in fields:
        fields["parts"] = tuple(fields["parts"])
    if isinstance(fields.get("ideal"), str):
        fields["ideal"] = IDEALS[fields["ideal"]]
    return Metric(id=id, **fields)


_file = tomllib.loads(files("collapselab.core").joinpath("metrics.toml").read_text(encoding="utf-8"))

METRICS: dict[str, Metric] = {id: _metric(id, fields) for id, fields in _file["metrics"].items()}
"""Every metric by its id, in the order of the catalogue."""

CONTEXT_METRICS: dict[str, ContextMetric] = {
    id: ContextMetric(id=id, **fields) for id, fields in _file["contexts"].items()
}
"""Every metric of contexts of n tokens by its id."""
