"""Interventions: penalties that a training adds to its cross-entropy, to move a property of its features.

    step.py          what a penalty is computed from, and what it returns
    features.py      penalties of the features alone, two of them of tokens inside a sequence
    output_layer.py  penalties of the output layer
    term.py          one intervention in a training, with the factor that holds its dose

A further one is a function of a `Step` and an entry in `choices.toml`. A `Dose` is what a setting says of one, as in
`within:-0.1:sham@0.7-1.0`. This file does not import torch: names are
checked where settings are read, which must stay quick.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from collapselab.errors import ConfigError, did_you_mean
from collapselab.training import choices

if TYPE_CHECKING:
    from torch import Tensor

    from collapselab.training.interventions.step import Penalty, Step

    Function = Callable[[Step], Penalty | Tensor | None]

Place = Literal["features", "head"]


@dataclass(frozen=True)
class Intervention:
    """A penalty, and what is known of it."""

    name: str
    words: str
    """What it does, in one sentence."""
    formula: str
    source: str
    primary: str | None
    """The metric that it must move: an id of the catalogue; None if there is none."""
    signs: Literal["+", "-", "both"]
    """Signs of the doses that make sense: + makes the penalty smaller, - makes it larger."""
    penalty: "Function"
    """Return the penalty with its gradients, or a number with a graph to the features or the output layer's weight;
    None where it cannot act."""
    dose_over: Place = "features"
    """Whose gradients the dose compares: `head` for a penalty of the output layer alone."""
    plus: Literal["falls", "rises", ""] = ""
    """Where a dose of + moves the primary metric."""
    cost: str = ""
    """Multiplications at every step; K classes, D dimensions, N tokens."""
    blind: bool = False
    """Whether it is the same for permuted labels: then its sham is the penalty itself."""

    @property
    def must_move(self) -> str:
        """Its primary metric and where it moves, as in `cdnv_log` falls for +, rises for −."""
        if self.primary is None:
            return "–"
        if self.signs != "both":
            return f"{self.primary} {self.plus}"
        opposite = {"falls": "rises", "rises": "falls", "": ""}[self.plus]
        return f"{self.primary} {self.plus} for +, {opposite} for −"


INTERVENTIONS = {
    name: Intervention(name=name, penalty=penalty, **{"primary": None, **entry})
    for name, penalty, entry in choices("interventions")
}
"""Every intervention by its name."""

FIRST_STEPS = 20
"""Steps in which the two gradients are compared before a penalty acts for the first time."""

LARGEST = 10.0
"""The largest dose: beyond it little is left of the cross-entropy."""

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_TEXT = re.compile(
    rf"(?P<name>[^:@]+):(?P<sign>[+-]?)(?P<size>{_NUMBER}(?:[eE][+-]?\d+)?)(?P<sham>:sham)?"
    rf"(?:@(?P<start>{_NUMBER})-(?P<end>{_NUMBER}))?"
)


@dataclass(frozen=True)
class Dose:
    """One intervention of a run: which, how strongly, on which labels, and when.

    `dose` is the ratio of the penalty's gradient to that of the cross-entropy, negative where the penalty is to grow. A
    `sham` has its labels permuted. `window` is the share of the training in which it acts.
    """

    name: str
    dose: float
    sham: bool = False
    window: tuple[float, float] = (0.0, 1.0)

    def __str__(self) -> str:
        """The text that says the same, always in the same form."""
        signed = self.dose and INTERVENTIONS[self.name].signs == "both"
        size = f"{'-' if self.dose < 0 else '+'}{_short(self.dose)}" if signed else _short(self.dose)
        window = "" if self.window == (0.0, 1.0) else "@{}-{}".format(*map(_share, self.window))
        return f"{self.name}:{size}{':sham' if self.sham else ''}{window}"

    @property
    def mark(self) -> str:
        """The same as part of a folder's name, as in within-0.1sham-0.7to1."""
        window = "" if self.window == (0.0, 1.0) else "-{}to{}".format(*map(_share, self.window))
        sign = "-" if self.dose < 0 else ""
        return f"{self.name}{sign}{_short(self.dose)}{'sham' if self.sham else ''}{window}"

    def steps(self, training: int) -> range:
        """The steps of a training in which it is computed: its window, and those before it that compare gradients."""
        start, end = (round(share * training) for share in self.window)
        return range(max(0, start - FIRST_STEPS), end)

    def check(self, training: int) -> None:
        """ConfigError where a training has no step in which it acts."""
        start, end = (round(share * training) for share in self.window)
        if start == end or len(self.steps(training)) <= FIRST_STEPS:
            raise ConfigError(
                f"intervene: {self} acts in no step of a training of {training:,}: it acts after {FIRST_STEPS} "
                "steps in which gradients are compared. Train longer, or widen its window."
            )


def sham_notes(texts: Iterable[str]) -> list[str]:
    """What to know of the shams among these texts: that of a penalty blind to labels is the penalty itself."""
    return [
        f"{dose} is the same training as without sham: {dose.name} does not depend on labels, which a sham permutes. "
        "noise at the same dose is a control."
        for dose in parse_doses(texts)
        if dose.sham and INTERVENTIONS[dose.name].blind
    ]


def parse_doses(texts: Iterable[str]) -> tuple[Dose, ...]:
    """The doses of these texts, by name; ConfigError where a text is none, or two are of one intervention."""
    doses = sorted((_parse(text) for text in texts), key=lambda dose: dose.name)
    for first, second in itertools.pairwise(doses):
        if first.name == second.name:
            raise ConfigError(f"intervene: {first.name} is there twice, as {first} and as {second}. Leave one out.")
    return tuple(doses)


def _parse(text: str) -> Dose:
    matched = _TEXT.fullmatch(text)
    if matched is None:
        raise ConfigError(f"intervene: {text[:80]!r} is not NAME:DOSE, NAME:DOSE:sham or NAME:DOSE@FROM-TO.")
    name, sign, size = matched["name"], matched["sign"], float(matched["size"])
    if name not in INTERVENTIONS:
        hint = did_you_mean(name.lower(), INTERVENTIONS, otherwise=f"Choose from {', '.join(INTERVENTIONS)}.")
        raise ConfigError(f"intervene: {name[:80]} is not an intervention. {hint}")
    if size > LARGEST:
        raise ConfigError(f"intervene: {text[:80]} has a dose above {LARGEST:g}; usual are 0.01 to 0.3.")
    window = (round(float(matched["start"] or 0), 6), round(float(matched["end"] or 1), 6))
    if not 0 <= window[0] < window[1] <= 1:
        needed = "It goes from a share of the training to a larger one, 0 to 1."
        raise ConfigError(f"intervene: {text[:80]} has no window. {needed}")
    signs, rest = INTERVENTIONS[name].signs, text.removeprefix(f"{name}:").removeprefix(sign)
    if signs == "both" and not sign and size:
        raise ConfigError(f"intervene: {text} has no sign. Both exist: write {name}:+{rest} or {name}:-{rest}.")
    if signs != "both" and sign not in ("", signs):
        raise ConfigError(f"intervene: {text} has a {sign}, but {name} acts in one direction. Write {name}:{rest}.")
    negative = size and "-" in (sign, signs)
    return Dose(name, -size if negative else size, matched["sham"] is not None, window)


def _short(dose: float) -> str:
    return repr(abs(dose)).removesuffix(".0")


def _share(share: float) -> str:
    return f"{share:.6f}".rstrip("0").rstrip(".")
