"""One intervention in a training: its penalty at every step, and the factor λ that holds its dose.

    ρ_t = λ_t ‖∇R‖ / ‖∇CE‖        in the features of step t; λ and ρ have the sign of the dose

A fixed λ would not do: ‖∇CE‖ / ‖∇R‖ changes by orders of magnitude while a model learns. So

    λ_t = dose · exp(a_t),    a_t+1 = a_t + (log(‖∇CE‖ / ‖∇R‖) − a_t) / 20

where a starts as the median of the first twenty logarithms; up to then λ is 0. λ_t uses steps before t alone, so that
all parts of a step and all processes have the same.
"""

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import INTERVENTIONS, Penalty, Step
from collapselab.training.interventions.classes import Classes
from collapselab.training.interventions.dose import FIRST_STEPS, Dose

SPEED = 1 / 20
"""Share of each step in the moving average."""


class Tokens(NamedTuple):
    """What penalties are computed from, separated from the model, with gradients of its own."""

    features: Tensor
    labels: Tensor
    sequences: Tensor
    classes: Classes
    head: OutputLayer


class Compared(NamedTuple):
    """What a step was for one intervention: the norms of both gradients, and the penalty's mean over the parts."""

    name: str
    of_loss: float
    of_penalty: float
    value: float | None
    """None where no part had a penalty."""
    first_idle: bool
    """Whether this is the first step in which the penalty could not act."""


@final
@dataclass
class _Line:
    """Sums over the steps since the last line of the log."""

    steps: float = 0.0
    factor: float = 0.0
    rho: float = 0.0
    penalties: float = 0.0
    penalty: float = 0.0


@final
class Term:
    """One intervention of a run."""

    def __init__(self, dose: Dose, *, seed: int, steps: int) -> None:
        self.dose, self.seed = dose, seed
        self.intervention = INTERVENTIONS[dose.name]
        self.computed = dose.steps(steps)
        self.start = round(dose.window[0] * steps)
        self.kept: dict[str, Tensor] = {}
        self.idle_steps = 0
        self.factor = 0.0
        """λ of the step."""
        self.live_text = ""
        """What the last step was, in a few words; empty in a step in which the intervention has no part."""
        self._first: list[float] = []
        self._average: float | None = None
        self._line = _Line()

    @property
    def name(self) -> str:
        return self.dose.name

    def begin_step(self, number: int) -> None:
        self.number, self.factor = number, 0.0
        if self._average is not None and number >= self.start:
            self.factor = self.dose.dose * math.exp(self._average)
        self._drawing, self._permuting = self._generator("penalty"), self._generator("sham")

    def penalty(self, tokens: Tokens, total: Callable[[Tensor], Tensor]) -> Penalty | Tensor | None:
        """R of these tokens, None where it cannot act on them."""
        features, labels, sequences, classes, head = tokens
        if self.dose.sham:
            labels = labels[torch.randperm(len(labels), generator=self._permuting).to(labels.device)]
            classes = Classes(features, labels, vocabulary=classes.vocabulary)
        return self.intervention.penalty(
            Step(features, labels, sequences, classes, head, self.number, self._drawing, self.kept, total)
        )

    def end_step(self, of_loss: float, of_penalty: float, value: float | None) -> Compared:
        """Update the moving average, or note that the penalty could not act."""
        self._line.steps += 1
        self._line.factor += self.factor
        if value is not None:
            self._line.penalties += 1
            self._line.penalty += value
        ratio = of_loss / of_penalty if of_penalty else 0.0
        shown = "cannot act" if value is None else f"{value:.3g}"
        rho = self.factor / ratio if ratio else 0.0
        self.live_text = f"{self.name} {shown} (λ {self.factor:+.2g}, ρ {rho:+.2g})"
        idle = value is None or ratio == 0
        if idle:
            self.idle_steps += 1
        elif math.isfinite(ratio):
            self._line.rho += rho
            self._follow(math.log(ratio))
        return Compared(self.name, of_loss, of_penalty, value, idle and self.idle_steps == 1)

    def log_values(self) -> dict[str, float]:
        """Means over the steps since the last call, and the steps so far in which the penalty could not act."""
        line, self._line = self._line, _Line()
        values: dict[str, float] = {"idle_steps": self.idle_steps}
        if line.steps:
            values |= {"lambda": line.factor / line.steps, "rho": line.rho / line.steps}
        if line.penalties:
            values["penalty"] = line.penalty / line.penalties
        return values

    def state_tensors(self) -> dict[str, Tensor]:
        average = math.nan if self._average is None else self._average
        numbers = torch.tensor([average, self.idle_steps, *vars(self._line).values()], dtype=torch.float64)
        first = torch.tensor(self._first, dtype=torch.float64)
        kept = {f"kept.{name}": tensor for name, tensor in self.kept.items()}
        return {"numbers": numbers, "first": first, **kept}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        average, idle_steps, *line = tensors["numbers"].tolist()
        self._average = None if math.isnan(average) else average
        self.idle_steps, self._line = int(idle_steps), _Line(*line)
        self._first = tensors["first"].tolist()
        kept = [name for name in tensors if name.startswith("kept.")]
        self.kept = {name.removeprefix("kept."): tensors[name].to(device, copy=True) for name in kept}

    def _follow(self, log_ratio: float) -> None:
        if self._average is not None:
            self._average += SPEED * (log_ratio - self._average)
            return
        self._first.append(log_ratio)
        if len(self._first) == FIRST_STEPS:
            self._average = statistics.median(self._first)

    def _generator(self, purpose: str) -> Generator:
        text = f"{self.seed} {self.number} {self.name} {purpose}"
        digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
        return Generator().manual_seed(int.from_bytes(digest))
