"""An embedded source with known answers: a Markov chain whose next-token distributions are all known exactly.

    markov:order=2,types=200,support=5,zipf=1,sharing=0.5,tokens=2000000,validation=100000,seed=0

The next token depends only on the context, which is the last `order` tokens. Each context has `support` successors.
The k-th most likely of them has the probability q_k ∝ 1/k, so every context has the entropy H(q), and the entropy rate
is exactly H(q) for any other settings. The types of a support are drawn with weights rank^-zipf. Therefore `support`
alone sets the ambiguity of contexts, and `zipf` alone the inequality of types.

`sharing` s gives several contexts the same distribution: about (1 - s) × contexts distributions are drawn, on
(1 - s) × as many supports. 0 gives every context its own distribution.

Random draws have no state: each one is a hash of the seed, its purpose and its index.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.corpus.hashing import uniform
from collapselab.errors import CorpusError
from collapselab.records.corpus import MARKOV

KIND = "a markov source"
PIECE = 1000
"""Tokens in a document. Documents are concatenated without separators."""
MAX_CONTEXTS, MAX_TOKENS = 1 << 20, 10**12
MAX_SUCCESSORS, MAX_DRAWS = 1 << 25, 1 << 31
"""Limits of the table of successors, which is in memory, and of the draws for it, which take time."""
CHUNK = 1 << 22
"""Draws that are in memory at the same time."""
MAX_ITERATIONS, TOLERANCE = 20_000, 2e-15
"""Power iteration for the stationary distribution ends when the sum of absolute changes is at most TOLERANCE."""


@dataclass(frozen=True)
class Settings:
    """Settings of a chain."""

    order: int = 2
    types: int = 200
    support: int = 5
    zipf: float = 1.0
    sharing: float = 0.5
    tokens: int = 2_000_000
    validation: int = 100_000
    seed: int = 0

    @classmethod
    def parsed(cls, name: str) -> Self:
        """Parse `markov:order=2,…`; raise CorpusError for unknown or impossible settings."""
        kinds: dict[str, type[int] | type[float]] = {
            field.name: int if isinstance(field.default, int) else float for field in fields(cls)
        }
        values: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, value = part.partition("=")
            pattern = r"[0-9]{1,18}" if kinds.get(key) is int else r"[0-9]{1,6}(\.[0-9]{1,9})?"
            if key not in kinds or not re.fullmatch(pattern, value):
                raise CorpusError(
                    f"{name}: {part!r} is an unknown setting or has an invalid number. Write "
                    "markov:order=2,types=200,support=5,zipf=1,sharing=0.5,tokens=2000000,validation=100000,seed=0."
                )
            values[key] = kinds[key](value)
        settings = cls(**values)
        if (wrong := settings.wrong()) is not None:
            raise CorpusError(f"{name}: {wrong}")
        return settings

    @property
    def contexts(self) -> int:
        return int(self.types**self.order)

    def wrong(self) -> str | None:
        """Return why these settings are impossible, or None if they are valid."""
        if not 1 <= self.order <= 8:
            return f"order must be from 1 to 8, got {self.order}."
        if not 2 <= self.types <= MAX_CONTEXTS or self.contexts > MAX_CONTEXTS:
            return (
                f"types must be ≥ 2 and types^order ≤ {MAX_CONTEXTS:,}, got {self.types:,} types and "
                f"{self.contexts:,} contexts. Choose fewer types or a lower order."
            )
        if not 2 <= self.support <= self.types:
            return f"support must be from 2 to the number of types ({self.types:,}), got {self.support:,}."
        if not 0 <= self.zipf <= 10 or not 0 <= self.sharing < 1:
            return f"zipf must be in [0, 10] and sharing in [0, 1), got {self.zipf:g} and {self.sharing:g}."
        successors, draws = self.contexts * self.support, (1 - self.sharing) ** 2 * self.contexts * self.types
        if successors > MAX_SUCCESSORS or draws > MAX_DRAWS:
            return (
                f"the chain is too large: {successors:,} successors (at most {MAX_SUCCESSORS:,}) and {round(draws):,} "
                f"draws (at most {MAX_DRAWS:,}). Choose fewer types, a smaller support or more sharing."
            )
        if not all(self.order < count <= MAX_TOKENS for count in (self.tokens, self.validation)):
            return (
                f"tokens and validation must be above the order ({self.order}) and at most {MAX_TOKENS:,}, got "
                f"{self.tokens:,} and {self.validation:,}."
            )
        return None


class Chain:
    """A chain: `chain.successors[chain.classes[context]]` are a context's successors, the most likely first.

    A context is a number in base `types` whose last digit is the last token. `chances` are the q_k. Contexts with the
    same distribution have the same entry in `classes`. Distributions on the same set of types have the same entry in
    `supports`.
    """

    def __init__(
        self,
        settings: Settings,
        classes: NDArray[np.int64],
        successors: NDArray[np.int64],
        stationary: NDArray[np.float64] | None = None,
    ) -> None:
        self.settings, self.classes, self.successors, self._stored = settings, classes, successors, stationary

    @classmethod
    def drawn(cls, settings: Settings) -> Self:
        """Draw the chain of these settings, which is always the same."""
        contexts, share = settings.contexts, 1 - settings.sharing
        distributions = max(1, round(share * contexts))
        supports = max(1, round(share * distributions))
        members = _supports(settings, supports)
        order = np.argsort(uniform(settings.seed, "order", distributions * settings.support).reshape(distributions, -1))
        drawn = np.take_along_axis(members[np.arange(distributions) % supports], order, axis=1)
        # Equal draws are one distribution.
        successors, number = np.unique(drawn, axis=0, return_inverse=True)
        shuffled = np.argsort(uniform(settings.seed, "class", contexts), kind="stable")
        return cls(settings, number.reshape(-1)[shuffled % distributions], successors)

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """Probabilities q_k of the successors of any context, the most likely first (support,)."""
        weights: NDArray[np.float64] = 1 / np.arange(1, self.settings.support + 1, dtype=np.float64)
        return np.asarray(weights / weights.sum())

    @cached_property
    def supports(self) -> NDArray[np.int64]:
        """Index of the set of successors of each distribution."""
        return np.unique(np.sort(self.successors, axis=1), axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """Stationary probability of each context (contexts,); 0 for transient contexts.

        If the chain has several closed sets of contexts, it runs in the largest one.
        """
        return _stationary(self._matrix()) if self._stored is None else self._stored

    @cached_property
    def entropies(self) -> list[float]:
        """Entropies H(next | last n tokens) in nats, for n from 0 to the order; the last one is the entropy rate."""
        types, order = self.settings.types, self.settings.order
        weights = (self.stationary[:, None] * self.chances).reshape(-1)
        following, contexts = self.successors[self.classes].reshape(-1), np.arange(self.settings.contexts)
        values = []
        for n in range(order):
            suffix = np.repeat(contexts % types**n, self.settings.support)
            counted = np.bincount(suffix * types + following, weights, minlength=types ** (n + 1))
            joint = counted.astype(np.float64).reshape(-1, types)
            values.append(_entropy(joint) - _entropy(joint.sum(1)))
        return [*values, _entropy(self.chances)]

    @property
    def entropy_rate(self) -> float:
        return self.entropies[-1]

    def optimum(self, block: int) -> float:
        """Return the lowest expected loss on blocks of this length, whose first tokens have a shorter context."""
        order = self.settings.order
        return sum(self.entropies[min(seen, order)] for seen in range(1, block)) / (block - 1)

    def tokens(self, split: str) -> Iterator[NDArray[np.int64]]:
        """Iterate over the tokens of a split, in arrays of PIECE tokens."""
        settings, order = self.settings, self.settings.order
        total = settings.tokens if split == "train" else settings.validation
        start = float(uniform(settings.seed, f"{split} start", 1)[0])
        state = int(np.searchsorted(np.cumsum(self.stationary), start * self.stationary.sum(), side="right"))
        state = min(state, int(self.stationary.nonzero()[0][-1]))
        waiting = [state // settings.types**place % settings.types for place in reversed(range(order))]
        rows, flat = self.classes.tolist(), self.successors.reshape(-1).tolist()
        ends, contexts, types, width = np.cumsum(self.chances), settings.contexts, settings.types, settings.support
        for begin in range(0, total - order, PIECE):
            count = min(PIECE, total - order - begin)
            draws = uniform(settings.seed, split, count, start=begin)
            for place in np.minimum(np.searchsorted(ends, draws, side="right"), width - 1).tolist():
                token = flat[rows[state] * width + place]
                state = (state * types + token) % contexts
                waiting.append(token)
            while len(waiting) >= PIECE:
                yield np.array(waiting[:PIECE])
                waiting = waiting[PIECE:]
        if waiting:
            yield np.array(waiting)

    def documents(self, split: str) -> Iterator[str]:
        """Iterate over the same arrays as texts, with a space between tokens."""
        names = words(self.settings)
        return (" ".join(names[token] for token in piece.tolist()) for piece in self.tokens(split))

    def write(self, folder: Path) -> None:
        """Write the chain to the folder of a corpus."""
        tensors = {
            "classes": torch.from_numpy(self.classes.astype(np.int32)),
            "successors": torch.from_numpy(self.successors.astype(np.int32)),
            "supports": torch.from_numpy(self.supports.astype(np.int32)),
            "chances": torch.from_numpy(self.chances),
            "stationary": torch.from_numpy(self.stationary),
        }
        facts: dict[str, object] = {"settings": asdict(self.settings), "entropies": self.entropies}
        save_tensors(folder / MARKOV, tensors, kind=KIND, facts=facts)

    def _matrix(self) -> Any:
        """Return the sparse transition matrix (contexts, contexts)."""
        from scipy import sparse

        contexts, width = self.settings.contexts, self.settings.support
        rows = np.repeat(np.arange(contexts), width)
        columns = (rows * self.settings.types + self.successors[self.classes].reshape(-1)) % contexts
        return sparse.csr_array((np.tile(self.chances, contexts), (rows, columns)), shape=(contexts, contexts))


def read_chain(folder: str | Path) -> Chain:
    """Read the chain of a corpus; raise CorpusError if the corpus was not built from one."""
    path = Path(folder) / MARKOV
    try:
        tensors, facts = load_tensors(path, kind=KIND)
        classes, successors = (tensors[name].numpy().astype(np.int64) for name in ("classes", "successors"))
        settings = Settings(**cast("dict[str, Any]", facts["settings"]))
        stationary = tensors["stationary"].numpy().copy()
        _check_chain(settings, classes, successors, stationary)
        return Chain(settings, classes, successors, stationary)
    except FileNotFoundError as error:
        raise CorpusError(f"{folder}: not built from a markov source (no {MARKOV}).") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorpusError(f"{path}: damaged ({error}). Build the corpus again.") from error


def _check_chain(
    settings: Settings, classes: NDArray[np.int64], successors: NDArray[np.int64], stationary: NDArray[np.float64]
) -> None:
    """Raise ValueError unless settings and tables fit together: a corpus may come from an untrusted source."""
    wrong = settings.wrong()
    if wrong is not None:
        raise ValueError(wrong)
    shapes = (classes.shape, successors.shape[1:], stationary.shape)
    if shapes != ((settings.contexts,), (settings.support,), (settings.contexts,)):
        raise ValueError(f"the tables have shapes {shapes}, which do not match the settings")
    inside = (classes >= 0) & (classes < len(successors))
    if not inside.all() or not ((successors >= 0) & (successors < settings.types)).all():
        raise ValueError("a class or a successor is out of range")


def words(settings: Settings) -> tuple[str, ...]:
    """Return the text of each token id; the most frequent token is first if `zipf` is above 0."""
    return tuple(f"t{number}" for number in range(settings.types))


def _supports(settings: Settings, count: int) -> NDArray[np.int64]:
    """Draw sets of types without replacement, with weights rank^-zipf (Gumbel keys), one set per row."""
    weights = -settings.zipf * np.log(np.arange(1, settings.types + 1))
    rows = max(1, CHUNK // settings.types)
    parts = []
    for start in range(0, count, rows):
        size = min(rows, count - start)
        draws = uniform(settings.seed, "support", size * settings.types, start=start * settings.types)
        keys = weights - np.log(-np.log(np.maximum(draws, 2.0**-53))).reshape(size, -1)
        chosen = np.argpartition(-keys, settings.support - 1, axis=1)[:, : settings.support]
        parts.append(np.sort(chosen, axis=1))
    return np.concatenate(parts).astype(np.int64)


def _stationary(matrix: Any) -> NDArray[np.float64]:
    from scipy.sparse.csgraph import connected_components

    count, part = connected_components(matrix, directed=True, connection="strong")
    edges = matrix.tocoo()
    closed = np.ones(count, dtype=bool)
    closed[part[edges.row[part[edges.row] != part[edges.col]]]] = False
    sizes = np.where(closed, np.bincount(part, minlength=count), 0)
    inside = part == int(sizes.argmax())
    shares: NDArray[np.float64] = inside / inside.sum()
    transposed = matrix.T.tocsr()
    for _ in range(MAX_ITERATIONS):
        following = (shares + transposed @ shares) / 2  # lazy steps converge for periodic chains too
        following /= following.sum()
        change, shares = float(np.abs(following - shares).sum()), following
        if change <= TOLERANCE or math.isnan(change):
            break
    return shares


def _entropy(chances: NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log(positive)).sum())
