"""`within`: variability within classes, as a share of all variability, in the tokens of a step.

    R = S_W / S_T
    S_W = Σ_{n_c ≥ 2} Σ ‖h − h̄_c‖² / Σ (n_c − 1),        S_T the same about one centre

Between 0 and a little above 1, and free of scale.
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂h = 2/S_T · ((h − h̄_c) / Σ(n_c − 1) − R (h − h̄) / (N − 1))."""
    from collapselab.training.interventions.classes import square

    classes = step.classes
    if not classes.can_compare:
        return None
    about = classes.about_centre
    if not about.variance > 0:
        return None
    freedom = len(step.features) - len(classes.ids)  # a class with one token adds nothing
    ratio = square(classes.deviations) / freedom / about.variance
    gradient = classes.deviations * (2 / freedom / about.variance)
    gradient.addcmul_(about.differences, -2 * ratio / about.variance / (about.tokens - 1))
    return Penalty(ratio, of_features=gradient)


WITHIN = Intervention(
    "within",
    "Pulls the features of one next token together (+), or spreads them (−).",
    "S_W / S_T, S_W = Σ_{n_c≥2} Σ‖h − h̄_c‖² / Σ(n_c − 1), S_T the same about one centre",
    "this project, after center loss (Wen et al. 2016)",
    "cdnv_log",
    "both",
    penalty,
    plus="falls",
    cost="N·D",
)
