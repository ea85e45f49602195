"""NC4: does the output layer choose the class whose centre is nearest?

Both are linear classifiers over the kept classes: the nearest centre is the class with the largest <h, c> - |c|²/2.
Each is a matrix product over tiles of classes in the precision of the features, of which the best and the second-best
score of every token are kept. Where the two are so close that rounding could have swapped them, or beyond the range of
float32, the token is decided again in float64. The choices are those of exact arithmetic, except for ties within
float64 rounding, at the cost of float32.

Scores are matrices (tokens, classes). A product whose rows of 50,257 numbers follow each other without a gap takes 1.7
times as long as one whose rows begin at aligned addresses. `argmax` takes half as long as the product that the scores
come from, so the index of a token's best is looked for in one strip of scores alone, by the maxima of all strips.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.core.batch import CheckedLabels
from collapselab.core.moments import ClassMoments


@dataclass
class Decisions:
    """Counts of how often two classifiers agreed and were right, by class of the label. See `NearestCentre`.

    >>> import torch
    >>> from collapselab import ClassMoments, NearestCentre
    >>> features, labels = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    >>> moments = ClassMoments.empty(classes=3, dim=3)
    >>> moments.update(features, labels)
    >>> decisions = NearestCentre(moments, weight=torch.eye(3)).decide(features, labels)
    >>> decisions.tokens.tolist(), decisions.agreed.tolist()
    ([4, 4, 4], [4, 4, 4])

    All tensors are (classes,) and int64. Tokens whose label is not a kept class are in `left_out` and nowhere else.
    """

    tokens: Tensor
    agreed: Tensor
    nearest_right: Tensor
    head_right: Tensor
    left_out: int
    min_count: int

    def merge(self, other: "Decisions", *, times: int = 1) -> "Decisions":
        """Add the counts of another shard, decided by the same classifiers, `times` times."""
        if len(other.tokens) != len(self.tokens) or other.min_count != self.min_count:
            raise ValueError(
                f"decisions over {len(other.tokens):,} classes with min_count {other.min_count} cannot be merged into "
                f"decisions over {len(self.tokens):,} classes with min_count {self.min_count}."
            )
        for ours, theirs in zip(self._tallies(), other._tallies(), strict=True):
            ours.add_(theirs.to(ours.device), alpha=times)
        self.left_out += times * other.left_out
        return self

    def of(self, classes: Tensor) -> "Decisions":
        """The counts of tokens whose label is one of these classes, a mask (classes,)."""
        tokens, agreed, nearest_right, head_right = (
            torch.where(classes.to(tally.device), tally, 0) for tally in self._tallies()
        )
        return Decisions(tokens, agreed, nearest_right, head_right, left_out=0, min_count=self.min_count)

    def _tallies(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.tokens, self.agreed, self.nearest_right, self.head_right


class NearestCentre:
    """The output layer beside the nearest class centre, both over the classes seen at least `min_count` times.

    >>> import torch
    >>> from collapselab import ClassMoments, NearestCentre
    >>> features, labels = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    >>> moments = ClassMoments.empty(classes=3, dim=3)
    >>> moments.update(features, labels)
    >>> decider = NearestCentre(moments, weight=torch.eye(3))
    >>> decisions = decider.decide(features, labels)
    >>> decisions.merge(decider.decide(features, labels)).agreed.tolist()
    [8, 8, 8]
    """

    def __init__(
        self,
        moments: ClassMoments,
        *,
        weight: Tensor,
        bias: Tensor | None = None,
        min_count: int = 1,
        tile: int = 2048,
    ) -> None:
        check_head(weight, bias, moments.classes, moments.dim)
        kept = moments.counts >= max(min_count, 1)
        if not kept.any():
            raise ValueError(f"no class has {min_count} samples or more; no centre can be nearest.")
        classes = kept.nonzero().squeeze(1)
        weight, bias = weight.to(moments.device), None if bias is None else bias.to(moments.device)
        self.kept, self.dim, self.min_count = kept, moments.dim, min_count
        self.head = output_classifier(weight, bias, classes, tile=tile)
        self.nearest = nearest_centre(moments, classes, tile=tile)

    def choices(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """For each token the class the output layer chooses and the class with the nearest centre."""
        return self.head.choices(features), self.nearest.choices(features)

    def decide(self, features: Tensor, labels: Tensor) -> Decisions:
        """Decide a batch of (tokens, dim) features with their next tokens; label -100 is skipped."""
        classes, device = len(self.kept), self.kept.device
        checked = CheckedLabels.checked(labels, classes, device)
        features, labels = checked.features(features, self.dim), checked.labels
        has_kept_label = self.kept[labels]
        left_out = int((~has_kept_label).sum())
        features, labels = features[has_kept_label], labels[has_kept_label]
        head, nearest = self.choices(features)
        hits = labels >= 0, head == nearest, nearest == labels, head == labels
        tokens, agreed, nearest_right, head_right = (torch.bincount(labels[hit], minlength=classes) for hit in hits)
        return Decisions(tokens, agreed, nearest_right, head_right, left_out, self.min_count)


SCORES_BYTES, MIN_TOKENS = 8 << 20, 2048
"""Size of the scores that are computed at once, and the fewest tokens: each reading of all rows should pay."""


class TopTwo(NamedTuple):
    """Of each token the place of the largest score, the first of equals, and how much less the second-largest is."""

    best: Tensor
    gap: Tensor


class Tile(NamedTuple):
    """Scores of some tokens with some rows, in memory that the receiver may overwrite."""

    tokens: slice
    rows: slice
    scores: Tensor
    """(tokens, rows)."""
    best: Tensor
    """(tokens,), the largest scores with these rows and with all before them."""


Observer = Callable[[Tile], None]

HELD_BYTES = 1 << 30
"""Features on an accelerator that are kept to be decided again: the host waits once for so many."""


class DecidedLater:
    """Tokens of several classifiers that are in doubt, to be decided together: the host waits once for all.

    Their features are kept until then. On a CPU there is nothing to wait for: they are decided at once.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        """Without a device, as on a CPU."""
        self.most_bytes, self.held = 0 if device is None or device.type == "cpu" else HELD_BYTES, 0
        self._waiting: list[tuple[Tensor, Tensor, Tensor, Callable[[Tensor], Tensor]]] = []

    def add(self, chosen: Tensor, doubtful: Tensor, features: Tensor, choices: Callable[[Tensor], Tensor]) -> None:
        """Replace the choices of the tokens in doubt, a mask (tokens,), now or later."""
        self._waiting.append((chosen, doubtful, features, choices))
        self.held += features.numel() * features.element_size()
        if self.held > self.most_bytes:
            self.decide()

    def decide(self) -> None:
        """Replace all choices in doubt."""
        waiting, self._waiting, self.held = self._waiting, [], 0
        numbers = torch.stack([doubtful.sum() for _, doubtful, *_ in waiting]).tolist() if waiting else []
        for (chosen, doubtful, features, choices), number in zip(waiting, numbers, strict=True):
            if number:
                again = doubtful.float().topk(number).indices.sort().values  # unlike nonzero, without a wait
                chosen[again] = choices(features[again])


