"""Count, mean and scatter of every class, from a stream of features, in one pass. `accumulator.py` has the formulas."""

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, final

import torch
from torch import Tensor

from collapselab.core.accumulator import Accumulator, Arrivals, Workspace, part_rows, reference_point
from collapselab.core.batch import checked_batch
from collapselab.core.storage import Rows, load_tensors, save_tensors
from collapselab.core.threads import threads
from collapselab.core.vectors import Vectors

NUMBERS_OF_ONE_THREAD = 1 << 19
"""Up to this many numbers, two threads take as long for a batch as one, or longer; beside other busy processes, on the
same cores, two to four times as long (5.0 ms and 1.6 for 2,048 × 256)."""


@final
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
        shuffle: int | None = None,
        unit: float = 0.0,
    ) -> None:
        direct = torch.ones_like(counts, dtype=torch.bool)
        reference = None if second is None else sums.new_zeros(sums.shape[1])
        accumulator = Accumulator(counts, sums, scatter, direct, reference, pooled, directions, second)
        self._set(accumulator, shuffle=shuffle, unit=unit)

    def _set(self, accumulator: Accumulator, *, shuffle: int | None, unit: float) -> None:
        self._state = accumulator
        self.shuffle = shuffle
        self.unit = unit  # relative rounding error of the coarsest features seen
        self.tokens = int(accumulator.counts.sum())

    @classmethod
    def empty(
        cls,
        classes: int,
        dim: int,
        device: str | torch.device = "cpu",
        *,
        covariance: bool = False,
        spectrum: bool = False,
        shuffle: int | None = None,
    ) -> Self:
        """Moments of no samples yet.

        `covariance` also collects the pooled within-class scatter matrix (dim × dim), at the cost of a matrix product
        a batch, in float64. `spectrum` collects the second moment of all features, which is enough for their spectra,
        by a product in the precision of the features: a third of the time for float32. `shuffle`, a seed, permutes the
        labels of each batch before they are added: see `null_twin`.
        """
        if classes < 1 or dim < 1:
            raise ValueError(f"{classes:,} classes × {dim:,} dimensions; both must be at least 1.")
        if torch.device(device).type == "mps":
            raise ValueError("device mps has no float64, which moments need. Use cpu: features may stay on mps.")
        moments = cls.__new__(cls)
        accumulator = _empty_accumulator(classes, dim, device, covariance=covariance, spectrum=spectrum)
        moments._set(accumulator, shuffle=shuffle, unit=0.0)
        return moments

    def empty_like(self, device: str | torch.device | None = None) -> "ClassMoments":
        """Empty moments that these can be merged into, on another device if one is named."""
        return ClassMoments.empty(
            self.classes,
            self.dim,
            device or self.device,
            covariance=self.has_covariance,
            spectrum=self._state.total is not None,
            shuffle=self.shuffle,
        )

    def null_twin(self, *, seed: int = 0) -> "ClassMoments":
        """Empty moments for the null of every metric, the same features with permuted labels: update both alike.

        A stream is seen a batch at a time, so labels are permuted within each batch. `collapselab.measure`, which has
        the whole corpus, permutes them over all of it (`measurement/sample.py`) and adds the result to plain moments:
        its null does not depend on how the corpus is cut into batches.
        """
        return ClassMoments.empty(self.classes, self.dim, self.device, covariance=self.has_covariance, shuffle=seed)

    @property
    def counts(self) -> Tensor:
        """Samples of each class (classes,)."""
        return self._state.counts

    @property
    def sums(self) -> Tensor:
        """Sum of each class's features (classes, dim)."""
        return self._state.sums

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
    def has_covariance(self) -> bool:
        return self._state.matrix is not None

    @property
    def means(self) -> Tensor:
        """Class means (classes, dim), computed at each call; a class that was never seen has a row of zeros."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def mean_vectors(self, classes: Tensor) -> Vectors:
        """Means of these classes, given by index."""
        return Vectors(self.sums, chosen=classes, divisors=self.counts[classes].clamp(min=1))

    def means_of(self, classes: Tensor) -> Tensor:
        """As `mean_vectors`, all of them at once (classes, dim)."""
        return self.mean_vectors(classes).at(slice(None))

    @property
    def scatter(self) -> Tensor:
        """Σ|h - μ|² of each class (classes,), computed at each call."""
        return self._state.scatter()

    @property
    def variances(self) -> Tensor:
        """Scatter over count (classes,); 0 for a class that was never seen."""
        return self.scatter / self.counts.clamp(min=1)

    @property
    def pooled(self) -> Tensor | None:
        """Scatter matrix within classes, summed over them (dim, dim), or None where it was not collected.

        A class that lies far from the others costs it digits: its error is that of rounding in Σ|h - r|², with r the
        reference point of `accumulator.py`.
        """
        return self._state.scatter_matrix()

    @property
    def directions(self) -> Tensor | None:
        """Σ h/|h| over all features (dim,), nan where one of them is zero; None where it was not collected."""
        return self._state.directions

    @property
    def second(self) -> Tensor | None:
        """Σ h hᵀ over all features (dim, dim), or None where `spectrum` was not asked for."""
        return self.second_about(torch.zeros_like(self.sums[0]))

    def second_about(self, point: Tensor) -> Tensor | None:
        """Σ (h - point)(h - point)ᵀ over all features (dim, dim), or None where `spectrum` was not asked for."""
        return self._state.total_about(point)

    @property
    def covariance(self) -> Tensor | None:
        """Pooled within-class covariance (dim, dim), or None where it was not collected."""
        pooled = self.pooled
        return None if pooled is None else pooled / max(self.tokens, 1)

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch; if anything in it is wrong, the whole batch is refused and nothing changes."""
        update_all(features, [(self, labels)])

    @torch.inference_mode(False)
    @torch.no_grad()
    def merge(self, other: "ClassMoments", *, times: int = 1) -> Self:
        """Add the samples of another shard (Chan, Golub & LeVeque, pairwise), each of them `times` times."""
        self._check_mergeable(other)
        if not times:
            return self
        state = self._state
        state.make_direct()
        if state.reference is None and other._state.reference is not None:
            state.reference = other._state.reference.to(self.device, copy=True)
        if state.total is not None and other.tokens:
            total = None if state.reference is None else other.second_about(state.reference.to(other.device))
            state.total = None if total is None else state.total.add_(total.to(self.device), alpha=times)
        counts, scatter, pooled, directions = other.counts, other.scatter, other.pooled, other.directions
        for classes in torch.split(counts.nonzero().squeeze(1), part_rows(self.dim, self.device)):
            theirs = (tensor[classes].to(self.device) * times for tensor in (counts, other.sums, scatter))
            state.join(classes.to(self.device), *theirs)
        if state.matrix is not None and pooled is not None:
            state.matrix.add_(pooled.to(self.device), alpha=times)
        if state.directions is not None and other.tokens:
            added = None if directions is None else state.directions.add_(directions.to(self.device), alpha=times)
            state.directions = added
        self.tokens += times * other.tokens
        self.unit = max(self.unit, other.unit)
        return self

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
        state, seen = self._state, self.counts.nonzero().squeeze(1)
        tensors: dict[str, Tensor | Rows] = {"seen": seen}
        tensors |= {name: Rows(getattr(state, field), seen) for name, field in _BY_CLASS.items()}
        return tensors | {name: whole for name, field in _WHOLE.items() if (whole := getattr(state, field)) is not None}

    def facts(self) -> dict[str, object]:
        """What `tensors` alone does not say."""
        return {"classes": self.classes, "dim": self.dim, "shuffle": self.shuffle, "unit": self.unit}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], device: str | torch.device = "cpu"
    ) -> Self:
        """The moments whose `tensors` and `facts` these are, bit for bit."""
        accumulator = _empty_accumulator(facts["classes"], facts["dim"], device)
        seen = tensors["seen"].to(device)
        for name, field in _BY_CLASS.items():
            getattr(accumulator, field)[seen] = tensors[name].to(device)
        for name, field in _WHOLE.items():
            setattr(accumulator, field, tensors[name].to(device, copy=True) if name in tensors else None)
        moments = cls.__new__(cls)
        moments._set(accumulator, shuffle=facts["shuffle"], unit=facts["unit"])
        return moments

    def _check_mergeable(self, other: "ClassMoments") -> None:
        if (other.classes, other.dim) != (self.classes, self.dim):
            raise ValueError(
                f"moments of {other.classes:,} classes × {other.dim:,} cannot be merged into moments of "
                f"{self.classes:,} classes × {self.dim:,}."
            )
        if other.has_covariance != self.has_covariance:
            raise ValueError("only one of the two moments collects the covariance; both or neither must.")
        if (other.shuffle is None) != (self.shuffle is None):
            raise ValueError("one of the two moments has its labels shuffled; a null merges only with a null.")


