"""`floor`: classes that vary less than a floor are spread; classes above it are left unchanged.

    R = Σ_c (n_c − 1) max(0, γ − s_c²/S_T) / Σ_c (n_c − 1),        s_c² = Σ ‖h − h̄_c‖² / (n_c − 1)

over classes with two tokens or more; S_T is that of `within`. Classes are weighted as `within_share` weights them, by
their tokens: with equal weights most of the dose went to classes with two tokens in a step, and frequent ones stayed
below the floor.

Two tokens say little of a class: s_c² of a step is below the floor by chance in many classes that are not. So the share
of a class is a moving average over its last twenty tokens or so, and only its gradient is of the step. Otherwise tokens
that are near each other by chance would be pushed apart whatever their labels are, and a sham would move as well.

γ is above the `within_share` that is to be reached, as the hinge stops classes at γ that come from below, others stay
below it, and `within_share` divides by n_c. As the dose is held, the force on the classes below the floor does not fade
when they are few; with no class below, the step counts as one in which it could not act.
"""

from typing import TYPE_CHECKING

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

if TYPE_CHECKING:
    from torch import Tensor

TARGET = 0.8
"""The `within_share` that a training at dose 0.3 is to keep."""
GAMMA = 0.85
"""γ: the share of the whole variability up to which a class is spread."""
RATE = 0.05
"""Share of a token in the moving average of its class, once it has more than 1 / RATE."""


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂h = −2/(F S_T) · ((h − h̄_c) [c below] − B/S_T (h − h̄) / (N − 1)), F = Σ(n_c − 1), B the scatter below."""
    classes = step.classes
    about = classes.about_centre if classes.can_compare else None
    variance = about.variance if about is not None and about.variance > 0 else None
    shares = _moving_shares(step, variance)  # of all processes: also where this one has nothing to compare
    if about is None or variance is None:
        return None
    freedom = classes.sizes - 1
    below = (classes.repeated & (shares < GAMMA)).to(shares.dtype)
    value = (below * freedom * (GAMMA - shares)).sum() / freedom.sum()
    factor = -2 / (freedom.sum() * variance)
    gradient = classes.deviations * (factor * below)[classes.of_token][:, None]
    of_total = -factor * (below * classes.scatter).sum() / variance / (about.tokens - 1)
    return Penalty(value, of_features=gradient.addcmul_(about.differences, of_total))


def _moving_shares(step: Step, variance: "Tensor | None") -> "Tensor":
    """s_c²/S_T of the classes of this step, each the moving average of its class with this step's tokens in it."""
    import torch

    classes, shape = step.classes, (2, step.classes.vocabulary)
    table = step.kept.setdefault("shares", step.features.new_zeros(shape))  # and the freedom behind each
    new = step.features.new_zeros(shape)
    if variance is not None:
        new[:, classes.ids] = torch.stack([classes.scatter / variance, classes.sizes - 1])
    scatter, freedom = step.total(new)
    table[1] += freedom
    moved = torch.maximum(freedom / table[1].clamp(min=1), 1 - (1 - RATE) ** freedom)
    table[0].lerp_(scatter / freedom.clamp(min=1), moved)
    return table[0, classes.ids]


FLOOR = Intervention(
    "floor",
    "Keeps classes from varying less than a floor: collapse prevented, not reversed.",
    f"Σ_c (n_c − 1) max(0, γ − s_c²/S_T) / Σ_c (n_c − 1), γ = {GAMMA}, s_c²/S_T a moving average",
    "hinge after VICReg, arXiv:2105.04906",
    "within_share",
    "+",
    penalty,
    plus="rises",
    cost="N·D",
)
