"""The two gradients of a step, of the cross-entropy and of each penalty: what is added up of them, and their norms.

Every part of a step has features of its own, so squared norms are summed. The output layer is one, so its gradients are
summed; of a step in one part and one process, the square is enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.training.interventions.penalty import HeadGradient, Place
from collapselab.training.interventions.term import Term

Total = Callable[[Tensor], Tensor]
"""The sum of a tensor over all processes."""


class Dense(NamedTuple):
    """A gradient of the output layer as it comes from a graph."""

    gradient: Tensor
    square: None = None

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.add_((self.gradient * factor).to(total.dtype))


class Gradients(NamedTuple):
    """Those of one penalty; None where it does not depend on the tensor."""

    features: Tensor | None
    head: HeadGradient | None


@final
@dataclass
class LossSums:
    """The gradient of the cross-entropy in a step, once for all terms."""

    features: Tensor | None = None
    """The sum of squares."""
    head: Tensor | None = None
    """The gradient, or of a whole step its square, a number."""

    def add_features(self, gradient: Tensor) -> None:
        self.features = _added(self.features, _square(gradient))

    def add_head(self, gradient: Tensor, *, whole: bool) -> None:
        self.head = _square(gradient) if whole else _added(self.head, gradient.detach())

    def norm(self, place: Place, total: Total, weight: Tensor) -> float:
        if place == "features":
            return _root(total(_number(self.features, weight.device)))
        if self.head is not None and self.head.ndim == 0:
            return _root(self.head)
        return _root(_square(total(torch.zeros_like(weight) if self.head is None else self.head)))


@final
class TermSums:
    """What a step is for one term, over the parts of the step."""

    def __init__(self, term: Term) -> None:
        self.term, self.place = term, term.intervention.dose_over
        self.square: Tensor | None = None
        """Of the penalty's gradient in the features; in the output layer, of a whole step."""
        self.of_head: list[tuple[HeadGradient, Tensor]] = []
        """Gradients of the output layer, each with the share of its part in the step."""
        self.values: list[Tensor] = []

    def add_features(self, gradient: Tensor, share: Tensor) -> None:
        self.square = _added(self.square, _square(gradient) * share.double().square())

    def add_head(self, gradient: HeadGradient, share: Tensor, *, whole: bool) -> None:
        if whole and gradient.square is not None:
            self.square = gradient.square
        else:
            self.of_head.append((gradient, share))

    def norm(self, total: Total, weight: Tensor) -> float:
        """Of the penalty's gradient at the place of its dose."""
        if self.place == "features":
            return _root(total(_number(self.square, weight.device)))
        if self.square is not None:
            return _root(self.square)
        summed = torch.zeros_like(weight)
        for gradient, share in self.of_head:
            gradient.add_to(summed, share)
        return _root(_square(total(summed)))

    def mean_value(self, total: Total, weight: Tensor) -> float | None:
        """The mean of the penalty over parts and processes, None where there was none."""
        values = torch.stack([value.double() for value in self.values]) if self.values else torch.zeros(0).double()
        counted = total(torch.tensor([float(values.sum()), len(values)], dtype=torch.float64, device=weight.device))
        return float(counted[0] / counted[1]) if counted[1] else None


def _square(gradient: Tensor) -> Tensor:
    """The sum of squares: of each row in the gradient's own type, which is quick, and over rows in float64."""
    dtype = torch.promote_types(gradient.dtype, torch.float32)
    rows: Tensor = torch.linalg.vector_norm(gradient.detach(), dim=-1, dtype=dtype)
    return rows.double().square().sum()


def _added(before: Tensor | None, more: Tensor) -> Tensor:
    return more if before is None else before + more


def _number(value: Tensor | None, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=device) if value is None else value


def _root(square: Tensor) -> float:
    return math.sqrt(float(square))
