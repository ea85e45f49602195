"""Collapse pushed after training: loss and calibration when features are moved toward their class means.

    h' = h + α (Σ_c p_c(h) μ_c − h)        for each α of the option `push`, and always for 0

where p are the model's own probabilities, over the classes that have a mean μ_c. No label is used: h moves toward the
means of the classes that the model expects, or away from them where α < 0. Two heads score h':

    own       the model's output layer
    centres   softmax of −τ ‖h' − μ_c‖² / 2 + log π_c, over the classes that have a mean; τ is fitted to training tokens

The means are those of the training pass; the validation pass scores its tokens on the way, a chunk of them at a time.
"""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import fit_scale
from collapselab.core.decisions import LinearClassifier
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collector, Collectors, Values
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.collectors.scores import FITTED_TOKENS, loss_derivatives
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.scores import LogitSpace, in_chunks, in_dtype, losses_of
from collapselab.models.taps import OutputLayer
from collapselab.records.tables import PushRow

HEADS = ("own", "centres")

CONFIDENCES = 15
"""Bins of equal width that the calibration error compares confidence and accuracy in."""

TOKENS, LOSS, RIGHT, DECIDED, AGREED, BINS = range(6)
"""Places of the sums for one head and α; from BINS on tokens, confidence and right choices of each bin."""

WIDTH = BINS + 3 * CONFIDENCES


