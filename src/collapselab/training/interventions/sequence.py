"""Penalties that compare tokens inside a sequence: `simreg` and `disperse`."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.training.interventions.features import directions
from collapselab.training.interventions.step import Penalty, Step

TOKENS = 256
"""Most tokens of a sequence, fewer where the step is small; they are drawn again at every step."""

SIMREG_TEMPERATURE, DISPERSE_TEMPERATURE = 0.1, 0.5

NEARLY_ONE = 1 - 1e-6
"""A larger cosine counts as this one: the slope of arccos has no bound there."""


@torch.no_grad()
def simreg(step: Step) -> Penalty | None:
    """Features of one next token drawn together and away from all others of the sequence.

        R = mean over anchors i of −(1/|P(i)|) Σ_{p ∈ P(i)} log( exp(cos_ip / τ) / Σ_{a ≠ i} exp(cos_ia / τ) ),  τ = 0.1

    P(i) are the other tokens of i's sequence with i's label; a token without any is no anchor. The form (supervised
    contrastive, arXiv:2004.11362) is ours. Its sham still pushes tokens apart: it is the control for that part.

        ∂R/∂cos_ij = (softmax_ij − [j ∈ P(i)] / |P(i)|) / (τ anchors)
    """
    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    labels = step.labels[drawn.indices]
    positive = drawn.only_pairs((labels[:, :, None] == labels[:, None, :]).to(step.features.dtype))
    number = positive.sum(2, keepdim=True)
    anchor = (number > 0).to(number.dtype)
    anchors = anchor.sum()
    if not anchors > 0:
        return None
    rows = directions(step.features.detach()[drawn.indices])
    cosines = rows.units @ rows.units.transpose(1, 2)
    targets = positive.div_(number.clamp_(min=1))
    pulls = (cosines * targets).sum()  # targets of a token without any positive are zero
    powers = drawn.only_pairs(cosines.sub_(1).div_(SIMREG_TEMPERATURE).exp_())  # no cosine is above 1
    totals = powers.sum(2, keepdim=True).clamp_(min=torch.finfo(powers.dtype).tiny)
    value = ((totals.log() + 1 / SIMREG_TEMPERATURE) * anchor).sum() - pulls / SIMREG_TEMPERATURE
    of_cosines = powers.mul_(anchor / totals).sub_(targets).div_(SIMREG_TEMPERATURE * anchors)
    of_units = of_cosines @ rows.units + of_cosines.transpose(1, 2) @ rows.units
    return Penalty(value / anchors, of_features=drawn.of_features(rows.gradient(of_units), step.features))


@torch.no_grad()
def disperse(step: Step) -> Penalty | None:
    """The tokens of a sequence pushed apart in angle, whatever their labels.

        R = mean over sequences of log mean_{i ≠ j} exp(−arccos(cos_ij) / (π τ)),   τ = 0.5

    Free of scale. The cosines of all pairs of tokens fall, so `dispersion` rises and `anisotropy` falls. Two tokens in
    the same direction have no gradient. With the softmax over all pairs of the sequence:

        ∂R/∂cos_ij = softmax_ij / (π τ √(1 − cos²)) / sequences
    """
    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    rows, number = directions(step.features.detach()[drawn.indices]), len(drawn.indices)
    cosines = (rows.units @ rows.units.transpose(1, 2)).clamp_(-NEARLY_ONE, NEARLY_ONE)
    powers = drawn.only_pairs(cosines.acos().div_(-math.pi * DISPERSE_TEMPERATURE).exp_())
    totals = powers.sum((1, 2))
    value = (totals / drawn.pairs).log().mean()
    slopes = (1 - cosines.square()).rsqrt_().masked_fill_(cosines.abs_() >= NEARLY_ONE, 0.0)  # of −arccos
    of_cosines = powers.mul_(slopes).div_((math.pi * DISPERSE_TEMPERATURE * number) * totals[:, None, None])
    of_units = (of_cosines @ rows.units).mul_(2)
    return Penalty(value, of_features=drawn.of_features(rows.gradient(of_units), step.features))


class Drawn(NamedTuple):
    """Tokens of each sequence side by side."""

    indices: Tensor
    """(sequences, tokens) in the step; 0 beyond the end of a short sequence."""
    inside: Tensor | None
    """Which of `indices` are tokens of the sequence; None where all are."""

    @property
    def pairs(self) -> Tensor | int:
        """Ordered pairs of two tokens, of each sequence (sequences,)."""
        tokens = self.indices.shape[1] if self.inside is None else self.inside.sum(1)
        return tokens * (tokens - 1)

    def only_pairs(self, values: Tensor) -> Tensor:
        """Set (sequences, tokens, tokens) values to 0 in place where they are not of two tokens."""
        values.diagonal(dim1=1, dim2=2).fill_(0.0)
        if self.inside is not None:
            values.masked_fill_(~(self.inside[:, :, None] & self.inside[:, None, :]), 0.0)
        return values

    def of_features(self, of_drawn: Tensor, features: Tensor) -> Tensor:
        """Return the gradient of all features from that of the drawn tokens; padding adds zero."""
        rows = of_drawn.reshape(-1, features.shape[1])
        return torch.zeros_like(features).index_add_(0, self.indices.reshape(-1), rows)


def drawn_tokens(step: Step) -> Drawn | None:
    """Draw tokens of each sequence that has two or more; None where none has."""
    counts = torch.bincount(step.sequences)
    comparable = counts >= 2
    if not comparable.any():
        return None
    lengths, starts = counts[comparable], (counts.cumsum(0) - counts)[comparable]
    number, longest, shortest = len(lengths), int(lengths.max()), int(lengths.min())
    limit = min(TOKENS, max(32, math.isqrt(step.pair_rows(1 << 20) ** 2 // (2 * number))))
    offsets = torch.arange(longest, device=lengths.device).expand(number, longest)
    if longest > limit:
        keys = torch.rand(number, longest, generator=step.generator).to(lengths.device)
        keys[offsets >= lengths[:, None]] = 2.0
        offsets = keys.topk(limit, largest=False).indices.sort().values
    if shortest >= offsets.shape[1]:
        return Drawn(starts[:, None] + offsets, None)
    inside = offsets < lengths[:, None]
    return Drawn((starts[:, None] + offsets).where(inside, 0), inside)
