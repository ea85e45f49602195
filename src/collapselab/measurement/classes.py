"""Which classes have a row in the tables of moments and decisions, and how frequent they are.

Classes that occur as a label in the sample have a row. A sample has a few thousand of a vocabulary of hundreds of
thousands, and which they are is known from its counts before the model runs. Tables of them alone take a fraction of
the memory. The rows are in the order of the classes' ids, so that every sum and product has the same terms in the same
order as in a table of the whole vocabulary.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows, save_tensors
from collapselab.measurement.sample import ByLayer


@final
class ClassNumbers:
    """The classes of a split that have a row, and the number of each class's row.

    `kept` masks them over the vocabulary, for the last layer and for those below, whose classes are among the same.
    """

    def __init__(self, kept: ByLayer[Tensor]) -> None:
        self.vocabulary = len(kept.last)
        ids = kept.last.nonzero().squeeze(1)
        self.ids = ids if len(ids) else torch.zeros(1, dtype=torch.int64)  # a table has at least one row
        numbers = torch.full((self.vocabulary,), IGNORED)
        numbers[ids] = torch.arange(len(ids))
        same = kept.below is kept.last
        self._numbers = ByLayer(numbers, numbers if same else torch.where(kept.below, numbers, IGNORED))

    @classmethod
    def every(cls, classes: int) -> "ClassNumbers":
        """A row for every class."""
        mask = torch.ones(classes, dtype=torch.bool)
        return cls(ByLayer(mask, mask))

    @property
    def classes(self) -> int:
        return len(self.ids)

    def of(self, labels: Tensor, *, layer: str = "last") -> Tensor:
        """The row numbers of labels; IGNORED for labels that are ignored, or have no row at a layer."""
        return torch.where(labels < 0, IGNORED, self._numbers.of(layer)[labels.clamp(min=0)])

    def rows(self, table: Tensor) -> Tensor:
        """The rows of these classes, of a table of the whole vocabulary."""
        return table if self.classes == len(table) else table[self.ids.to(table.device)]

    def save(self, moments: ClassMoments, path: str | Path, about: Mapping[str, object]) -> None:
        """Write moments of the whole vocabulary, and what they are `about`, which `load_moments` compares."""
        tensors: Mapping[str, Tensor | Rows] = moments.tensors()
        seen = tensors["seen"]
        assert isinstance(seen, Tensor)
        facts = moments.facts() | {"classes": self.vocabulary, "about": dict(about)}
        save_tensors(path, {**tensors, "seen": self.ids.to(seen.device)[seen]}, kind="class moments", facts=facts)


def frequency_bins(counts: Tensor, bins: int, *, min_count: int) -> dict[str, Tensor]:
    """Classes by how often they are a label, in ranges of equal width on a logarithmic axis: "LOW-HIGH" → mask.

    Ranges cover the counts from the rarest kept class to the most frequent. A range that is too narrow to contain a
    whole number is omitted.
    """
    kept = counts[counts >= min_count]
    if not bins or not len(kept):
        return {}
    low, high = int(kept.min()), int(kept.max())
    edges = [math.ceil(low * ((high + 1) / low) ** (i / bins) - 1e-9) for i in range(bins)] + [high + 1]
    ranges = [(start, stop - 1) for start, stop in pairwise(edges) if start < stop]
    return {f"{start}-{stop}": (counts >= start) & (counts <= stop) for start, stop in ranges}
