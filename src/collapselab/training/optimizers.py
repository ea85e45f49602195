"""The optimisers by name. A further one is a function and an entry.

torch is imported only when one is made: the names are checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from collapselab.training.about import About

if TYPE_CHECKING:
    from torch.optim import AdamW, Optimizer

Groups = list[dict[str, Any]]
"""Parameters that share a weight decay: those that it acts on, and those that it does not. A group's `vocabulary` are
the positions in its `params` of the matrices that have one row a token: input embeddings and output layer."""


class OptimizerSettings(Protocol):
    """The settings that an optimiser is made from."""

    @property
    def lr(self) -> float: ...
    @property
    def coupling(self) -> float: ...


def _adamw(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """Weight decay apart from the gradient."""
    from torch.optim import AdamW

    return _coupled(AdamW(groups, lr=settings.lr, fused=True), settings.coupling)


def _adam(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """Weight decay as part of the gradient (L2)."""
    from torch.optim import Adam

    return Adam(groups, lr=settings.lr, fused=True)


def _sgd(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """Stochastic gradient descent with momentum 0.9."""
    from torch.optim import SGD

    return SGD(groups, lr=settings.lr, momentum=0.9)


def _coupled_adam(groups: Groups, settings: OptimizerSettings) -> "Optimizer":
    """The second moment averaged over the rows of input embeddings and output layer."""
    from torch.optim import AdamW

    from collapselab.training.coupled_adam import average_rows

    return average_rows(_coupled(AdamW(groups, lr=settings.lr, fused=True), settings.coupling))


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings], "Optimizer"]] = {
    "adamw": _adamw,
    "adam": _adam,
    "sgd": _sgd,
    "coupled-adam": _coupled_adam,
}

ABOUT: dict[str, About] = {
    "adamw": About("w ← w − η(m/√v + λw), m and v averages of ∇CE and its square", "arXiv:1711.05101"),
    "adam": About(
        "w ← w − η m/√v, m and v averages of ∇CE + λw and its square",
        "arXiv:1412.6980",
        must_move="head_sum falls where the output layer is not tied, as with --coupling 1",
    ),
    "sgd": About("w ← w − ηm, m ← 0.9 m + ∇CE + λw", "momentum: Polyak 1964"),
    "coupled-adam": About(
        "as adamw, v averaged over the rows of a matrix that has one a token",
        "arXiv:2502.08441",
        cost="K·D for each such matrix",
        must_move="‖Σ_c w_c‖² shrinks by the decay alone, Π(1 − ηλ)², where the output layer is not tied",
    ),
}

COUPLING = About(
    "w ← w − η(m/√v + (1 − r)λw), m and v averages of ∇CE + rλw and its square",
    "after arXiv:2602.16642",
    cost="one addition a parameter",
    must_move="head_sum falls with the share, where the output layer is not tied",
)
"""Of `--coupling r`: a part of the way from adamw to adam."""

DECOUPLED = ("adamw", "coupled-adam")
"""Those whose decay is apart from the gradient, so that a share of it can be moved there."""


def _coupled(optimizer: "AdamW", share: float) -> "AdamW":
    """Move a share of AdamW's decay into the gradient: with 0 it is as it was, with 1 it is Adam, to the bit."""
    if share == 0:
        return optimizer
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        group["weight_decay"] = (1 - share) * decay

    def add_decay(*_: object) -> None:
        for group, decay in zip(optimizer.param_groups, decays, strict=True):
            for parameter in group["params"]:
                if decay and parameter.grad is not None:
                    parameter.grad.add_(parameter.detach(), alpha=share * decay)

    optimizer.register_step_pre_hook(add_decay)
    return optimizer
