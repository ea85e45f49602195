"""What decides tokens of the validation split: the output layer, the nearest class centre (NC4), and their agreement.

The loss by class centres (`core/centre_loss.py`) comes from the same scores. Its τ is fitted in the first process, to
the first tokens of the training sample, and is the same in all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import Need
from collapselab.core.centre_loss import CentreLoss, CentreScores
from collapselab.core.decisions import (
    HELD_BYTES,
    Decisions,
    LinearClassifier,
    Observer,
    nearest_centre,
    output_classifier,
)
from collapselab.core.moments import ClassMoments
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import (
    ALL,
    LAST,
    NULL,
    Collector,
    Collectors,
    Measurements,
    Values,
    counted_values,
)
from collapselab.measurement.collectors.moments import Moments
from collapselab.measurement.distributed import Processes, ShardedCentres
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import ByLayer, fitted_tokens
from collapselab.models.scores import common_dtype
from collapselab.models.taps import last_norm
from collapselab.records.tables import DeciderRow

LEFT_OUT = "left out, "
"""The beginning of the names of the numbers of tokens whose class has no centre."""
TOKEN, HEAD = "token", "head"


class NearestCentres(Collector):
    """Counts (4, classes) for each layer and its null: decided tokens, agreement, and which classifier was right.

    Centres are of the training split, features of the validation split. The output layer chooses once, for all layers.
    Layers below the last may skip positions, and with them classes: there both classifiers choose among the classes
    that are left.
    """

    name = "decisions"
    resampled = True
    splits = ("validation",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        """Training's moments are removed from their collector as means are taken, so that memory has one of the two."""
        super().__init__(plan, split, earlier)
        assert earlier.trained is not None, "centres are those of the training split"
        self.numbers, self.shards = plan.splits["train"].numbers, plan.splits["train"].shards
        kept = plan.counts.map(lambda counts: counts > 0)
        self.kept = replace(kept, below=kept.last) if torch.equal(kept.last, kept.below) else kept
        self.head = self.kept.map(self._head)
        self.is_below = self.kept.below.to(self.device)
        classes = self.kept.last.nonzero().squeeze(1)
        self.class_of = torch.full((plan.model.classes,), -1).index_put_((self.numbers.ids[classes],), classes)
        """The class of each row of the output layer; -1 where it is not kept."""
        self.class_of = self.class_of.to(self.device)
        self.may_use_logits = plan.model.head.softcap is None and plan.model.head.scale == 1
        """Whether the logits are the scores of the classifier, whose rounding is known."""
        tables = earlier.trained[Moments].tables
        self.nearest = {
            name: self._centres(tables.pop(name), self.kept.of(name.removesuffix(NULL))) for name in list(tables)
        }
        self.observers: dict[str, Callable[[Batch], Observer]] = {}
        """What is shown the scores that nearest centres are chosen with."""

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Centres in float64 and float32, output rows as they are and in float32, scores of a batch, and counts.

        On an accelerator also the features of all layers, of tokens in doubt.
        """
        train, width, number = plan.splits["train"], plan.width, plan.model.head.weight.element_size()
        classes = train.numbers.classes
        held = 0 if plan.model.moments_device.type == "cpu" else plan.tables * plan.batch_tokens * width * number
        head = (number + 4) * classes * width
        scores = plan.batch_tokens * (20 * width + 4 * min(2048, classes))
        return plan.tables * train.rows * (12 * width + 64) + head + scores + min(HELD_BYTES, held)

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        for name in (layer, layer + NULL):
            nearest = self.nearest.get(name)
            if isinstance(nearest, LinearClassifier):
                observe = self.observers[name](batch) if name in self.observers else None
                batch.nearest[name] = nearest.choices(features, observe=observe, later=batch.later)
            elif nearest is not None:
                batch.nearest[name] = nearest.choices(batch.everyones(features))
        if layer == LAST:
            chosen = self._of_the_head(features, batch)
            batch.head = ByLayer(chosen, self._among_classes_below(chosen, features))
            self._count(batch, batch.head)

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        for name in (name for name in self.sums if not name.startswith(LEFT_OUT)):
            into = values.nulls if name.endswith(NULL) else values.measured
            layer, decisions = name.removesuffix(NULL), self.decisions(name)
            for bin, classes in {ALL: None, **self.plan.bins}.items():
                into |= counted_values(
                    self.plan, Need.DECISIONS, layer=layer, bin=bin, decisions=decisions, classes=classes
                )
        return values

    def merged(self, processes: Processes) -> Self:
        self.nearest, self.observers = {}, {}  # as large as the moments
        return super().merged(processes)

    def decisions(self, name: str = LAST) -> Decisions:
        """The counts of a layer."""
        tokens, agreed, nearest_right, head_right = self.sums[name].cpu()
        left_out, min_count = int(self.sums[LEFT_OUT + name]), self.plan.options.min_count
        return Decisions(tokens, agreed, nearest_right, head_right, left_out, min_count)

    def _count(self, batch: Batch, heads: ByLayer[Tensor]) -> None:
        """Count the choices about a batch, on the device of the choices."""
        columns = batch.labels.last.own.shape[1]
        for name, choices in batch.nearest.items():
            layer = name.removesuffix(NULL)
            labels = batch.labels.of(layer).own
            blocks, width = labels.shape
            head = heads.of(layer).view(-1, columns)[:blocks, columns - width :]  # positions that this layer has
            nearest = choices.view(-1, width)[:blocks].to(head.device)
            row = self.numbers.of(labels).to(head.device)
            place = row.clamp(min=0)
            decided = (row != IGNORED) & self.kept.of(layer).to(head.device)[place]
            counts = torch.zeros(4, len(self.kept.last), dtype=torch.int64, device=head.device)
            for count, hit in zip(counts, (decided, head == nearest, nearest == row, head == row), strict=True):
                count.index_add_(0, place.reshape(-1), (decided & hit).reshape(-1).long())
            self.add(name, counts)
            self.add(LEFT_OUT + name, (labels != IGNORED).sum().to(head.device) - decided.sum())

    def _of_the_head(self, features: Tensor, batch: Batch) -> Tensor:
        """The output layer's choices among the classes of the last layer; any of tokens that are not scored."""
        scored, later = batch.scored, batch.later
        if scored is None or not self.may_use_logits or scored.top.gap.dtype != torch.float32:
            chosen = self.head.last.choices(features, later=later)
            later.decide()
            return chosen
        tokens: Tensor | slice = slice(len(scored.top.best))  # shards have blocks that fill a batch after them
        if batch.labels.last.used is not None:
            tokens = batch.labels.last.used.to(features.device)
        sure = self.head.last.sure_choices(scored.top, features[tokens], self.class_of, later=later)
        later.decide()
        chosen = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        chosen[tokens] = sure
        return chosen

    def _among_classes_below(self, chosen: Tensor, features: Tensor) -> Tensor:
        """The output layer's choices among the classes below: another one only where its first choice is not there."""
        if self.head.below is self.head.last:
            return chosen
        again = (~self.is_below[chosen]).nonzero().squeeze(1)
        chosen = chosen.clone()
        if len(again):
            chosen[again] = self.head.below.choices(features[again])
        return chosen

    def _head(self, kept: Tensor) -> LinearClassifier:
        layer, classes = self.plan.model.classifier, kept.nonzero().squeeze(1)
        rows, device = self.numbers.ids[classes], layer.weight.device
        return output_classifier(layer.weight, layer.bias, classes.to(device), rows=rows.to(device))

    def _centres(self, moments: ClassMoments, kept: Tensor) -> LinearClassifier | ShardedCentres:
        if self.shards is not None:
            return ShardedCentres(self.shards, moments, kept)
        return nearest_centre(moments, kept.nonzero().squeeze(1).to(moments.device))


