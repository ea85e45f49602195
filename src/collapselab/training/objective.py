"""The loss of a step: next-token cross-entropy, and the gradients that interventions add to it.

A penalty R is differentiated by itself, in features and an output layer that are separated from the model. λ∇R is added
to the gradient of the cross-entropy when that reaches the features on its way back. So the output layer and the model
are gone through once, and the loss that is returned and logged is plain cross-entropy, without label smoothing.

Several parts of a step, and several processes, each have a penalty of their own tokens; its gradient has the same share
of the step as their cross-entropy. Over all of them are summed the squared norms of both gradients, which decide the
next λ, and what an intervention keeps. A penalty of the output layer alone is compared with that layer's gradient,
which is summed over parts and processes before its norm is taken.

The cross-entropy (`next_token_loss`) never holds tokens × vocabulary. The logits of a chunk of tokens at a time are
made in one buffer, become probabilities in place, then their own gradient, and are multiplied out at once, in the
forward pass: backward has nothing left to do. The factors that every logit's gradient shares, the scale and 1 / tokens,
are part of the matrix products, so that three products and one softmax are all that passes over the logits. All cores
work on the same chunk: a chunk for each core would need a gradient of the output layer for each. Half-precision inputs
are multiplied in float32 and get gradients of their own dtype. So it is under autocast, which leaves products into a
given buffer alone; only on CUDA, where the library's own function is used, it takes effect.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.models.scores import (
    LogitSpace,
    check_options,
    check_shapes,
    common_dtype,
    in_chunks,
    in_dtype,
    losses_of,
    used_tokens,
)
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions.classes import Classes
from collapselab.training.interventions.dose import parse_doses
from collapselab.training.interventions.gradients import Dense, Gradients, LossSums, TermSums
from collapselab.training.interventions.penalty import Penalty
from collapselab.training.interventions.term import Compared, Term, Tokens
from collapselab.training.settings import Settings


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
        self.sums: list[TermSums] = []
        """Of the terms that are computed in this step."""
        self.of_loss = LossSums()

    def __call__(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of labels (batch, tokens) from features (batch, tokens, dim); penalties act on its gradient."""
        flat, weight = features.reshape(-1, features.shape[-1]), self.head.weight
        penalties = self._penalties(flat, labels) if self.sums and torch.is_grad_enabled() else []
        needed = any(gradients.head is not None for gradients in penalties)
        needed |= any(term_sums.place == "head" for term_sums in self.sums)
        if penalties and needed and weight.requires_grad:
            weight = weight.view_as(weight)  # so that its gradient is that of the output layer alone where it is tied
        loss = next_token_loss(
            flat,
            weight,
            labels.reshape(-1),
            bias=self.head.bias,
            softcap=self.head.softcap,
            scale=self.head.scale,
            label_smoothing=self.label_smoothing,
            space=self.space,
            plain_value=True,
        )
        if not penalties:
            return loss
        share: list[Tensor] = []
        _on_gradient(loss, share.append)  # of this part in the step's loss: it is known when the loss goes backward
        _on_gradient(flat, lambda of_loss: self._add_to_features(of_loss, penalties, share[0]))
        if weight is not self.head.weight:
            _on_gradient(weight, lambda of_loss: self._add_to_head(of_loss, penalties, share[0]))
        return loss

    def begin_step(self, number: int) -> None:
        """Choose the terms of this step; `number` steps were taken before it."""
        self.sums = [TermSums(term) for term in self.terms if number in term.computed]
        self.of_loss = LossSums()
        for term in self.terms:
            term.live_text = ""
        for term_sums in self.sums:
            term_sums.term.begin_step(number)

    def end_step(self) -> list[Compared]:
        """What the step was for each of its interventions, after its last part has gone backward."""
        places = {term_sums.place for term_sums in self.sums}
        of_loss = {place: self.of_loss.norm(place, self._total, self.head.weight) for place in sorted(places)}
        compared = []
        for term_sums in self.sums:
            of_penalty, value = (
                term_sums.norm(self._total, self.head.weight),
                term_sums.mean_value(self._total, self.head.weight),
            )
            compared.append(term_sums.term.end_step(of_loss[term_sums.place], of_penalty, value))
        self.sums, self.of_loss = [], LossSums()
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
        return {f"{term.name}.{name}": tensor for term in self.terms for name, tensor in term.state_tensors().items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state_tensors` gave."""
        for term in self.terms:
            prefix = f"{term.name}."
            own = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            term.load_state_tensors(own, self.head.weight.device)

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
            return [self._gradients(term_sums, tokens, inputs, places) for term_sums in self.sums]

    def _gradients(self, term_sums: TermSums, tokens: Tokens, inputs: Tensor, places: Tensor | None) -> Gradients:
        """Those of a penalty; of a graph, or those that it gives itself, which are of the tokens at `places` alone."""
        penalty, weight = term_sums.term.penalty(tokens, self._total), tokens.head.weight
        if penalty is None:
            return Gradients(None, None)
        if isinstance(penalty, Penalty):
            term_sums.values.append(penalty.value)
            of_features = penalty.of_features
            if of_features is not None and places is not None:
                of_features = torch.zeros_like(inputs).index_copy_(0, places, of_features)
            return Gradients(of_features, penalty.of_head if weight.requires_grad else None)
        term_sums.values.append(penalty.detach())
        if not penalty.requires_grad:
            return Gradients(None, None)
        needed = [inputs, weight] if weight.requires_grad else [inputs]
        of_features, *of_weight = torch.autograd.grad(penalty, needed, allow_unused=True)
        return Gradients(of_features, Dense(of_weight[0]) if of_weight and of_weight[0] is not None else None)

    def _add_to_features(self, of_loss: Tensor, penalties: list[Gradients], share: Tensor) -> Tensor:
        """Note both gradients in the features, and add λ∇R of every penalty to that of the cross-entropy."""
        self.of_loss.add_features(of_loss)
        total = of_loss
        for term_sums, (gradient, _) in zip(self.sums, penalties, strict=True):
            if gradient is None:
                continue
            if term_sums.place == "features":
                term_sums.add_features(gradient, share)
            if term_sums.term.factor:
                factor = share * term_sums.term.factor
                same = gradient.dtype == total.dtype
                total = torch.addcmul(total, gradient, factor) if same else total + (gradient * factor).to(total.dtype)
        return total

    def _add_to_head(self, of_loss: Tensor, penalties: list[Gradients], share: Tensor) -> Tensor:
        """The same of the output layer: in place, where nothing else holds the gradient, as it may be large."""
        total, whole = of_loss, True
        if any(term_sums.place == "head" for term_sums in self.sums):
            whole = self.processes == 1 and bool(share == 1)
            self.of_loss.add_head(of_loss, whole=whole)
            total = of_loss if whole else of_loss.clone()
        for term_sums, (_, gradient) in zip(self.sums, penalties, strict=True):
            if gradient is None:
                continue
            if term_sums.place == "head":
                term_sums.add_head(gradient, share, whole=whole)
            if term_sums.term.factor:
                gradient.add_to(total, share * term_sums.term.factor)
        return total

    def _total(self, tensor: Tensor) -> Tensor:
        if self.processes > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor


def _on_gradient(tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> None:
    """Call the function with the tensor's gradient when it is known; what it returns takes the gradient's place."""
    tensor.register_hook(function)  # type: ignore[no-untyped-call]


def next_token_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORED,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk: int | None = None,
    space: LogitSpace | None = None,
    plain_value: bool = False,
) -> Tensor:
    """Mean cross-entropy of the next tokens, labels (tokens,), from features (tokens, dim) by weight (vocab, dim).

        logits = scale · (features · weightᵀ + bias),   then softcap · tanh(logits / softcap) where one is given

    Labels are shifted already: ids[:, 1:] for features[:, :-1]. Equal to `F.cross_entropy` of the logits in value
    and gradient, but for rounding and for labels that are all ignored, which are an error here and nan there. `chunk`,
    the tokens computed at once, bounds memory at chunk × vocab numbers, twice that with `softcap`, and changes nothing
    else; `space` lets batches share that memory, which is faster. With `plain_value` the value is without label
    smoothing, and the gradient is as with it: what a log compares between trainings. A loss that is not finite is
    returned as it is. There is no second derivative.
    """
    check_shapes(features, weight, bias, labels)
    check_options(label_smoothing, softcap, chunk)
    features, labels = used_tokens(features, labels, vocab=len(weight), ignore_index=ignore_index)
    if not len(labels):
        raise ValueError(f"no label is left that is not {ignore_index}; a mean needs at least one. Skip this batch.")
    plain = softcap is None and scale == 1 and label_smoothing == 0 and chunk is None
    if plain and features.is_cuda and hasattr(F, "linear_cross_entropy"):  # faster there, and as small
        return _library_loss(features, weight, bias, labels)
    dtype, how = common_dtype(features, weight), _How(scale, softcap, label_smoothing, chunk, space, plain_value)
    head = in_dtype(OutputLayer(weight, bias), dtype)
    loss: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        features.to(dtype), head.weight, head.bias, labels, how, torch.is_grad_enabled()
    )
    return loss


class _How(NamedTuple):
    scale: float
    softcap: float | None
    label_smoothing: float
    chunk: int | None
    space: LogitSpace | None
    plain_value: bool


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        how: _How,
        with_gradients: bool,
    ) -> Tensor:
        ctx.wanted, ctx.how = [with_gradients and needed for needed in ctx.needs_input_grad[:3]], how
        ctx.save_for_backward(features, weight, bias, labels)
        loss, ctx.gradients = _loss_and_gradients(features, weight, bias, labels, how, ctx.wanted)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # `once_differentiable` would return constants here, and say nothing
            raise RuntimeError("next_token_loss has no second derivative. Call backward without create_graph=True.")
        gradients, ctx.gradients = ctx.gradients, None  # if they were held here too, who gets them would copy them
        if gradients is None:  # a graph that is retained may be gone through again
            features, weight, bias, labels = ctx.saved_tensors
            gradients = _loss_and_gradients(features, weight, bias, labels, ctx.how, ctx.wanted)[1]
        if grad_output != 1:
            gradients = [None if gradient is None else gradient.mul_(grad_output) for gradient in gradients]
        return *gradients, None, None, None


def _loss_and_gradients(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: _How, wanted: list[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    head = OutputLayer(weight, bias, how.scale, how.softcap)
    inputs = zip((features, weight, bias), wanted, strict=True)
    grads = [tensor.new_empty(tensor.shape) if tensor is not None and needed else None for tensor, needed in inputs]
    losses, capped = features.new_empty(len(features)), None
    for rows, logits in in_chunks(head, features, how.chunk, how.space):
        some, at = features[rows], labels[rows]
        if how.softcap is not None and any(wanted):
            capped = torch.empty_like(logits) if capped is None else capped[: len(logits)]
            torch.div(logits, how.softcap, out=capped).square_()
        smoothed = how.label_smoothing and not how.plain_value
        gap = logits.gather(1, at[:, None]).squeeze(1) - logits.mean(1) if smoothed else 0.0
        losses[rows] = losses_of(head, some, at, logits) + how.label_smoothing * gap
        if any(wanted):
            _to_gradient(logits, at, how.label_smoothing, capped)
            _multiply_out(grads, rows, logits, some, weight, factor=how.scale / len(features))
    return losses.mean(), grads


def _to_gradient(chances: Tensor, labels: Tensor, label_smoothing: float, capped: Tensor | None) -> None:
    """Turn probabilities in place into the gradient of each token's loss in its logits; `capped` is tanh²."""
    if label_smoothing:
        chances.sub_(label_smoothing / chances.shape[1])
    chances.scatter_add_(1, labels[:, None], chances.new_full((len(labels), 1), label_smoothing - 1))
    if capped is not None:
        chances.addcmul_(chances, capped, value=-1)


def _multiply_out(
    grads: list[Tensor | None], rows: slice, of_logits: Tensor, features: Tensor, weight: Tensor, *, factor: float
) -> None:
    """Add a chunk's share to the gradients; the first chunk finds them empty, with anything in them."""
    of_features, of_weight, of_bias = grads
    before = 0.0 if rows.start == 0 else 1.0
    if of_features is not None:
        of_features[rows].addmm_(of_logits, weight, beta=0, alpha=factor)
    if of_weight is not None:
        of_weight.addmm_(of_logits.T, features, beta=before, alpha=factor)
    if of_bias is not None:
        of_bias.addmv_(of_logits.T, features.new_full((len(features),), factor), beta=before)


def _library_loss(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    kind = features.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
    bias, options = None if bias is None else bias.to(dtype), torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(features.to(dtype), weight.to(dtype), labels, linear_bias=bias, options=options)
    return loss.to(torch.promote_types(dtype, torch.float32))
