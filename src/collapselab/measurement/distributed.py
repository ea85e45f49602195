"""Several processes at one measurement: each runs the model on its own blocks, and what they gathered is merged.

Merging goes through the first process in the order of ranks, so that the result does not depend on who was faster.
"""

import os
from datetime import timedelta
from typing import Any, Self, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.moments import ClassMoments

PATIENCE = timedelta(days=2)
"""How long a process waits for the others: the first may be at the pairs of a large vocabulary meanwhile."""

T = TypeVar("T")


@final
class Processes:
    """Who takes part. `Processes()` is one process alone; `Processes.joined()` those that torchrun started."""

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.world = 1 if group is None else dist.get_world_size(group)

    @classmethod
    def joined(cls) -> Self:
        """All processes of the torchrun that started this one, or this one alone."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=PATIENCE)
            return cls(dist.group.WORLD)
        return cls(dist.new_group(backend="gloo", timeout=PATIENCE))

    @property
    def first(self) -> bool:
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this process: with several GPUs in a machine each takes its own."""
        if self.world > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
            return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        return name

    def mine(self, groups: list[range]) -> dict[int, range]:
        """The groups of blocks that are this process's, by number."""
        return {number: group for number, group in enumerate(groups) if number % self.world == self.rank}

    def from_first(self, thing: T) -> T:
        """What the first process has, everywhere."""
        if self.world == 1:
            return thing
        things = [thing]
        dist.broadcast_object_list(things, src=0, group=self.group)
        return things[0]

    def everyone(self, thing: T) -> list[T]:
        """What every process has, in the order of ranks."""
        if self.world == 1:
            return [thing]
        things: list[Any] = [None] * self.world
        dist.all_gather_object(things, thing, group=self.group)
        return things

    def stacked(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, of one shape, one after the other in the order of ranks."""
        parts = [torch.empty_like(tensor, device="cpu") for _ in range(self.world)]
        dist.all_gather(parts, tensor.cpu().contiguous(), group=self.group)
        return torch.cat(parts).to(tensor.device)

    def merged(self, moments: ClassMoments) -> ClassMoments:
        """The moments of all processes in one, in all of them. Those handed in are used up."""
        if self.world == 1:
            return moments
        device, covariance = moments.device, moments.has_covariance
        unit = max(self.everyone(moments.unit))
        ours = ClassMoments.empty(moments.classes, moments.dim, covariance=covariance).merge(moments)
        for sender in range(1, self.world):
            theirs = self.sent(_tensors(ours), sender)
            if theirs is not None:
                ours.merge(_of_tensors(theirs, unit))
        whole = _tensors(ours)
        for tensor in whole:
            dist.broadcast(tensor, 0, group=self.group)
        return _of_tensors([tensor.to(device) for tensor in whole], unit)

    def sent(self, tensors: list[Tensor], sender: int) -> list[Tensor] | None:
        """What the sender hands to the first process, there; None elsewhere. All hold tensors of the same shapes."""
        if self.rank == sender:
            for tensor in tensors:
                dist.send(tensor, 0, group=self.group)
        if not self.first:
            return None
        received = [torch.empty_like(tensor) for tensor in tensors]
        for tensor in received:
            dist.recv(tensor, sender, group=self.group)
        return received


def _tensors(moments: ClassMoments) -> list[Tensor]:
    found = [moments.counts, moments.sums, moments.scatter]
    pooled = moments.pooled
    return found if pooled is None else [*found, pooled]


def _of_tensors(tensors: list[Tensor], unit: float) -> ClassMoments:
    counts, sums, scatter, *pooled = tensors
    return ClassMoments(counts, sums, scatter, pooled=pooled[0] if pooled else None, unit=unit)
