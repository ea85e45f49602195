"""Coupled Adam: every row of the (un)embedding is divided by the same second moment.

    v_t = β₂ v_t-1 + (1 − β₂) mean_c g_c²        one number a dimension, for all rows c
    w_c ← (1 − ηλ) w_c − η m̂_c / (√v̂_t + ε)

Adam divides the rows of frequent tokens by more than those of rare ones. So the rows drift together, though the
gradients of an untied output layer sum to zero: Σ_c ∂CE/∂w_c = Σ (p_c − y_c) h = 0. With one divisor the updates sum to
zero too, and Σ_c w_c changes by the decay alone.

Stollenwerk & Stollenwerk (2025), arXiv:2502.08441.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer


class _Rows(NamedTuple):
    """A matrix with one row a token, its gradient, and the group that it is in."""

    parameter: Tensor
    gradient: Tensor
    group: dict[str, Any]


def average_rows(optimizer: AdamW) -> AdamW:
    """Let AdamW have one second moment for all rows of the matrices in the `vocabulary` of its groups.

    It updates all other parameters itself: while it does, these have no gradient, and so it leaves them out.
    """
    taken: list[_Rows] = []

    def take(*_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in (group["params"][position] for position in group["vocabulary"]):
                if parameter.grad is not None:
                    taken.append(_Rows(parameter, parameter.grad, group))
                    parameter.grad = None

    def update(*_: object) -> None:
        for rows in taken:
            rows.parameter.grad = rows.gradient
            _update(rows, _state(optimizer, rows.parameter))
        taken.clear()

    optimizer.register_step_pre_hook(take)
    optimizer.register_step_post_hook(update)
    return optimizer


def _state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg_sq"] = torch.zeros_like(parameter[0])
    return state


@torch.no_grad()
def _update(rows: _Rows, state: dict[str, Tensor]) -> None:
    parameter, gradient, group = rows
    first, second = group["betas"]
    state["step"] += 1
    steps, rate = float(state["step"]), float(group["lr"])
    state["exp_avg"].lerp_(gradient, 1 - first)
    state["exp_avg_sq"].lerp_(gradient.square().mean(0), 1 - second)
    divisor = (state["exp_avg_sq"] / (1 - second**steps)).sqrt_().add_(group["eps"])
    parameter.mul_(1 - rate * group["weight_decay"])
    parameter.addcdiv_(state["exp_avg"], divisor, value=-rate / (1 - first**steps))
