"""Count, mean and scatter of every class, from a stream of features, in one pass.

A class with n samples h has the sum T = Σh. Its squares Q = Σ|h - r|² are about a reference point r that all classes
share, the mean of the first batch, so that a token costs one addition. The scatter follows as

    S = Σ|h - T/n|² = Q - |T - n r|² / n

in float64, which keeps ten digits of a scatter that is a millionth of Q. Less than the rounding of the sums is zero.
The matrix Σ(h - r)(h - r)ᵀ over all tokens gives covariances in the same way. All of this adds up over shards.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from collapselab.core.batch import CheckedLabels
from collapselab.core.devices import WITHOUT_FLOAT64, by_device
from collapselab.core.storage import Rows, load_tensors, save_tensors
from collapselab.core.threads import threads
from collapselab.core.vectors import Vectors, add_gram, gram_of, squared_lengths

PART_BYTES = {"cpu": 12 << 20, "accelerator": 256 << 20}
"""Size in float64 of the part of a batch that is processed at once: on a CPU it should stay in the cache."""

SAMPLE = 1024
"""Features from which the mean squared length of all is estimated."""

NUMBERS_OF_ONE_THREAD = 1 << 19
"""Up to this many numbers, two threads take as long for a batch as one, or longer; beside other busy processes, on the
same cores, two to four times as long (5.0 ms and 1.6 for 2,048 × 256)."""

ROUNDING = 8 * torch.finfo(torch.float64).eps
"""A scatter below this share of √n Q is rounding. That of features in float32 is larger than this by itself."""


class ClassMoments:
    """Streaming, mergeable count, mean and scatter per class.

    >>> import torch
    >>> from collapselab import ClassMoments
    >>> features, labels = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    >>> moments = ClassMoments.empty(classes=3, dim=3)
    >>> moments.update(features, labels)  # (tokens, dim) floats, (tokens,) integers; -100 is skipped
    >>> other = ClassMoments.empty(classes=3, dim=3)
    >>> other.update(features, labels)
    >>> moments.merge(other).counts.tolist()  # another shard of the stream
    [8, 8, 8]
    >>> moments.means[0].tolist(), moments.scatter.tolist()
    ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0])

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
        directions: Tensor | None = None,
        second: Tensor | None = None,
        unit: float = 0.0,
        tokens: int | None = None,
    ) -> None:
        self.counts = counts
        """Samples of each class (classes,)."""
        self.sums = sums
        """Sum of each class's features (classes, dim)."""
        self.directions = directions
        """Σ h/|h| over all features (dim,), nan where one of them is zero; None where it was not collected."""
        self.unit = unit
        """Relative rounding error of the coarsest features seen."""
        self.tokens = int(counts.sum()) if tokens is None else tokens
        self.squares, self.has_covariance = scatter.clone(), pooled is not None
        self.reference = sums.sum(0) / max(self.tokens, 1) if self.tokens else None
        self.matrix = None if pooled is None else pooled.clone()
        if self.tokens:
            self._add_between(counts > 0)
        if pooled is None and second is not None:
            self.matrix = second if self.reference is None else self._moved(second, -self.reference, sums.sum(0))

    @classmethod
    @torch.inference_mode(False)
    def empty(
        cls,
        classes: int,
        dim: int,
        device: str | torch.device = "cpu",
        *,
        covariance: bool = False,
        spectrum: bool = False,
    ) -> Self:
        """Moments of no samples yet.

        `covariance` also collects the pooled within-class scatter matrix (dim × dim), at the cost of a matrix product
        a batch, in float64. `spectrum` collects the second moment of all features, which is enough for their spectra,
        by a product in the precision of the features: a third of the time for float32.
        """
        if classes < 1 or dim < 1:
            raise ValueError(f"{classes:,} classes × {dim:,} dimensions; both must be at least 1.")
        if (kind := torch.device(device).type) in WITHOUT_FLOAT64:
            raise ValueError(f"device {kind} has no float64, which moments need. Use cpu: features may stay on {kind}.")
        sums = torch.zeros(classes, dim, dtype=torch.float64, device=device)
        moments = cls(
            torch.zeros(classes, dtype=torch.int64, device=device),
            sums,
            sums.new_zeros(classes),
            directions=sums.new_zeros(dim),
            second=sums.new_zeros(dim, dim) if covariance or spectrum else None,
            tokens=0,
        )
        moments.has_covariance = covariance
        return moments

    def empty_like(self) -> "ClassMoments":
        """Empty moments that these can be merged into."""
        matrices = {"covariance": self.has_covariance, "spectrum": self.matrix is not None}
        return ClassMoments.empty(self.classes, self.dim, self.device, **matrices)

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
        """Class means (classes, dim), computed at each call; a class that was never seen has a row of zeros."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def mean_vectors(self, classes: Tensor) -> Vectors:
        """Means of these classes, given by index."""
        return Vectors(self.sums, chosen=classes, divisors=self.counts[classes].clamp(min=1))

    @property
    def scatter(self) -> Tensor:
        """Σ|h - μ|² of each class (classes,), computed at each call."""
        scatter = torch.zeros_like(self.squares)
        for classes, shifted in self._shifted(self.counts > 1):  # one sample has no scatter
            n, squares = self.counts[classes].double(), self.squares[classes]
            difference = squares - squared_lengths(shifted) / n
            scatter[classes] = torch.where(difference > ROUNDING * n.sqrt() * squares, difference, 0.0)
        return scatter

    @property
    def variances(self) -> Tensor:
        """Scatter over count (classes,); 0 for a class that was never seen."""
        return self.scatter / self.counts.clamp(min=1)

    @property
    def pooled(self) -> Tensor | None:
        """Scatter matrix within classes, summed over them (dim, dim), or None where it was not collected."""
        if self.matrix is None or not self.has_covariance:
            return None
        matrix = self.matrix.clone()
        for classes, shifted in self._shifted(self.counts > 0):
            add_gram(matrix, shifted / self.counts[classes].double().sqrt()[:, None], alpha=-1)
        return (matrix + matrix.T) / 2  # rounding left it not quite symmetric

    @property
    def covariance(self) -> Tensor | None:
        """Pooled within-class covariance (dim, dim), or None where it was not collected."""
        pooled = self.pooled
        return None if pooled is None else pooled / max(self.tokens, 1)

    @property
    def second(self) -> Tensor | None:
        """Σ h hᵀ over all features (dim, dim), or None where no matrix was asked for."""
        return self.second_about(torch.zeros_like(self.sums[0]))

    def second_about(self, point: Tensor) -> Tensor | None:
        """Σ (h - point)(h - point)ᵀ over all features (dim, dim), or None where no matrix was asked for."""
        if self.matrix is None or self.reference is None:
            return self.matrix
        return self._moved(self.matrix, self.reference - point, self._sum_about(self.reference))

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch; if anything in it is wrong, the whole batch is refused and nothing changes."""
        update_all(features, [(self, labels)])

    @torch.inference_mode(False)
    @torch.no_grad()
    def merge(self, other: "ClassMoments", *, times: int = 1) -> Self:
        """Add the samples of another shard, each of them `times` times."""
        self._check_mergeable(other)
        if not times or other.reference is None:
            return self
        if self.reference is None:
            self.reference = other.reference.to(self.device, copy=True)
        offset = other.reference - self.reference.to(other.device)
        squares = other.squares + other.counts * offset.square().sum()
        squares += 2 * (other.sums @ offset - other.counts * (other.reference @ offset))
        self.squares.add_(squares.to(self.device), alpha=times)
        self.counts.add_(other.counts.to(self.device), alpha=times)
        self.sums.add_(other.sums.to(self.device), alpha=times)
        matrix = other.second_about(self.reference.to(other.device))
        for name, theirs in (("matrix", matrix), ("directions", other.directions)):
            ours = getattr(self, name)
            if ours is None or theirs is None:
                setattr(self, name, None)
            else:
                ours.add_(theirs.to(self.device), alpha=times)
        self.tokens += times * other.tokens
        self.unit = max(self.unit, other.unit)
        return self

    def grouped(self, groups: Tensor, number: int) -> "ClassMoments":
        """Return moments of a number of groups; class i is in `groups[i]`, and classes after these in none."""
        merged, index = ClassMoments.empty(max(number, 1), self.dim, self.device), groups.to(self.device)
        for name in ("counts", "sums", "squares"):
            getattr(merged, name).index_add_(0, index, getattr(self, name)[: len(index)])
        merged.reference, merged.directions, merged.tokens = self.reference, None, int(merged.counts.sum())
        return merged

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, whole or not at all; only classes that were seen take space."""
        save_tensors(path, self.tensors(), kind="class moments", facts=self.facts())

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = "cpu") -> Self:
        """Read what `save` wrote, bit for bit; ValueError if the file is not whole."""
        tensors, facts = load_tensors(path, kind="class moments")
        return cls.from_tensors(tensors, facts, device)

    def tensors(self) -> dict[str, Tensor | Rows]:
        """All numbers of the classes seen, by their names in a file; views, to be stored before the next update."""
        seen = self.counts.nonzero().squeeze(1)
        by_class = {"counts": self.counts, "sums": self.sums, "squares": self.squares}
        matrix = "second" if self.has_covariance else "total"
        whole = {"point": self.reference, "directions": self.directions, matrix: self.matrix}
        tensors: dict[str, Tensor | Rows] = {"seen": seen}
        tensors |= {name: Rows(table, seen) for name, table in by_class.items()}
        return tensors | {name: tensor for name, tensor in whole.items() if tensor is not None}

    def facts(self) -> dict[str, object]:
        """What `tensors` alone does not say."""
        return {"classes": self.classes, "dim": self.dim, "unit": self.unit}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], device: str | torch.device = "cpu"
    ) -> Self:
        """The moments whose `tensors` and `facts` these are, bit for bit."""
        moments = cls.empty(facts["classes"], facts["dim"], device)
        seen = tensors["seen"].to(device)
        for name in ("counts", "sums", "squares"):
            getattr(moments, name)[seen] = tensors[name].to(device)
        matrix = "second" if "second" in tensors else "total"
        for name, field in {"point": "reference", "directions": "directions", matrix: "matrix"}.items():
            setattr(moments, field, tensors[name].to(device, copy=True) if name in tensors else None)
        moments.has_covariance, moments.unit = "second" in tensors, facts["unit"]
        moments.tokens = int(moments.counts.sum())
        if "tight" in tensors:  # earlier versions stored the scatter of these classes in place of their squares
            tight = torch.zeros_like(moments.counts, dtype=torch.bool)
            tight[seen] = tensors["tight"].to(device)
            if moments.reference is None:
                moments.reference = moments.sums.sum(0) / max(moments.tokens, 1)
            moments._add_between(tight)
        return moments

    def _add_between(self, chosen: Tensor) -> None:
        """Add |T - n r|² / n of the chosen classes to their squares, and its matrix to that of all."""
        for classes, shifted in self._shifted(chosen):
            shifted /= self.counts[classes].double().sqrt()[:, None]
            self.squares[classes] += squared_lengths(shifted)
            if self.has_covariance and self.matrix is not None:
                add_gram(self.matrix, shifted)

    def _shifted(self, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield T - n r of the chosen classes, a mask, as many at once as a part has rows, with their indices."""
        for classes in torch.split(chosen.nonzero().squeeze(1), part_rows(self.dim, self.device)):
            if len(classes) and self.reference is not None:
                sums, counts = self.sums.index_select(0, classes), self.counts[classes].double()
                yield classes, sums.addcmul_(counts[:, None], self.reference, value=-1)

    def _sum_about(self, point: Tensor) -> Tensor:
        return self.sums.sum(0).sub_(point, alpha=self.tokens)

    def _moved(self, matrix: Tensor, offset: Tensor, total: Tensor) -> Tensor:
        """Return Σ (x + offset)(x + offset)ᵀ, given Σ x xᵀ and the total Σ x."""
        cross = torch.outer(offset, total)
        return matrix + cross + cross.T + self.tokens * torch.outer(offset, offset)

    def _add(self, part: "_Part", labels: Tensor) -> None:
        add_rows(self.counts, labels, torch.ones_like(labels))
        add_rows(self.sums, labels, part.features)
        add_rows(self.squares, labels, part.squares)
        if self.matrix is not None and part.product is not None:
            self.matrix += part.product
        if self.directions is not None and part.directions is not None:
            self.directions += part.directions

    def _check_mergeable(self, other: "ClassMoments") -> None:
        if (other.classes, other.dim) != (self.classes, self.dim):
            raise ValueError(
                f"moments of {other.classes:,} classes × {other.dim:,} cannot be merged into moments of "
                f"{self.classes:,} classes × {self.dim:,}."
            )
        if other.has_covariance != self.has_covariance:
            raise ValueError("only one of the two moments collects the covariance; both or neither must.")


