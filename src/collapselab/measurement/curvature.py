"""Which tokens of a pass the curvature of the loss is computed from, and their sums (`core/output_curvature.py`).

A token costs two products with the whole output layer, so of a large sample only some are used, fewer where that layer
is large and the sample is small: blocks are cut into runs of tokens, and every n-th run of the sample is taken,
wherever its block is processed. The choice, and the shape of every product, do not depend on batches or processes, so
neither does the value. n has no factor in common with the number of runs of a block, so that all positions take part
alike.
"""

import math
from collections.abc import Iterator
from typing import final

from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.output_curvature import OutputCurvature
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import RUN, curved_tokens
from collapselab.measurement.sums import Sums


@final
class Curvature:
    """The chosen runs of a split: `add` for each batch of its pass."""

    def __init__(self, plan: MeasurePlan, split: Split) -> None:
        sample, head = plan.splits[split].samples.last, plan.model.head
        self.runs = max(1, math.ceil(sample.labels_per_block / RUN))  # of a block
        tokens = len(sample) * sample.labels_per_block
        self.step = step_for(tokens, self.runs, curved_tokens(*head.weight.shape, sample=tokens))
        self.layer = OutputCurvature(head.weight, head.bias, scale=head.scale, softcap=head.softcap)

    def add(self, sums: Sums, features: Tensor, labels: Tensor, blocks: range) -> None:
        """Add the chosen runs of these blocks: labels (blocks, positions), features (at least as many tokens, dim)."""
        width = labels.shape[1]
        for row, _, now in chosen_runs(blocks, width, runs=self.runs, step=self.step):
            used = (labels[row, now] != IGNORED).nonzero().squeeze(1).to(features.device)
            own = features[row * width + now.start : row * width + now.stop].index_select(0, used)
            sums.curvature = sums.curvature.merge(self.layer.sums(own))


def chosen_runs(blocks: range, width: int, *, runs: int, step: int) -> Iterator[tuple[int, int, slice]]:
    """Every n-th run of some blocks: the block's place among them, its number, and the positions of the run."""
    for row, block in enumerate(blocks):
        for run in range(-block * runs % step, runs, step):
            yield row, block, slice(run * RUN, min((run + 1) * RUN, width))


def step_for(tokens: int, runs: int, most: int) -> int:
    """The n of every n-th run, of `tokens` in blocks of this number of runs, that takes about `most` of them."""
    step = max(1, math.ceil(tokens / most))
    while math.gcd(step, runs) > 1:
        step += 1
    return step
