"""The table `deciders`: the share of validation tokens on which two deciders choose the same class.

    token         the next token itself: agreement with it is accuracy
    head          the model's output layer
    nearest L     the nearest class centre of layer L, "last" being what enters the output layer
    lens L        the logit lens of block L: its output through the final norm and the output layer

All of them choose among the classes that have a centre at every layer, for the tokens that are samples at every layer.
They choose in the validation pass, where nearest centres and output layer choose anyway; the lens takes one more
product for a block. The lens is that of nostalgebraist (2020), "interpreting GPT: the logit lens".
"""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import LinearClassifier
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sums import Sums
from collapselab.models.taps import last_norm, layer_names
from collapselab.records.tables import DeciderRow

TOKEN, HEAD, LAST = "token", "head", "last"


@final
class AgreementMatrix:
    """Counts of tokens on which each two deciders agree: `look` at each layer of a batch, then `add` the batch."""

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
