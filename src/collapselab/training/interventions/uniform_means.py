"""`uniform_means`: class means spread evenly over all directions: `uniform` of the table of means.

    R = pair mean of −log‖û_i − û_j‖,        û_c = (m_c − m̄) / ‖m_c − m̄‖

over classes of the step, at most 512, with their means and the centre m̄ from the table of `class_means.py`.
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form
from collapselab.training.interventions.uniform import ROWS


@closed_form
def penalty(step: Step) -> Penalty | None:
    """The energy of the means, with a gradient in the features of their classes."""
    from collapselab.training.interventions.class_means import batch_means
    from collapselab.training.interventions.unit_rows import log_energy

    means = batch_means(step)
    if means is None:
        return None
    chosen = step.drawn(len(means.places), step.pair_rows(ROWS))
    value, gradient = log_energy(means.centred[chosen])
    used = means._replace(places=means.places[chosen])
    return Penalty(value, of_features=used.of_features(gradient, step.classes))


UNIFORM_MEANS = Intervention(
    "uniform_means",
    "Spreads class means evenly over all directions (+), or clusters them (−).",
    f"pair mean of −log‖û_i − û_j‖ over {ROWS} means m_c − m̄ of the table, fewer in small models",
    "MHE, arXiv:1805.09298; HUG, arXiv:2303.06484",
    "logdist_std",
    "both",
    penalty,
    plus="falls",
    cost="n²·D for n ≤ 512 classes; the centre of the table, K·D",
)
