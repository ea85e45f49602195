"""`floor`: classes that vary less than a floor are spread; a class above it feels nothing.

    R = mean_c max(0, γ − s_c² / S_T),        s_c² = Σ ‖h − h̄_c‖² / (n_c − 1),   γ = 0.8

over classes with two tokens or more; S_T is that of `within`. As its dose is held, the force on the classes below the
floor does not fade when they are few; with no class below, the step counts as one in which it could not act.
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

FLOOR_SHARE = 0.8
"""γ: the share of the whole variability that a class is to keep."""


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂s_c² = −1/(K S_T) below the floor; ∂R/∂S_T = Σ s_c² / (K S_T²) over the same classes."""
    classes = step.classes
    if not classes.can_compare:
        return None
    about = classes.about_centre
    if not about.variance > 0:
        return None
    freedom = (classes.sizes - 1).clamp(min=1)
    shares = classes.scatter / freedom / about.variance
    below = (classes.repeated & (shares < FLOOR_SHARE)).to(shares.dtype)
    number = classes.repeated.sum()
    value = (below * (FLOOR_SHARE - shares)).sum() / number
    of_scatter = -2 * below / freedom / (number * about.variance)
    gradient = classes.deviations * of_scatter[classes.of_token][:, None]
    of_total = 2 * (below * shares).sum() / number / about.variance / (about.tokens - 1)
    return Penalty(value, of_features=gradient.addcmul_(about.differences, of_total))


FLOOR = Intervention(
    "floor",
    "Keeps every class from varying less than a floor: collapse prevented, not reversed.",
    f"mean_c max(0, γ − s_c²/S_T), γ = {FLOOR_SHARE}",
    "hinge after VICReg, arXiv:2105.04906",
    "within_share",
    "+",
    penalty,
    plus="rises",
    cost="N·D",
)
