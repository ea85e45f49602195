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
    from collapselab.training.interventions.sequences import drawn_tokens, spread
    from collapselab.training.interventions.unit_rows import directions

    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    labels = step.labels[drawn.places]
    positive = (labels[:, :, None] == labels[:, None, :]).logical_and_(drawn.pairs)
    number = positive.sum(2, keepdim=True)
    anchor = number > 0
    anchors = int(anchor.sum())
    if not anchors:
        return None
    rows = directions(step.features.detach()[drawn.places])
    scaled = (rows.units @ rows.units.transpose(1, 2)).div_(TEMPERATURE)
    targets = positive / number.clamp(min=1)
    scaled.masked_fill_(~drawn.pairs, float("-inf"))
    logs = scaled.logsumexp(2, keepdim=True)
    value = (logs * anchor).nan_to_num(neginf=0.0).sum() - (scaled.masked_fill(~positive, 0.0) * targets).sum()
    of_cosines = scaled.sub_(logs).exp_().nan_to_num_().sub_(targets).mul_(anchor / (TEMPERATURE * anchors))
    of_units = (of_cosines + of_cosines.transpose(1, 2)) @ rows.units
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
)
