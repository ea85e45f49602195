"""What finished collectors say: rows of values, the table `classes`, and the facts of a result."""

import math
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.catalogue import METRICS
from collapselab.corpus.token_kinds import token_kinds
from collapselab.measurement.bootstrap import Resamples, difference
from collapselab.measurement.collector import LAST, Collectors, Values
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.collectors.moments import (
    HalfSample,
    Moments,
    SamplePart,
    compare_halves,
    handful,
    without_labels,
)
from collapselab.measurement.collectors.scores import CLASS_LOSS, CLASS_TOKENS, TokenScores
from collapselab.measurement.outcomes import predicted_bytes
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.facts import (
    BootstrapFacts,
    Facts,
    OutcomesFacts,
    Seconds,
    SplitFacts,
    WarningFacts,
)
from collapselab.records.measurement import Key
from collapselab.records.table import Chunk
from collapselab.records.tables import CLASSES, Row, bin_start

ROUNDING = 1e-4
"""How far a loss must be above that of equal chances, as a share of it: more than a rounding error."""

RULED_SHARE = 0.5
"""A handful of features that carries more of a layer's sum of squares than this is worth a warning."""

COLUMNS = ("norm", "variance", "cdnv", "cosine", "distance", "duality_cos", "head_norm")
"""Columns of the table `classes` that come from class means."""

Interval = Callable[[Key, float | None], tuple[float | None, float | None]]
"""Both ends of the interval of a value."""


def value_rows(plan: MeasurePlan, values: Values, interval: Interval | None) -> list[Row]:
    """A row for each value, beside its null and its interval, in the order of splits, layers, bins and the catalogue.

    Decisions (NC4) are listed under the training split, which their centres come from. Metrics of the output layer
    alone are listed with the last layer.
    """

    def order(key: Key) -> tuple[str, tuple[int, int], int, int]:
        layer = (1, 0) if key.layer == LAST else (0, int(key.layer))
        known = list(METRICS)
        return key.split, layer, bin_start(key.bin), known.index(key.metric) if key.metric in known else len(known)

    free = without_labels() if plan.options.null else frozenset()
    rows = []
    for key in sorted(values.measured, key=order):
        measured = values.measured[key]
        null = measured if key.metric in free else values.nulls.get(key)
        low, high = (None, None) if interval is None else interval(key, measured.value)
        place: dict[str, object] = {**plan.names, **key._asdict()}
        names = ("value", "classes", "tokens", "min_count", "left_out", "version", "why")
        place |= {name: getattr(measured, name) for name in names}
        rows.append(Row(**place, null=None if null is None else null.value, low=low, high=high))  # type: ignore[arg-type]
    return rows


# The table `classes` -------------------------------------------------------------------------------------------------


def class_chunks(plan: MeasurePlan, collected: Mapping[Split, Collectors]) -> Iterator[Chunk]:
    """A chunk for each split and layer, with a row for each class."""
    kinds = token_kinds(plan.request.corpus, plan.model.classes)
    for split, collectors in collected.items():
        numbers = plan.splits[split].numbers
        for layer, rows in collectors[Moments].class_rows.items():
            ids = numbers.ids[rows.classes.cpu()]
            missing: list[None] = [None] * len(ids)
            values = {name: getattr(rows, name) for name in COLUMNS}
            columns: dict[str, Any] = {
                **{name: [value] * len(ids) for name, value in {**plan.names, "split": split, "layer": layer}.items()},
                "token": ids.numpy(),
                "text": [kinds[token].text or None for token in ids.tolist()],
                "kind": [kinds[token].kind for token in ids.tolist()],
                "count": rows.counts.cpu().numpy(),
                "nearest": missing if rows.nearest is None else numbers.ids[rows.nearest.cpu()].numpy(),
                **{name: missing if value is None else value.cpu().numpy() for name, value in values.items()},
                **_validation_columns(plan, layer, collected["validation"], ids),
            }
            yield CLASSES.chunk(columns)


def _validation_columns(
    plan: MeasurePlan, layer: str, validated: Collectors, ids: Tensor
) -> dict[str, NDArray[np.generic]]:
    """Tokens of the validation split with these labels, and what became of them."""
    decisions, sums = validated[NearestCentres].decisions(layer), validated[TokenScores].sums
    scored, losses = sums[CLASS_TOKENS].cpu(), sums[CLASS_LOSS].cpu()
    trained = plan.splits["train"].numbers.ids  # rows of decisions
    decided, agreed, right = (
        torch.zeros(plan.model.classes, dtype=torch.int64).index_add_(0, trained, tally.cpu())[ids]
        for tally in (decisions.tokens, decisions.agreed, decisions.head_right)
    )
    is_last = layer == LAST
    return {
        "samples": (scored[ids] if is_last else decided).numpy(),
        "agreement": (agreed.double() / decided).numpy(),
        "accuracy": (right.double() / decided).numpy(),
        "loss": (losses[ids] / scored[ids] if is_last else torch.full((len(ids),), torch.nan)).numpy(),
    }


