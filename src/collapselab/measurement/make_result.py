"""From the values of a measurement to its `Result`: rows in order, and the facts about them."""

import math
from importlib.metadata import version

from collapselab.core.metrics import METRICS
from collapselab.measurement.bootstrap import Resamples, difference
from collapselab.measurement.catalogue import ALL, Values
from collapselab.measurement.further_scores import predicted_bytes
from collapselab.measurement.half_sample import compare
from collapselab.measurement.model_warnings import loss_warnings, spread_warnings
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import LAST, Part, Sums
from collapselab.records.facts import (
    BootstrapFacts,
    Facts,
    LaterFacts,
    OutcomesFacts,
    Seconds,
    SplitFacts,
    WarningFacts,
)
from collapselab.records.measurement import Key, Result
from collapselab.records.tables import Row


def make_result(
    plan: MeasurePlan,
    values: Values,
    sums: dict[Split, Sums],
    resamples: Resamples | None,
    outcomes: OutcomesFacts,
    seconds: Seconds,
) -> Result:
    """The result; `sums` are those of all processes, whose moments are not needed any more."""
    rows = _rows(plan, values, resamples)
    tokens, part = int(plan.counts.last.sum()), sums["train"].part
    if resamples is not None:
        part = Part(tokens // 2, resamples.half_values("train", "last"))
    nothing_added: LaterFacts = {}
    facts: Facts = {
        **plan.request.identity(plan.model),
        **plan.model.facts,
        "splits": {split: _split_facts(plan, split, sums[split]) for split in plan.splits},
        "half_sample": compare(part, rows, tokens),
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
        "warnings": _warnings(plan, sums),
        "seconds": seconds,
        **_bootstrap_facts(values, resamples),
        **outcomes,
        **nothing_added,
    }
    return Result(rows, facts, {name: table for name, table in values.tables.items() if table})


def _rows(plan: MeasurePlan, values: Values, resamples: Resamples | None) -> list[Row]:
    rows = []
    for key in sorted(values.measured, key=row_order):
        measured, null = values.measured[key], values.nulls.get(key)
        low, high = (None, None) if resamples is None else resamples.interval(key, measured.value)
        rows.append(
            Row(
                run=plan.model.run or plan.model.name,
                checkpoint=plan.model.checkpoint or "-",
                split="train" if key.split == "train" else "validation",
                layer=key.layer,
                bin=key.bin,
                metric=key.metric,
                value=measured.value,
                null=None if null is None else null.value,
                low=low,
                high=high,
                classes=measured.classes,
                tokens=measured.tokens,
                min_count=measured.min_count,
                left_out=measured.left_out,
                version=measured.version,
                why=measured.why,
            )
        )
    return rows


def row_order(key: Key | Row) -> tuple[str, tuple[int, int], int, int]:
    """Rows in the order of splits, layers, bins and the catalogue."""
    layer = (1, 0) if key.layer == "last" else (0, int(key.layer))
    low = -1 if key.bin == ALL else int(key.bin.split("-")[0])
    known = list(METRICS)
    return key.split, layer, low, known.index(key.metric) if key.metric in known else len(known)


def _split_facts(plan: MeasurePlan, split: Split, sums: Sums) -> SplitFacts:
    samples, counts = plan.splits[split].samples, plan.splits[split].counts
    classes = int((counts > 0).sum())
    facts: SplitFacts = {
        "blocks": len(samples.last),
        "tokens": samples.last.tokens,
        "blocks_cut_off": samples.last.cut_off,
    }
    if samples.below is not samples.last:
        facts["tokens_below"] = samples.below.tokens
    facts["classes"] = classes
    facts["classes_seen_once"] = int((counts == 1).sum())
    facts["tokens_per_class"] = int(counts.sum()) / max(classes, 1)
    if split == "validation":
        facts["left_out"] = sums.decisions[LAST].left_out
    if sums.scores.tokens:
        facts["loss"], facts["accuracy"] = sums.scores.loss, sums.scores.accuracy
        facts["perplexity"] = sums.scores.perplexity
    if split == "validation" and not plan.model.run:
        size = predicted_bytes(plan.request.corpus, samples.last)
        facts["bytes"] = size
        facts["bits_per_byte"] = sums.scores.total_loss / math.log(2) / size if size else None
    return facts


def _bootstrap_facts(values: Values, resamples: Resamples | None) -> BootstrapFacts:
    if resamples is None:
        return {}
    halves = {key.name: resamples.halves(key) for key in values.measured}
    return {"halves": halves, "half_difference": {name: difference(pairs) for name, pairs in halves.items()}}


def _warnings(plan: MeasurePlan, sums: dict[Split, Sums]) -> list[WarningFacts]:
    """About the model, its loss (a run's initialisation has learned nothing yet), and its layers."""
    is_initial = bool(plan.model.run) and plan.model.checkpoint == "0"
    of_loss = [] if is_initial else loss_warnings(sums["validation"].scores.loss, plan.model.classes)
    return [*plan.model.warnings, *of_loss, *spread_warnings(sums["train"].spreads)]
