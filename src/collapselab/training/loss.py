"""Next-token cross-entropy that never holds tokens × vocabulary.

The logits of a chunk of tokens at a time are made in one buffer, become probabilities in place, then their own
gradient, and are multiplied out at once, in the forward pass: backward has nothing left to do. The factors that every
logit's gradient shares, the scale and 1 / tokens, ride along in the matrix products, so that three products and one
softmax are all that passes over the logits. All cores work on the same chunk: a chunk for each core would need a
gradient of the output layer for each.

Half-precision inputs are multiplied in float32 and get gradients of their own dtype. So it is under autocast, which
leaves products into a given buffer alone; only on CUDA, where the library's own function is used, it takes effect.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from collapselab.core.moments import IGNORED

BUFFER_BYTES = {"cpu": 96 << 20, "cuda": 512 << 20}
"""Size of the logits in hand. A third of it is as fast on a CPU at rest; on a busy one few large steps wait less."""

LEAST_ROWS = 128
"""Tokens below which the products slow down, however large the vocabulary."""


def next_token_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORED,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk: int | None = None,
) -> Tensor:
    """Mean cross-entropy of the next tokens, labels (tokens,), from features (tokens, dim) by weight (vocab, dim).

        logits = scale · (features · weightᵀ + bias),   then softcap · tanh(logits / softcap) where one is given

    Labels are shifted already: features[:, :-1] goes with ids[:, 1:]. Equal to `F.cross_entropy` of the logits in value
    and gradient, but for rounding and for labels that are all ignored, which are an error here and nan there. `chunk`,
    the tokens in hand at once, bounds memory at chunk × vocab numbers, twice that with `softcap`, and changes nothing
    else. A loss that is not finite is returned as it is. There is no second derivative.
    """
    _check_shapes(features, weight, bias, labels)
    _check_options(label_smoothing, softcap, chunk)
    features, labels = _used(features, labels, vocab=len(weight), ignore_index=ignore_index)
    if not len(labels):
        raise ValueError(f"no label is left that is not {ignore_index}; a mean needs at least one. Skip this batch.")
    plain = softcap is None and scale == 1 and label_smoothing == 0 and chunk is None
    if plain and features.is_cuda and hasattr(F, "linear_cross_entropy"):  # faster there, and as small
        return _library_loss(features, weight, bias, labels)
    features, weight, bias = _in_one_dtype(features, weight, bias)
    loss: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, labels, scale, softcap, label_smoothing, chunk, torch.is_grad_enabled()
    )
    return loss


@dataclass(frozen=True)
class Scores:
    """Sums over tokens; scores of shards add up to those of the whole, `Scores()` being those of nothing."""

    total_loss: float = 0.0
    correct: int = 0
    tokens: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        return Scores(self.total_loss + other.total_loss, self.correct + other.correct, self.tokens + other.tokens)

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats; nan without tokens."""
        return self.total_loss / self.tokens if self.tokens else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of tokens whose label has the largest logit, the first of equals; nan without tokens."""
        return self.correct / self.tokens if self.tokens else float("nan")


@torch.no_grad()
def next_token_scores(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    ignore_index: int = IGNORED,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk: int | None = None,
) -> Scores:
    """Loss and hits of the same logits as in `next_token_loss`, without gradient; no labels left make no scores."""
    _check_shapes(features, weight, bias, labels)
    _check_options(0.0, softcap, chunk)
    features, labels = _used(features, labels, vocab=len(weight), ignore_index=ignore_index)
    features, weight, bias = _in_one_dtype(features, weight, bias)
    head, scores = _Head(weight, bias, scale, softcap), Scores()
    for rows, logits in head.in_chunks(features, chunk):
        some = labels[rows]
        correct = int((logits.argmax(1) == some).sum())
        losses = head.losses(features[rows], some, logits)
        scores += Scores(float(losses.cpu().double().sum()), correct, len(some))
    return scores


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        scale: float,
        softcap: float | None,
        label_smoothing: float,
        chunk: int | None,
        with_gradients: bool,
    ) -> Tensor:
        head = _Head(weight, bias, scale, softcap)
        wanted = [with_gradients and needed for needed in ctx.needs_input_grad[:3]]
        inputs = zip((features, weight, bias), wanted, strict=True)
        grads = [one.new_zeros(one.shape) if one is not None and needed else None for one, needed in inputs]
        losses, capped = features.new_empty(len(features)), None
        for rows, logits in head.in_chunks(features, chunk):
            some, at = features[rows], labels[rows]
            if softcap is not None and any(wanted):
                capped = torch.empty_like(logits) if capped is None else capped[: len(logits)]
                torch.div(logits, softcap, out=capped).square_()
            gap = logits.gather(1, at[:, None]).squeeze(1) - logits.mean(1) if label_smoothing else 0.0
            losses[rows] = head.losses(some, at, logits) + label_smoothing * gap
            if any(wanted):
                _to_gradient(logits, at, label_smoothing, capped)
                _multiply_out(grads, rows, logits, some, weight, factor=scale / len(features))
        ctx.save_for_backward(*grads)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `once_differentiable` would return constants here, and say nothing
            raise RuntimeError("next_token_loss has no second derivative. Call backward without create_graph=True.")
        gradients = ctx.saved_tensors
        if grad_output != 1:
            gradients = [None if one is None else one * grad_output for one in gradients]
        return *gradients, None, None, None, None, None, None


class _Head(NamedTuple):
    """What makes logits out of features."""

    weight: Tensor
    bias: Tensor | None
    scale: float
    softcap: float | None

    def in_chunks(self, features: Tensor, chunk: int | None) -> Iterator[tuple[slice, Tensor]]:
        """The logits of some tokens at a time, in a buffer that the receiver may use up."""
        tokens, vocab = len(features), len(self.weight)
        at_once = min(chunk or _rows_of(vocab, features), tokens)
        space = features.new_empty(at_once, vocab)
        for start in range(0, tokens, max(at_once, 1)):
            rows = slice(start, min(start + at_once, tokens))
            yield rows, self.logits(features[rows], space[: rows.stop - start])

    def logits(self, features: Tensor, out: Tensor) -> Tensor:
        start, share = (out, 0.0) if self.bias is None else (self.bias, self.scale)
        torch.addmm(start, features, self.weight.T, beta=share, alpha=self.scale, out=out)
        return out if self.softcap is None else out.div_(self.softcap).tanh_().mul_(self.softcap)

    def losses(self, features: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
        """Cross-entropy of each token; the logits become probabilities."""
        torch.softmax(logits, 1, out=logits)
        chances = logits.gather(1, labels[:, None]).squeeze(1)
        losses = chances.log().neg_()
        faint = (chances < torch.finfo(chances.dtype).tiny).nonzero().squeeze(1)
        if len(faint):  # too small for a float: their logarithm must come from the logits
            again = self.logits(features[faint], logits.new_empty(len(faint), len(self.weight)))
            losses[faint] = F.cross_entropy(again, labels[faint], reduction="none")
        return losses


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
    of_features, of_weight, of_bias = grads
    if of_features is not None:
        of_features[rows].addmm_(of_logits, weight, alpha=factor)
    if of_weight is not None:
        of_weight.addmm_(of_logits.T, features, alpha=factor)
    if of_bias is not None:
        of_bias.add_(of_logits.sum(0), alpha=factor)


def _library_loss(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    kind = features.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
    bias, options = None if bias is None else bias.to(dtype), torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(features.to(dtype), weight.to(dtype), labels, linear_bias=bias, options=options)
    return loss.to(torch.promote_types(dtype, torch.float32))


def _in_one_dtype(features: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
    return features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _rows_of(vocab: int, like: Tensor) -> int:
    """Tokens whose logits fill the buffer."""
    size = BUFFER_BYTES.get(like.device.type, BUFFER_BYTES["cuda"])
    return max(LEAST_ROWS, size // (vocab * like.element_size()))


def _used(features: Tensor, labels: Tensor, *, vocab: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """The tokens whose label is not ignored; ValueError if a label is outside the vocabulary."""
    labels = labels.to(features.device, torch.int64)
    ignored = labels == ignore_index
    bad = labels[((labels < 0) | (labels >= vocab)) & ~ignored]
    if len(bad):
        raise ValueError(
            f"{len(bad):,} of {len(labels):,} labels are outside 0 … {vocab - 1:,}, the first {int(bad[0]):,}; "
            f"only {ignore_index} is skipped."
        )
    if not ignored.any():
        return features, labels
    used = (~ignored).nonzero().squeeze(1)
    return features.index_select(0, used), labels.index_select(0, used)


def _check_shapes(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> None:
    shape = tuple(features.shape)
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1]:
        found = f"features of shape {shape} and output layer of shape {tuple(weight.shape)}"
        raise ValueError(f"{found}; (tokens, dim) and (vocab, dim) are needed.")
    if labels.shape != features.shape[:1]:
        found = f"features of shape {shape} but labels of shape {tuple(labels.shape)}"
        raise ValueError(f"{found}; each feature needs its next token.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype}; integers are needed.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"output bias of shape {tuple(bias.shape)}; ({len(weight)},), one a class, is needed.")


def _check_options(label_smoothing: float, softcap: float | None, chunk: int | None) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; a share from 0 to 1 is needed.")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap is {softcap}; a positive bound is needed, or None for none.")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; at least 1 token is needed at once.")
