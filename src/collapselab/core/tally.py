"""What moments hold of every class, and how a part of a batch is added to it.

Cheap and exact at once. A class is *loose* or *tight*.

Of a loose class is held Q = Σ|h - r|² about one common point r, so that a token costs its class one addition. Its
scatter Q - a|p - r|², with a samples of mean p, is a difference. It has lost no digits that matter as long as it is no
small share of Q, and this is looked at whenever the count of the class reaches 2, 8, 32 and so on. In between the
share cannot fall below a thirteenth of what it was found to be.

A class found tighter than that is tight from then on: its scatter itself is held, as it was before the samples that
showed it, and with n more samples of mean m and scatter s it gains s + a n / (a + n) |m - p|². All is positive and
nothing cancels, however far the class lies from the origin or however tight it is (Chan, Golub & LeVeque 1983, The
American Statistician 37(3), 242-247).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.parts import Part, part_rows
from collapselab.core.scale import squared_lengths

SHARE = 1e-3
"""A class whose scatter is a smaller share of its squares about the common point is tight."""


@final
@dataclass
class Tally:
    """Count and sum of every class; squares about the common point, or the scatter itself where a class is tight.

    `second`, if held, is the matrix Σ(h - r)(h - r)ᵀ over tokens of loose classes, and the scatter matrix of the tight.
    """

    counts: Tensor  # (classes,)
    sums: Tensor  # (classes, dim)
    squares: Tensor  # (classes,)
    tight: Tensor  # (classes,) of bool
    point: Tensor | None = None  # (dim,), the r above, chosen with the first batch
    second: Tensor | None = None  # (dim, dim)

    def fold(self, part: Part, labels: Tensor) -> None:
        """Add the samples of a part, whose offsets are from this tally's point."""
        tight = self.tight.index_select(0, labels)
        before = self.counts.index_select(0, labels)
        add_rows(self.counts, labels, torch.ones_like(labels))
        after = self.counts.index_select(0, labels)
        gains = self._gains(part, labels, tight, before, after) if tight.any() else []
        look = _Look(self, labels[(_looks(after) > _looks(before)) & ~tight])
        add_rows(self.squares, labels, part.squares.masked_fill(tight, 0) if gains else part.squares)
        add_rows(self.sums, labels, part.wide)
        gains += look.gains(part, labels)
        for classes, gain in gains:
            self.squares.index_add_(0, classes, gain)
        if self.second is not None and part.product is not None:
            self.second.add_(part.product)

    def scatter(self) -> Tensor:
        """Σ|h - μ|² of every class (classes,)."""
        found = self.squares.clone()
        for classes in self._loose():
            found[classes] -= squared_lengths(self._from_point(classes)) / self.counts[classes]
        # What has one sample has no scatter, and neither has what rounding took below nothing.
        return torch.where(self.counts > 1, found, 0.0).clamp_(min=0)

    def within(self) -> Tensor | None:
        """The scatter matrix within classes, summed over them (dim, dim)."""
        if self.second is None:
            return None
        found = self.second.clone()
        for classes in self._loose():
            offset = self._from_point(classes)
            found.addmm_(offset.T, offset / self.counts[classes][:, None], alpha=-1)
        return (found + found.T) / 2  # rounding left it not quite symmetric

    def absorb(self, classes: Tensor, counts: Tensor, sums: Tensor, scatter: Tensor) -> None:
        """Add samples of classes, all different, that are tight or become it by this, with their scatter."""
        before, held = self.counts.index_select(0, classes), self.sums.index_select(0, classes)
        self.squares.index_add_(0, classes, self._moved(before, held, counts, sums).add_(scatter))
        self.counts.index_add_(0, classes, counts)
        self.sums.index_add_(0, classes, sums)
        self.tight.index_fill_(0, classes, True)

    def tighten(self) -> None:
        """Hold the scatter of every class itself from here on."""
        self.squares, self.second = self.scatter(), self.within()
        self.tight = self.counts > 0

    def _gains(
        self, part: Part, labels: Tensor, tight: Tensor, before: Tensor, after: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """What tight classes gain by their tokens, which have been counted but not yet added."""
        alone = (tight & (after - before == 1)).nonzero().squeeze(1)
        gains = [self._gain_alone(part, labels, alone, before)] if len(alone) else []
        others = (tight & (after - before > 1)).nonzero().squeeze(1)
        if len(others):
            classes, counts = torch.unique(labels[others], return_counts=True)
            held = self.counts[classes] - counts, self.sums.index_select(0, classes)
            gains.append(self._gain(part, labels, others, held))
        return gains

    def _gain_alone(self, part: Part, labels: Tensor, chosen: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """The same of tokens that are alone with their class in the part, and so without scatter of their own."""
        if self.second is None and 2 * len(chosen) > len(labels):  # to pick so many costs more than to do all
            gain = self._moved(before, self.sums.index_select(0, labels), torch.ones_like(labels), part.wide)
            return labels[chosen], gain[chosen]
        self._take_off(part, chosen)
        wide, classes = part.wide.index_select(0, chosen), labels[chosen]
        sums = self.sums.index_select(0, classes)
        return classes, self._moved(before[chosen], sums, torch.ones_like(classes), wide)

    def _gain(self, part: Part, labels: Tensor, chosen: Tensor, before: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Classes of the chosen tokens, and what their scatter gains by these; `second` gains it as a matrix.

        `before`: counts and sums of those classes, in ascending order, before the part. They are used up.
        """
        wide = part.wide.index_select(0, chosen)
        classes, inverse, counts = torch.unique(labels[chosen], return_inverse=True, return_counts=True)
        sums = torch.zeros(len(classes), wide.shape[1], dtype=torch.float64, device=wide.device)
        add_rows(sums, inverse, wide)
        centred = wide.sub_(sums.div(counts[:, None]).index_select(0, inverse))
        scatter = torch.zeros(len(classes), dtype=torch.float64, device=wide.device)
        add_rows(scatter, inverse, squared_lengths(centred))
        self._take_off(part, chosen)
        if self.second is not None:
            self.second.addmm_(centred.T, centred)
        return classes, scatter.add_(self._moved(*before, counts, sums))

    def _take_off(self, part: Part, chosen: Tensor) -> None:
        """Take off `second` what the part's product has of these tokens."""
        if self.second is not None:
            offset = part.offset.index_select(0, chosen)
            self.second.addmm_(offset.T, offset, alpha=-1)

    def _moved(self, before: Tensor, sums_before: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
        """a n / (a + n) |m - p|² of classes that meet more samples; `second` gains it as a matrix."""
        before, more, offset = before.double(), counts.double(), sums_before
        torch.addcmul(sums, offset, (more / before.clamp(min=1))[:, None], value=-1, out=offset)  # n (m - p)
        weight = before / (more * (before + more))
        if self.second is not None:
            self.second.addmm_((offset * weight[:, None]).T, offset)
        return squared_lengths(offset).mul_(weight)

    def _loose(self) -> Iterator[Tensor]:
        """Loose classes that were seen, a part at a time."""
        loose = ((self.counts > 0) & ~self.tight).nonzero().squeeze(1)
        return (part for part in torch.split(loose, part_rows(self.sums.shape[1], self.sums.device)) if len(part))

    def _from_point(self, classes: Tensor) -> Tensor:
        return _from(self.point, self.counts.index_select(0, classes), self.sums.index_select(0, classes))


@final
class _Look:
    """A look at the scatter of some loose classes: set up when they have been counted, taken when they are added."""

    def __init__(self, tally: Tally, labels: Tensor) -> None:
        self.tally = tally
        self.classes, self.new = torch.unique(labels, return_counts=True)
        self.squares = tally.squares.index_select(0, self.classes)

    def gains(self, part: Part, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Classes that are too tight to be loose, and what they gain by the part. They have gained nothing yet."""
        tally, classes = self.tally, self.classes
        if not len(classes):
            return []
        counts, held = tally.counts.index_select(0, classes), tally.squares.index_select(0, classes)
        scatter = held - squared_lengths(tally._from_point(classes)) / counts
        few = (scatter < SHARE * held).nonzero().squeeze(1)
        if not len(few):
            return []
        chosen = torch.isin(labels, classes[few]).nonzero().squeeze(1)
        before = counts[few] - self.new[few], self._sums_before(part, labels, chosen, classes[few])
        self._tighten(classes[few], *before, self.squares[few])
        return [tally._gain(part, labels, chosen, before)]

    def _sums_before(self, part: Part, labels: Tensor, chosen: Tensor, classes: Tensor) -> Tensor:
        places = torch.searchsorted(classes, labels.index_select(0, chosen))
        sums = self.tally.sums.index_select(0, classes)
        added = torch.zeros_like(sums)
        add_rows(added, places, part.wide.index_select(0, chosen))
        return sums.sub_(added)

    def _tighten(self, classes: Tensor, counts: Tensor, sums: Tensor, squares: Tensor) -> None:
        """Hold their scatter itself, as it was before the part."""
        tally, some = self.tally, counts.clamp(min=1)
        sums.masked_fill_((counts == 0)[:, None], 0)  # exactly
        offset = _from(tally.point, counts, sums)
        scatter = squares - squared_lengths(offset) / some
        tally.squares[classes] = torch.where(counts > 1, scatter, 0.0).clamp_(min=0)
        if tally.second is not None:
            tally.second.addmm_(offset.T, offset / some[:, None], alpha=-1)
        tally.tight[classes] = True


def _looks(counts: Tensor) -> Tensor:
    """How many of 2, 8, 32 … a count has reached: half the length of its binary number."""
    return torch.frexp(counts.double()).exponent // 2


def _from(point: Tensor | None, counts: Tensor, sums: Tensor) -> Tensor:
    """n (p - r) of classes of n samples with mean p."""
    assert point is not None
    return torch.addcmul(sums, counts.double()[:, None], point, value=-1)


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to those of a table, the same bits each time."""
    # On CUDA index_add_ adds in an order of its own each time; index_put_ sorts first: equal streams, equal bits.
    if table.is_cuda:
        table.index_put_((index,), rows, accumulate=True)
    else:
        table.index_add_(0, index, rows)
