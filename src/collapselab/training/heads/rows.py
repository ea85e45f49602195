"""Frozen output layers whose rows are constructed.

Directions have length 1: with features of length √D, as a norm gives them, logits have a standard deviation of about 1
at first. Rows as the library initialises them (`frozen-init`) are several times shorter. Frozen, they keep logits so
small that little can be learned: `frozen-sphere` has the same geometry without that.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

ROWS_AT_ONCE = 512
"""Rows whose distances are compared at once."""

PASSES = 100
"""How often every row is moved away from others."""

FIRST_STEP = 4.0
"""How far a row is moved at first, in units of the tangent part of a weighted mean of others; the last step is 0."""

Tokens = tuple[Tensor, Tensor]
"""Features (tokens, dim) without gradient, and next tokens (tokens,)."""


@final
@dataclass(frozen=True)
class HeadInputs:
    """What a head is made from, besides the model."""

    counts: Tensor
    """(vocab,) how often each token is a label of the training split."""
    donor: str | None = None


class HeadUpdates:
    """What keeps an output layer as its name says while it is trained. Its state is saved with the training."""

    def observe(self, features: Tensor, labels: Tensor) -> None:
        """See the tokens of a part of a step, as `Tokens` has them."""

    def after_step(self, total: Callable[[Tensor], Tensor]) -> None:
        """Act after the optimiser's update; `total` sums a tensor over all processes."""

    def of_checkpoint(
        self, training: Iterator[Tokens], total: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Make the output layer that of a checkpoint for a while; what is trained stays as it is.

        `training` are this process's tokens of the training split, in a pass that costs nothing if it is not used.
        """
        return nullcontext()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return what must be restored beside the weights for the training to continue to the same bits."""
        return {}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""


def learned(model: Any, inputs: object, generator: Generator) -> None:
    """Leave the layer as it is built: trained with the rest."""


def as_initialised(model: Any, inputs: object, generator: Generator) -> None:
    """The rows that the library initialises."""
    freeze(model, model.get_output_embeddings().weight.detach())


def on_the_sphere(model: Any, inputs: object, generator: Generator) -> None:
    """Directions that are independent and uniform."""
    freeze(model, _random_directions(model, generator))


def spread(model: Any, inputs: object, generator: Generator) -> None:
    """Directions that are far from each other."""
    freeze(model, spread_rows(_random_directions(model, generator), generator))


def simplex_frame(model: Any, inputs: object, generator: Generator) -> None:
    """The simplex frame: every two directions have the cosine -1 / (K - 1); it exists for K ≤ D + 1."""
    classes, dim = model.get_output_embeddings().weight.shape
    turned, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    steps = torch.arange(1, classes, dtype=torch.float64)
    contrasts = torch.ones(classes, classes - 1, dtype=torch.float64).triu_()  # Helmert's: orthogonal, each of sum 0
    contrasts[1:].diagonal().copy_(-steps)
    frame = contrasts / (steps * (steps + 1)).sqrt()
    freeze(model, normalize(frame @ turned[: classes - 1], dim=1))


def spread_rows(directions: Tensor, generator: Generator) -> Tensor:
    """Unit rows moved apart, by descent on the mean of -log‖u_i − u_j‖ over pairs, in random subsets of the rows.

        u_i ← u_i − η · tangent part of  Σ_j a_ij u_j / Σ_j a_ij,    a_ij = 1 / ‖u_i − u_j‖²

    The step η falls to 0. Where K ≤ D + 1, the limit is the simplex frame.
    """
    rows = normalize(directions, dim=1)
    parts = -(-len(rows) // ROWS_AT_ONCE)
    for step in range(PASSES):
        rate = FIRST_STEP * (1 - step / PASSES)
        for subset in torch.randperm(len(rows), generator=generator).tensor_split(parts):
            some = rows[subset]
            weights = (2 - 2 * some @ some.T).clamp_min_(1e-6).reciprocal_().fill_diagonal_(0)
            pull = weights @ some / weights.sum(1, keepdim=True)
            pull -= (pull * some).sum(1, keepdim=True) * some
            rows[subset] = normalize(some - rate * pull, dim=1)
    return rows


def freeze(model: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    """Make this the output layer, in no optimiser; a bias that the layer has and that is not given stays as it is."""
    layer = model.get_output_embeddings()
    layer.weight = nn.Parameter(weight.to(layer.weight.dtype).contiguous(), requires_grad=False)
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.detach() if bias is None else bias, requires_grad=False)


def _random_directions(model: Any, generator: Generator) -> Tensor:
    return normalize(torch.randn(model.get_output_embeddings().weight.shape, generator=generator), dim=1)
