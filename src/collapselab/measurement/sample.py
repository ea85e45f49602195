"""Which positions of which blocks and which classes are measured, and which labels positions have for the null.

The null gives every sample the label of another, by one permutation of all samples: class counts are kept exactly, and
neither the batches nor the number of processes matter. Where all blocks have the same number of samples, position j of
block i gets the label of position τ(j) of block i + s_j, with a permutation τ and shifts s_j drawn once. Where blocks
differ, `Permutation` numbers all samples and permutes the numbers.

Contexts are the last n tokens before each sample, counted before the model runs.

A context is known by a 64-bit number: its tokens as digits, mixed, while these numbers fit into 64 bits; a hash of the
tokens where they do not. Counts are exact. The same sample gives the same contexts in every process.

A context is kept if it has `min_uses` uses and Good and Turing's coverage of its successors, 1 - (successors seen once)
/ uses, is at least COVERAGE. The first positions of blocks, which have no n tokens before them, are left out, and
those that layers below the last skip: every layer has the same tokens.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.contexts import ContextTable
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows, save_tensors
from collapselab.corpus.blocks import Blocks, Split
from collapselab.corpus.hashing import mixed
from collapselab.errors import ConfigError
from collapselab.records.options import Options

GROUPS = 32
"""Parts that a bootstrap resamples: enough for an interval, few enough to keep the moments of each on disk."""

HALVES = 8
"""Random ways of cutting these parts into halves."""

FEW_CURVED, MOST_CURVED, RUN = 256, 4096, 64
"""Tokens of a split whose curvature is computed, at least and at most, and those of a run: fewer make products slow."""
CURVED_PRODUCTS, CURVED_PRODUCTS_OF_TOKEN = 2**31, 2**13
"""Multiplications that each of their two products may take: in all, or for a token of the sample if that is
more. The latter is a quarter of a hundredth of what a model of three million parameters takes for a token."""
FITTED_PRODUCTS = 2**33
"""Multiplications of a product with all classes of the tokens that a scale is fitted to."""

HELD_BYTES = 1 << 30
"""Resamples are merged side by side while their moments take no more than this; each sweep reads every part."""

AT_ONCE = 1024
"""Blocks whose labels are read at once."""

ROUNDS = 6
"""Of the network that permutes numbers."""

T = TypeVar("T")
S = TypeVar("S")


def curved_tokens(classes: int, dim: int, *, sample: int) -> int:
    """How many tokens of a sample have their curvature computed: fewer where the output layer is large."""
    products = max(CURVED_PRODUCTS, CURVED_PRODUCTS_OF_TOKEN * sample)
    return max(FEW_CURVED, min(MOST_CURVED, products // (classes * dim)))


def fitted_tokens(classes: int, dim: int) -> int:
    """Tokens that a scale is fitted to: fewer where there are many classes."""
    return max(FEW_CURVED, min(MOST_CURVED, FITTED_PRODUCTS // (classes * dim)))


@dataclass(frozen=True)
class ByLayer(Generic[T]):
    """A value for the last layer, and one for the layers below it, which leave out the first positions of blocks."""

    last: T
    below: T

    def of(self, layer: str) -> T:
        return self.last if layer == "last" else self.below

    def map(self, function: Callable[[T], S]) -> "ByLayer[S]":
        """The function's values; one for both where both are the same."""
        last = function(self.last)
        return ByLayer(last, last if self.below is self.last else function(self.below))