class LinearClassifier:
    """argmax over rows of <row, h - origin> + offset; the first of equals.

    `classes` are the classes of the rows; without them a row's class is its number.
    """

    def __init__(
        self,
        rows: Tensor,
        offset: Tensor | None = None,
        *,
        classes: Tensor | None = None,
        origin: Tensor | None = None,
        tile: int = 2048,
    ) -> None:
        self.rows, self.offset, self.classes, self.origin, self.tile = rows, offset, classes, origin, tile

    def table(self, dtype: torch.dtype) -> Tensor:
        """The rows; in float32 those that choices are made with, so that they take no more memory."""
        return self._narrow[0] if dtype == torch.float32 else self.rows.to(dtype)

    def inputs(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """h - origin; where float32 cannot hold it, scores are in doubt and float64 decides."""
        return features.to(dtype) if self.origin is None else (features.double() - self.origin).to(dtype)

    def choices(
        self, features: Tensor, *, observe: Observer | None = None, later: DecidedLater | None = None
    ) -> Tensor:
        """The class of the best row for each feature, on the device of the rows.

        `observe` is called with all scores, tile by tile. With `later`, tokens in doubt have their class when that
        has decided.
        """
        features = features.to(self.rows.device)
        dtype = features.dtype if features.dtype in (torch.float32, torch.float64) else torch.float32
        best, doubtful = self._sweep(self.inputs(features, dtype), observe)
        chosen = self._classes_of(best)
        if dtype == torch.float32:
            (later or DecidedLater()).add(chosen, doubtful, features, self._exact_choices)
        return chosen

    def _exact_choices(self, features: Tensor) -> Tensor:
        return self._classes_of(self._sweep(self.inputs(features, torch.float64))[0])

    def _classes_of(self, rows: Tensor) -> Tensor:
        return rows if self.classes is None else self.classes[rows]

    def _sweep(self, x: Tensor, observe: Observer | None = None) -> tuple[Tensor, Tensor]:
        """Best row per token, and whether rounding leaves doubt about it."""
        tile = min(self.tile, len(self.rows))
        at_once = max(MIN_TOKENS, SCORES_BYTES // (x.element_size() * tile))
        space = x.new_empty(min(at_once, len(x)) * aligned_stride(tile, x.element_size()))
        parts = []
        for start in range(0, max(len(x), 1), at_once):
            tokens = slice(start, min(start + at_once, len(x)))
            parts.append(self._sweep_some(x[tokens], space, tokens, observe))
        chosen, doubtful = zip(*parts, strict=True)
        return torch.cat(chosen), torch.cat(doubtful)

    def _sweep_some(self, x: Tensor, space: Tensor, tokens: slice, observe: Observer | None) -> tuple[Tensor, Tensor]:
        """`space` is memory for the scores of these tokens."""
        best = torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        second, chosen = best.clone(), torch.zeros(len(x), dtype=torch.int64, device=x.device)
        for start in range(0, len(self.rows), self.tile):
            rows = slice(start, min(start + self.tile, len(self.rows)))
            scores = aligned_rows(space, len(x), rows.stop - start)
            self._scores(x, rows, out=scores)
            place, largest, runner_up = two_largest(scores)
            second = torch.maximum(second, torch.maximum(runner_up, torch.minimum(best, largest)))
            chosen = torch.where(largest > best, place + start, chosen)
            best = torch.maximum(best, largest)
            if observe is not None:
                observe(Tile(tokens, rows, scores, best))
        return chosen, self._is_doubtful(best - second, x)

    def sure_choices(
        self, top: TopTwo, features: Tensor, classes: Tensor, *, later: DecidedLater | None = None
    ) -> Tensor:
        """`choices` by float32 scores that exist already, of rows of which these are some: made again where in doubt.

        `classes` has the class of each of the others' rows, and -1 where it is not among these.
        """
        chosen = classes[top.best]
        doubtful = (chosen < 0) | self._is_doubtful(top.gap, self.inputs(features, torch.float32))
        (later or DecidedLater()).add(chosen, doubtful, features, self.choices)
        return chosen

    def _is_doubtful(self, gap: Tensor, x: Tensor) -> Tensor:
        """Whether rounding could have swapped the best and the second-best score of tokens with these inputs."""
        # |error| ≤ (dim + 5) (u (|x| |row| + |offset|) + tiny) for a dot product of rounded vectors, in whatever order
        # it is summed.
        length = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
        rounding, tiny = torch.finfo(x.dtype).eps / 2, torch.finfo(x.dtype).tiny
        longest, largest_offset = self._bounds
        error = (self.rows.shape[1] + 5) * (rounding * (length * longest + largest_offset) + tiny)
        is_sure: Tensor = (gap > 2 * error) & (gap < torch.inf)
        return ~is_sure  # scores beyond the range of the dtype are in doubt too

    def _scores(self, x: Tensor, rows: slice, *, out: Tensor) -> None:
        """<row, x> + offset of these rows, in the precision of x; rows are converted to float64 tile by tile."""
        table, offset = self._narrow if x.dtype == torch.float32 else (self.rows, self.offset)
        some = table[rows].to(x.dtype)
        if offset is None:
            torch.mm(x, some.T, out=out)
        else:
            torch.addmm(offset[rows].to(x.dtype), x, some.T, out=out)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        """Length of the longest row, and the largest offset."""
        tiles = torch.split(self.rows, self.tile)
        longest = torch.stack([torch.linalg.vector_norm(tile.double(), dim=1).max() for tile in tiles]).max()
        return longest, torch.zeros_like(longest) if self.offset is None else self.offset.double().abs().max()

    @cached_property
    def _narrow(self) -> tuple[Tensor, Tensor | None]:
        """Rows and offsets in float32; rows that are in float32 are not copied."""
        return self.rows.float(), None if self.offset is None else self.offset.float()


def nearest_centre(moments: ClassMoments, classes: Tensor, *, tile: int = 2048) -> LinearClassifier:
    """The classifier that chooses the nearest of the centres of these classes, given by index."""
    means = moments.mean_vectors(classes).at(slice(None))
    origin = means.mean(0)
    means -= origin
    offset = means.square().sum(1).mul_(-0.5)
    return LinearClassifier(means, offset, classes=classes, origin=origin, tile=tile)


def output_classifier(
    weight: Tensor, bias: Tensor | None, classes: Tensor, *, rows: Tensor | None = None, tile: int = 2048
) -> LinearClassifier:
    """The output layer as a classifier that chooses among these classes, given by index.

    `rows` are the rows of the output layer that belong to them, where classes have other numbers.
    """
    rows = classes if rows is None else rows
    weight, bias = weight.detach()[rows], None if bias is None else bias.detach()[rows]
    return LinearClassifier(weight, bias, classes=classes, tile=tile)


def check_head(weight: Tensor, bias: Tensor | None, classes: int, dim: int) -> None:
    """ValueError unless the output layer has a row for every class and a column for every dimension."""
    if tuple(weight.shape) != (classes, dim):
        raise ValueError(f"output layer of shape {tuple(weight.shape)}; ({classes}, {dim}), classes × dim, is needed.")
    if bias is not None and tuple(bias.shape) != (classes,):
        raise ValueError(f"output bias of shape {tuple(bias.shape)}; ({classes},), one a class, is needed.")
    for name, tensor in (("output layer", weight), ("output bias", bias)):
        if tensor is not None and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).sum())
            raise ValueError(f"{name}: {bad:,} of {tensor.numel():,} numbers are nan or infinite.")


