"""Which contexts are measured: the last n tokens before each sample, counted before the model runs.

A context is known by a 64-bit number: its tokens as digits, mixed, while these numbers fit into 64 bits; a hash of the
tokens where they do not. Counts are exact. The same sample gives the same contexts in every process.

A context is kept if it has `min_uses` uses and Good and Turing's coverage of its successors, 1 - (successors seen once)
/ uses, is at least COVERAGE. The first positions of blocks, which have no n tokens before them, are left out, and
those that layers below the last skip: every layer has the same tokens.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.contexts import ContextTable
from collapselab.corpus.hashing import mixed
from collapselab.errors import ConfigError
from collapselab.measurement.sample import ByLayer, Sample
from collapselab.records.options import Options

COVERAGE = 0.95
POSITION_BYTES = 80
"""What each position takes at most: its context, its next token, and both as they are sorted."""
BLOCKS = 1024
"""Blocks that are read at once."""


@final
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
        """The cell of every position of some blocks (blocks, length - 1); the last row for positions in none.

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
        own = self._codes
        cell = np.searchsorted(own, codes).clip(max=len(own) - 1)
        return torch.from_numpy(np.where(is_kept & (own[cell] == codes), cell, outside).astype(np.int64))

    @property
    def _codes(self) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = (self.table.context * self.table.vocabulary + self.table.token).numpy()
        return codes


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
    for start in range(0, len(sample), BLOCKS):
        blocks = sample.read(start, start + BLOCKS)
        following = blocks.labels.numpy()[:, first:]
        used = following != IGNORED
        keys.append(context_keys(blocks.ids.numpy(), n, vocabulary)[:, first:][used])
        labels.append(following[used])
    return np.concatenate(keys), np.concatenate(labels)
