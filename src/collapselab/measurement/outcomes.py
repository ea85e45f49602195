"""Outcomes of a measurement, each by its name: a value, or the reason why there is none."""

import math

import torch
from torch import Tensor

from collapselab.measurement.further_scores import FurtherScores
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import Sums
from collapselab.measurement.token_scores import TokenScores
from collapselab.records.facts import OutcomeFacts, OutcomesFacts
from collapselab.records.outcomes import ON

CONFIDENCES = 15
"""Bins of equal mass that the calibration error compares confidence and accuracy in."""


def outcome_facts(
    plan: MeasurePlan, sums: dict[Split, Sums], further: FurtherScores, scale: float | None
) -> OutcomesFacts:
    """What the options ask for; `sums` are those of all processes, `scale` is one over the temperature."""
    facts: OutcomesFacts = {}
    if plan.options.outcomes is not None or further.bits_per_byte:
        facts["outcomes"] = _outcomes(plan, sums, further)
    if scale is not None:
        facts["temperature"] = 1 / scale
    return facts


def _outcomes(plan: MeasurePlan, sums: dict[Split, Sums], further: FurtherScores) -> dict[str, OutcomeFacts]:
    scored, loss = sums["validation"].scored, sums["validation"].scores.loss
    counts = torch.zeros(plan.model.classes, dtype=torch.int64)
    numbers = plan.splits["train"].numbers
    counts[numbers.ids] = plan.counts.last.cpu()
    values: dict[str, float | None] = {}
    for name in plan.options.outcome_names:
        if name == "gap":
            values[name] = loss - sums["train"].scores.loss
        elif name == "corruption_slope":
            values[name] = slope(
                [0.0, *further.corrupted], [loss, *(scores.loss for scores in further.corrupted.values())]
            )
        elif scored is not None:
            values[name] = _of_tokens(name, scored, counts, tokens=sums["validation"].scores.tokens)
    values |= {f"{ON}{name}": value for name, value in further.bits_per_byte.items()}
    return {name: _fact(name, value) for name, value in values.items()}


def _of_tokens(name: str, scored: TokenScores, counts: Tensor, *, tokens: int) -> float | None:
    if name == "macro_loss":
        return macro_loss(scored.tokens, scored.loss)
    if name == "rare_loss":
        return rare_loss(scored.tokens, scored.loss, counts)
    if name == "ece":
        return calibration_error(scored.confidence, scored.right)
    return float(scored.scaled_loss) / tokens if tokens else None


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
