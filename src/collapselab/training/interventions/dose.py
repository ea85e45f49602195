"""The text of an intervention in settings, as in `within:-0.1:sham@0.7-1.0`, and what it says."""

import difflib
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from collapselab.errors import ConfigError
from collapselab.training.interventions import INTERVENTIONS

FIRST_STEPS = 20
"""Steps in which the two gradients are compared before a penalty acts for the first time."""

USUAL, LARGEST = (0.01, 0.3), 10.0
"""Doses that trainings usually have, and the largest that is taken: beyond it little is left of the cross-entropy."""

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_TEXT = re.compile(
    rf"(?P<name>[^:@]+):(?P<sign>[+-]?)(?P<size>{_NUMBER}(?:[eE][+-]?\d+)?)(?P<sham>:sham)?"
    rf"(?:@(?P<start>{_NUMBER})-(?P<end>{_NUMBER}))?"
)


@final
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
    name, sign, start, end = matched["name"], matched["sign"], matched["start"], matched["end"]
    if name not in INTERVENTIONS:
        raise ConfigError(f"intervene: {name[:80]} is not an intervention. {_hint(name)}")
    size = float(matched["size"])
    if size > LARGEST:
        raise ConfigError(
            f"intervene: {text[:80]} has a dose above {LARGEST:g}. It is the ratio of the penalty's gradient to "
            f"that of the cross-entropy; usual are {USUAL[0]:g} to {USUAL[1]:g}."
        )
    window = (0.0, 1.0) if start is None else (round(float(start), 6), round(float(end), 6))
    if not 0 <= window[0] < window[1] <= 1:
        raise ConfigError(
            f"intervene: {text[:80]} has no window. It goes from a share of the training to a larger, 0 to 1."
        )
    return Dose(name, _signed(text, name, sign, size), matched["sham"] is not None, window)


def _signed(text: str, name: str, sign: str, size: float) -> float:
    signs = INTERVENTIONS[name].signs
    rest = text.removeprefix(f"{name}:").removeprefix(sign)
    if signs == "both":
        if not sign and size:
            raise ConfigError(f"intervene: {text} has no sign. Both exist: write {name}:+{rest} or {name}:-{rest}.")
        return -size if sign == "-" else size
    if sign and sign != signs:
        raise ConfigError(f"intervene: {text} has a {sign}, but {name} acts in one direction. Write {name}:{rest}.")
    return -size if signs == "-" and size else size


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), INTERVENTIONS, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Choose from {', '.join(INTERVENTIONS)}."


def _short(dose: float) -> str:
    return repr(abs(dose)).removesuffix(".0")


def _share(share: float) -> str:
    return f"{share:.6f}".rstrip("0").rstrip(".")
