"""The options of a measurement: the settings that decide its numbers, checked before anything is loaded."""

import math
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal, final

from collapselab.errors import ConfigError
from collapselab.records.facts import OptionFacts
from collapselab.records.outcomes import LONGEST_CONTEXT, parsed_outcomes

if TYPE_CHECKING:
    import torch

LEAST = {
    "bins": 0, "bootstrap": 0, "seed": 0, "skip_positions": 0,
    "batch": 1, "min_count": 1, "tokens": 1, "min_uses": 1, "per_class": 1,
}  # fmt: skip
MOST = {"bins": 1_000, "bootstrap": 100_000}
"""More bins or resamples would not fit into memory."""

FIRST = (
    "layers", "bins", "null", "bootstrap", "dtype", "batch", "tokens", "min_count", "train_loss", "strict", "seed",
    "shard_classes"
)  # fmt: skip
"""The options of the first version."""


DEFAULT_PUSH, MOST_PUSH, MOST_ALPHAS = "-0.3,-0.2,-0.1,0,0.1,0.2,0.3", 10.0, 100

DTYPES = ("float32", "float64", "bfloat16", "float16")


@final
@dataclass(frozen=True)
class Options:
    """Settings of one measurement. Two measurements with the same settings, model and corpus give the same numbers.

    >>> from collapselab import Options
    >>> Options(layers="all", bins=4).facts()["layers"]
    'all'
    """

    layers: Literal["last", "all"] = "last"
    bins: int = 0
    null: bool = True
    bootstrap: int = 0
    dtype: str | None = None
    batch: int | Literal["auto"] = "auto"
    tokens: int | None = None
    min_count: int = 1
    train_loss: bool = False
    strict: bool = False
    seed: int = 0
    shard_classes: bool = False
    skip_positions: int = 1
    """The first positions of every block, which are not samples at layers below the last."""
    push: str | None = None
    """How far features are moved toward expected class means, as in -0.3,0.3; `default` for seven from -0.3 to 0.3."""
    classes: bool = False
    """Whether the table `classes` is made: a row for each class."""
    deciders: bool = False
    """Whether the table `deciders` is made: on how many tokens each two of them agree."""
    outcomes: str | None = None
    """Names of outcomes with commas between, or `all`."""
    on: str | None = None
    """Further corpora for `loss_on:NAME`, as NAME=HASH with commas between."""

    per_class: int | None = None
    """Samples that are kept of every class; classes with fewer are left out."""
    load_in: Literal["4bit", "8bit"] | None = None
    """Bits that weights are rounded to while they are loaded."""
    contexts: str | None = None
    """Lengths of contexts, numbers of tokens with commas between: those before a token that it is grouped by."""
    min_uses: int = 10
    """Uses that a context needs."""

    def __post_init__(self) -> None:
        if self.layers not in ("last", "all"):
            raise ConfigError(f"layers is {self.layers!r}; it is last or all.")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ConfigError(f"dtype is {self.dtype!r}; it is one of {', '.join(DTYPES)}.")
        if self.load_in not in (None, "4bit", "8bit"):
            raise ConfigError(f"load_in is {self.load_in!r}; it is 4bit or 8bit.")
        for name, least in LEAST.items():
            value, most = getattr(self, name), MOST.get(name, 2**63 - 2)  # what torch takes as a seed
            if value is None or (name == "batch" and value == "auto"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigError(f"{name} must be a whole number from {least} to {most:,}, got {value!r}.")
        if self.per_class is not None:
            object.__setattr__(self, "min_count", max(self.min_count, self.per_class))
        if self.bootstrap == 1:
            raise ConfigError("bootstrap is 1; an interval needs at least 2 resamples, a good one 200 or more.")
        if self.push is not None:
            object.__setattr__(self, "push", ",".join(f"{alpha:g}" for alpha in _parsed_push(self.push)))
        if self.contexts is not None:
            object.__setattr__(self, "contexts", ",".join(map(str, parsed_contexts(self.contexts))))
        object.__setattr__(self, "outcomes", parsed_outcomes(self.outcomes))
        if self.shard_classes and self.contexts is not None:
            raise ConfigError("contexts and shard_classes do not go together: cells are not spread over processes.")
        if self.shard_classes and self.push is not None:
            raise ConfigError("push and shard_classes do not go together: every process needs all class means.")
        if self.shard_classes and self.bootstrap:
            raise ConfigError("bootstrap and shard_classes do not go together: groups are kept whole, not by class.")

    def facts(self) -> OptionFacts:
        """What two measurements are compared by: the options of the first version, and later ones that were changed.

        So an option that is added with a default leaves finished measurements valid. `skip_positions` is included
        where it leaves something out, which earlier versions did not.
        """
        changed = {option.name for option in fields(self) if getattr(self, option.name) != option.default}
        facts = {name: value for name, value in asdict(self).items() if name in FIRST or name in changed}
        facts.pop("skip_positions", None)
        skipped = {"skip_positions": self.skip_positions} if self.layers == "all" and self.skip_positions else {}
        return facts | skipped

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The names of `outcomes`."""
        return () if self.outcomes is None else tuple(filter(None, self.outcomes.split(",")))

    def asks(self, outcome: str) -> bool:
        """Whether an outcome is to be computed."""
        return outcome in self.outcome_names

    @property
    def alphas(self) -> tuple[float, ...]:
        """The numbers of `push`."""
        return () if self.push is None else tuple(float(part) for part in self.push.split(","))

    @property
    def context_lengths(self) -> tuple[int, ...]:
        """The numbers of `contexts`."""
        return () if self.contexts is None else tuple(int(part) for part in self.contexts.split(","))

    @property
    def torch_dtype(self) -> "torch.dtype | None":
        """`dtype` as PyTorch has it."""
        import torch

        return None if self.dtype is None else getattr(torch, self.dtype)

    def blocks_for(self, labels_per_block: float, blocks: int) -> int:
        """How many of the blocks are needed for `tokens`."""
        return blocks if self.tokens is None else min(blocks, int(-(-self.tokens // labels_per_block)))


def parsed_contexts(given: object) -> list[int]:
    """Lengths of contexts, each once and rising, from "1,2" or (1, 2)."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    texts = [str(part).strip() for part in parts]
    good = all(re.fullmatch("[0-9]{1,3}", text) and 1 <= int(text) <= LONGEST_CONTEXT for text in texts)
    if not texts or not good:
        raise ConfigError(
            f"contexts is {str(given)[:80]!r}; whole numbers of tokens from 1 to {LONGEST_CONTEXT} with commas between "
            "are needed, as in 1,2,3."
        )
    return sorted({int(text) for text in texts})


def _parsed_push(text: object) -> list[float]:
    """The numbers of `push` in order, each once, with 0, the model as it is."""
    parts = DEFAULT_PUSH if text == "default" else text
    try:
        alphas = {float(part) + 0.0 for part in str(parts).split(",")}
    except ValueError:
        alphas = {math.nan}
    if not isinstance(text, str) or len(alphas) > MOST_ALPHAS or not all(abs(alpha) <= MOST_PUSH for alpha in alphas):
        raise ConfigError(
            f"push is {str(text)[:80]!r}; up to {MOST_ALPHAS} numbers from -{MOST_PUSH:g} to {MOST_PUSH:g} with commas "
            "between are needed, as in -0.3,0.3, or default."
        )
    return sorted(alphas | {0.0})
