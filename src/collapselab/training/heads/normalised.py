"""Heads whose output layer is set after every update: `sphere`, `class-means` and `centred`.

The first two have normalised features, as models that the library computes by itself. Features are normalised by the
last norm of the model. LayerNorm or RMSNorm with gain 1 gives vectors of length √D, but for its ε. So τ⟨ĥ, ŵ⟩ is a
plain output layer on such features, and a checkpoint is an ordinary one: nothing is computed that its weights do not
say.

    sphere        gain frozen at 1, bias at 0. After every update the mean of the rows is subtracted, and they are set
                  to one length, the mean of their lengths. τ = that length · √D. A vector that all rows share changes
                  no prediction. Without the subtraction rows of one length could differ in their length about such a
                  vector, which is the length that `head_norm_cv` compares.

    class-means   gain g, one number for all dimensions (after every update its mean), bias frozen at b in all of them:
                  h = g x + b 1, with x orthogonal to 1. Rows are m̂_c + (log π_c − mean) / (b D) · 1, so that
                  logits are τ⟨ĥ, m̂_c⟩ + log π_c, less a constant, with ĥ = x / √D and τ = g √D. For this the last norm
                  must subtract the mean and have a bias, as LayerNorm does.

    centred       features as they are; after every update the mean of all rows is subtracted.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from collapselab.errors import ConfigError
from collapselab.models.taps import features, last_norm
from collapselab.training.heads.frozen import HeadInputs, HeadUpdates, Tokens, Total, freeze

ROUNDS = 2
"""How often a mean is subtracted and lengths are made equal after an update: each undoes a small part of the other, and
what is left is undone after the next update."""

TOLERANCE = 0.1
"""How far the length of a normalised feature may be from √D: ε of the norm counts where features are still small."""

LENGTH = 100.0
"""Length of the constant part of features, b√D: the larger it is, the less the part of a row that holds log π_c."""

WINDOW = 100
"""Samples after which older ones count less: a mean of all up to then, an exponential one from there on."""


def sphere(model: Any, inputs: HeadInputs, generator: Generator) -> HeadUpdates:
    norm = _normalising(model, "sphere")
    for parameter in norm.parameters():
        parameter.requires_grad_(False)

    def set_rows(weight: Tensor) -> None:
        """Set the rows to one length and their mean, over tokens that are trained, to zero."""
        trained = (inputs.counts > 0).to(weight.device, weight.dtype)
        share = trained / trained.sum()
        for _ in range(ROUNDS):
            weight.sub_(share @ weight)
            lengths = weight.norm(dim=1, keepdim=True)
            weight.mul_(share @ lengths / lengths)

    return RowsSet(model.get_output_embeddings(), set_rows)


def centred(model: Any, inputs: HeadInputs, generator: Generator) -> HeadUpdates:
    return RowsSet(model.get_output_embeddings(), lambda weight: weight.sub_(weight.mean(0)))


def class_means(model: Any, inputs: HeadInputs, generator: Generator) -> HeadUpdates:
    norm = _normalising(model, "class-means")
    bias = getattr(norm, "bias", None)
    if not isinstance(bias, nn.Parameter) or model.get_output_embeddings().bias is not None:
        raise ConfigError(
            f"head: class-means keeps log π_c in the bias of the last norm, but {model.config.model_type} has none "
            "there, or has one in its output layer. Choose gpt-neo, gpt2 or pythia."
        )
    nn.init.constant_(bias, LENGTH / len(bias) ** 0.5).requires_grad_(False)
    freeze(model, model.get_output_embeddings().weight.detach().clone())
    return MeanRows(model.get_output_embeddings(), norm, inputs.counts)


def _normalising(model: Any, head: str) -> nn.Module:
    """Return the last norm, with gain 1 and bias 0; ConfigError where features are then not of length √D."""
    norm = last_norm(model)
    if norm is None:
        raise ConfigError(f"head: {head} needs a norm before the output layer, and {model.config.model_type} has none.")
    for name, parameter in norm.named_parameters():
        nn.init.constant_(parameter, 1.0 if name == "weight" else 0.0)
    with torch.no_grad():
        entering = features(model, torch.arange(2)[None])[0]
    if abs(float(entering.norm(dim=1).mean()) / entering.shape[1] ** 0.5 - 1) > TOLERANCE:
        raise ConfigError(
            f"head: {head} needs features of length √D, but the last norm of {model.config.model_type} gives "
            f"{float(entering.norm(dim=1).mean()):.3g} in {entering.shape[1]:,} dimensions. Choose another family."
        )
    return norm


class RowsSet(HeadUpdates):
    """Sets the rows of an output layer, first when it is made and then after every update."""

    def __init__(self, layer: Any, set_rows: Callable[[Tensor], object]) -> None:
        self.layer, self.set_rows = layer, set_rows
        set_rows(layer.weight.data)

    def after_step(self, total: Total) -> None:
        self.set_rows(self.layer.weight.data)


class MeanRows(HeadUpdates):
    """Keeps the mean direction of the features of each class, and makes the rows of the output layer from them.

    While it is trained, the table follows the features: a mean over the first samples of a class, an exponential one
    after. It is noisy, and behind. No feature depends on the output layer, so a checkpoint can have the exact means of
    its own features, over all of the training split: one pass without gradients. Then the training goes on with the
    table. The part of a row that holds log π_c turns it by an angle of |log π_c − mean| / LENGTH, in any number of
    dimensions.
    """

    def __init__(self, layer: Any, norm: Any, counts: Tensor) -> None:
        self.layer, self.norm = layer, norm
        priors = ((counts + 1).double() / (counts + 1).sum()).log()
        classes, dim = layer.weight.shape
        self.offsets = ((priors - priors[counts > 0].mean()) / (LENGTH * dim**0.5)).float()[:, None]
        self.means = normalize(_without_mean(layer.weight.detach()), dim=1)
        self.seen = torch.zeros(classes)
        self._sums, self._counts = torch.zeros(classes, dim), torch.zeros(classes)
        self._set_rows(self.means, self.seen)

    def observe(self, features: Tensor, labels: Tensor) -> None:
        self._move(features.device)
        _add_up(self._sums, self._counts, features, labels)

    def after_step(self, total: Total) -> None:
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
    def of_checkpoint(self, training: Iterator[Tokens], total: Total) -> Iterator[None]:
        """Set the rows to the exact means of these tokens for a while; classes without one keep theirs."""
        self._move(self.layer.weight.device)
        sums, counts = self._sums.double(), self._counts.double()  # empty: every step ends with that
        for entering, labels in training:
            _add_up(sums, counts, entering, labels)
        sums, counts = total(sums), total(counts)
        exact = (sums / counts.clamp(min=1)[:, None]).float()
        self._set_rows(exact.where(counts[:, None] > 0, self.means), counts)
        try:
            yield
        finally:
            self._set_rows(self.means, self.seen)

    def state_tensors(self) -> dict[str, Tensor]:
        return {"means": self.means, "seen": self.seen}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self.means.copy_(tensors["means"])
        self.seen.copy_(tensors["seen"])

    def _set_rows(self, means: Tensor, counts: Tensor) -> None:
        """Set directions of the means about the mean of those that were seen, and the part that holds log π."""
        seen = counts > 0
        centre = (means * seen[:, None]).sum(0) / seen.sum().clamp(min=1)
        directions = normalize(_without_mean(means - centre), dim=1)
        self.layer.weight.data.copy_(directions + self.offsets)

    def _move(self, device: Any) -> None:
        for name in ("means", "seen", "offsets", "_sums", "_counts"):
            setattr(self, name, getattr(self, name).to(device))


def _add_up(sums: Tensor, counts: Tensor, entering: Tensor, labels: Tensor) -> None:
    """Add the directions of features to the sums of their classes."""
    used = (labels >= 0).nonzero().squeeze(1)
    labels, used = labels[used].to(entering.device), used.to(entering.device)
    directions = normalize(_without_mean(entering[used].float()), dim=1)
    sums.index_add_(0, labels, directions.to(sums.dtype))
    counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))


def _without_mean(vectors: Tensor) -> Tensor:
    """Return the part that is orthogonal to (1, …, 1)."""
    return vectors - vectors.mean(1, keepdim=True)
