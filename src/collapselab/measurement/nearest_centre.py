"""NC4 at every layer: the output layer's choice beside the nearest class centre of the layer, and of its null.

With the option `deciders`, also on how many tokens each two of them, and the logit lens of every block, agree.
"""

from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.core.centre_loss import CentreWatch
from collapselab.core.decisions import Classifier, LinearClassifier, NearestCentre, nearest_centre, output_classifier
from collapselab.core.moments import ClassMoments
from collapselab.core.score_matrix import TopTwo
from collapselab.measurement.distributed import ShardedCentres
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sample import ByLayer
from collapselab.measurement.sums import LayerKey, Sums
from collapselab.models.taps import OutputLayer, last_norm, layer_names
from collapselab.records.tables import DeciderRow

TOKEN, HEAD, LAST = "token", "head", "last"


class Scored(NamedTuple):
    """What is known of a batch of the last layer, and who else wants its scores."""

    top: TopTwo
    """Of the logits of scored tokens, so that the output layer is not run again."""
    tokens: Tensor | None
    """The scored tokens, by index; None where they are the first of all, if not all."""
    watches: dict[LayerKey, CentreWatch]
    """To be shown the scores that nearest centres are chosen with."""


@final
class NearestCentres:
    """A `NearestCentre` for each layer and its null: centres of training, for features of the validation split.

    Call `choose` for each layer of a batch when the forward pass reaches it, then `tally` for the batch. The output
    layer chooses once, for all layers. Layers below the last may skip positions, and with them classes: there both
    classifiers choose among the classes that are left.
    """

    def __init__(self, plan: MeasurePlan, trained: Sums) -> None:
        """The moments of `trained` are removed from it as their means are taken, so that memory has one of the two."""
        self.numbers, self.shards = plan.splits["train"].numbers, plan.splits["train"].shards
        kept = ByLayer(plan.counts.last > 0, plan.counts.below > 0)
        last = self._head(plan.model.classifier, kept.last)
        same = torch.equal(kept.last, kept.below)
        self.head = ByLayer(last, last if same else self._head(plan.model.classifier, kept.below))
        self.is_below = kept.below.to(plan.model.device)
        self.class_of = self._classes(plan.model.classes, kept.last).to(plan.model.device)
        self.may_use_logits = plan.model.head.softcap is None and plan.model.head.scale == 1
        """Whether the logits are the scores of the classifier, whose rounding is known."""
        self.deciders: dict[LayerKey, NearestCentre] = {}
        for key in list(trained.moments):
            moments, mask, head = trained.moments.pop(key), kept.of(key.layer), self.head.of(key.layer)
            nearest, min_count = self._centres(moments, mask), plan.options.min_count
            self.deciders[key] = NearestCentre.of(mask, moments.dim, head=head, nearest=nearest, min_count=min_count)
        self.matrix = AgreementMatrix(plan, self.head.below, kept.below) if plan.options.deciders else None
        self._nearest: dict[LayerKey, Tensor] = {}
        self._heads: ByLayer[Tensor] | None = None

    def choose(
        self,
        layer: str,
        features: Tensor,
        everyones: Tensor,
        scored: "Scored | None" = None,
    ) -> None:
        """Choose a class for each token. `everyones` are the features of all processes, which shards need."""
        watches = {} if scored is None else scored.watches
        for key in (LayerKey(layer), LayerKey(layer, null=True)):
            if key not in self.deciders:
                continue
            nearest = self.deciders[key].nearest
            if isinstance(nearest, LinearClassifier):
                observe = watches[key].see if key in watches else None
                self._nearest[key] = nearest.choices(features, observe=observe)
            else:
                self._nearest[key] = nearest.choices(everyones)
        if self.matrix is not None:
            self.matrix.look(layer, features)
        if layer == "last":
            chosen = self._of_the_head(features, scored)
            self._heads = ByLayer(chosen.cpu(), self._among_classes_below(chosen, features).cpu())

    def tally(self, sums: Sums, labels: ByLayer[Tensor]) -> None:
        """Add the decisions about the batch to the sums; labels are (blocks, positions)."""
        heads, columns = self._heads, labels.last.shape[1]
        assert heads is not None, "the last layer was not seen"
        for key, choices in self._nearest.items():
            label = labels.of(key.layer).cpu()
            row = self.numbers.of(label)
            blocks, width = row.shape
            head = heads.of(key.layer).view(-1, columns)[:blocks, columns - width :]  # positions that this layer has
            nearest = choices.cpu().view(-1, width)[:blocks]
            has_row = row != IGNORED
            without_row = int(((label != IGNORED) & ~has_row).sum())
            decisions = self.deciders[key].tally(row[has_row], head[has_row], nearest[has_row], left_out=without_row)
            sums.add_decisions(key, decisions)
        if self.matrix is not None:
            self._add_to_matrix(self.matrix, sums, heads, labels)
        self._nearest, self._heads = {}, None

    def _add_to_matrix(
        self, matrix: "AgreementMatrix", sums: Sums, heads: ByLayer[Tensor], labels: ByLayer[Tensor]
    ) -> None:
        """The choices of all, at the positions that layers below have; the last layer may have more before them."""
        (blocks, width), columns = labels.below.shape, labels.last.shape[1]
        nearest = {
            key.layer: chosen.cpu().view(-1, columns if key.layer == "last" else width)[:blocks, -width:]
            for key, chosen in self._nearest.items()
            if not key.null
        }
        head = heads.below.view(-1, columns)[:blocks, columns - width :]
        matrix.add(sums, self.numbers.of(labels.below.cpu()), head, nearest)

    def _of_the_head(self, features: Tensor, scored: "Scored | None") -> Tensor:
        """The output layer's choices among the classes of the last layer; any of tokens that are not scored."""
        if scored is None or not self.may_use_logits or scored.top.gap.dtype != torch.float32:
            return self.head.last.choices(features)
        tokens: Tensor | slice = slice(len(scored.top.best))  # shards have blocks that fill a batch after them
        if scored.tokens is not None:
            tokens = scored.tokens.to(features.device)
        chosen = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        chosen[tokens] = self.head.last.sure_choices(scored.top, features[tokens], self.class_of)
        return chosen

    def _head(self, layer: OutputLayer, kept: Tensor) -> LinearClassifier:
        classes = kept.nonzero().squeeze(1)
        rows, device = self.numbers.ids[classes], layer.weight.device
        return output_classifier(layer.weight, layer.bias, classes.to(device), rows=rows.to(device))

    def _classes(self, vocabulary: int, kept: Tensor) -> Tensor:
        """The class of each row of the output layer; -1 where it is not kept."""
        class_of, classes = torch.full((vocabulary,), -1), kept.nonzero().squeeze(1)
        class_of[self.numbers.ids[classes]] = classes
        return class_of

    def _centres(self, moments: ClassMoments, kept: Tensor) -> Classifier:
        if self.shards is not None:
            return ShardedCentres(self.shards, moments, kept)
        return nearest_centre(moments, kept.nonzero().squeeze(1).to(moments.device))

    def _among_classes_below(self, chosen: Tensor, features: Tensor) -> Tensor:
        """The output layer's choices among the classes below: another one only where its first choice is not there."""
        if self.head.below is self.head.last:
            return chosen
        again = (~self.is_below[chosen]).nonzero().squeeze(1)
        chosen = chosen.clone()
        if len(again):
            chosen[again] = self.head.below.choices(features[again])
        return chosen


