"""A penalty is computed from a `Step`: the tokens of a step and their classes, apart from the model.

It returns a `Penalty`, its value with gradients in closed form; or a number with a graph, which is slower:

    @torch.no_grad()
    def norm(step: Step) -> Penalty:
        return Penalty(step.features.square().mean(), of_features=2 * step.features / step.features.numel())
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from collapselab.core.devices import exact_device
from collapselab.models.taps import OutputLayer

Total = Callable[[Tensor], Tensor]
"""The sum of a tensor over all processes."""


class HeadGradient(Protocol):
    """A gradient of the output layer in a short form: it is added where it belongs and is never a matrix of its own."""

    @property
    def square(self) -> Tensor | None:
        """The sum of its squares in float64; None where that takes the whole matrix."""

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        """total += factor · gradient."""


class Dense(NamedTuple):
    """A gradient of the output layer as it comes from a graph."""

    gradient: Tensor

    @property
    def square(self) -> Tensor:
        return sum_of_squares(self.gradient)

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.add_((self.gradient * factor).to(total.dtype))


class HeadRows(NamedTuple):
    """A gradient of the output layer that is zero except in some rows, each of them there once."""

    rows: Tensor
    gradient: Tensor

    @property
    def square(self) -> Tensor:
        return sum_of_squares(self.gradient)

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.index_add_(0, self.rows, (self.gradient * factor).to(total.dtype))


class Penalty(NamedTuple):
    """A penalty with its gradients in closed form; None where it does not depend on the tensor."""

    value: Tensor
    """nan where it cannot act on these tokens; the gradients are then zero."""
    of_features: Tensor | None = None
    of_head: HeadGradient | None = None


@dataclass(frozen=True)
class Step:
    """The tokens that one process runs on at once, in one step of the training.

    Features and output layer are separated from the model: the gradient of the penalty ends at them. What depends on
    labels alone is known on the CPU, so that the host need not wait for the device of the features.
    """

    features: Tensor
    """(tokens, dim): what enters the output layer, float32 or float64; padding is left out."""
    labels: Tensor
    """(tokens,) next tokens; of a sham, permuted."""
    sequences: Tensor
    """(tokens,) the number of each token's sequence, ascending; on the CPU."""
    classes: "Classes"
    """The same tokens grouped by label; computed when first used, once for all penalties of the step."""
    head: OutputLayer
    number: int
    """Steps that were taken before this one."""
    generator: Generator
    """For all randomness, on the CPU; it follows from (seed, step, name)."""
    kept: dict[str, Tensor]
    """Tensors that the intervention keeps from step to step, empty at first. They are saved and restored with the
    training by the first process, so they must be made from `total`s alone to be the same in all processes. Integers
    are on the CPU, as the counts of classes are."""
    total: Total
    """Every process must call it equally often: before a return of None."""

    def pair_rows(self, at_most: int) -> int:
        """Return how many rows to compare in pairs: fewer where the step is small, so that pairs stay a small part."""
        logits = len(self.features) * len(self.head.weight)
        return min(at_most, max(32, math.isqrt(logits // 16)))

    def drawn(self, count: int, at_most: int) -> Tensor:
        """Return at most this many of the numbers below `count`, drawn without replacement, ascending; on the CPU."""
        if count <= at_most:
            return torch.arange(count)
        return torch.randperm(count, generator=self.generator)[:at_most].sort().values


class AboutCentre(NamedTuple):
    """Tokens about one centre: their differences from it (tokens, dim), and the sum of squares over count − 1."""

    differences: Tensor
    variance: Tensor
    tokens: int


class Classes:
    """The tokens of a step grouped by class, in as many rows as there are classes among them: never classes × tokens.

    Each number is computed when it is first used, and then kept.
    """

    def __init__(self, features: Tensor, labels: Tensor, *, vocabulary: int) -> None:
        self.features, self.labels, self.vocabulary = features.detach(), labels.cpu(), vocabulary

    @cached_property
    def counts(self) -> Tensor:
        """Tokens of every class of the vocabulary (vocab,), on the CPU."""
        return torch.bincount(self.labels, minlength=self.vocabulary)

    @cached_property
    def ids(self) -> Tensor:
        """The classes that have tokens, ascending, on the CPU."""
        return self.counts.nonzero().squeeze(1)

    @cached_property
    def sizes(self) -> Tensor:
        """Tokens of each of `ids`, as numbers of the features' type."""
        return self.counts[self.ids].to(self.features)

    @cached_property
    def of_token(self) -> Tensor:
        """(tokens,) the index in `ids` of each token's class."""
        index = torch.empty_like(self.counts)
        index[self.ids] = torch.arange(len(self.ids))
        return index[self.labels].to(self.features.device)

    @cached_property
    def repeated(self) -> Tensor:
        """Which of `ids` have two tokens or more, on the CPU."""
        return self.counts[self.ids] >= 2

    @cached_property
    def can_compare(self) -> bool:
        """Whether two classes or more have two tokens or more."""
        return int(self.repeated.sum()) >= 2

    @cached_property
    def means(self) -> Tensor:
        """(ids, dim) mean feature of each class in these tokens."""
        return self.sums(self.features) / self.sizes[:, None]

    @cached_property
    def deviations(self) -> Tensor:
        """(tokens, dim) features minus the mean of their class: zero for a class with one token."""
        return self.features - self.means[self.of_token]

    @cached_property
    def scatter(self) -> Tensor:
        """Σ‖h − h̄_c‖² of each of `ids`."""
        return self.sums(self.deviations.square().sum(1))

    @cached_property
    def about_centre(self) -> AboutCentre:
        """Tokens of repeated classes about their common mean; other tokens have a difference of zero."""
        is_used = self.counts[self.labels] >= 2
        used, tokens = is_used.to(self.features), int(is_used.sum())
        differences = (self.features - used @ self.features / tokens).mul_(used[:, None])
        return AboutCentre(differences, torch.linalg.vector_norm(differences).square() / (tokens - 1), tokens)

    def sums(self, values: Tensor) -> Tensor:
        """Return sums over the tokens of each class: (ids, …) from (tokens, …)."""
        return values.new_zeros(len(self.ids), *values.shape[1:]).index_add_(0, self.of_token, values)


def or_infinite(divisor: Tensor) -> Tensor:
    """Return the number, or infinity where it is not positive: what is divided by it is then zero."""
    return torch.where(divisor > 0, divisor, torch.inf)


def if_finite(value: Tensor, divisor: Tensor) -> Tensor:
    """Return a penalty's value, or nan where what it is divided by was not positive."""
    return torch.where(divisor.isfinite(), value, torch.nan)


def sum_of_squares(gradient: Tensor) -> Tensor:
    """Return the sum of squares: of each row in the gradient's own type, which is quick, and over rows in float64."""
    dtype = torch.promote_types(gradient.dtype, torch.float32)
    rows: Tensor = torch.linalg.vector_norm(gradient.detach(), dim=-1, dtype=dtype)
    return rows.to(exact_device(rows.device)).double().square().sum()
