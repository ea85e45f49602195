"""What a head that is not plain needs while it is trained: it sees the tokens of a step, and acts after the update."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Upkeep(Protocol):
    """Keeps an output layer what its name says. Its state is saved and restored with the training."""

    def observe(self, features: "Tensor", labels: "Tensor") -> None:
        """See the tokens of a part of a step: features (tokens, dim) without gradient, and next tokens (tokens,)."""

    def after_step(self, total: "Callable[[Tensor], Tensor]") -> None:
        """Act after the optimiser's update; `total` sums a tensor over all processes."""

    def state_tensors(self) -> "dict[str, Tensor]":
        """What must be restored beside the weights for the training to continue to the same bits."""

    def load_state_tensors(self, tensors: "Mapping[str, Tensor]") -> None:
        """Put back what `state_tensors` gave."""
