"""`simreg`: features of one next token drawn together and away from all others of the sequence.

    R = mean over anchors i of −(1/|P(i)|) Σ_{p ∈ P(i)} log( exp(cos_ip / τ) / Σ_{a ≠ i} exp(cos_ia / τ) ),   τ = 0.1

P(i) are the other tokens of i's sequence with i's label; a token without any is no anchor. The form (supervised
contrastive, arXiv:2004.11362) is ours. Its sham still pushes tokens apart: it is the control for that part.
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

TEMPERATURE = 0.1


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂cos_ij = (softmax_ij − [j ∈ P(i)] / |P(i)|) / (τ anchors)."""
    import torch

    from collapselab.training.interventions.sequences import drawn_tokens, spread
    from collapselab.training.interventions.unit_rows import directions

    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    labels = step.labels[drawn.places]
    positive = drawn.only_pairs((labels[:, :, None] == labels[:, None, :]).to(step.features.dtype), 0.0)
    number = positive.sum(2, keepdim=True)
    anchor = (number > 0).to(number.dtype)
    anchors = anchor.sum()
    if not anchors > 0:
        return None
    rows = directions(step.features.detach()[drawn.places])
    cosines = rows.units @ rows.units.transpose(1, 2)
    targets = positive.div_(number.clamp_(min=1))
    pulls = (cosines * targets).sum()  # targets of a token without any positive are zero
    powers = drawn.only_pairs(cosines.sub_(1).div_(TEMPERATURE).exp_(), 0.0)  # no cosine is above 1
    totals = powers.sum(2, keepdim=True).clamp_(min=torch.finfo(powers.dtype).tiny)
    value = ((totals.log() + 1 / TEMPERATURE) * anchor).sum() - pulls / TEMPERATURE
    of_cosines = powers.mul_(anchor / totals).sub_(targets).div_(TEMPERATURE * anchors)
    of_units = of_cosines @ rows.units + of_cosines.transpose(1, 2) @ rows.units
    gradient = spread(rows.gradient(of_units), drawn.places, step.features)
    return Penalty(value / anchors, of_features=gradient)


SIMREG = Intervention(
    "simreg",
    "Draws tokens of a sequence with the same next token together, and others apart.",
    f"supervised contrastive loss on next tokens inside a sequence, τ {TEMPERATURE:g}",
    "form ours, after SimReg, arXiv:2605.08809",
    "cdnv_log",
    "+",
    penalty,
    plus="falls",
    cost="n²·D for n ≤ 256 tokens of each sequence",
)