ALIGNED_BYTES, MIN_ALIGNED = 64, 1024
"""The multiple of bytes at which rows begin, and the shortest row for which that pays."""

STRIP = 64
"""Scores of a strip."""


def aligned_stride(columns: int, number_bytes: int) -> int:
    """Numbers from the beginning of a row to that of the next."""
    numbers = ALIGNED_BYTES // number_bytes if columns >= MIN_ALIGNED else 1
    return math.ceil(columns / numbers) * numbers


def aligned_rows(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """The memory of a buffer of at least rows · `aligned_stride` numbers as (rows, columns)."""
    stride = aligned_stride(columns, buffer.element_size())
    return buffer[: rows * stride].view(rows, stride)[:, :columns]


def softmax_of_aligned(rows: Tensor) -> None:
    """Softmax of each row, in place. torch would copy rows with a gap between them, so the gap takes part."""
    columns, stride = rows.shape[1], rows.stride(0)
    with_gaps = rows.as_strided((len(rows), stride), (stride, 1))
    with_gaps[:, columns:] = -torch.inf
    torch.softmax(with_gaps, 1, out=with_gaps)


def top_two(scores: Tensor) -> TopTwo:
    """Return the two best of scores (tokens, classes); the gap is infinite where there is one class."""
    place, largest, runner_up = two_largest(scores)
    return TopTwo(place, largest - runner_up)


def two_largest(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each token the place of the largest score, the first of equals, that score, and the second-largest."""
    columns = scores.shape[1]
    whole = columns // STRIP * STRIP
    parts = [scores[:, :whole].view(len(scores), whole // STRIP, STRIP).amax(2)] if whole else []
    if whole < columns:
        parts.append(scores[:, whole:].amax(1, keepdim=True))
    maxima = torch.cat(parts, 1)
    strip = maxima.argmax(1, keepdim=True)
    places = strip * STRIP + torch.arange(STRIP, device=scores.device)
    some = scores.gather(1, places.clamp(max=columns - 1)).masked_fill_(places >= columns, -torch.inf)
    largest, at = some.max(1, keepdim=True)
    elsewhere = maxima.scatter_(1, strip, -torch.inf).amax(1)
    runner_up = torch.maximum(elsewhere, some.scatter_(1, at, -torch.inf).amax(1))
    return (strip * STRIP + at).squeeze(1), largest.squeeze(1), runner_up