_Batch = tuple[ClassMoments, Tensor, Tensor]
"""Moments, with the features and labels that are added to them."""


@torch.inference_mode(False)  # the tables may be written to outside that mode later
@torch.no_grad()
def update_all(
    features: Tensor, labels: Sequence[tuple[ClassMoments, Tensor | CheckedLabels]], *, check: bool = True
) -> list[Tensor]:
    """Add the same features to several moments, each with labels of its own; to none if one refuses.

    Returns for each the squared distances of the features that it took from its reference point (tokens,). Without
    `check`, features that are nan or infinite are added too, and their squares are nan or infinite: with checked
    labels, the host need not wait for the device.
    """
    # A small batch has too little work between synchronisations to parallelise.
    is_small = features.device.type == "cpu" and features.numel() <= NUMBERS_OF_ONE_THREAD
    with threads(1) if is_small else nullcontext():
        batches: list[_Batch] = []
        for moments, given in labels:
            own = given
            if not isinstance(own, CheckedLabels):
                own = CheckedLabels.checked(own, moments.classes, moments.device)
            batches.append((moments, own.features(features, moments.dim, check=check), own.labels))
        groups = [batches] if _share(batches) else [[batch] for batch in batches]
        squares = [squares for group in groups for squares in [_add(group)] * len(group)]
    for moments, _, kept_labels in batches:
        moments.unit = max(moments.unit, torch.finfo(features.dtype).eps / 2)
        moments.tokens += len(kept_labels)
    return squares


