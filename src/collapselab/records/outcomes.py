"""Outcomes: what a metric can be related to beside the validation loss, by name, each with its direction.

`measure --outcomes` computes them; suites make them columns of `runs.csv`; `analyze --outcome` takes each of them.
So it does of metrics of contexts: `context_within_2` is `context_within` of the last 2 tokens, at the last layer. They
are columns of `runs.csv` too, and metrics of the analysis. Such a name is looked up, never taken apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from collapselab.errors import ConfigError, did_you_mean

ON = "loss_on:"
"""What the names of losses on further corpora begin with."""

SCORE, COST = "score:", "cost:"
"""What the names of scores that the user brings begin with: a high one is good, and a low one."""


BITS_PER_BYTE = "bits_per_byte"
"""The validation loss of a collected model over the bytes of the text: comparable between tokenizers."""


@dataclass(frozen=True)
class Outcome:
    """One outcome: whether a good model has a low (-1) or a high (1) one, and what it is."""

    better: int
    meaning: str


OUTCOMES: dict[str, Outcome] = {
    "macro_loss": Outcome(-1, "mean over classes of their validation loss: every class counts alike"),
    "rare_loss": Outcome(-1, "loss on validation tokens of the rarer half of classes, by their training counts"),
    "gap": Outcome(-1, "validation loss minus training loss, both evaluated at the checkpoint on fixed samples"),
    "ece": Outcome(-1, "expected calibration error on validation, in 15 bins of equal mass"),
    "loss_after_temperature": Outcome(-1, "validation loss with logits over a temperature fitted to training tokens"),
    "corruption_slope": Outcome(-1, "rise of the validation loss with the share of inputs that are replaced"),
}
"""Every outcome that a measurement computes by name; those on further corpora are `loss_on:NAME`."""

SUITE_OUTCOMES = "loss_after_temperature"
"""Outcomes that a suite measures unless its recipe asks for others. Training itself evaluates the rest."""

BEST_LOSS = "best_val_loss"
"""The lowest validation loss among the checkpoints of a run up to this one."""


LONGEST_CONTEXT = 64


class ContextColumn(NamedTuple):
    """A metric of contexts and their length."""

    metric: str
    """Id in the catalogue of contexts."""
    n: int
    """Tokens of a context."""

    @property
    def name(self) -> str:
        return f"{self.metric}_{self.n}"


@cache
def context_columns() -> dict[str, ContextColumn]:
    """Every metric of contexts at every length, by name."""
    from collapselab.core.catalogue import CONTEXT_METRICS

    keys = (ContextColumn(metric, n) for metric in CONTEXT_METRICS for n in range(1, LONGEST_CONTEXT + 1))
    return {key.name: key for key in keys}


def direction(name: str) -> int | None:
    """-1 where a good model has a low one, 1 where it has a high one; None for a name that is no outcome."""
    if name.startswith((ON, COST)) or name in (BITS_PER_BYTE, BEST_LOSS):
        return -1
    if name.startswith(SCORE):
        return 1
    return OUTCOMES[name].better if name in OUTCOMES else _of_contexts(name)


def _of_contexts(name: str) -> int | None:
    """-1 where a metric of contexts falls toward collapse, 1 where it rises; None where it is none, or does neither."""
    if (key := context_columns().get(name)) is None:
        return None
    from collapselab.core.catalogue import CONTEXT_METRICS

    return {"falls": -1, "rises": 1, None: None}[CONTEXT_METRICS[key.metric].direction]


def parsed_outcomes(asked: str | Iterable[str] | None) -> str | None:
    """Outcomes in the form that options have: names in their order with commas between; `all` for every one."""
    if asked is None:
        return None
    names = [name.strip() for name in (asked.split(",") if isinstance(asked, str) else asked)]
    if names == ["all"]:
        return ",".join(OUTCOMES)
    for name in names:
        if name not in OUTCOMES:
            further = "Losses on further corpora come by --on DIR. " if name.startswith(ON) else ""
            hint = did_you_mean(name, OUTCOMES, otherwise=f"It is all, or some of {', '.join(OUTCOMES)}.")
            raise ConfigError(f"outcomes: {name[:60]!r} is not one. {further}{hint}")
    return ",".join(name for name in OUTCOMES if name in names) or None
