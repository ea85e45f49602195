"""What finished collectors say: rows of values, the table `classes`, outcomes, and the facts of a result.

Some outcomes need passes of their own: over validation blocks with replaced inputs, and over further corpora. Every
input token but begin tokens and padding is given a number from 0 to 1 that depends on the seed, its block and its
position alone, and is replaced where that is below the share. So a token that is replaced at 5 % is replaced by the
same at 20 %, and neither batches nor processes matter. What replaces it is drawn evenly from the tokens of the training
split. The next tokens that are predicted stay those of the text.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import METRICS
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.hashing import mixed
from collapselab.corpus.token_kinds import token_kinds
from collapselab.errors import ConfigError
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
from collapselab.measurement.collectors.scores import CLASS_LOSS, CLASS_TOKENS, SCALED_LOSS, TokenScores
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import Sample
from collapselab.models.scores import Scorer, Scores
from collapselab.records.facts import (
    BootstrapFacts,
    Facts,
    OutcomeFacts,
    OutcomesFacts,
    Seconds,
    SplitFacts,
    WarningFacts,
)
from collapselab.records.measurement import Key, Result
from collapselab.records.outcomes import ON
from collapselab.records.run import Checkpoint
from collapselab.records.table import Chunk
from collapselab.records.tables import CLASSES, Row, bin_start
from collapselab.trackers import TrackedRun, tracked

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
        "warnings": [*plan.model.warnings, *_warnings(plan, collected)],
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


def _warnings(plan: MeasurePlan, collected: Mapping[Split, Collectors]) -> Iterator[WarningFacts]:
    """Yield a warning if the model predicts worse than chance, and for layers ruled by a handful of features."""
    loss, uniform = collected["validation"][TokenScores].scores.loss, math.log(plan.model.classes)
    is_initial = bool(plan.model.run) and plan.model.checkpoint == "0"
    if loss > uniform * (1 + ROUNDING) and not is_initial:
        text = (
            f"The validation loss, {loss:.4g}, is above ln({plan.model.classes:,}) = {uniform:.4g}, that of equal "
            "chances for all tokens. The model and the corpus do not belong together, or the model is damaged."
        )
        yield {"code": "loss", "text": text}
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


SHARES = (0.05, 0.10, 0.20)
"""Of the inputs that are replaced."""

CONFIDENCES = 15
"""Bins of equal mass that the calibration error compares confidence and accuracy in."""


@dataclass(frozen=True)
class FurtherScores:
    """Scores by the share of replaced inputs, and bits per byte by the name of a further corpus."""

    corrupted: dict[float, Scores] = field(default_factory=dict)
    bits_per_byte: dict[str, float | None] = field(default_factory=dict)


@torch.no_grad()
def further_scores(plan: MeasurePlan) -> FurtherScores:
    """What the options ask for; all processes call it, each scores its share of the blocks."""
    corrupted: dict[float, Scores] = {}
    if plan.options.asks("corruption_slope"):
        sample = plan.splits["validation"].samples.last
        corrupted = {share: _scores(plan, sample, change=partial(_replaced, plan, sample, share)) for share in SHARES}
    return FurtherScores(corrupted, {name: _bits_per_byte(plan, corpus) for name, corpus in plan.request.on.items()})


def outcome_facts(plan: MeasurePlan, collected: Mapping[Split, Collectors], further: FurtherScores) -> OutcomesFacts:
    """What the options ask for."""
    facts: OutcomesFacts = {}
    scale = collected["validation"][TokenScores].scale
    if plan.options.outcomes is not None or further.bits_per_byte:
        facts["outcomes"] = _outcomes(plan, collected, further)
    if scale is not None:
        facts["temperature"] = 1 / scale
    return facts


def _outcomes(
    plan: MeasurePlan, collected: Mapping[Split, Collectors], further: FurtherScores
) -> dict[str, OutcomeFacts]:
    scored = collected["validation"][TokenScores]
    loss = scored.scores.loss
    counts = torch.zeros(plan.model.classes, dtype=torch.int64)
    numbers = plan.splits["train"].numbers
    counts[numbers.ids] = plan.counts.last.cpu()
    values: dict[str, float | None] = {}
    for name in plan.options.outcome_names:
        if name == "gap":
            values[name] = loss - collected["train"][TokenScores].scores.loss
        elif name == "corruption_slope":
            values[name] = slope(
                [0.0, *further.corrupted], [loss, *(scores.loss for scores in further.corrupted.values())]
            )
        else:
            values[name] = _of_tokens(name, scored, counts)
    values |= {f"{ON}{name}": value for name, value in further.bits_per_byte.items()}
    facts: dict[str, OutcomeFacts] = {}
    for name, value in values.items():
        facts[name] = {"value": value, "why": None}
        if value is None or not math.isfinite(value):
            what = "no token or class is left to compute it from" if value is None else f"the value is {value}"
            facts[name] = {"value": None, "why": f"{name}: {what}."}
    return facts


def _of_tokens(name: str, scored: TokenScores, counts: Tensor) -> float | None:
    if name == "ece":
        return calibration_error(scored.confidence, scored.right)
    if name == "loss_after_temperature":
        tokens = scored.scores.tokens
        return float(scored.sums[SCALED_LOSS]) / tokens if tokens else None
    tokens_of, loss_of = scored.sums[CLASS_TOKENS].cpu(), scored.sums[CLASS_LOSS].cpu()
    return macro_loss(tokens_of, loss_of) if name == "macro_loss" else rare_loss(tokens_of, loss_of, counts)


def macro_loss(tokens: Tensor, loss: Tensor) -> float | None:
    """Mean over the classes that occur of their mean loss."""
    seen = tokens > 0
    return float((loss[seen] / tokens[seen]).mean()) if seen.any() else None


def rare_loss(tokens: Tensor, loss: Tensor, counts: Tensor) -> float | None:
    """Mean loss of the tokens whose class is in the rarer half by `counts`, of the classes that occur; ties by id."""
    seen = (tokens > 0).nonzero().squeeze(1)
    rare = seen[counts[seen].argsort(stable=True)][: len(seen) // 2]
    return float(loss[rare].sum()) / int(tokens[rare].sum()) if len(rare) else None


def calibration_error(confidence: Tensor, right: Tensor) -> float | None:
    """Mean over tokens of |confidence − accuracy| of their bin; bins have the same number of tokens, up to one.

    Tokens are sorted by confidence and, where that is the same, by whether they are right: the order in which they came
    does not matter.
    """
    if not len(confidence):
        return None
    order = right.to(torch.int8).argsort(stable=True)
    order = order[confidence[order].argsort(stable=True)]
    gaps = (confidence.double() - right.double())[order]
    return float(sum(abs(float(part.sum())) for part in torch.tensor_split(gaps, CONFIDENCES))) / len(gaps)


def slope(x: list[float], y: list[float]) -> float:
    """Of the least-squares line of y on x."""
    middle, mean = math.fsum(x) / len(x), math.fsum(y) / len(y)
    return math.fsum((a - middle) * (b - mean) for a, b in zip(x, y, strict=True)) / math.fsum(
        (a - middle) ** 2 for a in x
    )


def named_corpora(corpora: list[Corpus], main: Corpus) -> dict[str, Corpus]:
    """Further corpora by the names of their folders; ConfigError where one has another tokenizer, or two one name."""
    named: dict[str, Corpus] = {}
    for corpus in corpora:
        name = corpus.path.resolve().name
        if name in named or any(sign in name for sign in ",="):
            why = "two further corpora have that name" if name in named else "a comma or = in its name"
            raise ConfigError(f"{corpus.path}: {why}. Rename its folder.")
        # A corpus of an earlier version has no hash of what its tokenizer does, only of the file.
        records = (main.record, corpus.record)
        hashes = {one.tokenizer_hash or one.files["tokenizer/tokenizer.json"].sha256 for one in records}
        if len(hashes) > 1:
            raise ConfigError(
                f"{corpus.path}: built with another tokenizer ({corpus.record.request.tokenizer}, "
                f"{corpus.vocabulary:,} tokens) than {main.path} ({main.record.request.tokenizer}, "
                f"{main.vocabulary:,} tokens). Build it with --tokenizer {main.path / 'tokenizer'}."
            )
        named[name] = corpus
    return named


def _scores(plan: MeasurePlan, sample: Sample, **change: Any) -> Scores:
    """Of all processes' blocks of a sample, whose ids a `change` may alter before the model reads them."""
    scorer, scores = Scorer(plan.model.head), Scores()
    step = max(1, plan.batch * plan.splits["validation"].samples.last.length // sample.length)
    for group in plan.processes.own_groups(sample.groups(plan.processes.world)).values():
        for start in range(group.start, group.stop, step):
            features, labels = plan.model.sampled_features(sample, start, min(start + step, group.stop), **change)
            scores += scorer.scores(features, labels)
    total = Scores()
    for part in plan.processes.gather(scores):
        total += part
    return total


def _replaced(plan: MeasurePlan, sample: Sample, share: float, ids: Tensor, start: int) -> Tensor:
    """The ids of some blocks, the first of which is number `start`, with a share of them replaced."""
    tokens = plan.request.corpus.train.token_counts.nonzero().squeeze(1)
    places = sample.blocks[start : start + len(ids), None] * ids.shape[1] + np.arange(ids.shape[1])
    draws = mixed(mixed(places.astype(np.uint64) ^ mixed(np.array([plan.options.seed], dtype=np.uint64))))
    chance = torch.from_numpy((draws >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    other = tokens[torch.from_numpy((mixed(draws) % np.uint64(len(tokens))).astype(np.int64))]
    is_replaced = chance < share
    is_replaced[:, : sample.split.first] = False  # begin tokens
    return torch.where(is_replaced, other, ids)


def _bits_per_byte(plan: MeasurePlan, corpus: Corpus) -> float | None:
    """Loss on its validation split in bits, over the bytes of the text that is predicted; None without any."""
    sample = plan.model.samples(corpus, "validation", plan.options).last
    scores, size = _scores(plan, sample), predicted_bytes(corpus, sample)
    return scores.total_loss / math.log(2) / size if size and scores.tokens else None


def predicted_bytes(corpus: Corpus, sample: Sample) -> int:
    """Bytes of text after the first token that is not predicted, block by block; special tokens have none."""
    decode, size = corpus.tokenizer().backend_tokenizer.decode_batch, 0
    for start in range(0, len(sample), 256):
        read = sample.read(start, start + 256)
        lengths = (read.labels[:, sample.first :] != IGNORED).sum(1) + sample.first + 1
        rows = [row[:length].tolist() for row, length in zip(read.ids, lengths, strict=True)]
        whole, before = decode(rows), decode([row[: sample.first + 1] for row in rows])
        size += sum(len(text.encode()) for text in whole) - sum(len(text.encode()) for text in before)
    return size


# Trackers ------------------------------------------------------------------------------------------------------------

PREFIX = "collapse"
FOLDER = "tracked"
"""Where models that are no runs have their folder, in the present one."""


def report_measurement(report_to: str, result: Result, checkpoint: Checkpoint | None) -> None:
    """Log a result to a tracker: to the run that the checkpoint belongs to, at its step, or to one of its own."""
    made = None if checkpoint is None else checkpoint.run.checkpoint(checkpoint.name)
    step = 0 if made is None else made.step
    if checkpoint is not None:
        run = TrackedRun(checkpoint.run.name, checkpoint.run.path)
    else:
        name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in result.name).strip(".-")
        run = TrackedRun(result.name, Path(FOLDER) / (name or "model"))
    with tracked(report_to, run) as tracker:
        assert tracker is not None
        tracker.scalars(logged(result), step)


def logged(result: Result) -> dict[str, float]:
    """Return the values of a result under the names they are logged by."""
    values: dict[str, float] = {}
    for row in result.rows:
        if row.split == "train" and row.bin == "all" and row.value is not None:
            name = row.metric if row.layer == "last" else f"layer{row.layer}/{row.metric}"
            values[f"{PREFIX}/{name}"] = row.value
            if row.null is not None:
                values[f"{PREFIX}/null/{name}"] = row.null
    scores = result.facts["splits"]["validation"]
    by_name = {"val_loss": scores.get("loss"), "val_accuracy": scores.get("accuracy")}
    return values | {f"{PREFIX}/{name}": score for name, score in by_name.items() if score is not None}
