"""`dual_uniform`: the same angle between output row and class mean for every class, whatever that angle is.

    R = standard deviation over classes of cos(w_c, m_c − m̄)

of the same classes and means as `dual`.
"""

from collapselab.training.interventions.dual import cosines
from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂cos_c = (cos_c − mean) / (K R)."""
    cosine = cosines(step)
    if cosine is None:
        return None
    differences = cosine.values - cosine.values.mean()
    value = differences.square().mean().sqrt()
    if not value > 0:
        return None
    return cosine.penalty(value, differences / (len(differences) * value), step)


DUAL_UNIFORM = Intervention(
    "dual_uniform",
    "Makes the cosines of output rows and class means alike over classes (+), or unlike (−).",
    "standard deviation over c of cos(w_c, m_c − m̄)",
    "after arXiv:2410.04472",
    "duality_cos_std",
    "both",
    penalty,
    plus="falls",
    cost="N·D; the centre of the table, K·D",
)
