"""A penalty is computed from a `Step`; it gives its value and its gradients. An `Intervention` says what it is for.

Nothing here imports torch before a penalty is computed: names are checked where settings are read, which must be quick.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from collapselab.models.taps import OutputLayer
    from collapselab.training.interventions.classes import Classes

Place = Literal["features", "head"]


class HeadGradient(Protocol):
    """A gradient of the output layer in a short form: added where it belongs, it is never a matrix of its own."""

    @property
    def square(self) -> "Tensor | None":
        """The sum of its squares in float64; None where that takes the whole matrix."""

    def add_to(self, total: "Tensor", factor: "Tensor") -> None:
        """total += factor · gradient."""


class HeadRows(NamedTuple):
    """A gradient of the output layer that is zero except in some rows, each of them there once."""

    rows: "Tensor"
    gradient: "Tensor"

    @property
    def square(self) -> "Tensor":
        squares: Tensor = self.gradient.norm(dim=-1).double().square().sum()
        return squares

    def add_to(self, total: "Tensor", factor: "Tensor") -> None:
        total.index_add_(0, self.rows, (self.gradient * factor).to(total.dtype))


class Penalty(NamedTuple):
    """A penalty with its gradients in closed form; None where it does not depend on the tensor."""

    value: "Tensor"
    of_features: "Tensor | None" = None
    of_head: "HeadGradient | None" = None


@final
@dataclass(frozen=True)
class Step:
    """What a penalty is computed from: the tokens that one process runs on at once, in one step of the training.

    Features and output layer are separated from the model: the gradient of the penalty ends at them.
    """

    features: "Tensor"
    """(tokens, dim): what enters the output layer, float32 or float64; padding is left out."""
    labels: "Tensor"
    """(tokens,) next tokens; of a sham, permuted."""
    sequences: "Tensor"
    """(tokens,) the number of the sequence that each token is in, ascending."""
    classes: "Classes"
    """The same tokens grouped by label; computed when it is first used, once for all penalties of the step."""
    head: "OutputLayer"
    number: int
    """Steps that were taken before this one."""
    generator: "Generator"
    """For all randomness, on the CPU; it follows from (seed, step, name)."""
    kept: "dict[str, Tensor]"
    """Tensors that the intervention keeps from step to step, empty at first. They are saved and restored with the
    training, by the first process: make them from `total`s alone, and they are the same in all processes."""
    total: "Callable[[Tensor], Tensor]"
    """The sum of a tensor over all processes. Every process must call it equally often: before a return of None."""

    def pair_rows(self, at_most: int) -> int:
        """How many rows to compare in pairs: fewer where the step itself is small, so that pairs stay a small part."""
        logits = len(self.features) * len(self.head.weight)
        return min(at_most, max(32, math.isqrt(logits // 16)))

    def drawn(self, count: int, at_most: int) -> "Tensor":
        """At most this number of the numbers below `count`, drawn without replacement, ascending."""
        import torch

        if count <= at_most:
            return torch.arange(count, device=self.features.device)
        order = torch.randperm(count, generator=self.generator)[:at_most]
        return order.sort().values.to(self.features.device)


@final
@dataclass(frozen=True)
class Intervention:
    """A penalty, and what is known of it."""

    name: str
    words: str
    """What it does, in one sentence."""
    formula: str
    source: str
    primary: str | None
    """The metric that it must move: an id of the catalogue; None where it is to move none, or there is none yet."""
    signs: Literal["+", "-", "both"]
    """Of the doses that make sense: + makes the penalty smaller, - makes it larger."""
    penalty: "Callable[[Step], Penalty | Tensor | None]"
    """The penalty with its gradients, or a number with a graph to the features or the output layer's weight; None where
    it cannot act."""
    dose_over: Place = "features"
    """Whose gradients the dose compares: `head` for a penalty of the output layer alone."""
    plus: Literal["falls", "rises", ""] = ""
    """Where a dose of + moves the primary metric."""
    cost: str = ""
    """What it computes at every step, in numbers of multiplications; K classes, D dimensions, N tokens."""
    blind: bool = False
    """Whether it is the same for permuted labels: then its sham is the penalty itself."""

    @property
    def must_move(self) -> str:
        """Its primary metric and where it moves, as in `cdnv_log` falls for +, rises for −."""
        if self.primary is None:
            return "–"
        opposite = {"falls": "rises", "rises": "falls", "": ""}[self.plus]
        return (
            f"{self.primary} {self.plus} for +, {opposite} for −"
            if self.signs == "both"
            else f"{self.primary} {self.plus}"
        )


def closed_form(function: "Callable[[Step], Penalty | None]") -> "Callable[[Step], Penalty | None]":
    """Compute a penalty that gives its own gradients without a graph."""

    @functools.wraps(function)
    def penalty(step: Step) -> Penalty | None:
        import torch

        with torch.no_grad():
            return function(step)

    return penalty
