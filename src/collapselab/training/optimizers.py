"""The optimisers by name. A further one is a function and an entry in `choices.toml`.

torch is imported only when one is made: the names are checked where settings are read, which must stay quick.
"""

from typing import TYPE_CHECKING, Any

from collapselab.training import Choice, choices

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import AdamW, Optimizer

    from collapselab.training.settings import Settings

Groups = list[dict[str, Any]]
"""Parameters that share a weight decay: those that it acts on, and those that it does not. A group's `vocabulary` are
the positions in its `params` of the matrices that have one row a token: input embeddings and output layer."""


def adamw(groups: Groups, settings: "Settings") -> "AdamW":
    """AdamW with a share of its decay in the gradient: with 0 it is as it was, with 1 it is Adam, to the bit."""
    from torch.optim import AdamW

    optimizer, share = AdamW(groups, lr=settings.lr, fused=True), settings.coupling
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


def adam(groups: Groups, settings: "Settings") -> "Optimizer":
    from torch.optim import Adam

    return Adam(groups, lr=settings.lr, fused=True)


def sgd(groups: Groups, settings: "Settings") -> "Optimizer":
    from torch.optim import SGD

    return SGD(groups, lr=settings.lr, momentum=0.9)


def coupled_adam(groups: Groups, settings: "Settings") -> "Optimizer":
    """AdamW with one second moment for all rows of the matrices in the `vocabulary` of its groups.

        v_t = β₂ v_t-1 + (1 − β₂) mean_c g_c²        one number a dimension, for all rows c
        w_c ← (1 − ηλ) w_c − η m̂_c / (√v̂_t + ε)

    Adam divides the rows of frequent tokens by more than those of rare ones. So the rows drift together, though the
    gradients of an untied output layer sum to zero: Σ_c ∂CE/∂w_c = Σ (p_c − y_c) h = 0. With one divisor the updates
    sum to zero too, and Σ_c w_c changes by the decay alone.

    AdamW updates all other parameters: while it does, the matrices have no gradient, and so it leaves them out.

    Stollenwerk & Stollenwerk (2025), arXiv:2502.08441.
    """
    optimizer = adamw(groups, settings)
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


OPTIMIZERS = {name: Choice(make, **entry) for name, make, entry in choices("optimizers")}

DECOUPLED = ("adamw", "coupled-adam")
"""Those whose decay is apart from the gradient, so that a share of it can be moved there."""
