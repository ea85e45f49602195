"""Heads of normalised features, as models that the library computes by itself: `sphere` and `class-means`.

Features are normalised by the last norm of the model. LayerNorm or RMSNorm with gain 1 gives vectors of length √D, but
for its ε. So τ⟨ĥ, ŵ⟩ is a plain output layer on such features, and a checkpoint is an ordinary one: nothing is computed
that its weights do not say.

    sphere        gain frozen at 1, bias at 0. After every update the mean of the rows is subtracted, and they are set
                  to one length, the mean of their lengths. τ = that length · √D. A vector that all rows share changes
                  no prediction. Without the subtraction rows of one length could differ in their length about such a
                  vector, which is the length that `head_norm_cv` compares.

    class-means   gain g, one number for all dimensions (after every update its mean), bias frozen at b in all of them:
                  h = g x + b 1, with x orthogonal to 1. Rows are m̂_c + (log π_c − mean) / (b D) · 1, so that
                  logits are τ⟨ĥ, m̂_c⟩ + log π_c, less a constant, with ĥ = x / √D and τ = g √D. For this the last norm
                  must subtract the mean and have a bias, as LayerNorm does. `mean_rows.py` keeps these rows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, final

from collapselab.errors import ConfigError
from collapselab.training.heads.frozen import freeze
from collapselab.training.heads.mean_rows import LENGTH, MeanRows
from collapselab.training.heads.upkeep import Tokens, Upkeep

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

ROUNDS = 2
"""How often a mean is subtracted and lengths are made equal after an update: each undoes a small part of the other, and
what is left is undone after the next update."""

TOLERANCE = 0.1
"""How far the length of a normalised feature may be from √D: ε of the norm counts where features are still small."""


class CountedInputs(Protocol):
    """What both are made from."""

    @property
    def counts(self) -> "Tensor": ...


def sphere(model: Any, inputs: CountedInputs, generator: "Generator") -> Upkeep:
    """Rows of one length about their mean, which is learned, and features of one length."""
    norm = _normalising(model, "sphere")
    for parameter in norm.parameters():
        parameter.requires_grad_(False)
    kept = EqualRows(model.get_output_embeddings(), inputs.counts > 0)
    kept.after_step(lambda tensor: tensor)
    return kept


def centred(model: Any, inputs: CountedInputs, generator: "Generator") -> Upkeep:
    """Learned rows whose mean is subtracted after every update; no prediction changes, as all logits shift alike."""
    kept = CentredRows(model.get_output_embeddings())
    kept.after_step(lambda tensor: tensor)
    return kept


def class_means(model: Any, inputs: CountedInputs, generator: "Generator") -> Upkeep:
    """Rows that are the directions of class means, from a table that follows the features."""
    import torch

    norm = _normalising(model, "class-means")
    bias = getattr(norm, "bias", None)
    if not isinstance(bias, torch.nn.Parameter) or model.get_output_embeddings().bias is not None:
        raise ConfigError(
            f"head: class-means keeps log π_c in the bias of the last norm, but {model.config.model_type} has none "
            "there, or has one in its output layer. Choose gpt-neo, gpt2 or pythia."
        )
    torch.nn.init.constant_(bias, LENGTH / len(bias) ** 0.5).requires_grad_(False)
    freeze(model, model.get_output_embeddings().weight.detach().clone())
    return MeanRows(model.get_output_embeddings(), norm, inputs.counts)


def _normalising(model: Any, head: str) -> "nn.Module":
    """The last norm, with gain 1 and bias 0; ConfigError where features are then not of length √D."""
    import torch

    from collapselab.models.taps import features, last_norm

    norm = last_norm(model)
    if norm is None:
        raise ConfigError(f"head: {head} needs a norm before the output layer, and {model.config.model_type} has none.")
    for name, parameter in norm.named_parameters():
        torch.nn.init.constant_(parameter, 1.0 if name == "weight" else 0.0)
    with torch.no_grad():
        entering = features(model, torch.arange(2)[None])[0]
    if abs(float(entering.norm(dim=1).mean()) / entering.shape[1] ** 0.5 - 1) > TOLERANCE:
        raise ConfigError(
            f"head: {head} needs features of length √D, but the last norm of {model.config.model_type} gives "
            f"{float(entering.norm(dim=1).mean()):.3g} in {entering.shape[1]:,} dimensions. Choose another family."
        )
    return norm


class CentredRows:
    """Sets the mean of all rows of an output layer to zero."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def observe(self, features: "Tensor", labels: "Tensor") -> None:
        """Nothing depends on the tokens."""

    def after_step(self, total: "Callable[[Tensor], Tensor]") -> None:
        weight = self.layer.weight.data
        weight.sub_(weight.mean(0))

    def of_checkpoint(
        self, training: "Iterator[Tokens]", total: "Callable[[Tensor], Tensor]"
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def state_tensors(self) -> "dict[str, Tensor]":
        return {}

    def load_state_tensors(self, tensors: "Mapping[str, Tensor]") -> None:
        """There is no state beside the weights."""


@final
class EqualRows(CentredRows):
    """Sets the rows of an output layer to one length and their mean, over tokens that are trained, to zero."""

    def __init__(self, layer: Any, trained: "Tensor") -> None:
        super().__init__(layer)
        self.trained = trained

    def after_step(self, total: "Callable[[Tensor], Tensor]") -> None:
        weight = self.layer.weight.data
        trained = self.trained.to(weight.device, weight.dtype)
        share = trained / trained.sum()
        for _ in range(ROUNDS):
            weight.sub_(share @ weight)
            lengths = weight.norm(dim=1, keepdim=True)
            weight.mul_(share @ lengths / lengths)
