"""The optimisers by name. A further one is a function and an entry.

torch is imported only when one is made: the names are checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch.optim import Optimizer

Groups = list[dict[str, Any]]
"""Parameters that share a weight decay: those that it acts on, and those that it does not."""


class OptimizerSettings(Protocol):
    """The settings that an optimiser is made from."""

    @property
    def lr(self) -> float: ...


def _adamw(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """Weight decay apart from the gradient."""
    from torch.optim import AdamW

    return AdamW(groups, lr=settings.lr, fused=True)


def _adam(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """Weight decay as part of the gradient (L2)."""
    from torch.optim import Adam

    return Adam(groups, lr=settings.lr, fused=True)


def _sgd(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    from torch.optim import SGD

    return SGD(groups, lr=settings.lr, momentum=0.9)


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings], "Optimizer"]] = {
    "adamw": _adamw,
    "adam": _adam,
    "sgd": _sgd,
}