# The names of tensors in a file, which must stay as they are, and the fields of an Accumulator that they hold.
_BY_CLASS = {"counts": "counts", "sums": "sums", "squares": "squares", "tight": "direct"}
_WHOLE = {"point": "reference", "second": "matrix", "directions": "directions", "total": "total"}


@torch.inference_mode(False)
def _empty_accumulator(
    classes: int, dim: int, device: str | torch.device, *, covariance: bool = False, spectrum: bool = False
) -> Accumulator:
    return Accumulator(
        torch.zeros(classes, dtype=torch.int64, device=device),
        torch.zeros(classes, dim, dtype=torch.float64, device=device),
        torch.zeros(classes, dtype=torch.float64, device=device),
        torch.zeros(classes, dtype=torch.bool, device=device),
        matrix=torch.zeros(dim, dim, dtype=torch.float64, device=device) if covariance else None,
        directions=torch.zeros(dim, dtype=torch.float64, device=device),
        total=torch.zeros(dim, dim, dtype=torch.float64, device=device) if spectrum else None,
    )


@torch.inference_mode(False)  # the tables may be written to outside that mode later
@torch.no_grad()
def update_all(
    features: Tensor, labels: Sequence[tuple[ClassMoments, Tensor]], arrivals: Arrivals | None = None
) -> Tensor:
    """Add the same features to several moments, each with labels of its own; to none if one refuses.

    `arrivals`: one for all calls with these labels, such as those of the layers of a model. Returns the squared
    distances from the first one's reference point of the features that it took (tokens,).
    """
    arrivals = Arrivals() if arrivals is None else arrivals
    check = partial(_checked, features, labels)
    # A small batch has too little work between synchronisations to parallelise.
    is_small = features.device.type == "cpu" and features.numel() <= NUMBERS_OF_ONE_THREAD
    with threads(1) if is_small else nullcontext():
        batches = check(finite=False)
        groups = _together(batches)
        if len(groups) > 1 or len(features) > part_rows(features.shape[1], batches[0].moments.device):
            check()  # before a part of it is added
        squares, *_ = [_add(group, arrivals, check) for group in groups]
    for batch in batches:
        batch.moments.unit = max(batch.moments.unit, torch.finfo(features.dtype).eps / 2)
        batch.moments.tokens += len(batch.labels)
    return squares