@final
class Push(Collector):
    """Scores of pushed features (heads, alphas, sums)."""

    name = "push"
    option = "push"
    splits = ("validation",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        centres = earlier[NearestCentres]
        nearest = centres.nearest[LAST]
        assert isinstance(nearest, LinearClassifier)
        assert nearest.classes is not None
        assert nearest.origin is not None
        self.alphas = plan.options.alphas
        self.choose_own, self.choose_nearest = centres.head.last, nearest
        device, dtype = plan.model.device, torch.promote_types(plan.model.head.weight.dtype, torch.float32)
        self.head, self.dtype, self.space = in_dtype(plan.model.head, dtype), dtype, LogitSpace()
        numbers = plan.splits["train"].numbers
        self.classes = nearest.classes.cpu()
        """Numbers of the classes with a mean, in the order of the rows."""
        self.ids = numbers.ids[self.classes].to(device)
        self.place = torch.full((numbers.classes,), -1).index_put_((self.classes,), torch.arange(len(self.classes)))
        self.origin = nearest.origin.to(device, dtype)
        means = nearest.rows
        self.means = means.to(device, dtype)
        """Class means less the origin."""
        self.halves = means.square().sum(1).mul_(0.5).to(device, dtype)
        counts = plan.counts.last[self.classes].double()
        self.log_priors = (counts / counts.sum()).log().to(device, dtype)
        self.tau = plan.processes.computed(self._fitted_tau)
        self.by_centres = OutputLayer(self.tau * self.means, self.log_priors - self.tau * self.halves)

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Class means in float32, the pushed features of a batch, and logits."""
        logits = min(112 << 20, 4 * plan.model.classes * plan.batch_tokens)
        return 8 * (plan.splits["train"].rows + 2 * plan.batch_tokens) * plan.width + 2 * logits

    @torch.no_grad()
    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        """Score the validation features of a batch for every α."""
        if layer == LAST:
            own = batch.labels.last.own
            self.add("sums", self.scored(batch.labels.last.sampled(features), own[own != IGNORED]))

    def scored(self, features: Tensor, labels: Tensor) -> Tensor:
        """The sums of features (tokens, dim) with their next tokens, for every α."""
        sums = torch.zeros(len(HEADS), len(self.alphas), WIDTH, dtype=torch.float64)
        x = features.to(self.dtype)
        places = self._places(labels)
        has_mean = (places >= 0).nonzero().squeeze(1)
        toward = self._expected_means(x) - x
        for number, alpha in enumerate(self.alphas):
            pushed = x + alpha * toward
            decided = pushed[has_mean.to(x.device)]
            own = self.choose_own.choices(decided).cpu()
            nearest = self.choose_nearest.choices(decided).cpu()
            self._tally(sums[0, number], self.head, pushed, labels.to(x.device))
            right = places[has_mean].to(x.device)
            best = self._tally(sums[1, number], self.by_centres, decided - self.origin, right)
            for tally, agreed in ((sums[0, number], own == nearest), (sums[1, number], own == best)):
                tally[DECIDED] += len(agreed)
                tally[AGREED] += int(agreed.sum())
        return sums

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        values.add_rows(self.name, list(self._rows()))
        return values

    def _rows(self) -> Iterator[PushRow]:
        for head, tallies in zip(HEADS, self.sums["sums"], strict=True):
            for alpha, tally in zip(self.alphas, tallies, strict=True):
                tokens, decided = int(tally[TOKENS]), int(tally[DECIDED])
                yield PushRow(
                    **self.plan.names,
                    head=head,
                    alpha=alpha,
                    tau=None if head == "own" else self.tau,
                    tokens=tokens,
                    loss=_share(float(tally[LOSS]), tokens),
                    ece=_share(_calibration_gap(tally), tokens),
                    accuracy=_share(float(tally[RIGHT]), tokens),
                    agreement=_share(float(tally[AGREED]), decided),
                )

    def _tally(self, tally: Tensor, head: OutputLayer, features: Tensor, labels: Tensor) -> Tensor:
        """Add loss, right choices and confidences of a head to its sums; the classes that it chose."""
        chosen = torch.zeros(len(features), dtype=torch.int64)
        for rows, logits in in_chunks(head, features, None, self.space):
            best = logits.argmax(1)
            losses = losses_of(head, features[rows], labels[rows], logits)
            confidence = logits.gather(1, best[:, None]).squeeze(1).double().cpu()
            right = (best == labels[rows]).double().cpu()
            tally[TOKENS] += len(right)
            tally[LOSS] += float(losses.cpu().double().sum())
            tally[RIGHT] += float(right.sum())
            bins = (confidence * CONFIDENCES).long().clamp_(max=CONFIDENCES - 1)
            for number, values in enumerate((torch.ones_like(right), confidence, right)):
                start = BINS + number * CONFIDENCES
                tally[start : start + CONFIDENCES].index_add_(0, bins, values)
            chosen[rows] = best.cpu() if head is self.head else self.classes[best.cpu()]
        return chosen

    def _expected_means(self, features: Tensor) -> Tensor:
        """Σ_c p_c(h) μ_c over the classes with a mean, whose probabilities are made to sum to 1."""
        expected = torch.empty_like(features)
        for rows, logits in in_chunks(self.head, features, None, self.space):
            chances = logits[:, self.ids].softmax(1)
            torch.addmm(self.origin, chances, self.means, out=expected[rows])
        return expected

    def _places(self, labels: Tensor) -> Tensor:
        """The place of each label's class among the means; -1 where it has none."""
        numbers = self.plan.splits["train"].numbers.of(labels.cpu())
        return torch.where(numbers < 0, -1, self.place[numbers.clamp(min=0)])

    @torch.no_grad()
    def _fitted_tau(self) -> float:
        """The τ of the least cross-entropy on training tokens, which is convex in τ, by Newton's method."""
        parts: list[Tensor] = []
        of_parts: list[Tensor] = []
        for states, labels, _ in self.plan.training_batches():
            places = self._places(labels).to(states.device)
            has_mean = (places >= 0).nonzero().squeeze(1)
            parts.append(states[has_mean].to(self.dtype) - self.origin)
            of_parts.append(places[has_mean])
            if sum(map(len, parts)) >= FITTED_TOKENS:
                break
        x, places = torch.cat(parts), torch.cat(of_parts)
        scatter = (x - self.means[places]).double().square().sum(1).mean()
        start = x.shape[1] / max(float(scatter), 1e-30)  # 1 / variance of a dimension within classes
        by_centres = OutputLayer(self.means, -self.halves)
        return fit_scale(lambda tau: loss_derivatives(by_centres, x, places, tau, log_priors=self.log_priors), start)


def _calibration_gap(tally: Tensor) -> float:
    _, confidence, right = tally[BINS:].view(3, CONFIDENCES)
    return float((confidence - right).abs().sum())


def _share(total: float, count: int) -> float | None:
    return total / count if count else None