class AgreementMatrix(Collector):
    """The number of tokens on which two deciders choose the same class, for each two of them.

        token         the next token itself: agreement with it is accuracy
        head          the model's output layer
        nearest L     the nearest class centre of layer L, "last" being what enters the output layer
        lens L        the logit lens of block L: its output through the final norm and the output layer

    All of them choose among the classes that have a centre at every layer, for the tokens that are samples at every
    layer. The lens takes one more product for a block; it is that of nostalgebraist (2020), "interpreting GPT: the
    logit lens".
    """

    name = "deciders"
    option = "deciders"
    splits = ("validation",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        decided = earlier[NearestCentres]
        self.head = decided.head.below
        self.numbers, self.is_candidate = decided.numbers, decided.kept.below
        self.blocks = plan.layers[:-1]
        self.norm: nn.Module | None = last_norm(plan.model.model) if self.blocks else None
        self.names = [TOKEN, HEAD, *(f"nearest {layer}" for layer in (*self.blocks, LAST))]
        self.names += [f"lens {layer}" for layer in self.blocks]

    @torch.no_grad()
    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if layer in self.blocks and features.shape[1] == self.head.rows.shape[1]:
            normed = features if self.norm is None else self.norm(features.to(self.plan.model.device))
            batch.lens[layer] = self.head.choices(normed, later=batch.later)
        if layer == LAST:
            self._count(batch)

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        values.add_rows(self.name, list(self._rows()))
        return values

    def _count(self, batch: Batch) -> None:
        """Count the choices about a batch, at the positions that all layers have."""
        labels, columns, heads = self.numbers.of(batch.labels.below.own), batch.labels.last.own.shape[1], batch.head
        assert heads is not None
        blocks, width = labels.shape
        chosen = {
            TOKEN: labels,
            HEAD: heads.below.view(-1, columns)[:blocks, columns - width :],
            **{
                f"nearest {layer}": choices.view(-1, columns if layer == LAST else width)[:blocks, -width:]
                for layer, choices in batch.nearest.items()
                if not layer.endswith(NULL)
            },
            **{f"lens {layer}": choices.view(-1, width)[:blocks] for layer, choices in batch.lens.items()},
        }
        used = (labels != IGNORED) & self.is_candidate.cpu()[labels.clamp(min=0)]
        of_labels, device = used.reshape(-1).nonzero().squeeze(1).to(self.device), self.device
        missing = torch.full_like(labels, IGNORED)  # of a block with another width, which has no lens
        table = torch.stack([chosen.get(name, missing).to(device).reshape(-1)[of_labels] for name in self.names])
        counts = torch.stack([(table == row).sum(1) for row in table])
        self.add("agreed", counts * torch.tensor([name in chosen for name in self.names], device=device)[:, None])

    def _rows(self) -> Iterator[DeciderRow]:
        """The rows of the table; each pair once."""
        agreed = self.sums["agreed"].tolist()
        tokens = agreed[0][0]
        for i, first in enumerate(self.names):
            for j, second in enumerate(self.names[i + 1 :], start=i + 1):
                if agreed[i][i] and agreed[j][j]:  # a block of another width has no lens
                    yield DeciderRow(
                        **self.plan.names,
                        first=first,
                        second=second,
                        tokens=tokens,
                        agreed=agreed[i][j],
                        agreement=agreed[i][j] / tokens,
                    )


class CentreLosses(Collector):
    """The sums of a CentreLoss of the last layer and its null, from the scores that nearest centres are chosen with."""

    name = "centre_loss"
    resampled = True
    splits = ("validation",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        decided = earlier[NearestCentres]
        self.numbers = decided.numbers
        weight = plan.model.head.weight
        self.scores: dict[str, CentreScores] = {}
        for name in (LAST, LAST + NULL):
            nearest = decided.nearest.get(name)
            if isinstance(nearest, LinearClassifier):  # centres spread over processes have no probabilities
                self.scores[name] = CentreScores(nearest, plan.counts.last, dtype=common_dtype(weight, weight))
                decided.observers[name] = partial(self._observer, name)
        if self.scores:
            for name, scale in plan.processes.computed(self._fitted).items():
                self.scores[name].scale = scale

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
            self.add(name, watch.loss(batch.scored.losses, None if used is None else used.to(watch.places.device)))

    def merged(self, processes: Processes) -> Self:
        self.scores = {}
        return super().merged(processes)

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
        for states, next_tokens, blocks in self.plan.training_batches():
            null = sample.null_labels(blocks.start, blocks.stop).reshape(-1)
            parts.append(states)
            labels[LAST].append(next_tokens)
            labels[LAST + NULL].append(null[null != IGNORED])
            if sum(map(len, parts)) >= most:
                break
        features = torch.cat(parts)[:most]
        for name, scores in self.scores.items():
            scores.fit(features, self.numbers.of(torch.cat(labels[name])[:most]))
        return {name: scores.scale for name, scores in self.scores.items()}