def _share(batches: list[_Batch]) -> bool:
    """Whether all have the same features, and the same reference point or none yet."""
    (first, features, _), *others = batches
    for moments, own_features, _ in others:
        if own_features is not features:
            return False
        if moments.reference is first.reference:
            continue
        if moments.reference is None or first.reference is None or features.device.type != "cpu":
            return False  # elsewhere the host would wait
        if not torch.equal(moments.reference, first.reference):
            return False
        moments.reference = first.reference  # so that the host compares, and waits for, the numbers only once
    return True


def _add(batches: Sequence[_Batch]) -> Tensor:
    """Add features, a part at a time, to moments that have the same reference point or none yet.

    Returns the squared distances from that point (tokens,).
    """
    features, several = batches[0][1], [moments for moments, _, _ in batches]
    if not len(features):
        return torch.zeros(0, dtype=torch.float64, device=features.device)
    reference = several[0].reference
    if reference is None:
        reference = _reference_point(features)
        for moments in several:
            moments.reference = reference
    product = None
    if any(moments.matrix is not None for moments in several):
        exact = any(moments.has_covariance for moments in several)
        product = torch.float64 if exact else torch.promote_types(features.dtype, torch.float32)
    rows = min(part_rows(features.shape[1], features.device), len(features))
    workspace = _workspace(rows, features.shape[1], features.device)
    squares = []
    for start in range(0, len(features), rows):
        part = _part(features[start : start + rows], reference, workspace, product)
        for moments, _, labels in batches:
            moments._add(part, labels[start : start + rows])
        squares.append(part.squares)
    return torch.cat(squares)


