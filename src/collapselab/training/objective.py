"""The loss of a step: next-token cross-entropy, and the gradients that interventions add to it.

A penalty R is differentiated by itself, in features and an output layer that are separated from the model. λ∇R is added
to the gradient of the cross-entropy when that reaches the features on its way back. So the output layer and the model
are gone through once, and the loss that is returned and logged is plain cross-entropy, without label smoothing.

Several parts of a step, and several processes, each have a penalty of their own tokens; its gradient has the same share
of the step as their cross-entropy. Over all of them are summed the squared norms of both gradients, which decide the
next λ, and what an intervention keeps. A penalty of the output layer alone is compared with that layer's gradient,
which is summed over parts and processes before its norm is taken.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.devices import exact_device
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import Place, parse_doses
from collapselab.training.interventions.step import Classes, Dense, Penalty, sum_of_squares
from collapselab.training.interventions.term import Compared, StepNorm, Term, Tokens
from collapselab.training.loss import next_token_loss
from collapselab.training.settings import Settings


class Objective:
    """`objective(features, labels)` is the loss of a part of a step; `begin_step` and `end_step` enclose the parts."""

    def __init__(
        self,
        head: OutputLayer,
        settings: Settings,
        *,
        steps: int,
        processes: int = 1,
        parts: int = 1,
        space: LogitSpace | None = None,
    ) -> None:
        self.head, self.space, self.processes, self.parts = head, space, processes, parts * processes
        self.label_smoothing = settings.label_smoothing
        self.terms = [Term(dose, seed=settings.seed, steps=steps) for dose in parse_doses(settings.intervene)]
        self.acting: list[Term] = []
        """Those that are computed in this step."""
        self.of_loss: dict[Place, StepNorm] = {}
        """The norm of the gradient of the cross-entropy, at each place that a dose of this step is over."""

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of labels (batch, tokens) from features (batch, tokens, dim); penalties act on its gradient."""
        flat, weight = features.reshape(-1, features.shape[-1]), self.head.weight
        labels = labels.cpu()  # where they are checked and grouped by class; a trainer has them there already
        acting = bool(self.acting) and torch.is_grad_enabled()
        penalties = self._penalties(flat, labels) if acting else []
        needed = acting and ("head" in self.of_loss or any(penalty.of_head is not None for _, penalty in penalties))
        if needed and weight.requires_grad:
            weight = weight.view_as(weight)  # so that its gradient is that of the output layer alone where it is tied
        loss = next_token_loss(
            flat,
            replace(self.head, weight=weight),
            labels.reshape(-1),
            label_smoothing=self.label_smoothing,
            space=self.space,
            plain_value=True,
        )
        if not acting:
            return loss
        share: list[Tensor] = []
        _on_gradient(loss, share.append)  # of this part in the step's loss: it is known when the loss goes backward
        _on_gradient(flat, lambda of_loss: self._add_to_features(of_loss, penalties, share[0]))
        if weight is not self.head.weight:
            _on_gradient(weight, lambda of_loss: self._add_to_head(of_loss, penalties, share[0]))
        return loss

    def begin_step(self, number: int) -> None:
        """Choose the terms of this step; `number` steps were taken before it."""
        self.acting = [term for term in self.terms if number in term.computed]
        places = sorted({term.place for term in self.acting})
        self.of_loss = {place: StepNorm(place, self.head.weight, parts=self.parts) for place in places}
        for term in self.acting:
            term.begin_step(number, StepNorm(term.place, self.head.weight, parts=self.parts))

    def end_step(self, *others: Tensor) -> tuple[list[Compared], list[float]]:
        """What the step was for each of its interventions, after its last part has gone backward; and other numbers.

        All are read from the device together, as the host waits for each reading.
        """
        acting, self.acting = self.acting, []
        squares = [norm.squared(self.total) for norm in self.of_loss.values()]
        measured = [number for term in acting for number in term.measured(self.total)]
        device = exact_device(self.head.weight.device)
        numbers = [number.detach().to(device).double() for number in (*squares, *others, *measured)]
        read = iter(torch.stack(numbers).tolist() if numbers else [])
        of_loss = {place: math.sqrt(next(read)) for place in self.of_loss}
        read_others = [next(read) for _ in others]
        return [term.end_step(of_loss[term.place], next(read), next(read), next(read)) for term in acting], read_others

    def log_values(self) -> dict[str, float]:
        """What the log says of the interventions since its last line, as in within/lambda."""
        lines = ((term.name, term.log_values()) for term in self.terms)
        return {f"{name}/{what}": value for name, values in lines for what, value in values.items()}

    def state_tensors(self) -> dict[str, Tensor]:
        """What must be restored for the training to continue to the same bits."""
        return {f"{term.name}.{name}": tensor for term in self.terms for name, tensor in term.state_tensors().items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state_tensors` gave."""
        for term in self.terms:
            prefix = f"{term.name}."
            own = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            term.load_state_tensors(own, self.head.weight.device)

    def _penalties(self, features: Tensor, labels: Tensor) -> list[tuple[Term, Penalty]]:
        """The gradient of each penalty by itself, in float32 or better also where the model runs in less."""
        with torch.autocast(features.device.type, enabled=False):
            head, used = self.head, labels.reshape(-1) != IGNORED
            inputs = features.detach().to(torch.promote_types(features.dtype, torch.float32)).requires_grad_()
            weight = head.weight.detach().requires_grad_(head.weight.requires_grad)
            sequences = torch.arange(len(labels)).repeat_interleave(labels[0].numel())
            chosen, places = (inputs, labels.reshape(-1), sequences), None
            if not used.all():
                kept = used.nonzero().squeeze(1)
                places = kept.to(inputs.device)
                chosen = (inputs[places], chosen[1][kept], sequences[kept])
            bias = None if head.bias is None else head.bias.detach()
            classes = Classes(chosen[0], chosen[1], vocabulary=len(weight))
            tokens = Tokens(*chosen, classes, OutputLayer(weight, bias, head.scale, head.softcap))
            found = [(term, self._penalty(term, tokens, inputs, places)) for term in self.acting]
            return [(term, penalty) for term, penalty in found if penalty is not None]

    def _penalty(self, term: Term, tokens: Tokens, inputs: Tensor, places: Tensor | None) -> Penalty | None:
        """Return a term's penalty with its gradients, by autograd or in closed form at the tokens `places`."""
        penalty, weight = term.penalty(tokens, self.total), tokens.head.weight
        if penalty is None:
            return None
        if isinstance(penalty, Penalty):
            term.values.append(penalty.value)
            of_features = penalty.of_features
            if of_features is not None and places is not None:
                of_features = torch.zeros_like(inputs).index_copy_(0, places, of_features)
            return Penalty(penalty.value, of_features, penalty.of_head if weight.requires_grad else None)
        term.values.append(penalty.detach())
        if not penalty.requires_grad:
            return None
        needed = [inputs, weight] if weight.requires_grad else [inputs]
        of_features, *of_weight = torch.autograd.grad(penalty, needed, allow_unused=True)
        of_head = Dense(of_weight[0]) if of_weight and of_weight[0] is not None else None
        return Penalty(penalty.detach(), of_features, of_head)

    def _add_to_features(self, of_loss: Tensor, penalties: list[tuple[Term, Penalty]], share: Tensor) -> Tensor:
        """Note both gradients in the features, and add λ∇R of every penalty to that of the cross-entropy."""
        total = of_loss
        if (norm := self.of_loss.get("features")) is not None:
            norm.square = sum_of_squares(of_loss) + norm.square
        for term, penalty in penalties:
            gradient = penalty.of_features
            if gradient is None:
                continue
            if term.place == "features":
                square = sum_of_squares(gradient)
                term.norm.square = square * share.to(square.device).double().square() + term.norm.square
            if term.factor:
                factor = share * term.factor
                same = gradient.dtype == total.dtype
                total = torch.addcmul(total, gradient, factor) if same else total + (gradient * factor).to(total.dtype)
        return total

    def _add_to_head(self, of_loss: Tensor, penalties: list[tuple[Term, Penalty]], share: Tensor) -> Tensor:
        """The same of the output layer: in place, as nothing else holds the gradient, which may be large."""
        if (norm := self.of_loss.get("head")) is not None:
            norm.add_head(Dense(of_loss), torch.ones_like(share))
        for term, penalty in penalties:
            if penalty.of_head is None:
                continue
            if term.place == "head":
                term.norm.add_head(penalty.of_head, share)
            if term.factor:
                penalty.of_head.add_to(of_loss, share * term.factor)
        return of_loss

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.processes > 1:
            summed = tensor.to(self.head.weight.device, copy=True)
            dist.all_reduce(summed)
            return summed.to(tensor.device)
        return tensor


def _on_gradient(tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> None:
    """Call the function with the tensor's gradient when it is known; what it returns takes the gradient's place."""
    tensor.register_hook(function)  # type: ignore[no-untyped-call]
