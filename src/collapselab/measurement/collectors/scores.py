"""Loss and accuracy of the model, and of validation what outcomes need of single tokens.

Losses are also summed by class, and the largest probability of each token is kept, where the options ask for them. The
temperature is that of the least cross-entropy on training tokens: Guo, Pleiss, Sun & Weinberger (2017),
arXiv:1706.04599. The cross-entropy of softmax(s z) is convex in the scale s = 1/T.
"""

from functools import partial

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import fit_scale
from collapselab.core.decisions import TopTwo
from collapselab.core.devices import by_device
from collapselab.measurement.batch import Batch, Scored
from collapselab.measurement.collector import LAST, Collector, Collectors
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.scores import BUFFER_BYTES, LogitSpace, ScoredChunk, Scorer, Scores, common_dtype, in_chunks
from collapselab.models.taps import OutputLayer
from collapselab.records.options import Options

OF_CLASSES = ("macro_loss", "rare_loss")
"""Outcomes that need the loss of each class."""

FITTED_TOKENS = 4096
"""Training tokens, at least, that a scale is fitted to: whole batches, the first of the sample."""

FIT_ROWS = 128
"""Tokens of a fit whose logits are in memory at once, six times over."""

TOTAL, CLASS_TOKENS, CLASS_LOSS, SCALED_LOSS = "total", "class_tokens", "class_loss", "scaled_loss"
CONFIDENCE, RIGHT = "confidence", "right"


class FirstFeatures(Collector):
    """Keeps the features of the first training tokens, to which scales are fitted: without it the model runs again.

    They are no part of the state. A measurement that continues in another process runs the model on them again.
    """

    name = "first_features"
    splits = ("train",)

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        return (FITTED_TOKENS + plan.batch_tokens) * plan.width * plan.model.head.weight.element_size()

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        sample = self.split_plan.samples.last
        if layer == LAST and batch.blocks and sample.samples(0, batch.blocks.start) < FITTED_TOKENS:
            own = features.view(-1, batch.labels.last.own.shape[1], features.shape[1])
            self.plan.first_features.update(zip(batch.blocks, own, strict=False))  # shards have filler after them


class TokenScores(Collector):
    """Sums of losses and hits, by class too; and for each token the largest probability, and whether it was right."""

    name = "scores"

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        options, validation = plan.options, split == "validation"
        self.scorer = Scorer(plan.model.head)
        self.by_class = validation and _by_class(options)
        self.by_token = validation and options.asks("ece")
        needs_scale = validation and options.asks("loss_after_temperature")
        self.scale = plan.processes.computed(partial(fitted_scale, plan)) if needs_scale else None
        """One over the temperature."""

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return split == "validation" or plan.options.train_loss or plan.options.asks("gap")

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Logits, the output layer in float32 unless it is, sums of classes, and 5 bytes a token, which are copied."""
        vocabulary, options = plan.model.classes, plan.options
        logits = min(by_device(BUFFER_BYTES, plan.model.moments_device), 4 * vocabulary * plan.batch_tokens)
        widened = 4 * vocabulary * plan.width if plan.model.head.weight.element_size() < 4 else 0
        if split == "train":
            return logits + widened
        logits = max(logits, 24 * vocabulary * FIT_ROWS * options.asks("loss_after_temperature"))
        tokens = 20 * plan.splits[split].samples.last.tokens if options.asks("ece") else 0
        return logits + widened + tokens + (32 * vocabulary if _by_class(options) else 0)

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if layer != LAST:
            return
        labels, chunks = batch.labels.last, list[ScoredChunk]()

        def observe(chunk: ScoredChunk) -> None:
            chunks.append(chunk)
            self._add_tokens(chunk)  # now: the next chunk overwrites the probabilities

        scored = labels.own[labels.own != IGNORED]
        seen_by = observe if self.split == "validation" else None
        self.add(TOTAL, self.scorer.sums(labels.sampled(features), scored, observe=seen_by))
        if chunks:
            best, gap, losses = (
                torch.cat([getattr(chunk, name) for chunk in chunks]) for name in ("best", "gap", "losses")
            )
            batch.scored = Scored(TopTwo(best, gap), losses)

    @property
    def scores(self) -> Scores:
        """Of all tokens."""
        return Scores.of(self.sums[TOTAL]) if TOTAL in self.sums else Scores()

    @property
    def confidence(self) -> Tensor:
        """The largest probability at each token, float32 (tokens,)."""
        return torch.cat([torch.zeros(0, device=self.device), *self.tokens.get(CONFIDENCE, [])]).cpu()

    @property
    def right(self) -> Tensor:
        """Whether it was that of the next token (tokens,)."""
        return torch.cat([torch.zeros(0, dtype=torch.bool, device=self.device), *self.tokens.get(RIGHT, [])]).cpu()

    def _add_tokens(self, chunk: ScoredChunk) -> None:
        labels, losses = chunk.labels, chunk.losses.double()
        if self.by_class:
            zeros = torch.zeros(self.plan.model.classes, dtype=torch.float64, device=self.device)
            self.add(CLASS_TOKENS, zeros.long().index_add_(0, labels, torch.ones_like(labels)))
            self.add(CLASS_LOSS, zeros.index_add_(0, labels, losses))
        if self.by_token:
            largest = chunk.probabilities.gather(1, chunk.best[:, None]).squeeze(1)
            self.tokens.setdefault(CONFIDENCE, []).append(largest.float())
            self.tokens.setdefault(RIGHT, []).append(chunk.best == labels)
        if self.scale is not None:
            # softmax(s z) from p = softmax(z): p^s over its sum, so the loss is s · loss + log Σ p^s
            total = chunk.probabilities.pow_(self.scale).sum(1).double().log_()
            self.add(SCALED_LOSS, (self.scale * losses + total).sum())


def _by_class(options: Options) -> bool:
    return options.classes or any(map(options.asks, OF_CLASSES))


@torch.no_grad()
def fitted_scale(plan: MeasurePlan) -> float:
    """One over the temperature."""
    parts: list[Tensor] = []
    labels: list[Tensor] = []
    for states, next_tokens, _ in plan.training_batches():
        parts.append(states.to(common_dtype(states, plan.model.head.weight)))
        labels.append(next_tokens.to(states.device))
        if sum(map(len, labels)) >= FITTED_TOKENS:
            break
    x, y = torch.cat(parts), torch.cat(labels)
    head = plan.model.head.to(common_dtype(x, plan.model.head.weight))
    return fit_scale(lambda scale: loss_derivatives(head, x, y, scale), 1.0)


def loss_derivatives(head: OutputLayer, x: Tensor, labels: Tensor, scale: float) -> tuple[float, float]:
    """Both derivatives of the mean cross-entropy of softmax(s z) by s: E[E_p z − z_y], E[Var_p z]."""
    slope = curvature = 0.0
    for rows, scores in in_chunks(head, x, FIT_ROWS, LogitSpace()):
        scores -= scores.gather(1, labels[rows][:, None])  # differences keep more digits
        chances = (scale * scores).softmax(1)
        mean = (chances * scores).sum(1, keepdim=True)
        slope += float(mean.double().sum())
        curvature += float((chances * (scores - mean).square_()).double().sum())
    return slope / len(x), curvature / len(x)