@dataclass(frozen=True)
class _Part:
    """Features in float64 (tokens, dim); of their offsets from a reference point |offset|² and offsetsᵀ offsets."""

    features: Tensor
    squares: Tensor
    product: Tensor | None
    directions: Tensor
    """Σ h/|h|."""


def _part(features: Tensor, reference: Tensor, workspace: Tensor, product: torch.dtype | None) -> _Part:
    """Compute the part that these features make, with a product in this precision; in memory of the workspace."""
    wide, offsets = workspace[:, : len(features)]
    if features.dtype == torch.float64:
        wide = features
    else:
        wide.copy_(features)
    if reference.device.type != "cpu" or reference.any():  # elsewhere to look takes longer
        torch.sub(wide, reference, out=offsets)
    else:
        offsets = wide
    norms = torch.linalg.vector_norm(wide, dim=1)
    squares = norms.square() if offsets is wide else squared_lengths(offsets)
    factors = features if offsets is wide and product != torch.float64 else offsets  # which need no conversion
    gram = None if product is None else gram_of(factors.to(product))
    return _Part(wide, squares, gram, torch.mv(wide.T, norms.reciprocal()))


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to those of a table, with the same bits each time."""
    # On a GPU index_add_ adds in another order each time; index_put_ sorts first: equal streams, equal bits.
    if table.device.type == "cpu":
        table.index_add_(0, index, rows)
    else:
        table.index_put_((index,), rows, accumulate=True)


def _reference_point(features: Tensor) -> Tensor:
    """Return the mean of the features, or the origin where the mean is short beside the features themselves."""
    mean = features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).double()
    mean_square = features[:SAMPLE].double().square().sum(1).mean()
    length = mean.square().sum()
    return torch.where((length >= mean_square / 2) & length.isfinite(), mean, 0.0)


def part_rows(dim: int, device: torch.device) -> int:
    """Return the number of rows of a part."""
    return max(1, by_device(PART_BYTES, device) // (8 * dim))


_of_thread = threading.local()


def _workspace(rows: int, dim: int, device: torch.device) -> Tensor:
    """Memory of this thread for two parts, reused: faulting in new pages costs more than the arithmetic."""
    key = (rows, dim, device)
    if getattr(_of_thread, "key", None) != key:
        _of_thread.key = key
        _of_thread.workspace = torch.empty(2, rows, dim, dtype=torch.float64, device=device)
    workspace: Tensor = _of_thread.workspace
    return workspace