# Facts ---------------------------------------------------------------------------------------------------------------


def result_facts(
    plan: MeasurePlan,
    rows: list[Row],
    collected: Mapping[Split, Collectors],
    resamples: Resamples | None,
    outcomes: OutcomesFacts,
    seconds: Seconds,
) -> Facts:
    """What was measured, with which options, on which machine, and what to know about it."""
    tokens, half = int(plan.counts.last.sum()), collected["train"].get(HalfSample)
    part = None if half is None else half.part
    if resamples is not None:
        part = SamplePart(tokens // 2, resamples.half_values("train", LAST))
    return {
        **plan.request.identity(plan.model),
        **plan.model.facts,
        "splits": {split: _split_facts(plan, split, collected[split]) for split in plan.splits},
        "half_sample": compare_halves(part, rows, tokens),
        "text": plan.request.corpus.record.text_name,
        "text_hash": plan.request.corpus.record.text_hash,
        "block": plan.splits["train"].samples.last.length,
        "classes": plan.model.classes,
        "context": plan.model.context,
        "dtype": plan.model.dtype,
        "device": str(plan.model.device),
        "batch": plan.batch,
        "processes": plan.processes.world,
        "versions": {name: version(name) for name in ("collapselab", "torch", "transformers")},
        "warnings": [*plan.model.warnings, *_loss_warnings(plan, collected), *_spread_warnings(collected)],
        "seconds": seconds,
        **_bootstrap_facts(rows, resamples),
        **outcomes,
    }


def _split_facts(plan: MeasurePlan, split: Split, collected: Collectors) -> SplitFacts:
    samples, counts = plan.splits[split].samples, plan.splits[split].counts
    classes = int((counts > 0).sum())
    facts: SplitFacts = {
        "blocks": len(samples.last),
        "tokens": samples.last.tokens,
        "blocks_cut_off": samples.last.cut_off,
        "classes": classes,
        "classes_seen_once": int((counts == 1).sum()),
        "tokens_per_class": int(counts.sum()) / max(classes, 1),
    }
    if samples.below is not samples.last:
        facts["tokens_below"] = samples.below.tokens
    scored = collected.get(TokenScores)
    if scored is not None and (scores := scored.scores).tokens:
        facts["loss"], facts["accuracy"], facts["perplexity"] = scores.loss, scores.accuracy, scores.perplexity
    if split == "validation":
        facts["left_out"] = collected[NearestCentres].decisions().left_out
        if plan.request.corpus.hash != plan.model.own_corpus:  # text that others are measured on too
            facts["bytes"] = size = predicted_bytes(plan.request.corpus, samples.last)
            loss = collected[TokenScores].scores.total_loss
            facts["bits_per_byte"] = loss / math.log(2) / size if size else None
    return facts


def _bootstrap_facts(rows: list[Row], resamples: Resamples | None) -> BootstrapFacts:
    if resamples is None:
        return {}
    keys = [Key(row.split, row.layer, row.bin, row.metric) for row in rows]
    halves = {key.name: resamples.halves(key) for key in keys}
    return {"halves": halves, "half_difference": {name: difference(pairs) for name, pairs in halves.items()}}


def _loss_warnings(plan: MeasurePlan, collected: Mapping[Split, Collectors]) -> Iterator[WarningFacts]:
    """That the model predicts worse than one that has learned nothing, as a run's initialisation has not."""
    loss, uniform = collected["validation"][TokenScores].scores.loss, math.log(plan.model.classes)
    is_initial = bool(plan.model.run) and plan.model.checkpoint == "0"
    if loss > uniform * (1 + ROUNDING) and not is_initial:
        text = (
            f"The validation loss, {loss:.4g}, is above ln({plan.model.classes:,}) = {uniform:.4g}, that of equal "
            "chances for all tokens. The model and the corpus do not belong together, or the model is damaged."
        )
        yield {"code": "loss", "text": text}


def _spread_warnings(collected: Mapping[Split, Collectors]) -> Iterator[WarningFacts]:
    """That a handful of features carries more than half of a layer's sum of squares, for each layer where it does."""
    moments = collected["train"][Moments]
    for layer, features in moments.spread_layers.items():
        share = moments.share_of_handful(layer)
        if share > RULED_SHARE:
            text = (
                f"layer {layer}: {handful(features):,} of {features:,} features carry {share:.0%} of the squares; "
                "its values say little about the others."
            )
            sinks = " If these are the first positions of blocks, leave out more with --skip-positions."
            yield {"code": "few_features_rule", "text": text + ("" if layer == LAST else sinks)}
