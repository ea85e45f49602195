"""Losses that need passes of their own: on validation blocks with replaced inputs, and on further corpora.

Replaced inputs: every input token but begin tokens and padding is given a number from 0 to 1 that depends on the seed,
its block and its position alone, and is replaced where that is below the share. So a token that is replaced at 5 % is
replaced by the same at 20 %, and neither batches nor processes matter. What replaces it is drawn evenly from the tokens
of the training split. The next tokens that are predicted stay those of the text.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.hashing import mixed
from collapselab.errors import ConfigError
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sample import Sample
from collapselab.models.scores import Scorer, Scores

SHARES = (0.05, 0.10, 0.20)
"""Of the inputs that are replaced."""


@final
@dataclass(frozen=True)
class FurtherScores:
    """Scores by the share of replaced inputs, and bits per byte by the name of a further corpus."""

    corrupted: dict[float, Scores] = field(default_factory=dict)
    bits_per_byte: dict[str, float | None] = field(default_factory=dict)


@torch.no_grad()
def further_scores(plan: MeasurePlan) -> FurtherScores:
    """What the options ask for; all processes call it, each scores its share of the blocks."""
    corrupted: dict[float, Scores] = {}
    if plan.options.asks("corruption_slope"):
        sample = plan.splits["validation"].samples.last
        corrupted = {share: _scores(plan, sample, _Replacement(plan, sample, share)) for share in SHARES}
    return FurtherScores(corrupted, {name: _bits_per_byte(plan, corpus) for name, corpus in plan.request.on.items()})


def named_corpora(corpora: list[Corpus], main: Corpus) -> dict[str, Corpus]:
    """Further corpora by the names of their folders; ConfigError where one has another tokenizer, or two one name."""
    named: dict[str, Corpus] = {}
    for corpus in corpora:
        name = corpus.path.resolve().name
        if name in named or any(sign in name for sign in ",="):
            why = "two further corpora have that name" if name in named else "a comma or = in its name"
            raise ConfigError(f"{corpus.path}: {why}. Rename its folder.")
        own, other = (_tokenizer_of(each) for each in (main, corpus))
        if own != other:
            raise ConfigError(
                f"{corpus.path}: built with another tokenizer ({corpus.record.request.tokenizer}, "
                f"{corpus.vocabulary:,} tokens) than {main.path} ({main.record.request.tokenizer}, "
                f"{main.vocabulary:,} tokens). Build it with --tokenizer {main.path / 'tokenizer'}."
            )
        named[name] = corpus
    return named


def _tokenizer_of(corpus: Corpus) -> str:
    """What tells tokenizers apart: the hash of what it does, or that of its file for a corpus of an earlier version."""
    return corpus.record.tokenizer_hash or corpus.record.files["tokenizer/tokenizer.json"].sha256


def _scores(plan: MeasurePlan, sample: Sample, change: Callable[[Tensor, int], Tensor] | None = None) -> Scores:
    """Of all processes' blocks of a sample, whose ids `change` may alter before the model reads them."""
    scorer, scores = Scorer(plan.model.head), Scores()
    own = plan.processes.own_groups(sample.groups(plan.processes.world))
    step = max(1, plan.batch * plan.splits["validation"].samples.last.length // sample.length)
    for group in own.values():
        for start in range(group.start, group.stop, step):
            stop = min(start + step, group.stop)
            scores += scorer.scores(*plan.model.sampled_features(sample, start, stop, change=change))
    total = Scores()
    for part in plan.processes.gather(scores):
        total += part
    return total


@final
class _Replacement:
    """Replaces a share of the input tokens of blocks of a sample."""

    def __init__(self, plan: MeasurePlan, sample: Sample, share: float) -> None:
        self.sample, self.share, self.seed = sample, share, plan.options.seed
        seen = plan.request.corpus.train.token_counts
        self.tokens = seen.nonzero().squeeze(1)

    def __call__(self, ids: Tensor, start: int) -> Tensor:
        numbers = self.sample.blocks[start : start + len(ids), None] * ids.shape[1] + np.arange(ids.shape[1])
        places = numbers.astype(np.uint64)
        draws = mixed(mixed(places ^ mixed(np.array([self.seed], dtype=np.uint64))))
        chance = torch.from_numpy((draws >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        other = self.tokens[torch.from_numpy((mixed(draws) % np.uint64(len(self.tokens))).astype(np.int64))]
        replaced = chance < self.share
        replaced[:, : self.sample.split.first] = False  # begin tokens
        return torch.where(replaced, other, ids)


def _bits_per_byte(plan: MeasurePlan, corpus: Corpus) -> float | None:
    """Loss on its validation split in bits, over the bytes of the text that is predicted; None without any."""
    sample = plan.model.samples(corpus, "validation", plan.options).last
    scores, size = _scores(plan, sample), predicted_bytes(corpus, sample)
    return scores.total_loss / math.log(2) / size if size and scores.tokens else None


def predicted_bytes(corpus: Corpus, sample: Sample) -> int:
    """Bytes of text after the first token that is not predicted, block by block; special tokens have none."""
    decode, size = corpus.tokenizer().backend_tokenizer.decode_batch, 0
    for start in range(0, len(sample), 256):
        read = sample.read(start, start + 256)
        lengths = (read.labels[:, sample.first :] != IGNORED).sum(1) + sample.first + 1
        rows = [row[:length].tolist() for row, length in zip(read.ids, lengths, strict=True)]
        whole, before = decode(rows), decode([row[: sample.first + 1] for row in rows])
        size += sum(len(text.encode()) for text in whole) - sum(len(text.encode()) for text in before)
    return size
