"""The table `classes`: a row for each class of a split and layer, in one chunk for each layer.

What comes from class means is taken while a layer's geometry is there; agreement, accuracy and loss are added when the
validation pass is done.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.class_rows import ClassRows
from collapselab.corpus.token_kinds import token_kinds
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import LayerKey, Sums
from collapselab.records.column_table import Chunk
from collapselab.records.tables import CLASSES

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
