"""The facts of a result: what was measured, with which options, on which machine, and what to know about it."""

import math
from importlib.metadata import version

from collapselab.measurement.bootstrap import Resamples, difference
from collapselab.measurement.further_scores import predicted_bytes
from collapselab.measurement.half_sample import compare_halves
from collapselab.measurement.model_warnings import loss_warnings, spread_warnings
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import LAST, SamplePart, Sums
from collapselab.records.facts import (
    BootstrapFacts,
    Facts,
    LaterFacts,
    OutcomesFacts,
    Seconds,
    SplitFacts,
    WarningFacts,
)
from collapselab.records.measurement import Key
from collapselab.records.tables import Row


def result_facts(
    plan: MeasurePlan,
    rows: list[Row],
    sums: dict[Split, Sums],
    resamples: Resamples | None,
    outcomes: OutcomesFacts,
    seconds: Seconds,
) -> Facts:
    """All facts about the rows; `sums` are those of all processes, whose moments are not needed any more."""
    tokens, part = int(plan.counts.last.sum()), sums["train"].part
    if resamples is not None:
        part = SamplePart(tokens // 2, resamples.half_values("train", "last"))
    nothing_added: LaterFacts = {}
    return {
        **plan.request.identity(plan.model),
        **plan.model.facts,
        "splits": {split: _split_facts(plan, split, sums[split]) for split in plan.splits},
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
        "warnings": _warnings(plan, sums),
        "seconds": seconds,
        **_bootstrap_facts(rows, resamples),
        **outcomes,
        **nothing_added,
    }


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
    if (
        split == "validation" and plan.request.corpus.hash != plan.model.own_corpus
    ):  # text that others are measured on too
        size = predicted_bytes(plan.request.corpus, samples.last)
        facts["bytes"] = size
        facts["bits_per_byte"] = sums.scores.total_loss / math.log(2) / size if size else None
    return facts


def _bootstrap_facts(rows: list[Row], resamples: Resamples | None) -> BootstrapFacts:
    if resamples is None:
        return {}
    keys = [Key(row.split, row.layer, row.bin, row.metric) for row in rows]
    halves = {key.name: resamples.halves(key) for key in keys}
    return {"halves": halves, "half_difference": {name: difference(pairs) for name, pairs in halves.items()}}


def _warnings(plan: MeasurePlan, sums: dict[Split, Sums]) -> list[WarningFacts]:
    """About the model, its loss (a run's initialisation has learned nothing yet), and its layers."""
    is_initial = bool(plan.model.run) and plan.model.checkpoint == "0"
    of_loss = [] if is_initial else loss_warnings(sums["validation"].scores.loss, plan.model.classes)
    return [*plan.model.warnings, *of_loss, *spread_warnings(sums["train"].spreads)]
