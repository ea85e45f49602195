"""Whether the features and the output layer that are measured give the logits that the model itself computes.

`taps.py` assumes that the logits of a model are those of one linear layer, a scale and a cap. Adapters, hooks and
replaced methods can make this false without an error. So it is tested on tokens of the corpus before anything is
measured.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from collapselab.errors import ModelError
from collapselab.models.taps import OutputLayer, bare_model, features_and_logits, name_of

ROUNDINGS = 4
"""Roundings of a logit, in units of eps: product, bias, scale and cap round by half a unit each, on both sides."""

SUM_ROUNDINGS = 16
"""How far two orders of summing one product may differ, in units of float32, which all kernels sum in at least."""


@final
@dataclass(frozen=True)
class LogitDifference:
    """The largest difference between the logits of the tapped layer and the model's own, and what rounding allows."""

    largest: float
    allowed: float
    spread: float
    """Standard deviation of the model's logits."""
    block: int
    position: int
    token: int
    """The class whose logit differs most."""


def check_logits(model: nn.Module, head: OutputLayer, input_ids: Tensor, *, name: str) -> None:
    """ModelError if the layer and the tapped features do not give the model's own logits for these tokens."""
    difference = logit_difference(model, head, input_ids)
    if difference is None or difference.largest <= difference.allowed:
        return
    relative = difference.largest / difference.spread if difference.spread else math.inf
    raise ModelError(
        f"{name}: its own logits differ from those of its features and output layer by up to {difference.largest:.4g}, "
        f"which is {relative:.3g} times the standard deviation of its logits (class {difference.token:,} at position "
        f"{difference.position} of block {difference.block}; rounding explains {difference.allowed:.2g}). "
        "Something beside a linear layer, a scale and a soft cap makes its logits. Merge its adapter, or remove "
        "the hook or replaced method."
    )


@torch.no_grad()
def logit_difference(model: nn.Module, head: OutputLayer, input_ids: Tensor) -> LogitDifference | None:
    """The largest difference over all given tokens; None where no token has finite features, which the pass reports."""
    bare = bare_model(model)
    hidden, own = features_and_logits(bare, input_ids)
    usable = hidden.isfinite().all(-1)
    if not usable.any():
        return None
    expected, hidden, own = head.logits(hidden.to(head.weight.dtype))[usable], hidden[usable], own[usable]
    if own.shape != expected.shape:
        raise ModelError(
            f"{name_of(bare)}: gives {own.shape[-1]:,} logits a token, but its output layer has {expected.shape[-1]:,} "
            "classes. It cannot be measured."
        )
    wide = torch.promote_types(own.dtype, torch.float32)
    apart = (own.to(wide) - expected.to(wide)).abs()
    apart[own == expected] = 0  # infinities that are equal
    apart = apart.nan_to_num(nan=math.inf, posinf=math.inf)
    row, token = divmod(int(apart.argmax()), apart.shape[1])
    block, position = usable.nonzero()[row].tolist()
    spread = float(own[own.isfinite()].to(wide).std())
    return LogitDifference(float(apart.max()), _allowed(head, hidden, own), spread, block, position, token)


def _allowed(head: OutputLayer, hidden: Tensor, own: Tensor) -> float:
    """What rounding explains, with eps that of the least precise format of features, weight and logits.

        4 eps · max |logit|  +  16 eps(float32) · scale · max |h| · max |w|

    The first term is the rounding of results. The second is that of sums: no product exceeds |h| |w|, and kernels add
    in float32 at least. Scale and cap are determined in float32, so float64 is not held to more.
    """
    single = torch.finfo(torch.float32).eps
    eps = max(single, *(torch.finfo(tensor.dtype).eps for tensor in (hidden, head.weight, own)))
    largest = float(own[own.isfinite()].abs().max()) if own.isfinite().any() else 0.0
    reach = float(hidden.float().norm(dim=1).max() * head.weight.float().norm(dim=1).max())
    return ROUNDINGS * eps * largest + SUM_ROUNDINGS * single * abs(head.scale) * reach
