"""A part of a batch, and what is done to its features before it matters which class they belong to.

Several moments may take the same features (with true labels, with shuffled ones): this is done once for all of them. On
a CPU each piece of work is one thread's from end to end. To let all cores meet after every small operation costs more
than it gains: little on a machine at rest, everything on one that is not.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TypeVar, final

import torch
from torch import Tensor

PART_BYTES = {"cpu": 12 << 20, "cuda": 256 << 20}
"""Size in float64 of the part of a batch that is worked on at once: on a CPU it should stay in the cache."""

MIN_PIECE_BYTES = 1 << 20
"""A smaller piece of a part is not worth a thread."""

FEW = 1024
"""Features that tell how far features are from the origin."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Part:
    """Features in float64 (tokens, dim), their offsets from a point, squared lengths of these, and offsetsᵀ offsets."""

    wide: Tensor
    offset: Tensor
    squares: Tensor
    product: Tensor | None


@final
class Room:
    """Memory for parts, kept from one to the next: fresh pages cost more than the arithmetic done in them."""

    def __init__(self, rows: int, dim: int, device: torch.device) -> None:
        self.wide, self.offset = torch.empty(2, rows, dim, dtype=torch.float64, device=device)
        self.squares = torch.empty(rows, dtype=torch.float64, device=device)

    def part(self, features: Tensor, point: Tensor, *, product: bool) -> Part:
        """What there is to know of these features about this point. It is overwritten by the next part."""
        rows, bytes_of_a_row = len(features), 8 * features.shape[1]
        wide, offset, squares = (each[:rows] for each in (self.wide, self.offset, self.squares))
        if features.dtype == torch.float64:
            wide = features
        if not point.any():
            offset = wide

        def work(piece: slice) -> Tensor | None:
            if wide is not features:
                wide[piece].copy_(features[piece])
            if offset is not wide:
                torch.sub(wide[piece], point, out=offset[piece])
            torch.square(torch.linalg.vector_norm(offset[piece], dim=1), out=squares[piece])
            return offset[piece].T @ offset[piece] if product else None

        threads = torch.get_num_threads() if features.device.type == "cpu" else 1
        pieces = _pieces(rows, max(1, min(threads, rows * bytes_of_a_row // MIN_PIECE_BYTES)))
        products = [found for found in side_by_side([partial(work, piece) for piece in pieces]) if found is not None]
        return Part(wide, offset, squares, sum(products[1:], products[0]) if products else None)


def common_point(features: Tensor) -> Tensor:
    """A point from which these features do not lie far, as seen from one another: the origin if it will do."""
    mean = features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).double()
    some = features[:FEW].double()
    near = mean.square().sum() < some.square().sum(1).mean() / 2
    return torch.zeros_like(mean) if near else mean


def part_rows(dim: int, device: torch.device) -> int:
    """Rows of a part."""
    return max(1, PART_BYTES.get(device.type, PART_BYTES["cpu"]) // (8 * dim))


def squared_lengths(rows: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vector_norm(rows, dim=1).square_()
    return squares


def side_by_side(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """What the jobs return, in their order. Several are done at the same time, each by a single thread."""
    threads = torch.get_num_threads()
    if threads == 1 or len(jobs) == 1:
        return [job() for job in jobs]
    torch.set_num_threads(1)
    try:
        pending = [_pool(threads).submit(job) for job in jobs[1:]]
        try:
            first = jobs[0]()
        finally:
            wait(pending)
        return [first, *(one.result() for one in pending)]
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, "moments")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads but the one that forked


def _pieces(rows: int, many: int) -> list[slice]:
    cuts = [place * rows // many for place in range(many + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]
