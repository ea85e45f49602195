"""The loss of a step: next-token cross-entropy, and the gradients that interventions add to it.

A penalty R is differentiated by itself, in features and an output layer that are separated from the model. λ∇R is added
to the gradient of the cross-entropy when that reaches the features on its way back. So the output layer and the model
are gone through once, and the loss that is returned and logged is plain cross-entropy.

Several parts of a step, and several processes, each have a penalty of their own tokens; its gradient has the same share
of the step as their cross-entropy. Over all of them are summed the squared norms of both gradients, which decide the
next λ, and what an intervention keeps. A penalty of the output layer alone is compared with that layer's gradient,
which is summed over parts and processes before its norm is taken.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, final

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import Place
from collapselab.training.interventions.dose import parse_doses
from collapselab.training.interventions.term import Compared, Term, Tokens
from collapselab.training.loss import next_token_loss
from collapselab.training.settings import Settings


class Gradients(NamedTuple):
    """Those of one penalty; None where it does not depend on the tensor."""

    features: Tensor | None
    head: Tensor | None


@final
class Objective:
    """`objective(features, labels)` is the loss of a part of a step; `begin_step` and `end_step` enclose the parts."""

    def __init__(
        self,
        head: OutputLayer,
        settings: Settings,
        *,
        steps: int,
        processes: int = 1,
        space: LogitSpace | None = None,
    ) -> None:
        self.head, self.space, self.processes = head, space, processes
        self.label_smoothing = settings.label_smoothing
        self.terms = [Term(dose, seed=settings.seed, steps=steps) for dose in parse_doses(settings.intervene)]
        self.sums: list[_StepSums] = []
        """Of the terms that are computed in this step."""

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of labels (batch, tokens) from features (batch, tokens, dim); penalties act on its gradient."""
        flat, next_tokens = features.reshape(-1, features.shape[-1]), labels.reshape(-1)
        if not self.sums or not torch.is_grad_enabled():
            return self._cross_entropy(flat, self.head.weight, next_tokens)
        penalties = self._penalties(flat, labels)
        weight = self.head.weight
        needed = any(one.head is not None for one in penalties) or any(one.place == "head" for one in self.sums)
        if needed and weight.requires_grad:
            weight = weight.view_as(weight)  # so that its gradient is that of the output layer alone where it is tied
        loss = self._cross_entropy(flat, weight, next_tokens)
        share: list[Tensor] = []
        _on_gradient(loss, share.append)  # of this part in the step's loss: it is known when the loss goes backward
        _on_gradient(flat, self._adder("features", [one.features for one in penalties], share))
        if weight is not self.head.weight:
            _on_gradient(weight, self._adder("head", [one.head for one in penalties], share))
        return loss

    def begin_step(self, number: int) -> None:
        """Choose the terms of this step; `number` steps were taken before it."""
        self.sums = [_StepSums(term) for term in self.terms if number in term.computed]
        for one in self.sums:
            one.term.begin_step(number)

    def end_step(self) -> list[Compared]:
        """What the step was for each of its interventions, after its last part has gone backward."""
        compared = [one.end_step(self._total, self.head.weight) for one in self.sums]
        self.sums = []
        return compared

    def log_values(self) -> dict[str, float]:
        """What the log says of the interventions since its last line, as in within/lambda."""
        lines = ((term.name, term.log_values()) for term in self.terms)
        return {f"{name}/{what}": value for name, values in lines for what, value in values.items()}

    def state_tensors(self) -> dict[str, Tensor]:
        """What must be restored for the training to continue to the same bits."""
        return {f"{term.name}.{name}": one for term in self.terms for name, one in term.state_tensors().items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state_tensors` gave."""
        for term in self.terms:
            prefix = f"{term.name}."
            own = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            term.load_state_tensors(own, self.head.weight.device)

    def _cross_entropy(self, features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return next_token_loss(
            features,
            weight,
            labels,
            bias=self.head.bias,
            softcap=self.head.softcap,
            scale=self.head.scale,
            label_smoothing=self.label_smoothing,
            space=self.space,
        )

    def _penalties(self, features: Tensor, labels: Tensor) -> list[Gradients]:
        """The gradient of each penalty by itself, in float32 or better also where the model runs in less."""
        with torch.autocast(features.device.type, enabled=False):
            head, used = self.head, labels.reshape(-1) != IGNORED
            inputs = features.detach().to(torch.promote_types(features.dtype, torch.float32)).requires_grad_()
            weight = head.weight.detach().requires_grad_(head.weight.requires_grad)
            sequences = torch.arange(len(labels), device=labels.device).repeat_interleave(labels[0].numel())
            chosen = (inputs, labels.reshape(-1), sequences)
            if not used.all():
                chosen = (inputs[used], labels.reshape(-1)[used], sequences[used])
            bias = None if head.bias is None else head.bias.detach()
            tokens = Tokens(*chosen, OutputLayer(weight, bias, head.scale, head.softcap))
            return [one.gradients(one.term.penalty(tokens, self._total), inputs, weight) for one in self.sums]

    def _adder(self, place: Place, gradients: list[Tensor | None], share: list[Tensor]) -> Callable[[Tensor], Tensor]:
        """A hook that sees the gradient of the cross-entropy and adds λ∇R of every penalty to it."""
        parts = list(zip(self.sums, gradients, strict=True))

        def add(of_loss: Tensor) -> Tensor:
            total = of_loss
            for sums, gradient in parts:
                own = None if gradient is None else gradient * share[0]
                if sums.place == place:
                    sums.add(of_loss, own)
                if own is not None and sums.term.factor:
                    total = total + (sums.term.factor * own).to(total.dtype)
            return total

        return add

    def _total(self, tensor: Tensor) -> Tensor:
        if self.processes > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor


def _on_gradient(tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> None:
    """Call the function with the tensor's gradient when it is known; what it returns takes the gradient's place."""
    tensor.register_hook(function)  # type: ignore[no-untyped-call]


@final
class _StepSums:
    """Both gradients of a step for one term, summed over the parts of the step.

    Every part has features of its own, so squared norms are summed; the output layer is one, so gradients are.
    """

    def __init__(self, term: Term) -> None:
        self.term, self.place = term, term.intervention.dose_over
        self.of_loss: Tensor | None = None
        self.of_penalty: Tensor | None = None
        self.values: list[Tensor] = []

    def gradients(self, penalty: Tensor | None, features: Tensor, weight: Tensor) -> Gradients:
        if penalty is None:
            return Gradients(None, None)
        self.values.append(penalty.detach())
        if not penalty.requires_grad:
            return Gradients(None, None)
        inputs = [features, weight] if weight.requires_grad else [features]
        of_features, *of_weight = torch.autograd.grad(penalty, inputs, allow_unused=True)
        return Gradients(of_features, of_weight[0] if of_weight else None)

    def add(self, of_loss: Tensor, of_penalty: Tensor | None) -> None:
        self.of_loss = self._added(self.of_loss, of_loss)
        if of_penalty is not None:
            self.of_penalty = self._added(self.of_penalty, of_penalty)

    def end_step(self, total: Callable[[Tensor], Tensor], weight: Tensor) -> Compared:
        of_loss, of_penalty = (self._square(one, total, weight) ** 0.5 for one in (self.of_loss, self.of_penalty))
        values = torch.stack([value.double() for value in self.values]) if self.values else torch.zeros(0).double()
        counted = total(torch.tensor([float(values.sum()), len(values)], dtype=torch.float64, device=weight.device))
        value = float(counted[0] / counted[1]) if counted[1] else None
        return self.term.end_step(of_loss, of_penalty, value)

    def _added(self, before: Tensor | None, gradient: Tensor) -> Tensor:
        if self.place == "head":
            return gradient.detach().clone() if before is None else before + gradient
        square: Tensor = torch.linalg.vector_norm(gradient, dtype=torch.float64).square()
        return square if before is None else before + square

    def _square(self, summed: Tensor | None, total: Callable[[Tensor], Tensor], weight: Tensor) -> float:
        if self.place == "head":
            whole = total(torch.zeros_like(weight) if summed is None else summed)
            return float(torch.linalg.vector_norm(whole, dtype=torch.float64).square())
        empty = torch.zeros((), dtype=torch.float64, device=weight.device)
        return float(total(empty if summed is None else summed))
