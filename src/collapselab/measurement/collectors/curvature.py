"""The curvature of the loss in the output layer (`core/output_curvature.py`), on some tokens of each split.

A token costs two products with the whole output layer, so of a large sample only some are used, fewer where that layer
is large and the sample is small: blocks are cut into runs of tokens, and every n-th run of the sample is taken,
wherever its block is processed. The choice, and the shape of every product, do not depend on batches or processes, so
neither does the value. n has no factor in common with the number of runs of a block, so that all positions take part
alike.
"""

import math
from collections.abc import Iterator

from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import Need
from collapselab.core.output_curvature import CurvatureSums, OutputCurvature
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collector, Collectors, Values, counted_values
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import RUN, curved_tokens


class Curvature(Collector):
    """Sums over the chosen tokens: the curvature's terms, squared lengths, and how many there were."""

    name = "curvature"
    resampled = True

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        sample, head = self.split_plan.samples.last, plan.model.head
        self.runs = max(1, math.ceil(sample.labels_per_block / RUN))  # of a block
        tokens = len(sample) * sample.labels_per_block
        self.step = step_for(tokens, self.runs, curved_tokens(*head.weight.shape, sample=tokens))
        self.layer = OutputCurvature(head.weight, head.bias, scale=head.scale, softcap=head.softcap)

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """The logits of a run of tokens, twice where they are capped."""
        return 4 * plan.model.classes * (2 * RUN + 1)

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if layer != LAST:
            return
        labels = batch.labels.last.own
        width = labels.shape[1]
        for row, _, now in chosen_runs(batch.blocks, width, runs=self.runs, step=self.step):
            used = (labels[row, now] != IGNORED).nonzero().squeeze(1).to(features.device)
            own = features[row * width + now.start : row * width + now.stop].index_select(0, used)
            self.add("sums", self.layer.terms(own))

    def values(self, *, resampled: bool = False) -> Values:
        total, squares, tokens = self.sums["sums"].tolist() if self.sums else (0.0, 0.0, 0)
        sums = CurvatureSums(total, squares, int(tokens), self.layer.row_square if tokens else math.nan)
        return Values(counted_values(self.plan, Need.CURVATURE, split=self.split, curvature=sums))


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
