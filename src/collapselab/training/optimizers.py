"""The optimisers by name. A further one is a function and an entry.

torch is imported only when one is made: the names are checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from torch import Tensor
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


@final
class About(NamedTuple):
    """A head or an optimiser beside its function: `collapselab interventions` prints it."""

    formula: str
    source: str
    cost: str = "–"
    """Multiplications beside those of a learned head or of adamw; K classes, D dimensions, N tokens."""
    must_move: str = "–"
    """What it must move against a learned head that is not tied, or against adamw; – for a baseline."""


def _adamw(groups: Groups, settings: OptimizerSettings) -> "AdamW":
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
    return average_rows(_adamw(groups, settings))


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


def average_rows(optimizer: "AdamW") -> "AdamW":
    """Let AdamW have one second moment for all rows of the matrices in the `vocabulary` of its groups (Coupled Adam).

        v_t = β₂ v_t-1 + (1 − β₂) mean_c g_c²        one number a dimension, for all rows c
        w_c ← (1 − ηλ) w_c − η m̂_c / (√v̂_t + ε)

    Adam divides the rows of frequent tokens by more than those of rare ones. So the rows drift together, though the
    gradients of an untied output layer sum to zero: Σ_c ∂CE/∂w_c = Σ (p_c − y_c) h = 0. With one divisor the updates
    sum to zero too, and Σ_c w_c changes by the decay alone.

    AdamW updates all other parameters: while it does, the matrices have no gradient, and so it leaves them out.

    Stollenwerk & Stollenwerk (2025), arXiv:2502.08441.
    """
    taken: list[tuple[Tensor, Tensor, dict[str, Any]]] = []

    def take(*_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in (group["params"][position] for position in group["vocabulary"]):
                if parameter.grad is not None:
                    taken.append((parameter, parameter.grad, group))
                    parameter.grad = None

    def update(*_: object) -> None:
        for parameter, gradient, group in taken:
            parameter.grad = gradient
            _update_rows(parameter, gradient, group, optimizer.state[parameter])
        taken.clear()

    optimizer.register_step_pre_hook(take)
    optimizer.register_step_post_hook(update)
    return optimizer


def _update_rows(parameter: "Tensor", gradient: "Tensor", group: dict[str, Any], state: dict[str, "Tensor"]) -> None:
    import torch

    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg_sq"] = torch.zeros_like(parameter[0])
    first, second = group["betas"]
    state["step"] += 1
    steps, rate = float(state["step"]), float(group["lr"])
    with torch.no_grad():
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].lerp_(gradient.square().mean(0), 1 - second)
        divisor = (state["exp_avg_sq"] / (1 - second**steps)).sqrt_().add_(group["eps"])
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], divisor, value=-rate / (1 - first**steps))
