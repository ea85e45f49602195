"""Loss and hits of next tokens, through logits that are made for a chunk of tokens at a time.

`ChunkedHead` is the output layer as evaluation and the training loss run it: in one buffer, never tokens × vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from collapselab.core.batch import IGNORED

BUFFER_BYTES = {"cpu": 96 << 20, "cuda": 512 << 20}
"""Size of the logits in hand. A third of it is as fast on a CPU at rest; on a busy one few large steps wait less."""

LEAST_ROWS = 128
"""Tokens below which the products slow down, however large the vocabulary."""


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

    @property
    def perplexity(self) -> float:
        """exp of the loss; infinite where that is too large for a float."""
        return math.exp(self.loss) if not self.loss > 709 else math.inf


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
    check_shapes(features, weight, bias, labels)
    check_options(0.0, softcap, chunk)
    features, labels = used_tokens(features, labels, vocab=len(weight), ignore_index=ignore_index)
    features, weight, bias = in_one_dtype(features, weight, bias)
    head, scores = ChunkedHead(weight, bias, scale, softcap), Scores()
    for rows, logits in head.in_chunks(features, chunk):
        some = labels[rows]
        correct = int((logits.argmax(1) == some).sum())
        losses = head.losses(features[rows], some, logits)
        scores += Scores(float(losses.cpu().double().sum()), correct, len(some))
    return scores


class ChunkedHead(NamedTuple):
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


def in_one_dtype(features: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
    return features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _rows_of(vocab: int, like: Tensor) -> int:
    """Tokens whose logits fill the buffer."""
    size = BUFFER_BYTES.get(like.device.type, BUFFER_BYTES["cuda"])
    return max(LEAST_ROWS, size // (vocab * like.element_size()))


def used_tokens(features: Tensor, labels: Tensor, *, vocab: int, ignore_index: int) -> tuple[Tensor, Tensor]:
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


def check_shapes(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> None:
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


def check_options(label_smoothing: float, softcap: float | None, chunk: int | None) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}; a share from 0 to 1 is needed.")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap is {softcap}; a positive bound is needed, or None for none.")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; at least 1 token is needed at once.")
