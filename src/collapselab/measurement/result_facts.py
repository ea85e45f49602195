"""The facts of a result: what was measured, with which options, on which machine, and what to know about it."""

import math
from collections.abc import Mapping
from importlib.metadata import version

from collapselab.measurement.bootstrap import Resamples, difference
from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.collectors.half_sample import HalfSample, SamplePart, compare_halves
from collapselab.measurement.collectors.moments import Moments
from collapselab.measurement.collectors.scores import TokenScores
from collapselab.measurement.further_scores import predicted_bytes
from collapselab.measurement.model_warnings import loss_warnings, spread_warnings
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.scores import Scores
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
    collected: Mapping[Split, Collectors],
    resamples: Resamples | None,
    outcomes: OutcomesFacts,
    seconds: Seconds,
) -> Facts:
    """All facts about the rows."""
    tokens, half = int(plan.counts.last.sum()), collected["train"].get(HalfSample)
    part = None if half is None else half.part
    if resamples is not None:
        part = SamplePart(tokens // 2, resamples.half_values("train", "last"))
    nothing_added: LaterFacts = {}
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
        "warnings": _warnings(plan, collected),
        "seconds": seconds,
        **_bootstrap_facts(rows, resamples),
        **outcomes,
        **nothing_added,
    }


def _split_facts(plan: MeasurePlan, split: Split, collected: Collectors) -> SplitFacts:
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
        facts["left_out"] = collected[NearestCentres].decisions().left_out
    scored = collected.get(TokenScores)
    scores = Scores() if scored is None else scored.scores
    if scores.tokens:
        facts["loss"], facts["accuracy"], facts["perplexity"] = scores.loss, scores.accuracy, scores.perplexity
    if (
        split == "validation" and plan.request.corpus.hash != plan.model.own_corpus
    ):  # text that others are measured on too
        size = predicted_bytes(plan.request.corpus, samples.last)
        facts["bytes"] = size
        facts["bits_per_byte"] = scores.total_loss / math.log(2) / size if size else None
    return facts


def _bootstrap_facts(rows: list[Row], resamples: Resamples | None) -> BootstrapFacts:
    if resamples is None:
        return {}
    keys = [Key(row.split, row.layer, row.bin, row.metric) for row in rows]
    halves = {key.name: resamples.halves(key) for key in keys}
    return {"halves": halves, "half_difference": {name: difference(pairs) for name, pairs in halves.items()}}


def _warnings(plan: MeasurePlan, collected: Mapping[Split, Collectors]) -> list[WarningFacts]:
    """About the model, its loss (a run's initialisation has learned nothing yet), and its layers."""
    is_initial = bool(plan.model.run) and plan.model.checkpoint == "0"
    of_loss = [] if is_initial else loss_warnings(collected["validation"][TokenScores].scores.loss, plan.model.classes)
    return [*plan.model.warnings, *of_loss, *spread_warnings(collected["train"][Moments])]