@final
class AgreementMatrix:
    """The table `deciders`: the share of validation tokens on which two deciders choose the same class.

        token         the next token itself: agreement with it is accuracy
        head          the model's output layer
        nearest L     the nearest class centre of layer L, "last" being what enters the output layer
        lens L        the logit lens of block L: its output through the final norm and the output layer

    All of them choose among the classes that have a centre at every layer, for the tokens that are samples at every
    layer. They choose in the validation pass, where nearest centres and output layer choose anyway; the lens takes one
    more product for a block. `look` at each layer of a batch, then `add` the batch. The lens is that of nostalgebraist
    (2020), "interpreting GPT: the logit lens".
    """

    def __init__(self, plan: MeasurePlan, head: LinearClassifier, is_candidate: Tensor) -> None:
        """`head` chooses among the classes below, which `is_candidate` masks."""
        self.plan, self.head, self.is_candidate = plan, head, is_candidate.cpu()
        self.norm: nn.Module | None = last_norm(plan.model.model) if plan.options.layers == "all" else None
        self.blocks = layer_names(plan.model.model)[:-1] if plan.options.layers == "all" else []
        dim = plan.model.head.weight.shape[1]
        self.names = [TOKEN, HEAD, *(f"nearest {layer}" for layer in (*self.blocks, LAST))]
        self.names += [f"lens {layer}" for layer in self.blocks]
        self._dim, self._lens = dim, dict[str, Tensor]()

    @torch.no_grad()
    def look(self, layer: str, features: Tensor) -> None:
        """The choices of the lens at a block, for features (tokens, dim) of any shape that the output layer takes."""
        if layer in self.blocks and features.shape[1] == self._dim:
            seen = features if self.norm is None else self.norm(features)
            self._lens[layer] = self.head.choices(seen).cpu()

    def add(self, sums: Sums, labels: Tensor, head: Tensor, nearest: dict[str, Tensor]) -> None:
        """Count a batch: everything (blocks, positions), at the positions that all layers have; labels are numbers."""
        used = (labels != IGNORED) & self.is_candidate[labels.clamp(min=0)]
        blocks, width = labels.shape
        lens = {f"lens {name}": chosen.view(-1, width)[:blocks] for name, chosen in self._lens.items()}
        chosen = {
            TOKEN: labels,
            HEAD: head,
            **{f"nearest {name}": choices for name, choices in nearest.items()},
            **lens,
        }
        missing = torch.full_like(labels, IGNORED)
        table = torch.stack([chosen.get(name, missing)[used] for name in self.names])
        counts = torch.stack([(table == row).sum(1) for row in table])
        counts[[name not in chosen for name in self.names]] = 0
        sums.deciders = counts + (0 if sums.deciders is None else sums.deciders)
        self._lens = {}

    def rows(self, sums: Sums) -> Iterator[DeciderRow]:
        """The rows of the table, from the sums of all processes; each pair once."""
        assert sums.deciders is not None
        model, tokens = self.plan.model, int(sums.deciders[0, 0])
        for i, first in enumerate(self.names):
            for j, second in enumerate(self.names[i + 1 :], start=i + 1):
                if int(sums.deciders[i, i]) and int(sums.deciders[j, j]):  # a block of another width has no lens
                    agreed = int(sums.deciders[i, j])
                    yield DeciderRow(
                        run=model.run or model.name,
                        checkpoint=model.checkpoint or "-",
                        first=first,
                        second=second,
                        tokens=tokens,
                        agreed=agreed,
                        agreement=agreed / tokens,
                    )
