"""Count, mean and scatter of every class, from a stream of features, in one pass.

The state is the count, the sum and the scatter of each class, in float64. A batch is folded in without sorting it and
without touching any class that is not in it. With the class's mean before (p) and after (q) the batch, and its count
before (a) and after (b), each token of the batch adds

    (a |h - p|² + b |h - q|²) / (a + b)

to its class's scatter. This is the update of Chan, Golub & LeVeque written per token: every term is positive, so
nothing cancels, however far the features lie from the origin or however tight the class. A token that is alone with its
class in the batch needs no look at the new mean: its term is |h - p|² a / b. Nor do the tokens of a class that had at
least as many samples before: the class gains the sum of |h - p|², less b |q - p|², which is at most half of it.

Chan, Golub & LeVeque (1983), The American Statistician 37(3), 242-247.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Self, final

import torch
from torch import Tensor

from collapselab.core.storage import load_tensors, save_tensors

IGNORED = -100
"""The label of a token that has no next token to predict, as in PyTorch's cross-entropy."""

PART_BYTES = {"cpu": 3 << 20, "cuda": 256 << 20}
"""Size in float64 of the part of a batch that is worked on at once: on a CPU it should stay in the cache."""


@final
class ClassMoments:
    """Streaming, mergeable count, mean and scatter per class.

        moments = ClassMoments.empty(classes=50257, dim=768)
        moments.update(features, labels)        # (tokens, dim) floats, (tokens,) integers; -100 is skipped
        moments.merge(other)                    # another shard of the stream
        moments.counts, moments.means, moments.scatter

    Any cut of the stream into batches and shards gives the same result but for rounding; the same stream cut in the
    same way gives the same bits.
    """

    def __init__(
        self,
        counts: Tensor,
        sums: Tensor,
        scatter: Tensor,
        *,
        pooled: Tensor | None = None,
        shuffle: int | None = None,
        unit: float = 0.0,
    ) -> None:
        self.counts = counts
        self.sums = sums
        self.scatter = scatter
        self.pooled = pooled
        self.shuffle = shuffle
        self.unit = unit  # relative rounding error of the coarsest features seen
        self.tokens = int(counts.sum())
        self._work: list[Tensor] = []

    @classmethod
    def empty(
        cls,
        classes: int,
        dim: int,
        device: str | torch.device = "cpu",
        *,
        covariance: bool = False,
        shuffle: int | None = None,
    ) -> Self:
        """Moments that have seen nothing.

        `covariance` also collects the pooled within-class scatter matrix (dim × dim), at the cost of a matrix product a
        batch. `shuffle`, a seed, permutes the labels of each batch before they are folded in: the null of every metric.
        """
        if classes < 1 or dim < 1:
            raise ValueError(f"{classes:,} classes × {dim:,} dimensions; both must be at least 1.")
        if torch.device(device).type == "mps":
            raise ValueError("device mps has no float64, which moments need. Use cpu: features may stay on mps.")
        zeros = torch.zeros(classes, dim, dtype=torch.float64, device=device)
        return cls(
            torch.zeros(classes, dtype=torch.int64, device=device),
            zeros,
            torch.zeros(classes, dtype=torch.float64, device=device),
            pooled=torch.zeros(dim, dim, dtype=torch.float64, device=device) if covariance else None,
            shuffle=shuffle,
        )

    def null_twin(self, *, seed: int = 0) -> "ClassMoments":
        """Empty moments of the same shape that shuffle their labels: update both with the same batches."""
        return ClassMoments.empty(self.classes, self.dim, self.device, covariance=self.pooled is not None, shuffle=seed)

    @property
    def classes(self) -> int:
        return self.sums.shape[0]

    @property
    def dim(self) -> int:
        return self.sums.shape[1]

    @property
    def device(self) -> torch.device:
        return self.sums.device

    @property
    def means(self) -> Tensor:
        """Class means (classes, dim), made anew at each call; a class that was never seen has a row of zeros."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    @property
    def variances(self) -> Tensor:
        """Scatter over count (classes,); 0 for a class that was never seen."""
        return self.scatter / self.counts.clamp(min=1)

    @property
    def covariance(self) -> Tensor | None:
        """Pooled within-class covariance (dim, dim), or None where it was not collected."""
        if self.pooled is None:
            return None
        return (self.pooled + self.pooled.T) / (2 * max(self.tokens, 1))  # rounding left it not quite symmetric

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Fold in a batch. Refuses the whole batch, and stays as it was, if anything in it is wrong."""
        unit = _unit(features)
        features, labels = checked_batch(features, labels, classes=self.classes, dim=self.dim, device=self.device)
        self.unit = max(self.unit, unit)
        if self.shuffle is not None:
            labels = labels[_permutation(len(labels), self.shuffle, self.tokens).to(labels.device)]
        rows = _rows_of(self.dim, self.device) * (1 if self.pooled is None else 4)  # products like long parts
        for start in range(0, len(labels), rows):
            self._fold(features[start : start + rows], labels[start : start + rows])
        self.tokens += len(labels)

    def merge(self, other: "ClassMoments", *, times: int = 1) -> Self:
        """Add what another shard has seen (Chan, Golub & LeVeque, pairwise), as if it had come so many times."""
        self._check_mergeable(other)
        rows = _rows_of(self.dim, self.device)
        for start in range(0, self.classes, rows):
            self._merge_rows(other, slice(start, start + rows), times)
        if self.pooled is not None and other.pooled is not None:
            self.pooled.add_(other.pooled.to(self.device), alpha=times)
        self.tokens += times * other.tokens
        self.unit = max(self.unit, other.unit)
        return self

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, whole or not at all. Only classes that were seen take space."""
        save_tensors(path, self.tensors(), kind="class moments", facts=self.facts())

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> Self:
        """Read what `save` wrote, bit for bit; ValueError if the file is not whole."""
        tensors, facts = load_tensors(path, kind="class moments")
        return cls.from_tensors(tensors, facts, device)

    def tensors(self) -> dict[str, Tensor]:
        """All numbers, by name: of the classes that were seen, and which those are."""
        seen = self.counts.nonzero().squeeze(1)
        tensors = {"seen": seen, "counts": self.counts[seen], "sums": self.sums[seen], "scatter": self.scatter[seen]}
        return tensors if self.pooled is None else {**tensors, "pooled": self.pooled}

    def facts(self) -> dict[str, object]:
        """What `tensors` alone does not say."""
        return {"classes": self.classes, "dim": self.dim, "shuffle": self.shuffle, "unit": self.unit}

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], facts: Mapping[str, object], device: str | torch.device = "cpu"
    ) -> Self:
        """The moments whose `tensors` and `facts` these are, bit for bit."""
        classes, dim, shuffle = facts["classes"], facts["dim"], facts["shuffle"]
        assert isinstance(classes, int)
        assert isinstance(dim, int)
        assert isinstance(shuffle, int | None)
        moments = cls.empty(classes, dim, device, covariance="pooled" in tensors, shuffle=shuffle)
        seen = tensors["seen"].to(device)
        moments.counts[seen] = tensors["counts"].to(device)
        moments.sums[seen] = tensors["sums"].to(device)
        moments.scatter[seen] = tensors["scatter"].to(device)
        if "pooled" in tensors:
            moments.pooled = tensors["pooled"].to(device)
        moments.tokens = int(moments.counts.sum())
        unit = facts.get("unit", 0.0)
        assert isinstance(unit, float)
        moments.unit = unit
        return moments

    def _fold(self, features: Tensor, labels: Tensor) -> None:
        wide, offset, some, later = self._buffers(len(labels))
        before = self.counts.index_select(0, labels).double()
        _add_rows(self.counts, labels, torch.ones_like(labels))
        after = self.counts.index_select(0, labels).double()
        several = after - before > 1  # tokens that share their class with another in hand
        again = (several & (2 * before < after)).nonzero().squeeze(1)
        drift = _Drift(self, labels[several & (2 * before >= after)])
        early = torch.where(several, 1.0, before / after)
        if len(again):
            after, before_again = after.index_select(0, again), before.index_select(0, again)
            early.index_copy_(0, again, before_again / (before_again + after))

        wide = features if features.dtype == torch.float64 else wide.copy_(features)
        self._offsets(wide, labels, before, out=offset)
        gain = _squares(offset).mul_(early)
        _add_rows(self.sums, labels, wide)
        if len(again):
            some, later = some[: len(again)], later[: len(again)]
            torch.index_select(wide, 0, again, out=some)
            self._offsets(some, labels.index_select(0, again), after, out=later)
            gain.index_add_(0, again, _squares(later).mul_(1 - early.index_select(0, again)))
        _add_rows(self.scatter, labels, gain)
        if self.pooled is not None:
            self._pool(offset, later, again, before, early)
        drift.take_off()

    def _pool(self, offset: Tensor, later: Tensor, again: Tensor, before: Tensor, early: Tensor) -> None:
        """Add the sum of (h - p)(h - q)ᵀ over the tokens in hand, which is what their classes' scatter matrices gain.

        For a token alone with its class h - q is (h - p) a / b. A class that was never seen has no p: q stands for it.
        """
        right = torch.mul(offset, early[:, None], out=self._buffers(len(offset))[0])
        if len(again):
            right.index_copy_(0, again, later)
            unseen = (before.index_select(0, again) == 0).nonzero().squeeze(1)
            offset.index_copy_(0, again.index_select(0, unseen), later.index_select(0, unseen))
        assert self.pooled is not None
        self.pooled.addmm_(offset.T, right)

    def _offsets(self, wide: Tensor, labels: Tensor, counts: Tensor, *, out: Tensor) -> None:
        """Features minus the means of their classes, which have so many samples."""
        torch.index_select(self.sums, 0, labels, out=out)
        torch.addcmul(wide, out, counts.clamp(min=1).reciprocal_()[:, None], value=-1, out=out)

    def _buffers(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # Kept between batches: fresh pages from the system cost more than the arithmetic done in them.
        if not self._work or len(self._work[0]) < rows:
            shape = (rows, self.dim)
            self._work = [torch.empty(shape, dtype=torch.float64, device=self.device) for _ in range(4)]
        wide, offset, some, later = (buffer[:rows] for buffer in self._work)
        return wide, offset, some, later

    def _check_mergeable(self, other: "ClassMoments") -> None:
        if (other.classes, other.dim) != (self.classes, self.dim):
            raise ValueError(
                f"moments of {other.classes:,} classes × {other.dim:,} cannot be merged into moments of "
                f"{self.classes:,} classes × {self.dim:,}."
            )
        if (other.pooled is None) != (self.pooled is None):
            raise ValueError("only one of the two moments collects the covariance; both or neither must.")
        if (other.shuffle is None) != (self.shuffle is None):
            raise ValueError("one of the two moments has its labels shuffled; a null merges only with a null.")

    def _merge_rows(self, other: "ClassMoments", rows: slice, times: int) -> None:
        ours, theirs = self.counts[rows], other.counts[rows].to(self.device) * times
        sums, scatter = (tensor[rows].to(self.device) * times for tensor in (other.sums, other.scatter))
        offset = sums / theirs.clamp(min=1)[:, None] - self.sums[rows] / ours.clamp(min=1)[:, None]
        # In floats: counts of 2³² tokens and more would overflow as an integer product.
        weight = ours.double() * theirs / (ours + theirs).clamp(min=1)
        self.scatter[rows] += scatter + _squares(offset).mul_(weight)
        if self.pooled is not None:
            self.pooled.addmm_((offset * weight[:, None]).T, offset)
        self.sums[rows] += sums
        self.counts[rows] += theirs


@final
class _Drift:
    """Classes that had at least as many samples before as they get now: their means before, and what that saves."""

    def __init__(self, moments: ClassMoments, labels: Tensor) -> None:
        self.moments = moments
        self.classes, self.new = torch.unique(labels, return_counts=True)
        self.sums = moments.sums.index_select(0, self.classes)

    def take_off(self) -> None:
        """Take b |q - p|² off their scatter, which the tokens' distances to p have too much."""
        if not len(self.classes):
            return
        after = self.moments.counts.index_select(0, self.classes)
        drift = self.moments.sums.index_select(0, self.classes).div_(after[:, None])
        drift.sub_(self.sums.div_((after - self.new)[:, None]))
        self.moments.scatter.index_add_(0, self.classes, _squares(drift).mul_(after), alpha=-1)
        if self.moments.pooled is not None:
            self.moments.pooled.addmm_(drift.T, drift * after[:, None], alpha=-1)


