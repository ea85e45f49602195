"""What the labels of a batch do to the counts of their classes.

A model has many layers, whose moments all take the labels of a batch and have the same counts before it. What follows
from labels and counts alone is found once for all of them.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

CHECKS = 2 * 4 ** torch.arange(31)
"""Counts at which a class is checked: 2, 8, 32 and so on."""


@final
@dataclass(frozen=True)
class Arrived:
    """Labels (tokens,), the counts of their classes before and after them, and the classes due for a check.

    A class is due whenever its count reaches one of `CHECKS`. `due` is in ascending order; `due_tokens` are the
    tokens of each of these classes among the labels.
    """

    labels: Tensor
    before: Tensor
    after: Tensor
    due: Tensor
    due_tokens: Tensor


@final
class Arrivals:
    """The labels of one batch, as they arrived; to be given to all moments that take the batch."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Arrived] = {}

    def count(self, counts: Tensor, labels: Tensor, place: tuple[int, int]) -> Arrived:
        """Add the labels to the counts.

        `place` says which labelling of the batch this is, and which part of it. What is known of that place is used
        again only where labels and counts are those it was found for.
        """
        before, known = counts.index_select(0, labels), self._known.get(place)
        if known is not None and torch.equal(known.labels, labels) and torch.equal(known.before, before):
            counts.index_copy_(0, labels, known.after)
            return known
        add_rows(counts, labels, torch.ones_like(labels))
        after = counts.index_select(0, labels)
        # Between two of its checks, a class has the same number of CHECKS up to its count.
        checked, reached = (torch.bucketize(count, CHECKS.to(count.device), right=True) for count in (before, after))
        due, due_tokens = torch.unique(labels[reached > checked], return_counts=True)
        self._known[place] = Arrived(labels, before, after, due, due_tokens)
        return self._known[place]


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to those of a table, with the same bits each time."""
    # On CUDA index_add_ adds in another order each time; index_put_ sorts first: equal streams, equal bits.
    if table.is_cuda:
        table.index_put_((index,), rows, accumulate=True)
    else:
        table.index_add_(0, index, rows)
