"""The tokens of a step grouped by class, in as many rows as there are classes among them: never classes × tokens."""

from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor


class AboutCentre(NamedTuple):
    """Tokens about one centre: their differences from it (tokens, dim), and the sum of squares over count − 1."""

    differences: Tensor
    variance: Tensor
    tokens: int


@final
class Classes:
    """The classes of some tokens. Each number is computed when it is first used, and then kept."""

    def __init__(self, features: Tensor, labels: Tensor, *, vocabulary: int) -> None:
        self.features, self.labels, self.vocabulary = features.detach(), labels, vocabulary

    @cached_property
    def counts(self) -> Tensor:
        """Tokens of every class of the vocabulary (vocab,)."""
        return torch.bincount(self.labels, minlength=self.vocabulary)

    @cached_property
    def ids(self) -> Tensor:
        """The classes that are there, ascending."""
        return self.counts.nonzero().squeeze(1)

    @cached_property
    def sizes(self) -> Tensor:
        """Tokens of each of `ids`, as numbers of the features' type."""
        return self.counts[self.ids].to(self.features.dtype)

    @cached_property
    def of_token(self) -> Tensor:
        """(tokens,) the place in `ids` of each token's class."""
        place = torch.empty_like(self.counts)
        place[self.ids] = torch.arange(len(self.ids), device=place.device)
        return place[self.labels]

    @cached_property
    def repeated(self) -> Tensor:
        """Which of `ids` have two tokens or more."""
        return self.sizes >= 2

    @cached_property
    def can_compare(self) -> bool:
        """Whether two classes or more have two tokens or more: without them there is no variability to speak of."""
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
        used = self.repeated[self.of_token].to(self.features.dtype)
        tokens = int(used.sum())
        differences = (self.features - used @ self.features / tokens).mul_(used[:, None])
        return AboutCentre(differences, square(differences) / (tokens - 1), tokens)

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the tokens of each class: (ids, …) from (tokens, …)."""
        return values.new_zeros(len(self.ids), *values.shape[1:]).index_add_(0, self.of_token, values)


def square(values: Tensor) -> Tensor:
    """The sum of all squares."""
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm * norm
