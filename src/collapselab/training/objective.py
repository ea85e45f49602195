"""The loss of a step: next-token cross-entropy, and the gradients that interventions add to it.

A penalty R is differentiated by itself, in features and an output layer that are separated from the model. λ∇R is added
to the gradient of the cross-entropy when that reaches the features on its way back. So the output layer and the model
are gone through once, and the loss that is returned and logged is plain cross-entropy.

Several parts of a step, and several processes, each have a penalty of their own tokens; its gradient has the same share
of the step as their cross-entropy. Over all of them are summed the squared norms of both gradients, which decide the
next λ, and what an intervention keeps. A penalty of the output layer alone is compared with that layer's gradient,
which is summed over parts and processes before its norm is taken.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions.classes import Classes
from collapselab.training.interventions.dose import parse_doses
from collapselab.training.interventions.penalty import HeadGradient, HeadRows, Penalty
from collapselab.training.interventions.term import Compared, Term, Tokens
from collapselab.training.loss import next_token_loss
from collapselab.training.settings import Settings


class Dense(NamedTuple):
    """A gradient of the output layer as it comes from a graph."""

    gradient: Tensor

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.add_((self.gradient * factor).to(total.dtype))


class Gradients(NamedTuple):
    """Those of one penalty; None where it does not depend on the tensor."""

    features: Tensor | None
    head: HeadGradient | None


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
        self.sums: list[_TermSums] = []
        """Of the terms that are computed in this step."""
        self.of_loss = _LossSums()

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
        _on_gradient(flat, lambda of_loss: self._add_to_features(of_loss, penalties, share[0]))
        if weight is not self.head.weight:
            _on_gradient(weight, lambda of_loss: self._add_to_head(of_loss, penalties, share[0]))
        return loss

    def begin_step(self, number: int) -> None:
        """Choose the terms of this step; `number` steps were taken before it."""
        self.sums = [_TermSums(term) for term in self.terms if number in term.computed]
        self.of_loss = _LossSums()
        for term in self.terms:
            term.live_text = ""
        for one in self.sums:
            one.term.begin_step(number)

    def end_step(self) -> list[Compared]:
        """What the step was for each of its interventions, after its last part has gone backward."""
        device = self.head.weight.device
        of_features = _root(self._total(_number(self.of_loss.features, device)))
        of_head = self._norm_of_head(self.of_loss.head)
        compared = []
        for one in self.sums:
            of_loss = of_head if one.place == "head" else of_features
            compared.append(one.term.end_step(of_loss, self._norm_of_penalty(one), self._mean_value(one)))
        self.sums, self.of_loss = [], _LossSums()
        return compared

    def log_values(self) -> dict[str, float]:
        """What the log says of the interventions since its last line, as in within/lambda."""
        lines = ((term.name, term.log_values()) for term in self.terms)
        return {f"{name}/{what}": value for name, values in lines for what, value in values.items()}

    def live_texts(self) -> list[str]:
        """What the step just taken was for each intervention, in a few words."""
        return [text for term in self.terms if (text := term.live_text)]

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
            places = None if used.all() else used.nonzero().squeeze(1)
            if places is not None:
                chosen = (inputs[places], chosen[1][places], sequences[places])
            bias = None if head.bias is None else head.bias.detach()
            classes = Classes(chosen[0], chosen[1], vocabulary=len(weight))
            tokens = Tokens(*chosen, classes, OutputLayer(weight, bias, head.scale, head.softcap))
            return [self._gradients(one, tokens, inputs, places) for one in self.sums]

    def _gradients(self, one: "_TermSums", tokens: Tokens, inputs: Tensor, places: Tensor | None) -> Gradients:
        """Those of a penalty; of a graph, or those that it gives itself, which are of the tokens at `places` alone."""
        penalty, weight = one.term.penalty(tokens, self._total), tokens.head.weight
        if penalty is None:
            return Gradients(None, None)
        if isinstance(penalty, Penalty):
            one.values.append(penalty.value)
            of_features = penalty.of_features
            if of_features is not None and places is not None:
                of_features = torch.zeros_like(inputs).index_copy_(0, places, of_features)
            return Gradients(of_features, penalty.of_head if weight.requires_grad else None)
        one.values.append(penalty.detach())
        if not penalty.requires_grad:
            return Gradients(None, None)
        needed = [inputs, weight] if weight.requires_grad else [inputs]
        of_features, *of_weight = torch.autograd.grad(penalty, needed, allow_unused=True)
        return Gradients(of_features, Dense(of_weight[0]) if of_weight and of_weight[0] is not None else None)

    def _add_to_features(self, of_loss: Tensor, penalties: list[Gradients], share: Tensor) -> Tensor:
        """Note both gradients in the features, and add λ∇R of every penalty to that of the cross-entropy."""
        self.of_loss.features = _added(self.of_loss.features, _square(of_loss))
        total = of_loss
        for one, (gradient, _) in zip(self.sums, penalties, strict=True):
            if gradient is None:
                continue
            if one.place == "features":
                one.of_penalty = _added(one.of_penalty, _square(gradient) * share.double().square())
            if one.term.factor:
                factor = share * one.term.factor
                same = gradient.dtype == total.dtype
                total = torch.addcmul(total, gradient, factor) if same else total + (gradient * factor).to(total.dtype)
        return total

    def _add_to_head(self, of_loss: Tensor, penalties: list[Gradients], share: Tensor) -> Tensor:
        """The same of the output layer: in place, where nothing else holds the gradient, as it may be large."""
        total, of_head = of_loss, [one for one in self.sums if one.place == "head"]
        if of_head:
            kept = self._keep_of_head(of_loss, whole=self.processes == 1 and bool(share == 1))
            total = of_loss if not kept else of_loss.clone()
        for one, (_, gradient) in zip(self.sums, penalties, strict=True):
            if gradient is None:
                continue
            if one.place == "head":
                one.of_head.append((gradient, share))
            if one.term.factor:
                gradient.add_to(total, share * one.term.factor)
        return total

    def _keep_of_head(self, of_loss: Tensor, *, whole: bool) -> bool:
        """Add to the gradient of the output layer; of a step in one part its square is enough, and nothing is kept."""
        if whole:
            self.of_loss.head = _square(of_loss)
            return False
        self.of_loss.head = _added(self.of_loss.head, of_loss.detach())
        return True

    def _norm_of_head(self, summed: Tensor | None) -> float:
        """The norm of the output layer's gradient from its square, or from the gradient of all parts and processes."""
        if not any(one.place == "head" for one in self.sums):
            return 0.0
        if summed is not None and summed.ndim == 0:
            return _root(summed)
        return _root(_square(self._total(torch.zeros_like(self.head.weight) if summed is None else summed)))

    def _norm_of_penalty(self, one: "_TermSums") -> float:
        if one.place == "features":
            return _root(self._total(_number(one.of_penalty, self.head.weight.device)))
        if self.processes == 1 and len(one.of_head) == 1:
            gradient, share = one.of_head[0]
            if isinstance(gradient, HeadRows):
                return _root(_square(gradient.gradient)) * float(share)
        summed = torch.zeros_like(self.head.weight)
        for gradient, share in one.of_head:
            gradient.add_to(summed, share)
        return _root(_square(self._total(summed)))

    def _mean_value(self, one: "_TermSums") -> float | None:
        """The mean of the penalty over parts and processes, None where there was none."""
        values = torch.stack([value.double() for value in one.values]) if one.values else torch.zeros(0).double()
        device = self.head.weight.device
        counted = self._total(torch.tensor([float(values.sum()), len(values)], dtype=torch.float64, device=device))
        return float(counted[0] / counted[1]) if counted[1] else None

    def _total(self, tensor: Tensor) -> Tensor:
        if self.processes > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor


