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
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from collapselab.core.devices import exact_device
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import FIRST_STEPS, INTERVENTIONS, Dose, Place
from collapselab.training.interventions.step import Classes, HeadGradient, Penalty, Step, Total, sum_of_squares

SPEED = 1 / 20
"""Share of each step in the moving average."""


class Tokens(NamedTuple):
    """What penalties are computed from, separated from the model, with gradients of its own; labels are on the CPU."""

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


class StepNorm:
    """The norm of a gradient over all parts of a step and all processes.

    Every part of a step has features of its own, so squared norms of their gradients are summed. The output layer is
    one, so its gradients are summed; for a step in one part and one process, the square is enough.
    """

    def __init__(self, place: Place, weight: Tensor, *, parts: int) -> None:
        """`parts` of the step are those of all processes."""
        self.weight = weight
        self.square = torch.zeros((), dtype=torch.float64, device=exact_device(weight.device))
        self.head = torch.zeros_like(weight) if place == "head" and parts > 1 else None

    def add_head(self, gradient: HeadGradient, share: Tensor) -> None:
        """Add the gradient of a part in the output layer, which has this share of the step."""
        if self.head is None and gradient.square is not None:
            self.square = gradient.square.to(self.square.device).double()
            return
        self.head = torch.zeros_like(self.weight) if self.head is None else self.head
        gradient.add_to(self.head, share)

    def squared(self, total: Total) -> Tensor:
        return total(self.square) if self.head is None else sum_of_squares(total(self.head))


class Term:
    """One intervention of a run."""

    def __init__(self, dose: Dose, *, seed: int, steps: int) -> None:
        self.dose, self.seed = dose, seed
        self.name = dose.name
        self.intervention = INTERVENTIONS[dose.name]
        self.place = self.intervention.dose_over
        self.computed = dose.steps(steps)
        self.start = round(dose.window[0] * steps)
        self.kept: dict[str, Tensor] = {}
        self.idle_steps = 0
        self.factor = 0.0
        """λ of the step."""
        self.values: list[Tensor] = []
        """Penalties of the parts of the step."""
        self._first: list[float] = []
        self._average: float | None = None
        self._line = torch.zeros(5, dtype=torch.float64)
        """Since the last line of the log: steps, sums of λ and ρ, steps with a penalty, sum of penalties."""

    def begin_step(self, number: int, norm: StepNorm) -> None:
        self.number, self.factor, self.values, self.norm = number, 0.0, [], norm
        if self._average is not None and number >= self.start:
            self.factor = self.dose.dose * math.exp(self._average)
        self._drawing, self._permuting = self._generator("penalty"), self._generator("sham")

    def penalty(self, tokens: Tokens, total: Total) -> Penalty | Tensor | None:
        """Return R of these tokens, None where it cannot act on them."""
        features, labels, sequences, classes, head = tokens
        if self.dose.sham:
            labels = labels[torch.randperm(len(labels), generator=self._permuting)]
            classes = Classes(features, labels, vocabulary=classes.vocabulary)
        labels = labels.to(features.device)
        return self.intervention.penalty(
            Step(features, labels, sequences, classes, head, self.number, self._drawing, self.kept, total)
        )

    def measured(self, total: Total) -> Tensor:
        """Return for `end_step` the squared norm of the penalty's gradient, the sum of its values, and their number."""
        square = self.norm.squared(total)
        values = torch.stack([square.new_zeros(()), *(value.to(square.device).double() for value in self.values)])
        return torch.cat([square[None], total(torch.stack([values.nansum(), (~values.isnan()).sum() - 1]))])

    def end_step(self, of_loss: float, square: float, summed: float, parts: float) -> Compared:
        """Update the moving average, or note that the penalty could not act."""
        of_penalty = math.sqrt(square)
        value = summed / parts if parts else (None if square == 0 else math.nan)
        ratio = of_loss / of_penalty if of_penalty else 0.0
        rho = self.factor / ratio if ratio else 0.0
        idle = value is None or ratio == 0
        acted = not idle and math.isfinite(ratio)
        if acted:
            self._follow(math.log(ratio))
        self.idle_steps += idle
        self._line += torch.tensor(
            [1.0, self.factor, rho if acted else 0.0, value is not None, value or 0.0], dtype=torch.float64
        )
        return Compared(self.name, of_loss, of_penalty, value, idle and self.idle_steps == 1)

    def log_values(self) -> dict[str, float]:
        """Return means over the steps since the last call, and all steps so far in which the penalty could not act."""
        steps, factor, rho, penalties, penalty = self._line.tolist()
        self._line.zero_()
        values: dict[str, float] = {"idle_steps": self.idle_steps}
        if steps:
            values |= {"lambda": factor / steps, "rho": rho / steps}
        if penalties:
            values["penalty"] = penalty / penalties
        return values

    def state_tensors(self) -> dict[str, Tensor]:
        average = math.nan if self._average is None else self._average
        numbers = torch.tensor([average, self.idle_steps, *self._line.tolist()], dtype=torch.float64)
        first = torch.tensor(self._first, dtype=torch.float64)
        return {"numbers": numbers, "first": first, **{f"kept.{name}": tensor for name, tensor in self.kept.items()}}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        average, idle_steps, *_ = tensors["numbers"].tolist()
        self._average = None if math.isnan(average) else average
        self.idle_steps, self._line = int(idle_steps), tensors["numbers"][2:].clone()
        self._first = tensors["first"].tolist()
        kept = {name.removeprefix("kept."): tensor for name, tensor in tensors.items() if name.startswith("kept.")}
        places = {name: device if tensor.is_floating_point() else "cpu" for name, tensor in kept.items()}
        self.kept = {name: tensor.to(places[name], copy=True) for name, tensor in kept.items()}

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
