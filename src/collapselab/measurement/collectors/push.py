"""Collapse pushed after training: loss and calibration when features are moved toward their class means.

    h' = h + α (Σ_c p_c(h) μ_c − h)        for each α of the option `push`, and always for 0

where p are the model's own probabilities, over the classes that have a mean μ_c. No label is used: h moves toward the
means of the classes that the model expects, or away from them where α < 0. Two heads score h':

    own       the model's output layer
    centres   softmax of −τ ‖h' − μ_c‖² / 2 + log π_c, over the classes that have a mean; τ is that of `ncc_loss`

The means are those of the training pass; the validation pass scores its tokens on the way, a chunk of them at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import DecidedLater, LinearClassifier
from collapselab.core.devices import by_device
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collector, Collectors, Values
from collapselab.measurement.collectors.decisions import CentreLosses, NearestCentres
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.scores import BUFFER_BYTES, LogitSpace, in_chunks, losses_of
from collapselab.models.taps import OutputLayer
from collapselab.records.tables import PushRow

HEADS = ("own", "centres")

CONFIDENCES = 15
"""Bins of equal width that the calibration error compares confidence and accuracy in."""

TOKENS, LOSS, RIGHT, DECIDED, AGREED, BINS = range(6)
"""Places of the sums for one head and α; from BINS on tokens, confidence and right choices of each bin."""

WIDTH = BINS + 3 * CONFIDENCES


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
        device, dtype = self.device, torch.promote_types(plan.model.head.weight.dtype, torch.float32)
        self.head, self.dtype, self.space = plan.model.head.to(dtype), dtype, LogitSpace()
        self.numbers = plan.splits["train"].numbers
        self.centres = earlier[CentreLosses].scores[LAST]
        self.places = self.centres.places.cpu()
        """The place of each class among those with a mean; -1 where it has none."""
        self.classes = nearest.classes
        self.ids = self.numbers.ids[nearest.classes.cpu()].to(device)
        self.origin, self.means = nearest.origin.to(dtype), self.centres.means
        self.tau = self.centres.scale
        offsets = self.centres.log_priors - self.tau * self.centres.halves
        self.by_centres = OutputLayer(self.tau * self.means, offsets.to(dtype))

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Class means in float32, the pushed features of a batch, and logits."""
        logits = min(by_device(BUFFER_BYTES, plan.model.moments_device), 4 * plan.model.classes * plan.batch_tokens)
        return 8 * (plan.splits["train"].rows + 2 * plan.batch_tokens) * plan.width + 2 * logits

    @torch.no_grad()
    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        """Score the validation features of a batch for every α."""
        if layer == LAST:
            own = batch.labels.last.own
            self.add("sums", self.scored(batch.labels.last.sampled(features), own[own != IGNORED]))

    def scored(self, features: Tensor, labels: Tensor) -> Tensor:
        """The sums of features (tokens, dim) with their next tokens, which are on the CPU, for every α."""
        x, places, later = features.to(self.dtype), self._places(labels), DecidedLater(features.device)
        has_mean = (places >= 0).nonzero().squeeze(1)
        decided, right, labels = (index.to(x.device) for index in (has_mean, places[has_mean], labels))
        sums = torch.zeros(len(HEADS), len(self.alphas), WIDTH, dtype=torch.float64, device=self.device)
        toward, choices = self._expected_means(x) - x, []
        for number, alpha in enumerate(self.alphas):
            pushed = x + alpha * toward
            some = pushed[decided]
            self._tally(sums[0, number], self.head, pushed, labels)
            probable = self.classes[self._tally(sums[1, number], self.by_centres, some - self.origin, right)]
            own, nearest = (each.choices(some, later=later) for each in (self.choose_own, self.choose_nearest))
            choices.append((own, nearest, probable))
        later.decide()
        for number, (own, nearest, probable) in enumerate(choices):
            sums[:, number, DECIDED] = len(own)
            sums[:, number, AGREED] = torch.stack([(own == nearest).sum(), (own == probable).sum()]).double()
        return sums

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        values.add_rows(self.name, list(self._rows()))
        return values

    def _rows(self) -> Iterator[PushRow]:
        for head, tallies in zip(HEADS, self.sums["sums"].cpu(), strict=True):
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
        """Add loss, right choices and confidences of a head to its sums; the rows that it chose."""
        chosen = [labels[:0]]
        for rows, logits in in_chunks(head, features, None, self.space):
            best = logits.argmax(1)
            losses = losses_of(head, features[rows], labels[rows], logits)
            confidence = logits.gather(1, best[:, None]).squeeze(1)
            numbers = torch.stack([torch.ones_like(confidence), confidence, best == labels[rows]]).double()
            tally[:DECIDED] += torch.stack([numbers[0].sum(), losses.double().sum(), numbers[2].sum()])
            bins = (numbers[1] * CONFIDENCES).long().clamp_(max=CONFIDENCES - 1)
            tally[BINS:].view(3, CONFIDENCES).index_add_(1, bins, numbers)
            chosen.append(best)
        return torch.cat(chosen)

    def _expected_means(self, features: Tensor) -> Tensor:
        """Σ_c p_c(h) μ_c over the classes with a mean, whose probabilities are made to sum to 1."""
        expected = torch.empty_like(features)
        for rows, logits in in_chunks(self.head, features, None, self.space):
            chances = logits[:, self.ids].softmax(1)
            torch.addmm(self.origin, chances, self.means, out=expected[rows])
        return expected

    def _places(self, labels: Tensor) -> Tensor:
        """The place of each label's class among the means; -1 where it has none."""
        numbers = self.numbers.of(labels)
        return torch.where(numbers < 0, -1, self.places[numbers.clamp(min=0)])


def _calibration_gap(tally: Tensor) -> float:
    _, confidence, right = tally[BINS:].view(3, CONFIDENCES)
    return float((confidence - right).abs().sum())


def _share(total: float, count: int) -> float | None:
    return total / count if count else None
