"""Intervals and split-half reliability from the sums of groups of blocks: no further forward pass.

A resample draws as many groups as there are, with replacement, and merges their sums. Resampling adds noise to every
class mean, which moves many metrics in one direction in all resamples; that shift is not uncertainty. So the interval
is that of the resamples, moved until their median is the value. Decisions, which are shares of tokens, have no such
shift, nor have losses: their interval is not moved.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from collapselab.core.catalogue import Need
from collapselab.measurement.collector import ALL, Collectors, needing
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.resume import ResumeFolder
from collapselab.measurement.sample import HALVES, HELD_BYTES
from collapselab.records.measurement import Key

Numbers = dict[Key, float]
"""The values of one resample."""


class Resamples:
    """The values of every metric in resamples of groups, and in random halves of them."""

    def __init__(self, resamples: int, groups: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(groups, (resamples, groups), generator=generator)
        times = [torch.bincount(row, minlength=groups).tolist() for row in drawn]
        halves: list[list[int]] = []
        for _ in range(HALVES):
            chosen = torch.randperm(groups, generator=generator)[: groups // 2]
            first = torch.zeros(groups, dtype=torch.int64).index_fill_(0, chosen, 1)
            halves += [first.tolist(), (1 - first).tolist()]
        self.weights: list[list[int]] = times + halves
        self.resamples = resamples
        self.values: list[Numbers] = [{} for _ in self.weights]

    def add(self, groups: Sequence[Callable[[], Collectors]]) -> None:
        """Merge the groups by every weighting, and keep the values of each."""
        first = groups[0]()
        size = sum(tensor.shape.numel() * tensor.dtype.itemsize for tensor in first.state().values())
        step = max(1, HELD_BYTES // max(size, 1))
        for start in range(0, len(self.weights), step):
            merged = {index: first.empty() for index in range(start, min(start + step, len(self.weights)))}
            for number, read in enumerate(groups):
                group = read()
                for index, collectors in merged.items():
                    if times := self.weights[index][number]:
                        collectors.merge(group, times=times)
            for index, collectors in merged.items():
                measured = collectors.values(resampled=True).measured
                self.values[index] |= {key: found.value for key, found in measured.items() if found.value is not None}

    def interval(self, key: Key, value: float | None) -> tuple[float | None, float | None]:
        """The 95 % interval of the value; none where more than one resample in twenty has no value."""
        resampled = [values[key] for values in self.values[: self.resamples] if key in values]
        if value is None or len(resampled) < 0.95 * self.resamples:
            return None, None
        low, middle, high = torch.tensor(resampled, dtype=torch.float64).quantile(
            torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)
        )
        shift = 0.0 if key.metric in needing(Need.DECISIONS, Need.CENTRE_LOSS) else value - float(middle)
        return float(low) + shift, float(high) + shift

    def halves(self, key: Key) -> list[tuple[float, float]]:
        """The values of both halves, for each way of cutting where both have one."""
        halves = self.values[self.resamples :]
        pairs = zip(halves[::2], halves[1::2], strict=True)
        return [(first[key], second[key]) for first, second in pairs if key in first and key in second]

    def half_values(self, split: str, layer: str) -> dict[str, float]:
        """The mean of each metric of features over the halves, for all classes of a layer."""
        all_keys = {key for values in self.values for key in values if key[:3] == (split, layer, ALL)}
        keys = {key for key in all_keys if key.metric in needing(Need.MEANS)}
        halves = {key.metric: [value for pair in self.halves(key) for value in pair] for key in keys}
        return {metric: math.fsum(values) / len(values) for metric, values in sorted(halves.items()) if values}


def resample(plan: MeasurePlan, resume: ResumeFolder, collected: Mapping[Split, Collectors]) -> Resamples:
    """Both splits resampled, each by its own draws. Decisions keep the centres of the whole training split."""

    def read(split: Split, number: int) -> Collectors:
        group = resume.read(split, number, collected[split].empty(resampled=True))
        assert group.batches, f"group {number} of {split} was written and is gone"
        for collector in group:
            collector.drop_null()
        return group

    def resample_split(split: Split, seed: int) -> Resamples:
        groups = [partial(read, split, number) for number in range(len(plan.splits[split].groups))]
        resamples = Resamples(plan.options.bootstrap, len(groups), seed)
        resamples.add(groups)
        return resamples

    seed = plan.options.seed
    resamples, validation = resample_split("train", seed), resample_split("validation", seed + 1)
    resamples.values = [train | other for train, other in zip(resamples.values, validation.values, strict=True)]
    return resamples


def difference(halves: list[tuple[float, float]]) -> float | None:
    """How much two halves differ, as a share of their size: the median over the ways of cutting."""
    shares = [2 * abs(a - b) / (abs(a) + abs(b)) for a, b in halves if a or b]
    return statistics.median(shares) if shares else None


def reliability(halves: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Split-half reliability over several models: how alike two halves of the text rank them.

    The correlation between the halves over models, averaged over the ways of cutting, and extended to the whole by
    Spearman and Brown's 2r / (1 + r). None for fewer than three models, or where a half is the same for all.
    """
    ways = min((len(pairs) for pairs in halves), default=0)
    if len(halves) < 3 or not ways:
        return None
    correlations = []
    for way in range(ways):
        table = torch.tensor([pairs[way] for pairs in halves], dtype=torch.float64).T
        if bool((table.std(1) == 0).any()):
            return None
        correlations.append(float(torch.corrcoef(table)[0, 1]))
    r = math.fsum(correlations) / len(correlations)
    return 2 * r / (1 + r) if r > -1 else None
