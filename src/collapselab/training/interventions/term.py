"""One intervention in a training: its penalty at every step, and the factor λ that holds its dose.

    ρ_t = λ_t ‖∇R‖ / ‖∇CE‖        in the features of step t; λ and ρ have the sign of the dose

A fixed λ would not do: ‖∇CE‖ / ‖∇R‖ changes by orders of magnitude while a model learns. So

    λ_t = dose · exp(a_t),    a_t+1 = a_t + (log(‖∇CE‖ / ‖∇R‖) − a_t) / 20

where a starts as the median of the first twenty logarithms; up to then λ is 0. λ_t uses steps before t alone, so that
all parts of a step and all processes have the same.

Every part of a step has features of its own, so squared norms of their gradients are summed. The output layer is one,
so its gradients are summed; for a step in one part and one process, the square is enough.
"""

import hashlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import INTERVENTIONS, Place
from collapselab.training.interventions.dose import FIRST_STEPS, Dose
from collapselab.training.interventions.step import Classes, HeadGradient, Penalty, Step, Total, sum_of_squares

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
    """One step of an intervention: the norms of both gradients, and the penalty's mean over the parts."""

    name: str
    of_loss: float
    of_penalty: float
    value: float | None
    """None where no part had a penalty."""
    first_idle: bool
    """Whether this is the first step in which the penalty could not act."""


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
        self.name = dose.name
        self.intervention = INTERVENTIONS[dose.name]
        self.computed = dose.steps(steps)
        self.start = round(dose.window[0] * steps)
        self.kept: dict[str, Tensor] = {}
        self.idle_steps = 0
        self.factor = 0.0
        """λ of the step."""
        self.live_text = ""
        """The last step in a few words; empty if the intervention had no part in it."""
        self._first: list[float] = []
        self._average: float | None = None
        self._line = _Line()

    def begin_step(self, number: int) -> None:
        self.number, self.factor = number, 0.0
        if self._average is not None and number >= self.start:
            self.factor = self.dose.dose * math.exp(self._average)
        self._drawing, self._permuting = self._generator("penalty"), self._generator("sham")

    def penalty(self, tokens: Tokens, total: Total) -> Penalty | Tensor | None:
        """Return R of these tokens, None where it cannot act on them."""
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
        """Return means over the steps since the last call, and all steps so far in which the penalty could not act."""
        line, self._line = self._line, _Line()
        values: dict[str, float] = {"idle_steps": self.idle_steps}
        if line.steps:
            values |= {"lambda": line.factor / line.steps, "rho": line.rho / line.steps}
        if line.penalties:
            values["penalty"] = line.penalty / line.penalties
        return values

    def state_tensors(self) -> dict[str, Tensor]:
        average = math.nan if self._average is None else self._average
        numbers = torch.tensor([average, self.idle_steps, *astuple(self._line)], dtype=torch.float64)
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


@final
class LossSums:
    """The gradient of the cross-entropy in a step, summed once for all terms."""

    def __init__(self) -> None:
        self.features: Tensor | float = 0.0
        """The sum of squares."""
        self.head: Tensor | None = None
        """The gradient; of a whole step its square, a number."""

    def add_features(self, gradient: Tensor) -> None:
        self.features = sum_of_squares(gradient) + self.features

    def add_head(self, gradient: Tensor, *, whole: bool) -> None:
        if whole:
            self.head = sum_of_squares(gradient)
        else:
            self.head = gradient.detach() if self.head is None else self.head + gradient.detach()

    def norm(self, place: Place, total: Total, weight: Tensor) -> float:
        if place == "features":
            return _summed_norm(self.features, total, weight)
        if self.head is not None and self.head.ndim == 0:
            return math.sqrt(self.head)
        return math.sqrt(sum_of_squares(total(torch.zeros_like(weight) if self.head is None else self.head)))


@final
class TermSums:
    """The gradient and the values of one term, over the parts of a step."""

    def __init__(self, term: Term) -> None:
        self.term, self.place = term, term.intervention.dose_over
        self.square: Tensor | float = 0.0
        """Of the penalty's gradient in the features."""
        self.square_of_head: Tensor | None = None
        """Of its gradient in the output layer, where the step is whole."""
        self.of_head: list[tuple[HeadGradient, Tensor]] = []
        """Gradients of the output layer, each with the share of its part in the step."""
        self.values: list[Tensor] = []

    def add_features(self, gradient: Tensor, share: Tensor) -> None:
        self.square = sum_of_squares(gradient) * share.double().square() + self.square

    def add_head(self, gradient: HeadGradient, share: Tensor, *, whole: bool) -> None:
        if whole and gradient.square is not None:
            self.square_of_head = gradient.square
        else:
            self.of_head.append((gradient, share))

    def norm(self, total: Total, weight: Tensor) -> float:
        """Return the norm of the penalty's gradient at the place of its dose."""
        if self.place == "features":
            return _summed_norm(self.square, total, weight)
        if self.square_of_head is not None:
            return math.sqrt(self.square_of_head)
        summed = torch.zeros_like(weight)
        for gradient, share in self.of_head:
            gradient.add_to(summed, share)
        return math.sqrt(sum_of_squares(total(summed)))

    def mean_value(self, total: Total, weight: Tensor) -> float | None:
        """Return the mean of the penalty over parts and processes, None where there was none."""
        values = torch.stack([value.double() for value in self.values]) if self.values else torch.zeros(0).double()
        counted = total(torch.tensor([float(values.sum()), len(values)], dtype=torch.float64, device=weight.device))
        return float(counted[0] / counted[1]) if counted[1] else None


def _summed_norm(square: Tensor | float, total: Total, weight: Tensor) -> float:
    """Return the root of a sum of squares over all processes; a process without a part has the number 0."""
    return math.sqrt(total(torch.as_tensor(square, dtype=torch.float64, device=weight.device)))
