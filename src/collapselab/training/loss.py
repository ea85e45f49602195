"""Next-token cross-entropy that never holds tokens × vocabulary.

The logits of a chunk of tokens at a time are
made in one buffer, become probabilities in place, then their own gradient, and are multiplied out at once, in the
forward pass: backward has nothing left to do. The factors that every logit's gradient shares, the scale and 1 / tokens,
are part of the matrix products, so that three products and one softmax are all that passes over the logits. All cores
work on the same chunk: a chunk for each core would need a gradient of the output layer for each. Half-precision inputs
are multiplied in float32 and get gradients of their own dtype. So it is under autocast, which leaves products into a
given buffer alone.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.models.scores import LogitSpace, common_dtype, in_chunks, losses_of, used_tokens
from collapselab.models.taps import OutputLayer


def next_token_loss(
    features: Tensor,
    head: OutputLayer,
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    space: LogitSpace | None = None,
    plain_value: bool = False,
) -> Tensor:
    """Mean cross-entropy of the next tokens, labels (tokens,), from features (tokens, dim) by an output layer.

    Labels are shifted already: ids[:, 1:] for features[:, :-1]. Equal to `F.cross_entropy` of the layer's logits in
    value and gradient, but for rounding and for labels that are all ignored, which are an error here and nan there.
    `chunk`, the tokens computed at once, bounds memory at chunk × vocab numbers, twice that with a soft cap, and
    changes nothing else; `space` lets batches share that memory, which is faster. With `plain_value` the value is
    without label smoothing, and the gradient is as with it: what a log compares between trainings. A loss that is not
    finite is returned as it is. There is no second derivative.
    """
    features, labels = used_tokens(features, labels, vocab=len(head.weight))
    if not len(labels):
        raise ValueError(f"no label is left that is not {IGNORED}; a mean needs at least one. Skip this batch.")
    head = head.to(common_dtype(features, head.weight))
    how = _How(head.scale, head.softcap, label_smoothing, chunk, space, plain_value)
    loss: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        features.to(head.weight.dtype), head.weight, head.bias, labels, how, torch.is_grad_enabled()
    )
    return loss


class _How(NamedTuple):
    scale: float
    softcap: float | None
    label_smoothing: float
    chunk: int | None
    space: LogitSpace | None
    plain_value: bool


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        features, weight, bias, labels, ctx.how, with_gradients = inputs
        ctx.wanted = [with_gradients and needed for needed in ctx.needs_input_grad[:3]]
        ctx.save_for_backward(features, weight, bias, labels)
        loss, ctx.gradients = _loss_and_gradients(features, weight, bias, labels, ctx.how, ctx.wanted)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `once_differentiable` would return constants here, and say nothing
            raise RuntimeError("next_token_loss has no second derivative. Call backward without create_graph=True.")
        gradients, ctx.gradients = ctx.gradients, None  # if they were held here too, who gets them would copy them
        if gradients is None:  # a graph that is retained may be gone through again
            features, weight, bias, labels = ctx.saved_tensors
            gradients = _loss_and_gradients(features, weight, bias, labels, ctx.how, ctx.wanted)[1]
        if grad_output.device.type != "cpu" or grad_output != 1:  # elsewhere to look takes longer
            gradients = [None if gradient is None else gradient.mul_(grad_output) for gradient in gradients]
        return *gradients, None, None, None


def _loss_and_gradients(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: _How, wanted: list[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    head = OutputLayer(weight, bias, how.scale, how.softcap)
    inputs = zip((features, weight, bias), wanted, strict=True)
    grads = [tensor.new_empty(tensor.shape) if tensor is not None and needed else None for tensor, needed in inputs]
    losses, capped = features.new_empty(len(features)), None
    for rows, logits in in_chunks(head, features, how.chunk, how.space):
        some, at = features[rows], labels[rows]
        if how.softcap is not None and any(wanted):
            capped = torch.empty_like(logits) if capped is None else capped[: len(logits)]
            torch.div(logits, how.softcap, out=capped).square_()
        smoothed = how.label_smoothing and not how.plain_value
        gap = logits.gather(1, at[:, None]).squeeze(1) - logits.mean(1) if smoothed else 0.0
        losses[rows] = losses_of(head, some, at, logits) + how.label_smoothing * gap
        if any(wanted):
            _to_gradient(logits, at, how.label_smoothing, capped)
            _multiply_out(grads, rows, logits, some, weight, factor=how.scale / len(features))
    return losses.mean(), grads


def _to_gradient(chances: Tensor, labels: Tensor, label_smoothing: float, capped: Tensor | None) -> None:
    """Turn probabilities in place into the gradient of each token's loss in its logits; `capped` is tanh²."""
    if label_smoothing:
        chances.sub_(label_smoothing / chances.shape[1])
    chances.scatter_add_(1, labels[:, None], chances.new_full((len(labels), 1), label_smoothing - 1))
    if capped is not None:
        chances.addcmul_(chances, capped, value=-1)


def _multiply_out(
    grads: list[Tensor | None], rows: slice, of_logits: Tensor, features: Tensor, weight: Tensor, *, factor: float
) -> None:
    """Add a chunk's share to the gradients. The first chunk overwrites them: their memory is uninitialised."""
    of_features, of_weight, of_bias = grads
    before = 0.0 if rows.start == 0 else 1.0
    if of_features is not None:
        of_features[rows].addmm_(of_logits, weight, beta=0, alpha=factor)
    if of_weight is not None:
        of_weight.addmm_(of_logits.T, features, beta=before, alpha=factor)
    if of_bias is not None:
        of_bias.addmv_(of_logits.T, features.new_full((len(features),), factor), beta=before)
