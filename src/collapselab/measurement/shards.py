"""Moments sharded by class: process r of w holds the classes r, r + w, r + 2w, …, and the memory of each is 1/w.

Features and labels of every batch go to all processes, and each folds in those of its own classes. Neighbouring ids,
which tokenizers give to tokens of like frequency, come to different processes, so that the work is spread evenly.
"""

from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import LinearClassifier
from collapselab.core.moments import ClassMoments
from collapselab.measurement.distributed import Processes


@final
class ClassShards:
    """Which classes are whose. The processes must take every step together."""

    def __init__(self, processes: Processes, classes: int) -> None:
        self.processes, self.all_classes = processes, classes
        self.classes = max(1, len(range(processes.rank, classes, processes.world)))  # a table has at least one row

    def own(self, whole: Tensor) -> Tensor:
        """This process's part of something that has an entry for every class."""
        return whole[self.processes.rank :: self.processes.world]

    def labels(self, labels: Tensor) -> Tensor:
        """The labels of all processes, as numbers within the shard; those of other shards are ignored."""
        rank, world = self.processes.rank, self.processes.world
        everyone = self.processes.stacked(labels)
        return torch.where((everyone >= 0) & (everyone % world == rank), everyone // world, IGNORED)

    def features(self, features: Tensor) -> Tensor:
        """The features of all processes."""
        return self.processes.stacked(features)

    def whole(self, shard: ClassMoments) -> ClassMoments | None:
        """All shards in one, in the first process; None elsewhere."""
        world, dim = self.processes.world, shard.dim
        most = len(range(0, self.all_classes, world))
        padded = [_padded(tensor.cpu(), most) for tensor in (shard.counts, shard.sums, shard.scatter)]
        within = shard.pooled
        pooled = [] if within is None else [within.cpu()]
        empty = ClassMoments.empty(self.all_classes if self.processes.first else 1, dim)
        tables, total = (empty.counts, empty.sums, empty.scatter), torch.zeros(dim, dim, dtype=torch.float64)
        for sender in range(world):
            sent = [*padded, *pooled] if sender == 0 else self.processes.sent([*padded, *pooled], sender)
            if self.processes.first and sent is not None:
                for table, part in zip(tables, sent, strict=False):
                    own = table[sender::world]
                    own.copy_(part[: len(own)])
                if pooled:
                    total += sent[3]
        if not self.processes.first:
            return None
        return ClassMoments(*tables, pooled=total if pooled else None, unit=shard.unit)

    def nearest(self, classifier: LinearClassifier | None, kept: Tensor, features: Tensor) -> Tensor:
        """The class with the nearest centre of all shards, for this process's tokens.

        Each process finds the nearest of its own centres for all tokens; distances to those few are exact, in float64.
        """
        rank, world = self.processes.rank, self.processes.world
        distances = torch.full((len(features),), torch.inf, dtype=torch.float64)
        classes = torch.zeros(len(features), dtype=torch.int64)
        if classifier is not None and classifier.origin is not None:
            chosen = classifier.choices(features)
            offsets = features.double() - classifier.origin - classifier.rows[chosen]
            distances = offsets.square_().sum(1).cpu()
            classes = kept[chosen].cpu() * world + rank
        everyones = self.processes.stacked(distances).view(world, -1)
        best = everyones.argmin(0, keepdim=True)
        found = self.processes.stacked(classes).view(world, -1).gather(0, best).squeeze(0)
        return found.view(world, -1)[rank]


def _padded(tensor: Tensor, rows: int) -> Tensor:
    missing = rows - len(tensor)
    return torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) if missing else tensor
