"""Which classes have a row in the tables of moments and decisions: those that occur as a label in the sample.

Of a vocabulary of hundreds of thousands a sample has a few thousand, and which they are is known from its counts before
the model runs. Tables of them alone take a fraction of the memory. The rows are in the order of the classes' ids, so
that every sum and product has the same terms in the same order as in a table of the whole vocabulary.
"""

from collections.abc import Mapping
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
    """The classes of a split that have a row, and the number of each one's row.

    `kept` masks them over the vocabulary, for the last layer and those below, which keep some of the same ones.
    """

    def __init__(self, kept: ByLayer[Tensor]) -> None:
        self.vocabulary = len(kept.last)
        found = kept.last.nonzero().squeeze(1)
        self.ids = found if len(found) else torch.zeros(1, dtype=torch.int64)  # a table has at least one row
        numbers = torch.full((self.vocabulary,), IGNORED)
        numbers[found] = torch.arange(len(found))
        alike = kept.below is kept.last
        self._numbers = ByLayer(numbers, numbers if alike else torch.where(kept.below, numbers, IGNORED))

    @classmethod
    def every(cls, classes: int) -> "ClassNumbers":
        """A row for every class."""
        mask = torch.ones(classes, dtype=torch.bool)
        return cls(ByLayer(mask, mask))

    @property
    def classes(self) -> int:
        return len(self.ids)

    def of(self, labels: Tensor, *, layer: str = "last") -> Tensor:
        """The numbers of labels; IGNORED for those without a row at a layer, and for those that are ignored already."""
        return torch.where(labels < 0, IGNORED, self._numbers.of(layer)[labels.clamp(min=0)])

    def rows(self, table: Tensor) -> Tensor:
        """Of a table of the whole vocabulary, the rows of these classes."""
        return table if self.classes == len(table) else table[self.ids.to(table.device)]

    def save(self, moments: ClassMoments, path: str | Path) -> None:
        """Write moments so that `ClassMoments.load` gives those of the whole vocabulary."""
        tensors: Mapping[str, Tensor | Rows] = moments.tensors()
        seen = tensors["seen"]
        assert isinstance(seen, Tensor)
        facts = moments.facts() | {"classes": self.vocabulary}
        save_tensors(path, {**tensors, "seen": self.ids.to(seen.device)[seen]}, kind="class moments", facts=facts)
