"""What a head that is not plain needs: it sees the tokens of a step, acts after the update, and before a checkpoint."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Tokens = tuple["Tensor", "Tensor"]
"""Features (tokens, dim) without gradient, and next tokens (tokens,)."""


class Upkeep(Protocol):
    """Keeps an output layer what its name says. Its state is saved and restored with the training."""

    def observe(self, features: "Tensor", labels: "Tensor") -> None:
        """See the tokens of a part of a step, as `Tokens` has them."""

    def after_step(self, total: "Callable[[Tensor], Tensor]") -> None:
        """Act after the optimiser's update; `total` sums a tensor over all processes."""

    def of_checkpoint(
        self, training: "Iterator[Tokens]", total: "Callable[[Tensor], Tensor]"
    ) -> AbstractContextManager[None]:
        """For that time, the output layer is the one of a checkpoint; what is trained stays as it is.

        `training` are this process's tokens of the training split, in a pass that costs nothing if it is not used.
        """

    def state_tensors(self) -> "dict[str, Tensor]":
        """What must be restored beside the weights for the training to continue to the same bits."""

    def load_state_tensors(self, tensors: "Mapping[str, Tensor]") -> None:
        """Put back what `state_tensors` gave."""