def update_all(features: Tensor, labels: Sequence[tuple[ClassMoments, Tensor]]) -> None:
    """Fold the same features into several moments, each with labels of its own; all take them as one float64 copy.

    On a CPU each of several is done by one thread, side by side. A batch takes hundreds of small operations, and to let
    two cores meet after each costs more than it gains: little on a machine at rest, everything on one that is not.
    """
    unit, threads = _unit(features), torch.get_num_threads()
    for moments, _ in labels:
        moments.unit = max(moments.unit, unit)
    if threads == 1 or len(labels) == 1 or any(moments.device.type != "cpu" for moments, _ in labels):
        for moments, its in labels:
            moments.update(features, its)
        return
    features = features.double() if features.is_floating_point() else features
    torch.set_num_threads(1)
    try:
        (mine, its), *others = labels
        pending = [_pool().submit(moments.update, features, theirs) for moments, theirs in others]
        try:
            mine.update(features, its)
        finally:
            wait(pending)
        for one in pending:
            one.result()
    finally:
        torch.set_num_threads(threads)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "moments")


def checked_batch(
    features: Tensor, labels: Tensor, *, classes: int, dim: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The batch on the device, labels as int64, ignored tokens gone; ValueError if anything in it is wrong."""
    if features.ndim != 2 or features.shape[1] != dim:
        raise ValueError(f"features of shape {tuple(features.shape)}; (tokens, {dim}) is needed.")
    if labels.ndim != 1 or len(labels) != len(features):
        found = f"{len(labels):,} labels" if labels.ndim == 1 else f"labels of shape {tuple(labels.shape)}"
        raise ValueError(f"{len(features):,} features but {found}; each feature needs its next token.")
    if not features.is_floating_point():
        raise ValueError(f"features are {features.dtype}; floating-point numbers are needed.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype}; integers are needed.")
    features, labels = features.detach().to(device), labels.detach().to(device, torch.int64)
    if features.dtype.itemsize == 1:  # float8 has no arithmetic of its own
        features = features.float()
    positions = None
    if len(labels) and (labels.amin() < 0 or labels.amax() >= classes):
        _check_range(labels, classes)
        positions = (labels != IGNORED).nonzero().squeeze(1)
        features, labels = features.index_select(0, positions), labels.index_select(0, positions)
    _check_finite(features, positions)
    return features, labels


def _unit(features: Tensor) -> float:
    """Relative rounding error of the features."""
    return torch.finfo(features.dtype).eps / 2 if features.is_floating_point() else 0.0


def _check_range(labels: Tensor, classes: int) -> None:
    bad = labels[((labels < 0) & (labels != IGNORED)) | (labels >= classes)]
    if len(bad):
        raise ValueError(
            f"{len(bad):,} of {len(labels):,} labels are outside 0 … {classes - 1:,}, the first {int(bad[0]):,}; "
            f"only {IGNORED} is skipped."
        )


def _check_finite(features: Tensor, positions: Tensor | None) -> None:
    # One number tells: a sum with a nan or an infinity in it is not finite. It can also overflow, so look twice.
    if torch.isfinite(features.sum(dtype=torch.promote_types(features.dtype, torch.float32))):
        return
    bad = ~torch.isfinite(features)
    if bad.any():
        row, column = (int(index) for index in bad.nonzero()[0])
        raise ValueError(
            f"{int(bad.sum()):,} features are nan or infinite, the first {float(features[row, column])} "
            f"at token {row if positions is None else int(positions[row]):,}, dimension {column:,}."
        )


def _squares(rows: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vector_norm(rows, dim=1).square_()
    return squares


def _add_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    # On CUDA index_add_ adds in an order of its own each time; index_put_ sorts first: equal streams, equal bits.
    if table.is_cuda:
        table.index_put_((index,), rows, accumulate=True)
    else:
        table.index_add_(0, index, rows)


def _rows_of(dim: int, device: torch.device) -> int:
    return max(1, PART_BYTES.get(device.type, PART_BYTES["cpu"]) // (8 * dim))


def _permutation(tokens: int, seed: int, seen: int) -> Tensor:
    # Seeded by what came before, not by a generator that would have to be saved and restored.
    digest = hashlib.blake2b(f"{seed} {seen}".encode(), digest_size=4).digest()
    return torch.randperm(tokens, generator=torch.Generator().manual_seed(int.from_bytes(digest)))
