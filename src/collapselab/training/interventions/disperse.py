"""`disperse`: the tokens of a sequence pushed apart in angle, whatever their labels.

    R = mean over sequences of log mean_{i ≠ j} exp(−arccos(cos_ij) / (π τ)),   τ = 0.5

over at most 256 tokens of a sequence. Free of scale. The cosines of all pairs of tokens fall, so `dispersion` rises and
`anisotropy` falls. Two tokens in the same direction have no gradient.
"""

import math

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

TEMPERATURE = 0.5
NEARLY_ONE = 1 - 1e-6
"""A larger cosine counts as this one: the slope of arccos has no bound there."""


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂cos_ij = softmax_ij / (π τ √(1 − cos²)) / sequences, with the softmax over all pairs of the sequence."""
    from collapselab.training.interventions.sequences import drawn_tokens, spread
    from collapselab.training.interventions.unit_rows import directions

    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    rows, number = directions(step.features.detach()[drawn.places]), len(drawn.places)
    cosines = (rows.units @ rows.units.transpose(1, 2)).clamp_(-NEARLY_ONE, NEARLY_ONE)
    powers = drawn.only_pairs(cosines.acos().div_(-math.pi * TEMPERATURE).exp_(), 0.0)
    totals = powers.sum((1, 2))
    value = (totals / drawn.pairs).log().mean()
    slopes = (1 - cosines.square()).rsqrt_().masked_fill_(cosines.abs_() >= NEARLY_ONE, 0.0)  # of −arccos
    of_cosines = powers.mul_(slopes).div_((math.pi * TEMPERATURE * number) * totals[:, None, None])
    of_units = (of_cosines @ rows.units).mul_(2)
    return Penalty(value, of_features=spread(rows.gradient(of_units), drawn.places, step.features))


DISPERSE = Intervention(
    "disperse",
    "Pushes the tokens of a sequence apart in angle, blind to labels.",
    f"log mean exp(−arccos(cos)/(πτ)) over tokens of a sequence, τ {TEMPERATURE:g}",
    "dispersion loss, arXiv:2602.00217 (τ ours)",
    "dispersion",
    "+",
    penalty,
    plus="rises",
    cost="n²·D for n ≤ 256 tokens of each sequence",
    blind=True,
)
