"""The loss by class centres (`core/centre_loss.py`) in the validation pass: of the last layer, and of its null.

τ is fitted in the first process, to the first tokens of the training sample, and is the same in all.
"""

import math
from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import CentreLoss, CentreScores, CentreWatch
from collapselab.core.decisions import LinearClassifier
from collapselab.measurement.nearest_centre import NearestCentres
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sample import fitted_tokens
from collapselab.measurement.sums import LAST, LayerKey, Sums
from collapselab.models.scores import common_dtype


@final
class CentreLosses:
    """Scores the tokens of a validation pass.

    For each batch `watches` are shown the scores that nearest centres are chosen with; then `add` has what the model
    lost on the batch.
    """

    def __init__(self, plan: MeasurePlan, centres: NearestCentres) -> None:
        self.numbers = plan.splits["train"].numbers
        head = plan.model.head.weight
        dtype = common_dtype(head, head)
        self.scores: dict[LayerKey, CentreScores] = {}
        for key in (LAST, LayerKey("last", null=True)):
            nearest = centres.deciders[key].nearest if key in centres.deciders else None
            if isinstance(nearest, LinearClassifier):  # centres spread over processes have no probabilities
                self.scores[key] = CentreScores(nearest, plan.counts.last, dtype=dtype)
        if self.scores:
            fitted = self._fitted(plan) if plan.processes.first else {}
            for key, scale in plan.processes.broadcast(fitted).items():
                self.scores[key].scale = scale

    def watches(self, labels: Tensor) -> dict[LayerKey, CentreWatch]:
        """Of the tokens that these labels (tokens,) follow."""
        rows = self.numbers.of(labels.cpu())
        return {key: scores.watch(rows) for key, scores in self.scores.items()}

    @staticmethod
    def add(sums: Sums, watches: dict[LayerKey, CentreWatch], model_losses: Tensor, tokens: Tensor | None) -> None:
        """Add what the watches have seen; the losses are of all tokens, or of these, by index."""
        for key, watch in watches.items():
            loss = watch.loss(model_losses, None if tokens is None else tokens.to(watch.places.device))
            sums.centre_losses[key] = sums.centre_losses.get(key, CentreLoss()).merge(loss)

    def _fitted(self, plan: MeasurePlan) -> dict[LayerKey, float]:
        states, labels, null = _training_tokens(plan)
        by_key = {LAST: labels, LayerKey("last", null=True): null}
        for key, scores in self.scores.items():
            scores.fit(states, self.numbers.of(by_key[key]))
        return {key: scores.scale for key, scores in self.scores.items()}


def _training_tokens(plan: MeasurePlan) -> tuple[Tensor, Tensor, Tensor]:
    """Features, next tokens and those of the null, of the first tokens of the training sample.

    As many as the products with all class means allow: Newton's method takes some ten of them.
    """
    model, sample = plan.model, plan.splits["train"].samples.last
    most = fitted_tokens(plan.splits["train"].numbers.classes, model.head.weight.shape[1])
    parts: list[Tensor] = []
    labels: list[Tensor] = []
    nulls: list[Tensor] = []
    start = 0
    while start < len(sample) and (lacking := most - sum(map(len, labels))) > 0:
        stop = min(start + min(plan.batch, math.ceil(lacking / sample.labels_per_block)), len(sample))
        states, next_tokens = model.sampled_features(sample, start, stop)
        null = sample.null_labels(start, stop).reshape(-1)
        parts.append(states)
        labels.append(next_tokens)
        nulls.append(null[null != IGNORED])
        start = stop
    return torch.cat(parts)[:most], torch.cat(labels)[:most], torch.cat(nulls)[:most]
