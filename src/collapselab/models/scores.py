"""Loss and accuracy of next tokens, from the logits of a chunk of tokens at a time.

Evaluation and the training loss both run the output layer `in_chunks`: in one buffer, never tokens × vocabulary.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from collapselab.core.batch import CheckedLabels
from collapselab.core.decisions import aligned_rows, aligned_stride, softmax_of_aligned, top_two
from collapselab.core.devices import by_device, exact_device
from collapselab.corpus.blocks import Split
from collapselab.models import taps
from collapselab.models.taps import OutputLayer

BUFFER_BYTES = {"cpu": 112 << 20, "accelerator": 512 << 20}
"""Bytes of the logits that are computed at once. A third is as fast on an idle CPU, but on a busy one steps wait."""

TOKENS_AT_ONCE = 8192
"""Tokens of a batch of `split_scores`."""

LEAST_ROWS = 128
"""Tokens below which the products slow down, however large the vocabulary."""


@dataclass(frozen=True)
class Scores:
    """Sums over tokens; scores of shards add up to those of the whole, `Scores()` being those of nothing."""

    total_loss: float = 0.0
    correct: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, sums: Tensor) -> "Scores":
        """The scores with these numbers (3,), read from their device."""
        loss, correct, tokens = sums.tolist()
        return cls(loss, int(correct), int(tokens))

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


class ScoredChunk(NamedTuple):
    """Scored tokens: their labels, losses and predictions."""

    labels: Tensor
    losses: Tensor
    best: Tensor
    """Class with the largest logit, the first of equals."""
    gap: Tensor
    """Difference between the two largest logits."""
    probabilities: Tensor
    """(tokens, vocab), in memory that the next chunk uses again."""


Observer = Callable[[ScoredChunk], None]


class LogitSpace:
    """Memory for the logits of a chunk, kept from batch to batch.

    Otherwise every batch allocates and frees 112 MB: on a CPU the pages of new memory, each zeroed when it is first
    used, take a third of the time of a product of that size.
    """

    def __init__(self) -> None:
        self._buffer: Tensor | None = None

    def of(self, rows: int, vocab: int, *, like: Tensor) -> Tensor:
        """(rows, vocab) numbers of the kind of `like`, with anything in them; the next call gives the same memory.

        Between rows there may be a gap, so that every row is aligned.
        """
        buffer, size = self._buffer, rows * aligned_stride(vocab, like.element_size())
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            self._buffer = None  # before the next is made, so that there are never two
            with torch.inference_mode(False):  # or a gradient could not be formed in it later
                buffer = self._buffer = torch.empty(size, dtype=like.dtype, device=like.device)
        return aligned_rows(buffer, rows, vocab)


class Scorer:
    """Scores next tokens, batch after batch, by the logits of `next_token_loss`, without gradient.

    What batches share is made once: the memory for logits, and the output layer in float32 where it is in half
    precision.
    """

    def __init__(self, head: OutputLayer, *, chunk: int | None = None) -> None:
        self.chunk, self._space = chunk, LogitSpace()
        self._head, self._widened = head, head

    def scores(self, features: Tensor, labels: Tensor) -> Scores:
        """Loss and hits of tokens (tokens, dim) and what follows them (tokens,); no labels left make no scores."""
        return Scores.of(self.sums(features, labels))

    @torch.no_grad()
    def sums(self, features: Tensor, labels: Tensor, *, observe: "Observer | None" = None) -> Tensor:
        """The numbers of `Scores`; where labels are on a CPU, the host does not wait for the device.

        `observe` is called with each chunk of tokens.
        """
        head = self._head
        features, labels = used_tokens(features, labels, vocab=len(head.weight))
        dtype = common_dtype(features, head.weight)
        if self._widened.weight.dtype != dtype:
            self._widened = head.to(dtype)
        features, exact = features.to(dtype), exact_device(features.device)
        sums = torch.zeros(3, dtype=torch.float64, device=exact)
        for rows, logits in in_chunks(self._widened, features, self.chunk, self._space):
            targets = labels[rows]
            best, gap = top_two(logits)
            losses = losses_of(self._widened, features[rows], targets, logits)
            hits = (best == targets).sum().to(exact)
            sums += torch.stack([losses.to(exact).double().sum(), hits, torch.full_like(hits, len(targets))])
            if observe is not None:
                observe(ScoredChunk(targets, losses, best, gap, logits))
        return sums


def split_scores(
    model: nn.Module,
    split: Split,
    *,
    head: OutputLayer,
    device: torch.device,
    blocks: NDArray[np.int64] | None = None,
    rank: int = 0,
    world: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Scores:
    """Score this process's share of the split, or of the given blocks. The scores of all processes add up.

    `stop` is asked after every batch, and may end it early.
    """
    sums, scorer = torch.zeros(3, dtype=torch.float64, device=exact_device(device)), Scorer(head)
    for features, labels in split_features(model, split, device=device, blocks=blocks, rank=rank, world=world):
        sums += scorer.sums(features, labels)
        if stop():
            break
    return Scores.of(sums)


@torch.no_grad()
def split_features(
    model: nn.Module,
    split: Split,
    *,
    device: torch.device,
    blocks: NDArray[np.int64] | None = None,
    rank: int = 0,
    world: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features (tokens, dim) and next tokens (tokens,) of this process's share, a few blocks at a time.

    Next tokens are on the CPU. `blocks` are the numbers of the blocks to read; all by default. The model is in `eval`
    mode meanwhile, and is left in the mode it was in.
    """
    was_training, at_once = model.training, world * max(1, TOKENS_AT_ONCE // split.block)
    order = np.arange(split.blocks) if blocks is None else blocks
    model.eval()
    try:
        for start in range(0, len(order), at_once):
            numbers = order[start : start + at_once][rank::world]
            if len(numbers):
                batch = split.read(numbers)
                entering = taps.features(model, batch.ids.to(device), **mask_inputs(model, batch.attention, device))
                flat = entering[:, :-1].reshape(-1, entering.shape[-1])
                yield flat, batch.labels.reshape(-1)
    finally:
        model.train(was_training)


def mask_inputs(model: nn.Module, attention: Tensor | None, device: torch.device) -> dict[str, Tensor]:
    """Return the attention mask as an argument of the model; nothing without padding, or if the model takes no mask.

    Padding comes after the text, where a causal model does not look; the mask is for a model that might.
    """
    if attention is None or "attention_mask" not in inspect.signature(taps.bare_model(model).forward).parameters:
        return {}
    return {"attention_mask": attention.to(device)}


def in_chunks(
    head: OutputLayer, features: Tensor, chunk: int | None, space: LogitSpace | None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the logits of some tokens at a time, in a buffer that the caller may overwrite; all have one dtype."""
    tokens, vocab = len(features), len(head.weight)
    # As many tokens as the buffer takes, spread evenly so that none of the chunks is a mere remainder.
    most = max(LEAST_ROWS, by_device(BUFFER_BYTES, features.device) // (vocab * features.element_size()))
    at_once = min(chunk or math.ceil(tokens / max(1, math.ceil(tokens / most))), tokens)
    buffer = (space or LogitSpace()).of(at_once, vocab, like=features)
    for start in range(0, tokens, max(at_once, 1)):
        rows = slice(start, min(start + at_once, tokens))
        yield rows, _logits(head, features[rows], buffer[: rows.stop - start])


def losses_of(head: OutputLayer, features: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of each token; the logits become probabilities."""
    if logits.device.type != "cpu":  # to look for faint chances, the host would wait
        largest, at = logits.max(1, keepdim=True)
        below = largest - logits.gather(1, labels[:, None])
        softmax_of_aligned(logits)
        return (below - logits.gather(1, at).log()).squeeze(1)
    softmax_of_aligned(logits)
    chances = logits.gather(1, labels[:, None]).squeeze(1)
    losses = chances.log().neg_()
    faint = (chances < torch.finfo(chances.dtype).tiny).nonzero().squeeze(1)
    if len(faint):  # too small for a float: their logarithm must come from the logits
        again = _logits(head, features[faint], logits.new_empty(len(faint), len(head.weight)))
        losses[faint] = F.cross_entropy(again, labels[faint], reduction="none")
    return losses


def _logits(head: OutputLayer, features: Tensor, out: Tensor) -> Tensor:
    start, share = (out, 0.0) if head.bias is None else (head.bias, head.scale)
    torch.addmm(start, features, head.weight.T, beta=share, alpha=head.scale, out=out)
    return out if head.softcap is None else out.div_(head.softcap).tanh_().mul_(head.softcap)


def common_dtype(features: Tensor, weight: Tensor) -> torch.dtype:
    """Return the format of products: at least float32."""
    return torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)


def used_tokens(features: Tensor, labels: Tensor, *, vocab: int) -> tuple[Tensor, Tensor]:
    """Return the tokens whose label is not ignored; raise ValueError if a label is outside the vocabulary."""
    checked = CheckedLabels.checked(labels, vocab, features.device)
    if checked.positions is not None:
        features = features.index_select(0, checked.positions)
    return features, checked.labels
