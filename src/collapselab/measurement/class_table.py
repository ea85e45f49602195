"""The table `classes`: a row for each class of a split and layer, in one chunk for each layer.

What comes from class means was taken while a layer's geometry was there; agreement, accuracy and loss are those of the
validation pass.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.metrics import ClassRows
from collapselab.corpus.token_kinds import token_kinds
from collapselab.measurement.collector import LAST, Collectors
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.collectors.moments import Moments
from collapselab.measurement.collectors.scores import CLASS_LOSS, CLASS_TOKENS, TokenScores
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.table import Chunk
from collapselab.records.tables import CLASSES

Cells = NDArray[np.generic] | list[None]
"""A column; nothing but None where it is missing."""


def class_chunks(plan: MeasurePlan, collected: Mapping[Split, Collectors]) -> list[Chunk]:
    """The chunks of the table, in the order of splits and layers."""
    kinds = token_kinds(plan.request.corpus, plan.model.classes)
    texts, names = [kind.text or None for kind in kinds], [kind.kind for kind in kinds]
    return [
        _chunk(plan, split, layer, rows, collected["validation"], texts, names)
        for split, collectors in collected.items()
        for layer, rows in collectors[Moments].class_rows.items()
    ]


def _chunk(
    plan: MeasurePlan,
    split: Split,
    layer: str,
    rows: ClassRows,
    validated: Collectors,
    texts: list[str | None],
    kinds: list[str],
) -> Chunk:
    model, numbers = plan.model, plan.splits[split].numbers
    ids = numbers.ids[rows.classes.cpu()]
    nearest = None if rows.nearest is None else numbers.ids[rows.nearest.cpu()].numpy()
    missing: list[None] = [None] * len(ids)

    def column(values: Tensor | None) -> Cells:
        return missing if values is None else values.cpu().numpy()

    tokens = ids.tolist()
    return CLASSES.chunk(
        {
            "run": [model.run or model.name] * len(ids),
            "checkpoint": [model.checkpoint or "-"] * len(ids),
            "split": [split] * len(ids),
            "layer": [layer] * len(ids),
            "token": ids.numpy(),
            "text": [texts[token] for token in tokens],
            "kind": [kinds[token] for token in tokens],
            "count": column(rows.counts),
            "nearest": missing if nearest is None else nearest,
            **{
                name: column(getattr(rows, name))
                for name in ("norm", "variance", "cdnv", "cosine", "distance", "duality_cos", "head_norm")
            },
            **_validation_columns(plan, layer, validated, ids),
        }
    )


def _validation_columns(plan: MeasurePlan, layer: str, validated: Collectors, ids: Tensor) -> dict[str, Cells]:
    """Tokens of the validation split with these labels, and what became of them."""
    decisions, sums = validated[NearestCentres].decisions(layer), validated[TokenScores].sums
    scored, losses = sums[CLASS_TOKENS].cpu(), sums[CLASS_LOSS].cpu()
    trained = plan.splits["train"].numbers.ids  # rows of decisions
    decided, agreed, right = (
        torch.zeros(plan.model.classes, dtype=torch.int64).index_add_(0, trained, tally.cpu())[ids]
        for tally in (decisions.tokens, decisions.agreed, decisions.head_right)
    )
    samples = scored[ids] if layer == LAST else decided
    loss = losses[ids] / scored[ids] if layer == LAST else torch.full((len(ids),), torch.nan)
    return {
        "samples": samples.numpy(),
        "agreement": (agreed.double() / decided).numpy(),
        "accuracy": (right.double() / decided).numpy(),
        "loss": loss.numpy(),
    }
