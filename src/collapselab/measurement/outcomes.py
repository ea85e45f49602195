"""Outcomes of a measurement, each by its name: a value, or the reason why there is none."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors.scores import CLASS_LOSS, CLASS_TOKENS, SCALED_LOSS, TokenScores
from collapselab.measurement.further_scores import FurtherScores
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.facts import OutcomeFacts, OutcomesFacts
from collapselab.records.outcomes import ON

CONFIDENCES = 15
"""Bins of equal mass that the calibration error compares confidence and accuracy in."""


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