@final
class _TermSums:
    """What a step was for one term, over the parts of the step.

    Every part has features of its own, so squared norms are summed; the output layer is one, so gradients are.
    """

    def __init__(self, term: Term) -> None:
        self.term, self.place = term, term.intervention.dose_over
        self.of_penalty: Tensor | None = None
        self.of_head: list[tuple[HeadGradient, Tensor]] = []
        self.values: list[Tensor] = []


@final
@dataclass
class _LossSums:
    """The gradient of the cross-entropy in a step, for all terms: the square of the features', and the output layer's.

    Of the latter the square is enough where the step has one part.
    """

    features: Tensor | None = None
    head: Tensor | None = None


def _on_gradient(tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> None:
    """Call the function with the tensor's gradient when it is known; what it returns takes the gradient's place."""
    tensor.register_hook(function)  # type: ignore[no-untyped-call]


def _square(gradient: Tensor) -> Tensor:
    """The sum of squares: of each row in the gradient's own type, which is quick, and over rows in float64."""
    dtype = torch.promote_types(gradient.dtype, torch.float32)
    rows: Tensor = torch.linalg.vector_norm(gradient.detach(), dim=-1, dtype=dtype)
    return rows.double().square().sum()


def _added(before: Tensor | None, more: Tensor) -> Tensor:
    return more if before is None else before + more


def _number(value: Tensor | None, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=device) if value is None else value


def _root(square: Tensor) -> float:
    return math.sqrt(float(square))
