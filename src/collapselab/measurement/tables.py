"""Tables beside results.csv: how each is filled while a model is measured.

A further table is an entry of `TABLES` (`records/tables.py`) and, by the same name, an entry of `FILLERS` here. Its
rows are then kept in the `Result`, collected by suites, and written, hashed and read with the other tables.

`classes` has a row for each class of a split and layer, in one chunk for each layer. What comes from class means is
taken while a layer's geometry is there; agreement, accuracy and loss are added when the validation pass is done.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.metrics import ClassRows
from collapselab.core.moments import ClassMoments
from collapselab.corpus.token_kinds import token_kinds
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import LayerKey, Sums
from collapselab.records.table import Chunk
from collapselab.records.tables import CLASSES, TABLES, RowsByTable


@final
@dataclass(frozen=True)
class MeasuredLayer:
    """What the rows of a layer are made from: its class moments over a split, of all processes.

    Row i of the moments is of the class `token_ids[i]`.
    """

    plan: MeasurePlan
    split: Split
    layer: str
    moments: ClassMoments

    @property
    def token_ids(self) -> Tensor:
        return self.plan.splits[self.split].numbers.ids

    @property
    def name(self) -> dict[str, str]:
        """The first columns of a row: run, checkpoint, split and layer."""
        model = self.plan.model
        return {
            "run": model.run or model.name,
            "checkpoint": model.checkpoint or "-",
            "split": self.split,
            "layer": self.layer,
        }


FILLERS: dict[str, Callable[[MeasuredLayer], Iterable[Any]]] = {}
"""By the name of a table, the function that makes its rows of one layer; none where an option did not ask for it."""


def fill_tables(tables: RowsByTable, layer: MeasuredLayer) -> None:
    """Add the rows of a layer to every table that has a filler."""
    for name, rows in FILLERS.items():
        table = TABLES[name]
        for row in rows(layer):
            table.check_row(row)
            tables.setdefault(name, []).append(row)


Cells = NDArray[np.generic] | list[None]
"""A column; nothing but None where it is missing."""


@final
@dataclass(frozen=True)
class LayerRows:
    """The classes of one layer of a split."""

    split: Split
    layer: str
    rows: ClassRows


def class_chunks(plan: MeasurePlan, layers: list[LayerRows], validated: Sums) -> list[Chunk]:
    """The chunks of the table, in the order of the layers; `validated` are the sums of all processes."""
    kinds = token_kinds(plan.request.corpus, plan.model.classes)
    texts, names = [kind.text or None for kind in kinds], [kind.kind for kind in kinds]
    return [_chunk(plan, layer, validated, texts, names) for layer in layers]


def _chunk(plan: MeasurePlan, layer: LayerRows, validated: Sums, texts: list[str | None], kinds: list[str]) -> Chunk:
    rows, model = layer.rows, plan.model
    ids = plan.splits[layer.split].numbers.ids[rows.classes.cpu()]
    nearest = None if rows.nearest is None else plan.splits[layer.split].numbers.ids[rows.nearest.cpu()].numpy()
    missing: list[None] = [None] * len(ids)

    def column(values: Tensor | None) -> Cells:
        return missing if values is None else values.cpu().numpy()

    tokens = ids.tolist()
    return CLASSES.chunk(
        {
            "run": [model.run or model.name] * len(ids),
            "checkpoint": [model.checkpoint or "-"] * len(ids),
            "split": [layer.split] * len(ids),
            "layer": [layer.layer] * len(ids),
            "token": ids.numpy(),
            "text": [texts[token] for token in tokens],
            "kind": [kinds[token] for token in tokens],
            "count": column(rows.counts),
            "nearest": missing if nearest is None else nearest,
            **{
                name: column(getattr(rows, name))
                for name in ("norm", "variance", "cdnv", "cosine", "distance", "duality_cos", "head_norm")
            },
            **_validation_columns(plan, layer.layer, validated, ids),
        }
    )


def _validation_columns(plan: MeasurePlan, layer: str, validated: Sums, ids: Tensor) -> dict[str, Cells]:
    """Tokens of the validation split with these labels, and what became of them."""
    scored, decisions = validated.scored, validated.decisions[LayerKey(layer)]
    assert scored is not None
    trained = plan.splits["train"].numbers.ids  # rows of decisions
    decided, agreed, right = (
        torch.zeros(plan.model.classes, dtype=torch.int64).index_add_(0, trained, tally.cpu())[ids]
        for tally in (decisions.tokens, decisions.agreed, decisions.head_right)
    )
    samples = scored.tokens[ids] if layer == "last" else decided
    loss = scored.loss[ids] / scored.tokens[ids] if layer == "last" else torch.full((len(ids),), torch.nan)
    return {
        "samples": samples.numpy(),
        "agreement": (agreed.double() / decided).numpy(),
        "accuracy": (right.double() / decided).numpy(),
        "loss": loss.numpy(),
    }
