"""Several processes at one measurement: each runs the model on its own blocks, and their sums are merged.

Merging is in the order of ranks, so that the result does not depend on which is faster.
Where tables are too large for one process, `ClassShards` spreads the classes over them.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import LinearClassifier, nearest_centre
from collapselab.core.moments import ClassMoments

PATIENCE = timedelta(days=2)
"""How long a process waits for the others: the first may be computing the pairs of a large vocabulary."""

T = TypeVar("T")

BY_CLASS, OF_ALL = ("counts", "sums", "scatter"), ("directions", "pooled", "second")
"""Arguments of ClassMoments: tables with a row for each class, and sums over all tokens where they are collected."""


class Processes:
    """The processes of a measurement. `Processes()` is one alone; `Processes.joined()` those that torchrun started."""

    def __init__(self, group: "dist.ProcessGroup | None" = None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.world = 1 if group is None else dist.get_world_size(group)
        self.first = self.rank == 0

    @classmethod
    def joined(cls) -> Self:
        """All processes of the torchrun that started this one, or this one alone."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=PATIENCE)
            return cls(dist.group.WORLD)
        return cls(dist.new_group(backend="gloo", timeout=PATIENCE))

    def device(self, name: str) -> str:
        """The device of this process: with several GPUs in a machine each takes its own."""
        if self.world > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
            return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        return name

    def own_groups(self, groups: list[range]) -> dict[int, range]:
        """This process's groups of blocks, by number."""
        return {number: group for number, group in enumerate(groups) if number % self.world == self.rank}

    def broadcast(self, value: T, source: int = 0) -> T:
        """The value of one process, the first by default, in all of them."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=source, group=self.group)
        return values[0]

    def computed(self, function: Callable[[], T]) -> T:
        """The value of a function that the first process calls, in all of them."""
        return cast(T, self.broadcast(function() if self.first else None))

    def gather(self, value: T) -> list[T]:
        """The values of all processes in the order of ranks, in all of them."""
        if self.world == 1:
            return [value]
        values = [value] * self.world
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather_rows(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, which have one shape, concatenated in the order of ranks."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor, device="cpu") for _ in range(self.world)]
        dist.all_gather(parts, tensor.cpu().contiguous(), group=self.group)
        return torch.cat(parts).to(tensor.device)


class ClassShards:
    """Moments sharded by class: process r of w has the classes r, r + w, r + 2w, …, and 1/w of the memory.

    Features and labels of every batch go to all processes, and each adds those of its own classes; so all must take
    every step together. Neighbouring ids, which tokenizers give to tokens of like frequency, are in different
    processes, so that the work is spread evenly.
    """

    def __init__(self, processes: Processes, classes: int) -> None:
        self.processes, self.all_classes = processes, classes
        self.classes = max(1, len(range(processes.rank, classes, processes.world)))  # a table has at least one row

    def own(self, whole: Tensor) -> Tensor:
        """This process's part of a tensor that has an entry for every class."""
        return whole[self.processes.rank :: self.processes.world]

    def labels(self, labels: Tensor) -> Tensor:
        """The labels of all processes, as row numbers of the shard; IGNORED for classes of other shards."""
        rank, world = self.processes.rank, self.processes.world
        labels = self.processes.gather_rows(labels)
        return torch.where((labels >= 0) & (labels % world == rank), labels // world, IGNORED)

    def whole(self, shard: ClassMoments) -> ClassMoments | None:
        """All shards in one, in the first process; None elsewhere."""
        ours = {name: tensor for name in (*BY_CLASS, *OF_ALL) if (tensor := getattr(shard, name)) is not None}
        empty = ClassMoments.empty(self.all_classes if self.processes.first else 1, shard.dim)
        whole: dict[str, Any] = {name: torch.zeros_like(tensor, device="cpu") for name, tensor in ours.items()}
        whole |= {name: getattr(empty, name) for name in BY_CLASS}
        for rank in range(self.processes.world):
            for name, tensor in ours.items():
                part = self.processes.broadcast(tensor.cpu(), rank)
                if not self.processes.first:
                    continue
                if name in BY_CLASS:
                    rows = whole[name][rank :: self.processes.world]
                    rows.copy_(part[: len(rows)])
                else:
                    whole[name].add_(part)
        return ClassMoments(**whole, unit=shard.unit) if self.processes.first else None


class ShardedCentres:
    """The nearest of centres that are spread over processes, for the tokens of this process.

    Each process finds the nearest of its own centres for the tokens of all. Distances to these few are computed
    exactly, in float64, and compared.
    """

    def __init__(self, shards: ClassShards, shard: ClassMoments, kept: Tensor) -> None:
        """`kept` masks the candidates among all classes."""
        self.processes = shards.processes
        own = shards.own(kept).nonzero().squeeze(1).to(shard.device)
        self.classifier: LinearClassifier | None = nearest_centre(shard, own) if len(own) else None

    def choices(self, features: Tensor) -> Tensor:
        """The class with the nearest centre, for this process's tokens; `features` are those of all processes."""
        rank, world = self.processes.rank, self.processes.world
        distances = torch.full((len(features),), torch.inf, dtype=torch.float64)
        classes = torch.zeros(len(features), dtype=torch.int64)
        classifier = self.classifier
        if classifier is not None and classifier.origin is not None and classifier.classes is not None:
            best = torch.searchsorted(classifier.classes, classifier.choices(features))
            offsets = features.double() - classifier.origin - classifier.rows[best]
            distances = offsets.square_().sum(1).cpu()
            classes = classifier.classes[best].cpu() * world + rank
        nearest = self.processes.gather_rows(distances).view(world, -1).argmin(0, keepdim=True)
        chosen = self.processes.gather_rows(classes).view(world, -1).gather(0, nearest).squeeze(0)
        return chosen.view(world, -1)[rank]