class Sample:
    """The measured blocks of one split, cut to `length` tokens: `sample.read(0, 16)` reads the first sixteen.

    The first `skip` positions of every block are not samples, or more if the split itself leaves out more. Labels have
    a column for each position from `first` on that has a next token.
    """

    def __init__(self, split: Split, *, name: str, length: int, blocks: int, seed: int, skip: int = 0) -> None:
        self.split, self.name, self.length = split, name, length
        self.first = max(split.first, skip)
        everything = blocks == len(split)
        self.blocks: NDArray[np.int64] = (
            np.arange(blocks) if everything else np.sort(split.order(seed=seed)[:blocks])  # in the order on disk
        )
        self.labels_per_block = max(0, length - 1 - self.first)
        samples = split.samples(length=length, first=self.first)[self.blocks]
        self._ends: NDArray[np.int64] = np.concatenate([[0], np.cumsum(samples)])
        self.tokens = int(self._ends[-1])
        """Samples of all blocks: the features that are measured."""
        generator = torch.Generator().manual_seed(seed)
        self._columns = torch.randperm(self.labels_per_block, generator=generator).numpy() + 1 + self.first
        self._shifts = torch.randint(len(self.blocks), (self.labels_per_block,), generator=generator).numpy()
        self._permutation = None if split.lengths is None else Permutation(self.tokens, seed=seed)
        is_cut = length < split.block if split.lengths is None else split.lengths[self.blocks] > length
        self.cut_off = int(np.broadcast_to(is_cut, self.blocks.shape).sum())
        """Blocks longer than the context, of which only the beginning is measured."""

    def __len__(self) -> int:
        return len(self.blocks)

    def samples(self, start: int, stop: int) -> int:
        """Samples of these blocks."""
        return int(self._ends[min(stop, len(self))] - self._ends[min(start, len(self))])

    def read(self, start: int, stop: int, *, fill: int = 0) -> Blocks:
        """Return these blocks, (blocks, length) ids; fewer than `fill` are filled up with the first of the sample."""
        numbers = self.blocks[start:stop]
        filler = np.repeat(self.blocks[:1], max(0, fill - len(numbers)))
        return self.split.read(np.concatenate([numbers, filler]), length=self.length)

    def labels(self, start: int, stop: int) -> Tensor:
        """The next token at each position from `first` on (blocks, labels_per_block); IGNORED elsewhere."""
        return self.read(start, stop).labels[:, self.first :]

    def null_labels(self, start: int, stop: int) -> Tensor:
        """For each sample of these blocks a label from somewhere else, in the places of `labels`."""
        if self._permutation is None:
            rows = (np.arange(start, stop)[:, None] + self._shifts) % len(self)
            return torch.from_numpy(self.split.ids[self.blocks[rows], self._columns].astype(np.int64))
        labels = self.labels(start, stop)
        images = self._permutation(np.arange(self._ends[start], self._ends[min(stop, len(self))]))
        rows = np.searchsorted(self._ends, images, side="right") - 1
        columns = images - self._ends[rows] + self.first + 1
        labels[labels != IGNORED] = torch.from_numpy(self.split.ids[self.blocks[rows], columns].astype(np.int64))
        return labels

    def counts(self, classes: int) -> Tensor:
        """How often each class is a label in the sample (classes,)."""
        whole = len(self) == len(self.split) and self.length == self.split.block and self.first == self.split.first
        if whole:
            return torch.nn.functional.pad(self.split.counts, (0, classes))[:classes]
        counts = np.zeros(classes, dtype=np.int64)
        for start in range(0, len(self), AT_ONCE):
            labels = self.labels(start, start + AT_ONCE).numpy()
            counts += np.bincount(labels[labels != IGNORED], minlength=classes)
        return torch.from_numpy(counts)

    def groups(self, wanted: int) -> list[range]:
        """The sample in contiguous parts of nearly equal size; fewer where there are fewer blocks."""
        count = max(1, min(wanted, len(self)))
        bounds = [i * len(self) // count for i in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]


class Permutation:
    """A permutation of 0 … size - 1 that needs no table: each image is computed when it is asked for.

        Permutation(10, seed=0)(np.arange(10))      # the numbers below 10 in another order, always the same

    A Feistel network permutes the numbers below the next even power of two; a number that leaves the range is permuted
    again until it is inside (cycle walking). Both steps can be undone, so every number has exactly one image.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._half_bits = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
        self._mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        start = mixed(np.array([seed], dtype=np.uint64))
        self._keys: NDArray[np.uint64] = mixed(np.arange(ROUNDS, dtype=np.uint64) + start)

    def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The image of each number."""
        images = numbers.astype(np.uint64)
        outside = np.ones(images.shape, dtype=bool)
        while outside.any():
            images[outside] = self._permute(images[outside])
            outside = images >= self.size
        return images.astype(np.int64)

    def _permute(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = numbers >> self._half_bits, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right ^ key) & self._mask)
        return (left << self._half_bits) | right


class PerClass:
    """The same number of samples of every class: which are kept, as masks over blocks and positions.

    Many metrics depend on how many samples a class has. Where classes or models are compared, each can be given the
    same number: classes with fewer are left out (`min_count`), of the others that number is kept. A sample is drawn by
    a hash of its block and position, so that neither batches nor processes matter. The null is drawn in the same way
    from its own labels, of which every class has as many.
    """

    def __init__(self, sample: Sample, number: int, seed: int, null: bool) -> None:
        def drawn(labels: Callable[[int, int], Tensor]) -> NDArray[np.bool_]:
            starts = range(0, len(sample), AT_ONCE)
            parts = [labels(start, min(start + AT_ONCE, len(sample))).numpy() for start in starts]
            return _drawn(np.concatenate(parts), sample.blocks, number, seed)

        self._kept = drawn(sample.labels)
        self._null = drawn(sample.null_labels) if null else None

    def labels(self, start: int, stop: int, labels: Tensor, *, null: bool = False) -> Tensor:
        """The labels of these blocks (samples in a row), IGNORED where a sample is not kept."""
        mask = self._null if null else self._kept
        assert mask is not None
        return labels.masked_fill(~torch.from_numpy(mask[start:stop].reshape(-1)), IGNORED)


