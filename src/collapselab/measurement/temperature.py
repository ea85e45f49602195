"""The temperature of the least cross-entropy on training tokens.

Guo, Pleiss, Sun & Weinberger (2017), arXiv:1706.04599. The cross-entropy of softmax(s z) is convex in the scale
s = 1/T.
"""

import torch
from torch import Tensor

from collapselab.core.centre_loss import fit_scale
from collapselab.measurement.plan import MeasurePlan
from collapselab.models.scores import LogitSpace, common_dtype, in_chunks, in_dtype
from collapselab.models.taps import OutputLayer

FITTED_TOKENS = 4096
"""Training tokens, at least, that a scale is fitted to: whole blocks, the first of the sample."""


@torch.no_grad()
def fitted_scale(plan: MeasurePlan) -> float:
    """One over the temperature, fitted in the first process and the same in all."""
    if not plan.processes.first:
        return plan.processes.broadcast(0.0)
    x, labels = _training_tokens(plan)
    head = in_dtype(plan.model.head, common_dtype(x, plan.model.head.weight))
    return plan.processes.broadcast(fit_scale(lambda scale: loss_derivatives(head, x, labels, scale), 1.0))


def loss_derivatives(
    head: OutputLayer, x: Tensor, labels: Tensor, scale: float, *, log_priors: Tensor | None = None
) -> tuple[float, float]:
    """Both derivatives of the mean cross-entropy of softmax(s z + log π) by s: E[E_p z − z_y], E[Var_p z]."""
    slope = curvature = 0.0
    for rows, scores in in_chunks(head, x, None, LogitSpace()):
        scores -= scores.gather(1, labels[rows][:, None])  # differences keep more digits
        scaled = scale * scores
        chances = (scaled if log_priors is None else scaled + log_priors).softmax(1)
        mean = (chances * scores).sum(1, keepdim=True)
        slope += float(mean.double().sum())
        curvature += float((chances * (scores - mean).square_()).double().sum())
    return slope / len(x), curvature / len(x)


def _training_tokens(plan: MeasurePlan) -> tuple[Tensor, Tensor]:
    """Features and next tokens of the first blocks of the training sample."""
    model, sample = plan.model, plan.splits["train"].samples.last
    parts: list[Tensor] = []
    labels: list[Tensor] = []
    start = 0
    while start < len(sample) and sum(map(len, labels)) < FITTED_TOKENS:
        states, next_tokens = model.sampled_features(sample, start, start + plan.batch)
        parts.append(states.to(common_dtype(states, model.head.weight)))
        labels.append(next_tokens.to(model.device))
        start += plan.batch
    return torch.cat(parts), torch.cat(labels)
