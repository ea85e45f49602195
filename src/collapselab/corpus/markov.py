"""The embedded source with known answers: a Markov chain whose next-token distributions are all written down.

    markov:order=2,types=200,support=5,zipf=1,sharing=0.5,tokens=2000000,validation=100000,seed=0

The next token depends on the last `order` tokens, the context, and on nothing else. Each context has `support`
successors; the k-th most likely of them has a chance q_k ∝ 1/k, so every context has the entropy H(q) and the entropy
rate is H(q) exactly, whatever the other settings. Which types a support has is drawn with weights rank^-zipf. So
`support` sets how ambiguous contexts are and `zipf` how unequal types are, each without the other.

`sharing` s lets contexts have the same future: about (1 - s) × contexts distributions are drawn, on (1 - s) × as many
supports. 0 gives every context its own.

Nothing random has a state: every draw is a hash of the seed, of what is drawn, and of its number.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.corpus.hashing import uniform
from collapselab.errors import CorpusError
from collapselab.records.corpus import MARKOV

KIND = "a markov source"
PIECE = 1000
"""Tokens that are read as one document; documents follow one another without a mark."""
MOST_CONTEXTS, MOST_TOKENS = 1 << 20, 10**12
MOST_SUCCESSORS, MOST_DRAWS = 1 << 25, 1 << 31
"""Limits of the table of all successors, which is in memory, and of what is drawn for it, which takes time."""
ROWS = 1 << 22
"""Numbers of a part of a table of draws, which bounds memory."""
STEPS, CLOSE = 20_000, 1e-15
"""Of the iteration for the stationary distribution: steps at most, and the sum of changes at which it ends."""


@final
@dataclass(frozen=True)
class Settings:
    """What a chain is made from."""

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
        """The settings of `markov:order=2,…`; CorpusError with what is wrong."""
        kinds: dict[str, type[int] | type[float]] = {
            field.name: int if isinstance(field.default, int) else float for field in fields(cls)
        }
        values: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, value = part.partition("=")
            pattern = r"[0-9]{1,18}" if kinds.get(key) is int else r"[0-9]{1,6}(\.[0-9]{1,9})?"
            if key not in kinds or not re.fullmatch(pattern, value):
                raise CorpusError(
                    f"{name}: {part!r} is not a setting, or not a number of the right kind. Write "
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
        """What is impossible about these settings, None if nothing is."""
        if not 1 <= self.order <= 8:
            return f"order is {self.order}; 1 to 8 tokens back are possible."
        if not 2 <= self.types <= MOST_CONTEXTS or self.contexts > MOST_CONTEXTS:
            return (
                f"{self.types:,} types at order {self.order} make {self.contexts:,} contexts; 2 types at least and "
                f"{MOST_CONTEXTS:,} contexts at most are possible. Choose fewer types or a lower order."
            )
        if self.support > self.types:
            return f"support is {self.support:,}, but there are {self.types:,} types; that many successors at most."
        if self.support < 2:
            return f"support is {self.support}; with fewer than 2 successors a chain repeats itself."
        if not 0 <= self.zipf <= 10 or not 0 <= self.sharing < 1:
            return f"zipf is {self.zipf:g}, sharing {self.sharing:g}; 0 to 10 and 0 to below 1 are possible."
        successors, draws = self.contexts * self.support, (1 - self.sharing) ** 2 * self.contexts * self.types
        if successors > MOST_SUCCESSORS or draws > MOST_DRAWS:
            return (
                f"{self.contexts:,} contexts with {self.support:,} successors each, drawn from {self.types:,} types, "
                f"are too many: {successors:,} successors ({MOST_SUCCESSORS:,} are possible), {round(draws):,} draws "
                f"({MOST_DRAWS:,}). Choose fewer types, a smaller support or more sharing."
            )
        if not all(self.order < count <= MOST_TOKENS for count in (self.tokens, self.validation)):
            return f"{self.tokens:,} and {self.validation:,} tokens; each split needs more than a context."
        return None


@final
class Chain:
    """A chain: `chain.successors[chain.classes[context]]` are a context's successors, the most likely first.

    A context is a number in base `types`: its last token is the last digit. `chances` are the q_k. Contexts with the
    same distribution have the same entry of `classes`; distributions on one set of types the same of `supports`.
    """

    def __init__(
        self,
        settings: Settings,
        classes: NDArray[np.int64],
        successors: NDArray[np.int64],
        stationary: NDArray[np.float64] | None = None,
    ) -> None:
        self.settings, self.classes, self.successors, self._known = settings, classes, successors, stationary

    @classmethod
    def drawn(cls, settings: Settings) -> Self:
        """The chain of these settings, always the same."""
        contexts, share = settings.contexts, 1 - settings.sharing
        distributions = max(1, round(share * contexts))
        supports = max(1, round(share * distributions))
        members = _supports(settings, supports)
        order = np.argsort(uniform(settings.seed, "order", distributions * settings.support).reshape(distributions, -1))
        drawn = np.take_along_axis(members[np.arange(distributions) % supports], order, axis=1)
        # Two distributions that were drawn alike are one.
        successors, number = np.unique(drawn, axis=0, return_inverse=True)
        shuffled = np.argsort(uniform(settings.seed, "class", contexts), kind="stable")
        return cls(settings, number.reshape(-1)[shuffled % distributions], successors)

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """q_k of the successors of any context, the most likely first (support,)."""
        weights: NDArray[np.float64] = 1 / np.arange(1, self.settings.support + 1, dtype=np.float64)
        return np.asarray(weights / weights.sum())

    @cached_property
    def supports(self) -> NDArray[np.int64]:
        """The number of each distribution's set of successors."""
        return np.unique(np.sort(self.successors, axis=1), axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """How often each context occurs (contexts,); 0 for those that the chain never comes back to.

        Where a chain could end in several closed sets of contexts, it runs in the largest.
        """
        return _stationary(self._matrix()) if self._known is None else self._known

    @cached_property
    def entropies(self) -> list[float]:
        """H(next | last n tokens) in nats, for n from 0 to the order; the last is the entropy rate."""
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
        """The least mean loss on blocks of this length, whose first tokens have a shorter context."""
        order = self.settings.order
        return sum(self.entropies[min(seen, order)] for seen in range(1, block)) / (block - 1)

    def tokens(self, split: str) -> Iterator[NDArray[np.int64]]:
        """The tokens of a split, in pieces of PIECE."""
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
        """The same as text: words with a space between."""
        names = words(self.settings)
        return (" ".join(names[token] for token in piece.tolist()) for piece in self.tokens(split))

    def write(self, folder: Path) -> None:
        """Keep the chain in the folder of a corpus."""
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
        """Chances of a context after a context (contexts, contexts), sparse."""
        from scipy import sparse

        contexts, width = self.settings.contexts, self.settings.support
        rows = np.repeat(np.arange(contexts), width)
        columns = (rows * self.settings.types + self.successors[self.classes].reshape(-1)) % contexts
        return sparse.csr_array((np.tile(self.chances, contexts), (rows, columns)), shape=(contexts, contexts))


def read_chain(folder: str | Path) -> Chain:
    """The chain behind a corpus; CorpusError if it was not made from one."""
    path = Path(folder) / MARKOV
    try:
        tensors, facts = load_tensors(path, kind=KIND)
        known = facts["settings"]
        assert isinstance(known, dict)
        classes, successors = (tensors[name].numpy().astype(np.int64) for name in ("classes", "successors"))
        settings, stationary = Settings(**known), tensors["stationary"].numpy().copy()
        _check_chain(settings, classes, successors, stationary)
        return Chain(settings, classes, successors, stationary)
    except FileNotFoundError as error:
        raise CorpusError(f"{folder}: not made from a markov source; it has no {MARKOV}.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorpusError(f"{path}: damaged ({error}). Build the corpus again.") from error


def _check_chain(
    settings: Settings, classes: NDArray[np.int64], successors: NDArray[np.int64], stationary: NDArray[np.float64]
) -> None:
    """ValueError unless settings and tables belong to one chain: a corpus may come from an unknown source."""
    wrong = settings.wrong()
    if wrong is not None:
        raise ValueError(wrong)
    shapes = (classes.shape, successors.shape[1:], stationary.shape)
    if shapes != ((settings.contexts,), (settings.support,), (settings.contexts,)):
        raise ValueError(f"its tables have the shapes {shapes}, which are not those of its settings")
    inside = (classes >= 0) & (classes < len(successors))
    if not inside.all() or not ((successors >= 0) & (successors < settings.types)).all():
        raise ValueError("a context or a successor that the chain does not have")


def words(settings: Settings) -> tuple[str, ...]:
    """The type of each token id, as text; the most frequent first where `zipf` is above 0."""
    return tuple(f"t{number}" for number in range(settings.types))


def _supports(settings: Settings, count: int) -> NDArray[np.int64]:
    """Sets of types, drawn without replacement with weights rank^-zipf (Gumbel keys), one a row."""
    weights = -settings.zipf * np.log(np.arange(1, settings.types + 1))
    rows = max(1, ROWS // settings.types)
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
    now: NDArray[np.float64] = inside / inside.sum()
    back = matrix.T.tocsr()
    for _ in range(STEPS):
        following = (now + back @ now) / 2  # half a step: a chain with a period comes to rest too
        following /= following.sum()
        change, now = float(np.abs(following - now).sum()), following
        if change <= CLOSE * 2 or math.isnan(change):
            break
    return now


def _entropy(chances: NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log(positive)).sum())