def _drawn(labels: NDArray[np.int64], blocks: NDArray[np.int64], number: int, seed: int) -> NDArray[np.bool_]:
    """Of every class the samples with the smallest hashes, `number` of them; none of a class that has fewer."""
    width = labels.shape[1]
    places = (blocks[:, None] * width + np.arange(width)).astype(np.uint64)
    hashes = mixed(mixed(places ^ mixed(np.array([seed], dtype=np.uint64)))).reshape(-1)
    flat = labels.reshape(-1)
    order = np.lexsort((hashes, flat))
    ordered = flat[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    ranks = np.arange(len(ordered)) - np.repeat(starts, sizes)
    enough = np.repeat(sizes >= number, sizes)
    kept = np.zeros(len(flat), dtype=bool)
    kept[order] = (ranks < number) & enough & (ordered != IGNORED)
    return kept.reshape(labels.shape)


class ClassNumbers:
    """The classes of a split that have a row in tables of moments and decisions, and the number of each class's row.

    Classes that occur as a label in the sample have one: a few thousand of a vocabulary of hundreds of thousands, so
    that tables take a fraction of the memory. Rows are in the order of the classes' ids, so that sums and products have
    the same terms in the same order as in a table of the whole vocabulary.

    `kept` masks them over the vocabulary, for the last layer and for those below, whose classes are among the same.
    """

    def __init__(self, kept: ByLayer[Tensor]) -> None:
        self.vocabulary = len(kept.last)
        ids = kept.last.nonzero().squeeze(1)
        self.ids = ids if len(ids) else torch.zeros(1, dtype=torch.int64)  # a table has at least one row
        self.classes = len(self.ids)
        numbers = torch.full((self.vocabulary,), IGNORED)
        numbers[ids] = torch.arange(len(ids))
        self._numbers = kept.map(lambda mask: torch.where(mask, numbers, IGNORED))

    def of(self, labels: Tensor, *, layer: str = "last") -> Tensor:
        """The row numbers of labels; IGNORED for labels that are ignored, or have no row at a layer."""
        return torch.where(labels < 0, IGNORED, self._numbers.of(layer)[labels.clamp(min=0)])

    def rows(self, table: Tensor) -> Tensor:
        """The rows of these classes, of a table of the whole vocabulary."""
        return table if self.classes == len(table) else table[self.ids.to(table.device)]

    def save(self, moments: ClassMoments, path: str | Path, about: Mapping[str, object]) -> None:
        """Write moments of the whole vocabulary, and what they are `about`, which `load_moments` compares."""
        tensors: Mapping[str, Tensor | Rows] = moments.tensors()
        seen = tensors["seen"]
        assert isinstance(seen, Tensor)
        facts = moments.facts() | {"classes": self.vocabulary, "about": dict(about)}
        save_tensors(path, {**tensors, "seen": self.ids.to(seen.device)[seen]}, kind="class moments", facts=facts)


def frequency_bins(counts: Tensor, bins: int, *, min_count: int) -> dict[str, Tensor]:
    """Classes by how often they are a label, in ranges of equal width on a logarithmic axis: "LOW-HIGH" → mask.

    Ranges cover the counts from the rarest kept class to the most frequent. A range that is too narrow to contain a
    whole number is omitted.
    """
    kept = counts[counts >= min_count]
    if not bins or not len(kept):
        return {}
    low, high = int(kept.min()), int(kept.max())
    edges = [math.ceil(low * ((high + 1) / low) ** (i / bins) - 1e-9) for i in range(bins)] + [high + 1]
    ranges = [(start, stop - 1) for start, stop in pairwise(edges) if start < stop]
    return {f"{start}-{stop}": (counts >= start) & (counts <= stop) for start, stop in ranges}


COVERAGE = 0.95
POSITION_BYTES = 80
"""What each position takes at most: its context, its next token, and both as they are sorted."""


@dataclass(frozen=True)
class Contexts:
    """The contexts of n tokens that are kept, and how many are not."""

    n: int
    keys: NDArray[np.uint64]
    """The number of each kept context, rising."""
    table: ContextTable
    first: int
    """The first position of a block that has a context."""
    seen: int
    """Contexts that occur at all."""
    rare: int
    """Of these, with too few uses."""
    uncertain: int
    """Of these, with enough uses, but too many successors seen once."""
    why: str | None = None
    """Why none is kept, if none is."""

    @property
    def rows(self) -> int:
        """Rows of a table of moments: the cells, and one for all tokens that are in none."""
        return self.table.cells + 1

    def cells(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the cell of each position (blocks, length - 1); positions in no cell get the last row.

        `ids` are whole blocks (blocks, length), `labels` their next tokens with IGNORED where there is no sample.
        """
        outside = self.table.cells
        if not len(self.keys):
            return torch.full_like(labels, outside)
        keys = context_keys(ids.numpy(), self.n, self.table.vocabulary)
        context = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        is_kept = (self.keys[context] == keys) & (labels.numpy() != IGNORED)
        is_kept[:, : self.first] = False
        codes = context * self.table.vocabulary + np.where(is_kept, labels.numpy(), 0)
        own = (self.table.context * self.table.vocabulary + self.table.token).numpy()
        cell = np.searchsorted(own, codes).clip(max=len(own) - 1)
        return torch.from_numpy(np.where(is_kept & (own[cell] == codes), cell, outside).astype(np.int64))


def find_contexts(samples: ByLayer[Sample], options: Options, vocabulary: int) -> dict[int, Contexts]:
    """The contexts of each asked length, by their length; ConfigError where no length has one."""
    by_length = {}
    for n in options.context_lengths:
        if n > samples.last.length - 1:
            raise ConfigError(
                f"contexts: {n} tokens back, but blocks have {samples.last.length} tokens, the last of which is only "
                f"predicted. At most {samples.last.length - 1} are possible."
            )
        by_length[n] = _find(samples, n, vocabulary, options)
    if by_length and all(contexts.why is not None for contexts in by_length.values()):
        raise ConfigError(f"contexts: {next(iter(by_length.values())).why}")
    return by_length


def context_keys(ids: NDArray[np.integer], n: int, vocabulary: int) -> NDArray[np.uint64]:
    """The number of the last n tokens at every position but the last (blocks, length - 1).

    At the first n - 1 positions, tokens before the block count as token 0; they have no context.
    """
    exact = vocabulary**n <= 1 << 64
    tokens = ids[:, :-1].astype(np.uint64)
    keys = np.zeros(tokens.shape, dtype=np.uint64)
    for back in range(n - 1, -1, -1):
        shifted = np.zeros_like(tokens)
        shifted[:, back:] = tokens[:, : tokens.shape[1] - back]
        keys = keys * np.uint64(vocabulary) + shifted if exact else mixed(keys ^ shifted)
    return mixed(keys) if exact else keys


def _find(samples: ByLayer[Sample], n: int, vocabulary: int, options: Options) -> Contexts:
    sample, first = samples.last, max(n - 1, samples.below.first, samples.last.first)
    keys, labels = _positions(sample, n, first, vocabulary)
    contexts, inverse, uses = np.unique(keys, return_inverse=True, return_counts=True)
    codes, count = np.unique(inverse * vocabulary + labels, return_counts=True)
    context, token = codes // vocabulary, codes % vocabulary
    once = np.bincount(context[count == 1], minlength=len(contexts))
    is_frequent = uses >= options.min_uses
    is_kept = is_frequent & (once <= (1 - COVERAGE) * uses + 1e-9)
    number, cells = np.cumsum(is_kept) - 1, is_kept[context]
    of_cells = (torch.from_numpy(column[cells]) for column in (number[context], token, count))
    table = ContextTable(next(of_cells), next(of_cells), next(of_cells), vocabulary, options.seed)
    kept, frequent, seen = int(is_kept.sum()), int(is_frequent.sum()), len(contexts)
    why = None if kept else _reason(n, frequent, sample.tokens, int(uses.max(initial=0)), options.min_uses)
    return Contexts(n, contexts[is_kept], table, first, seen, seen - frequent, frequent - kept, why)


def _reason(n: int, frequent: int, tokens: int, most: int, min_uses: int) -> str:
    back = "the last token" if n == 1 else f"the last {n} tokens"
    if frequent:
        return (
            f"none of the {frequent:,} contexts of {back} with {min_uses:,} uses or more has a coverage of "
            f"{COVERAGE}: too many of their successors were seen once. Measure more tokens, or shorter contexts."
        )
    needed = math.ceil(tokens * min_uses / max(most, 1))
    return (
        f"no context of {back} has {min_uses:,} uses; the most frequent has {most:,} in {tokens:,} tokens. A sample of "
        f"about {needed:,} tokens would be needed, or a smaller --min-uses."
    )


def _positions(sample: Sample, n: int, first: int, vocabulary: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Context and next token of every sample that has a context."""
    keys, labels = [], []
    for start in range(0, len(sample), AT_ONCE):
        blocks = sample.read(start, start + AT_ONCE)
        following = blocks.labels.numpy()[:, first:]
        used = following != IGNORED
        keys.append(context_keys(blocks.ids.numpy(), n, vocabulary)[:, first:][used])
        labels.append(following[used])
    return np.concatenate(keys), np.concatenate(labels)