class _Batch(NamedTuple):
    """Features and labels as they are added to moments; their number among all that take the batch."""

    number: int
    moments: ClassMoments
    features: Tensor
    labels: Tensor


def _checked(features: Tensor, labels: Sequence[tuple[ClassMoments, Tensor]], *, finite: bool = True) -> list[_Batch]:
    """What each of the moments takes; ValueError where one refuses. Without `finite` numbers are not looked at."""
    checked: Tensor | None = None
    batches = []
    for number, (moments, own_labels) in enumerate(labels):
        checked, kept_labels = checked_batch(
            features,
            own_labels,
            classes=moments.classes,
            dim=moments.dim,
            device=moments.device,
            same_as=checked,
            finite=finite,
        )
        if moments.shuffle is not None:
            order = _permutation(len(kept_labels), moments.shuffle, moments.tokens)
            kept_labels = kept_labels[order.to(kept_labels.device)]
        batches.append(_Batch(number, moments, checked, kept_labels))
    return batches


def _together(batches: list[_Batch]) -> list[list[_Batch]]:
    """Those that have the same features and reference point, or none yet, in one list: all or each by itself."""
    points = [batch.moments._state.reference for batch in batches]
    known = [point for point in points if point is not None]
    share = len(known) in (0, len(points)) and all(torch.equal(point, known[0]) for point in known)
    same = all(batch.features is batches[0].features for batch in batches)
    return [batches] if share and same else [[batch] for batch in batches]


def _add(batches: Sequence[_Batch], arrivals: Arrivals, check: Callable[[], object]) -> Tensor:
    """Add features, a part at a time, to moments that have the same reference point or none yet.

    `check` is called before anything is added where numbers of the first part may not be finite. Returns the squared
    distances from that point (tokens,).
    """
    features, accumulators = batches[0].features, [batch.moments._state for batch in batches]
    if not len(features):
        return torch.zeros(0, dtype=torch.float64, device=features.device)
    dim, reference = features.shape[1], accumulators[0].reference
    if reference is None:
        reference = reference_point(features)
    rows = min(part_rows(dim, features.device), len(features))
    workspace = _workspace(rows, dim, features.device)
    product = torch.float64 if any(accumulator.matrix is not None for accumulator in accumulators) else None
    if product is None and any(accumulator.total is not None for accumulator in accumulators):
        product = torch.promote_types(features.dtype, torch.float32)
    directions = any(accumulator.directions is not None for accumulator in accumulators)
    squares = []
    for start in range(0, len(features), rows):
        now = slice(start, start + rows)
        part = workspace.part(features[now], reference, product=product, directions=directions)
        if start == 0:
            if not math.isfinite(float(part.squares.sum())):  # or they leave the range of float64
                check()
            for accumulator in accumulators:
                accumulator.reference = reference.clone()  # each is stored by itself
        for batch, accumulator in zip(batches, accumulators, strict=True):
            accumulator.add(part, arrivals.count(accumulator.counts, batch.labels[now], (batch.number, start)))
        squares.append(part.squares)
    return torch.cat(squares)


def _permutation(tokens: int, seed: int, seen: int) -> Tensor:
    # Seeded by what came before, not by a generator that would have to be saved and restored.
    digest = hashlib.blake2b(f"{seed} {seen}".encode(), digest_size=4).digest()
    return torch.randperm(tokens, generator=torch.Generator().manual_seed(int.from_bytes(digest)))


_of_thread = threading.local()


def _workspace(rows: int, dim: int, device: torch.device) -> Workspace:
    """The workspace of this thread, made again where another size is needed."""
    key = (rows, dim, device)
    if getattr(_of_thread, "key", None) != key:
        _of_thread.key, _of_thread.workspace = key, Workspace(rows, dim, device)
    workspace: Workspace = _of_thread.workspace
    return workspace
