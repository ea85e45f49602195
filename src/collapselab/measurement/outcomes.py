"""Outcomes of a measurement, each by its name: a value, or the reason why there is none.

Some need passes of their own: over validation blocks with replaced inputs, and over further corpora. Every input token
but begin tokens and padding is given a number from 0 to 1 that depends on the seed, its block and its position alone,
and is replaced where that is below the share. So a token that is replaced at 5 % is replaced by the same at 20 %, and
neither batches nor processes matter. What replaces it is drawn evenly from the tokens of the training split. The next
tokens that are predicted stay those of the text.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.hashing import mixed
from collapselab.errors import ConfigError
from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors.scores import CLASS_LOSS, CLASS_TOKENS, SCALED_LOSS, TokenScores
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import Sample
from collapselab.models.scores import Scorer, Scores
from collapselab.records.facts import OutcomeFacts, OutcomesFacts
from collapselab.records.outcomes import ON

SHARES = (0.05, 0.10, 0.20)
"""Of the inputs that are replaced."""

CONFIDENCES = 15
"""Bins of equal mass that the calibration error compares confidence and accuracy in."""


@final
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
    return {name: _fact(name, value) for name, value in values.items()}


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


def _fact(name: str, value: float | None) -> OutcomeFacts:
    if value is None or not math.isfinite(value):
        what = "no token or class is left to compute it from" if value is None else f"the value is {value}"
        return {"value": None, "why": f"{name}: {what}."}
    return {"value": value, "why": None}


def named_corpora(corpora: list[Corpus], main: Corpus) -> dict[str, Corpus]:
    """Further corpora by the names of their folders; ConfigError where one has another tokenizer, or two one name."""
    named: dict[str, Corpus] = {}
    for corpus in corpora:
        name = corpus.path.resolve().name
        if name in named or any(sign in name for sign in ",="):
            why = "two further corpora have that name" if name in named else "a comma or = in its name"
            raise ConfigError(f"{corpus.path}: {why}. Rename its folder.")
        own, other = (_tokenizer_of(each) for each in (main, corpus))
        if own != other:
            raise ConfigError(
                f"{corpus.path}: built with another tokenizer ({corpus.record.request.tokenizer}, "
                f"{corpus.vocabulary:,} tokens) than {main.path} ({main.record.request.tokenizer}, "
                f"{main.vocabulary:,} tokens). Build it with --tokenizer {main.path / 'tokenizer'}."
            )
        named[name] = corpus
    return named


def _tokenizer_of(corpus: Corpus) -> str:
    """What tells tokenizers apart: the hash of what it does, or that of its file for a corpus of an earlier version."""
    return corpus.record.tokenizer_hash or corpus.record.files["tokenizer/tokenizer.json"].sha256


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
