"""Scores of single validation tokens: how well they tell right predictions from wrong ones, and this text from others.

The scores are those of `core/detection.py`, fitted to the training pass. Tokens of one block depend on each other, so
intervals come from resampled blocks.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import nearest_centre
from collapselab.core.detection import SCORES, Ranking, Separation, TokenScorer
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collector, Collectors, Values
from collapselab.measurement.collectors.moments import Moments
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.scores import LogitSpace, common_dtype, in_chunks
from collapselab.records.tables import DetectionRow

WRONG = "wrong predictions"
RESAMPLES = 200
VALUES, RIGHT, BLOCK = "values", "right", "block"


class Detection(Collector):
    """Scores (tokens, 5) of the last layer, whether each prediction was right, and the block of each token."""

    name = "detection"
    option = "token_scores"
    splits = ("validation",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        assert earlier.trained is not None, "scores are fitted to the training split"
        moments = earlier.trained[Moments].tables[LAST]
        mean = moments.sums.sum(0) / moments.tokens
        second = moments.second_about(mean)
        assert second is not None, "the last layer has a covariance"
        kept = (plan.counts.last.to(moments.device) > 0).nonzero().squeeze(1)
        self.scorer = TokenScorer.of(mean, second / moments.tokens, nearest_centre(moments, kept))
        self.space = LogitSpace()

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Centres in float64 and float32, logits of a chunk, and 29 bytes a token, which are copied."""
        logits = min(112 << 20, 4 * plan.model.classes * plan.batch_tokens)
        return 12 * plan.splits["train"].rows * plan.width + logits + 60 * plan.splits[split].samples.last.tokens

    @torch.no_grad()
    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if layer != LAST:
            return
        own = batch.labels.last.own
        blocks = torch.arange(batch.blocks.start, batch.blocks.stop)[:, None].expand(own.shape)
        used = own != IGNORED
        values, chosen = self._scored(batch.labels.last.sampled(features))
        for name, part in ((VALUES, values), (RIGHT, chosen == own[used].to(chosen.device)), (BLOCK, blocks[used])):
            self.tokens.setdefault(name, []).append(part)

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        own = {name: torch.cat(parts).cpu() for name, parts in self.tokens.items()}
        against = {name: self._of_corpus(corpus) for name, corpus in self.plan.request.against.items()}
        if self.plan.processes.first:
            right = own[RIGHT]
            parts = [(own[VALUES][mask], own[BLOCK][mask]) for mask in (right, ~right)]
            values.add_rows(self.name, list(self._rows(WRONG, *parts, paired=True)))
            for name, other in against.items():
                values.add_rows(self.name, list(self._rows(name, (own[VALUES], own[BLOCK]), other, paired=False)))
        return values

    def _scored(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (tokens, 5) and the chosen class of each token."""
        dtype = common_dtype(features, self.plan.model.head.weight)
        head, x = self.plan.model.head.to(dtype), features.to(dtype)
        parts = []
        chosen = []
        for rows, logits in in_chunks(head, x, None, self.space):
            chosen.append(logits.argmax(1))
            parts.append(self.scorer.scores(features[rows], logits, head.weight).T)
        return torch.cat(parts), torch.cat(chosen)

    @torch.no_grad()
    def _of_corpus(self, corpus: Corpus) -> tuple[Tensor, Tensor]:
        """Return the scores of the tokens of a further corpus, and the block of each; all processes call it."""
        plan = self.plan
        sample, found = plan.model.samples(corpus, "validation", plan.options).last, []
        for group in plan.processes.own_groups(sample.groups(plan.processes.world)).values():
            for start in range(group.start, group.stop, plan.batch):
                stop = min(start + plan.batch, group.stop)
                features, _ = plan.model.sampled_features(sample, start, stop)
                sizes = torch.tensor([sample.samples(block, block + 1) for block in range(start, stop)])
                found.append((self._scored(features)[0].cpu(), torch.arange(start, stop).repeat_interleave(sizes)))
        everything = [part for parts in plan.processes.gather(found) for part in parts]
        return torch.cat([scores for scores, _ in everything]), torch.cat([blocks for _, blocks in everything])

    def _rows(
        self, name: str, positives: tuple[Tensor, Tensor], negatives: tuple[Tensor, Tensor], *, paired: bool
    ) -> Iterator[DetectionRow]:
        """Yield a row for each score; `paired` if positives and negatives are of the same blocks."""
        sizes = len(positives[0]), len(negatives[0])
        if not all(sizes):
            return
        resamples = list(_resampled(positives[1], negatives[1], paired=paired, seed=self.plan.options.seed))
        for number, score in enumerate(SCORES):
            ranking = Ranking(*(part[0][:, number].double().numpy() for part in (positives, negatives)))
            ends = np.quantile([ranking.separation(weights) for weights in resamples], (0.025, 0.975), axis=0)
            found: dict[str, Any] = {**self.plan.names, "positives": sizes[0], "negatives": sizes[1]}
            for measure, value, low, high in zip(Separation._fields, ranking.separation(), *ends.tolist(), strict=True):
                found |= {measure: value, f"{measure}_low": low, f"{measure}_high": high}
            yield DetectionRow(against=name, score=score, **found)


def _resampled(positives: Tensor, negatives: Tensor, *, paired: bool, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each token is drawn when whole blocks are, given the blocks of positives and of negatives."""
    draw = np.random.default_rng(seed)
    groups = [torch.cat([positives, negatives]).numpy()] if paired else [positives.numpy(), negatives.numpy()]
    numbered = [np.unique(blocks, return_inverse=True) for blocks in groups]
    for _ in range(RESAMPLES):
        weights = np.concatenate(
            [
                np.bincount(draw.integers(0, len(blocks), len(blocks)), minlength=len(blocks))[of_token]
                for blocks, of_token in numbered
            ]
        ).astype(np.float64)
        if weights[: len(positives)].any() and weights[len(positives) :].any():
            yield weights
