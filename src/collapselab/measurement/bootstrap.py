"""Intervals and split-half reliability from the groups that a measurement kept: no further forward pass.

A resample draws as many groups as there are, with replacement, and merges what they gathered. Resampling adds noise to
every class mean, which moves many metrics one way in all resamples; that shift is not uncertainty. So the interval is
the spread of the resamples about their median, placed about the value. Decisions, which are shares of tokens, have no
such shift: theirs is that of the resamples.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from collapselab.measurement.catalogue import ALL, Catalogue, Key, Measurements, of_decisions, of_features
from collapselab.measurement.sample import ByLayer
from collapselab.measurement.sums import LAST, Gathered

HALVES = 8
"""Random ways of cutting the groups into halves."""

HELD_BYTES = 1 << 30
"""Resamples are merged side by side as long as their moments take no more than this; each sweep reads every group."""

Values = dict[Key, float]


@final
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
        self.values: list[Values] = [{} for _ in self.weights]

    def add(self, groups: Sequence[Callable[[], Gathered]], evaluate: Callable[[Gathered], Values]) -> None:
        """Merge the groups by every weighting, and keep the values of each."""
        for some in _at_once(groups[0](), len(self.weights)):
            merged = [Gathered() for _ in some]
            for number, read in enumerate(groups):
                group = _without_nulls(read())
                for index, into in zip(some, merged, strict=True):
                    if times := self.weights[index][number]:
                        into.merge(group, times=times)
            for index, into in zip(some, merged, strict=True):
                self.values[index] |= evaluate(into)

    def interval(self, key: Key, value: float | None) -> tuple[float | None, float | None]:
        """The 95 % interval about the value; none where more than one resample in twenty has no value."""
        found = [values[key] for values in self.values[: self.resamples] if key in values]
        if value is None or len(found) < 0.95 * self.resamples:
            return None, None
        low, middle, high = torch.tensor(found, dtype=torch.float64).quantile(
            torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)
        )
        shift = 0.0 if key.metric in of_decisions() else value - float(middle)
        return float(low) + shift, float(high) + shift

    def halves(self, key: Key) -> list[tuple[float, float]]:
        """The values of both halves, for each way of cutting that gives both."""
        found = self.values[self.resamples :]
        pairs = zip(found[::2], found[1::2], strict=True)
        return [(one[key], other[key]) for one, other in pairs if key in one and key in other]

    def half_values(self, split: str, layer: str) -> dict[str, float]:
        """The mean of each metric of features over the halves, for all classes of a layer."""
        found = {key for values in self.values for key in values if key[:3] == (split, layer, ALL)}
        keys = {key for key in found if key.metric in of_features()}
        halves = {key.metric: [value for pair in self.halves(key) for value in pair] for key in keys}
        return {metric: math.fsum(values) / len(values) for metric, values in sorted(halves.items()) if values}


def resampled(
    catalogues: dict[str, Catalogue],
    groups: dict[str, list[Callable[[], Gathered]]],
    counts: ByLayer[Tensor],
    resamples: int,
    seed: int,
) -> Resamples:
    """Both splits resampled, each by draws of its own. Decisions keep the centres of the whole training split."""

    def evaluated(split: str, gathered: Gathered) -> Values:
        found: Measurements = {}
        for key, moments in gathered.moments.items():
            with_head = (split, key) == ("train", LAST)
            found |= catalogues[split].of_moments(moments, split, key.layer, with_head=with_head)
        found |= catalogues["train"].of_decisions(gathered.decisions, counts)
        return {key: one.value for key, one in found.items() if one.value is not None}

    whole = Resamples(resamples, len(groups["train"]), seed)
    whole.add(groups["train"], partial(evaluated, "train"))
    other = Resamples(resamples, len(groups["validation"]), seed + 1)
    other.add(groups["validation"], partial(evaluated, "validation"))
    whole.values = [one | more for one, more in zip(whole.values, other.values, strict=True)]
    return whole


def difference(halves: list[tuple[float, float]]) -> float | None:
    """How much two halves differ, as a share of their size: the median over the ways of cutting."""
    shares = [2 * abs(a - b) / (abs(a) + abs(b)) for a, b in halves if a or b]
    return statistics.median(shares) if shares else None


def reliability(halves: Sequence[list[tuple[float, float]]]) -> float | None:
    """Split-half reliability over several models: how alike two halves of the text rank them.

    The correlation between the halves over models, averaged over the ways of cutting, and stepped up to the whole by
    Spearman and Brown's 2r / (1 + r). None for fewer than three models, or where a half is the same for all.
    """
    ways = min((len(pairs) for pairs in halves), default=0)
    if len(halves) < 3 or not ways:
        return None
    found = []
    for way in range(ways):
        table = torch.tensor([pairs[way] for pairs in halves], dtype=torch.float64).T
        if bool((table.std(1) == 0).any()):
            return None
        found.append(float(torch.corrcoef(table)[0, 1]))
    r = math.fsum(found) / len(found)
    return 2 * r / (1 + r) if r > -1 else None


def _at_once(group: Gathered, weightings: int) -> Iterator[range]:
    """Weightings that are merged side by side."""
    size = sum(m.sums.numel() * 8 for m in group.moments.values())
    step = max(1, HELD_BYTES // max(size, 1))
    for start in range(0, weightings, step):
        yield range(start, min(start + step, weightings))


def _without_nulls(group: Gathered) -> Gathered:
    return Gathered(
        {key: m for key, m in group.moments.items() if not key.null},
        {key: d for key, d in group.decisions.items() if not key.null},
        group.scores,
        group.batches,
    )
