"""What a metric is computed from, and why it may have no value: as codes, so that no reader takes a sentence apart."""

from enum import Enum
from typing import final


@final
class Need(Enum):
    """What a metric of the catalogue is computed from."""

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


@final
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
    """A metric that cannot be computed; the message is the reason that is given in place of its value."""

    def __init__(self, code: ReasonCode, why: str, *, left_out: int = 0) -> None:
        super().__init__(why)
        self.code, self.left_out = code, left_out
