"""Cross-entropy of the model less the entropy of the next tokens of each context: the sums behind `entropy_gap`.

A token costs a product with the whole output layer, so only some are scored: runs that are chosen as those of the
curvature are. Each is its own control: over the tokens of these contexts, log p̂_j(c) - log q(c) has the mean
CE - Σ π_j H(p̂_j), and a small spread where the model is good, so that a few thousand tokens suffice.
"""

import math
from typing import final

import numpy as np
import torch
from torch import Tensor

from collapselab.core.contexts import ContextTable, Gap
from collapselab.corpus.hashing import uniform
from collapselab.measurement.curvature import chosen_runs, step_for
from collapselab.measurement.find_contexts import Contexts
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sample import MOST_CURVED, RUN, fitted_tokens
from collapselab.measurement.sums import Sums
from collapselab.models.scores import LogitSpace, in_chunks, in_dtype


@final
class ContextGaps:
    """The sums of every context length: `add` for each batch of the training pass."""

    def __init__(self, plan: MeasurePlan) -> None:
        self.contexts, self.seed = plan.contexts, plan.options.seed
        sample, weight = plan.splits["train"].samples.last, plan.model.head.weight
        most = min(MOST_CURVED, 4 * fitted_tokens(*weight.shape))  # one product a token, and no more
        self.runs = max(1, math.ceil(sample.labels_per_block / RUN))
        self.step = step_for(len(sample) * sample.labels_per_block, self.runs, most)
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        self.head, self.space = in_dtype(plan.model.head, self.dtype), LogitSpace()

    def add(self, sums: Sums, features: Tensor, cells: dict[int, Tensor], blocks: range) -> None:
        """Score the chosen runs of these blocks: cells (blocks, positions), features (as many tokens or more, dim)."""
        width = next(iter(cells.values())).shape[1] if cells else 0
        for row, block, now in chosen_runs(blocks, width, runs=self.runs, step=self.step):
            own = features[row * width + now.start : row * width + now.stop].to(self.dtype)
            for rows, logits in in_chunks(self.head, own, None, self.space):
                scores = logits.log_softmax(1)
                for n, contexts in self.contexts.items():
                    places = cells[n][row, now][rows]
                    gap = _gap(contexts, places, scores, self._draws(block, now, rows, n))
                    sums.gaps[n] = sums.gaps.get(n, Gap()).merge(gap)

    def _draws(self, block: int, now: slice, rows: slice, n: int) -> Tensor:
        """A number from 0 to below 1 for each token, whatever batch it is in."""
        first = block * (1 << 24) + now.start + rows.start
        return torch.from_numpy(uniform(self.seed, f"gap {n}", rows.stop - rows.start, start=first))


def _gap(contexts: Contexts, cells: Tensor, scores: Tensor, draws: Tensor) -> Gap:
    """`scores` are log q of every token (tokens, vocab)."""
    table = contexts.table
    inside = (cells < table.cells).nonzero().squeeze(1)
    if not len(inside):
        return Gap()
    cell, of_scores = cells[inside], scores[inside.to(scores.device)]
    null = _drawn(table, table.other[table.context[cell]], draws[inside])
    return Gap(len(inside), *(_surprise(table, some, of_scores) for some in (cell, null)))


def _surprise(table: ContextTable, cells: Tensor, scores: Tensor) -> float:
    own = scores.gather(1, table.token[cells].to(scores.device)[:, None]).squeeze(1).double().cpu()
    return float((table.shares[cells].log() - own).sum())


def _drawn(table: ContextTable, contexts: Tensor, draws: Tensor) -> Tensor:
    """A cell of each of these contexts, drawn by how often it occurs."""
    ends = table.count.cumsum(0)
    before = table.uses.cumsum(0) - table.uses
    place = before[contexts] + (draws * table.uses[contexts]).long().clamp(max=(1 << 62))
    place = torch.minimum(place, before[contexts] + table.uses[contexts] - 1)
    return torch.from_numpy(np.searchsorted(ends.numpy(), place.numpy(), side="right"))
