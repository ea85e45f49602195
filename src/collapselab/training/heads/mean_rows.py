"""Rows that are the directions of class means: from a table while the model is trained, exact in its checkpoints.

While it is trained, the table follows the features: a mean over the first samples of a class, an exponential one after.
It is noisy, and behind. No feature depends on the output layer, so a checkpoint can have the exact means of its own
features, over all of the training split: one pass without gradients. Then the training goes on with the table.

The part of a row that holds log π_c turns it by an angle of |log π_c − mean| / LENGTH, in any number of dimensions.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from collapselab.training.heads.upkeep import Tokens

if TYPE_CHECKING:
    from torch import Tensor

LENGTH = 100.0
"""Of the constant part of features, b√D: the larger it is, the less the part of a row that holds log π_c."""

WINDOW = 100
"""Samples after which older ones count less: a mean of all up to then, an exponential one from there on."""


@final
class MeanRows:
    """Keeps the mean direction of the features of each class, and makes the rows of the output layer of them."""

    def __init__(self, layer: Any, norm: Any, counts: "Tensor") -> None:
        import torch

        self.layer, self.norm = layer, norm
        priors = ((counts + 1).double() / (counts + 1).sum()).log()
        classes, dim = layer.weight.shape
        self.offsets = ((priors - priors[counts > 0].mean()) / (LENGTH * dim**0.5)).float()[:, None]
        self.means = torch.nn.functional.normalize(_without_mean(layer.weight.detach()), dim=1)
        self.seen = torch.zeros(classes)
        self._sums, self._counts = torch.zeros(classes, dim), torch.zeros(classes)
        self._set_rows(self.means, self.seen)

    def observe(self, features: "Tensor", labels: "Tensor") -> None:
        self._move(features.device)
        _add_up(self._sums, self._counts, features, labels)

    def after_step(self, total: "Callable[[Tensor], Tensor]") -> None:
        sums, counts = total(self._sums), total(self._counts)[:, None]
        weights = self.seen.clamp(max=WINDOW)[:, None] + counts
        self.means += (sums - counts * self.means) / weights.clamp(min=1)
        self.seen += counts[:, 0]
        self._sums.zero_()
        self._counts.zero_()
        gain = self.norm.weight.data
        gain.fill_(gain.mean())
        self._set_rows(self.means, self.seen)

    @contextmanager
    def of_checkpoint(self, training: "Iterator[Tokens]", total: "Callable[[Tensor], Tensor]") -> "Iterator[None]":
        """For that time, rows are the exact means of these tokens; classes without one keep theirs."""
        self._move(self.layer.weight.device)
        sums, counts = self._sums.double(), self._counts.double()  # empty: every step ends with that
        for features, labels in training:
            _add_up(sums, counts, features, labels)
        sums, counts = total(sums), total(counts)
        exact = (sums / counts.clamp(min=1)[:, None]).float()
        self._set_rows(exact.where(counts[:, None] > 0, self.means), counts)
        try:
            yield
        finally:
            self._set_rows(self.means, self.seen)

    def state_tensors(self) -> "dict[str, Tensor]":
        return {"means": self.means, "seen": self.seen}

    def load_state_tensors(self, tensors: "Mapping[str, Tensor]") -> None:
        self.means.copy_(tensors["means"])
        self.seen.copy_(tensors["seen"])

    def _set_rows(self, means: "Tensor", counts: "Tensor") -> None:
        """Directions of the means about the mean of those that were seen, and the part that holds log π."""
        import torch

        seen = counts > 0
        centre = (means * seen[:, None]).sum(0) / seen.sum().clamp(min=1)
        directions = torch.nn.functional.normalize(_without_mean(means - centre), dim=1)
        self.layer.weight.data.copy_(directions + self.offsets)

    def _move(self, device: Any) -> None:
        for name in ("means", "seen", "offsets", "_sums", "_counts"):
            setattr(self, name, getattr(self, name).to(device))


def _add_up(sums: "Tensor", counts: "Tensor", features: "Tensor", labels: "Tensor") -> None:
    """Add the directions of features to the sums of their classes."""
    import torch

    used = (labels >= 0).nonzero().squeeze(1)
    labels, directions = labels[used], torch.nn.functional.normalize(_without_mean(features[used].float()), dim=1)
    sums.index_add_(0, labels, directions.to(sums.dtype))
    counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))


def _without_mean(vectors: "Tensor") -> "Tensor":
    """The part that is orthogonal to (1, …, 1)."""
    return vectors - vectors.mean(1, keepdim=True)
