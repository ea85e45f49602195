"""The loss by class centres (`core/centre_loss.py`) in the validation pass: of the last layer, and of its null.

τ is fitted in the first process, to the first tokens of the training sample, and is the same in all.
"""

from dataclasses import astuple, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import Need
from collapselab.core.centre_loss import CentreLoss, CentreScores
from collapselab.core.decisions import LinearClassifier, Observer
from collapselab.measurement.batch import Batch
from collapselab.measurement.catalogue import counted_values
from collapselab.measurement.collector import LAST, NULL, Collectors, Measurements, Summed, Values
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.distributed import Processes
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import fitted_tokens
from collapselab.models.scores import common_dtype


@final
class CentreLosses(Summed):
    """The sums of a CentreLoss of the last layer and its null, from the scores that nearest centres are chosen with."""

    name = "centre_loss"
    resampled = True

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors | None = None) -> None:
        super().__init__(plan, split, earlier)
        assert earlier is not None
        decided = earlier[NearestCentres]
        self.numbers = decided.numbers
        dtype = common_dtype(plan.model.head.weight, plan.model.head.weight)
        self.scores: dict[str, CentreScores] = {}
        for name in (LAST, LAST + NULL):
            nearest = decided.nearest.get(name)
            if isinstance(nearest, LinearClassifier):  # centres spread over processes have no probabilities
                self.scores[name] = CentreScores(nearest, plan.counts.last, dtype=dtype)
                decided.observers[name] = partial(self._observer, name)
        if self.scores:
            fitted = self._fitted() if plan.processes.first else {}
            for name, scale in plan.processes.broadcast(fitted).items():
                self.scores[name].scale = scale

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return split == "validation"

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Scores of some tokens by all centres, and the features of a batch in float64 and float32."""
        tokens = plan.batch_tokens
        return min(4 << 20, 16 * tokens * plan.splits["train"].numbers.classes) + 12 * tokens * plan.width

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if layer != LAST or batch.scored is None:
            return
        used = batch.labels.last.used
        for name, watch in batch.watches.items():
            loss = watch.loss(batch.scored.losses, None if used is None else used.to(watch.places.device))
            self.add(name, torch.tensor(astuple(loss), dtype=torch.float64))

    def finish(self, processes: Processes) -> None:
        super().finish(processes)
        self.scores = {}

    def values(self, *, resampled: bool = False) -> Values:
        return Values(self._values(LAST), self._values(LAST + NULL) if self.plan.options.null else {})

    def _values(self, name: str) -> Measurements:
        if name in self.sums:
            centres, model, tokens, left_out = self.sums[name].tolist()
            loss = CentreLoss(centres, model, int(tokens), int(left_out))
            return counted_values(self.plan, Need.CENTRE_LOSS, centre_loss=loss)
        why = "centres that are spread over processes (--shard-classes) make no probabilities."
        return {key: replace(value, why=why) for key, value in counted_values(self.plan, Need.CENTRE_LOSS).items()}

    def _observer(self, name: str, batch: Batch) -> Observer:
        rows = self.numbers.of(batch.labels.last.own.reshape(-1))
        batch.watches[name] = self.scores[name].watch(rows)
        return batch.watches[name].see

    def _fitted(self) -> dict[str, float]:
        """τ of the last layer and its null, on as many tokens as Newton's method should take."""
        sample = self.plan.splits["train"].samples.last
        most = fitted_tokens(self.numbers.classes, self.plan.model.head.weight.shape[1])
        parts: list[Tensor] = []
        labels: dict[str, list[Tensor]] = {LAST: [], LAST + NULL: []}
        for states, next_tokens, blocks in self.plan.training_batches(most=most):
            null = sample.null_labels(blocks.start, blocks.stop).reshape(-1)
            parts.append(states)
            labels[LAST].append(next_tokens)
            labels[LAST + NULL].append(null[null != IGNORED])
        features = torch.cat(parts)[:most]
        for name, scores in self.scores.items():
            scores.fit(features, self.numbers.of(torch.cat(labels[name])[:most]))
        return {name: scores.scale for name, scores in self.scores.items()}
