"""`cdnv`: the class-distance normalised variance of the classes of a step, a measure of NC1 that is its own penalty.

    R = pair mean of min(1, T),        T = (V_c + V_c') / (2‖h̄_c − h̄_c'‖²),   V_c = Σ ‖h − h̄_c‖² / n_c

over classes with two tokens or more, at most 256. Free of scale. Classes that are wider than they are far apart, T > 1,
have no gradient: otherwise the few pairs that nearly coincide rule it, and `cdnv_log` can move against the dose.
"""

from typing import TYPE_CHECKING

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

if TYPE_CHECKING:
    from torch import Tensor

CLASSES, LARGEST = 256, 1.0


@closed_form
def penalty(step: Step) -> Penalty | None:
    """With d the squared distance of a pair: ∂R/∂V_c = Σ 1/d, ∂R/∂h̄_c = −4 Σ T/d (h̄_c − h̄_c'), over K(K−1)."""
    classes = step.classes
    if not classes.can_compare:
        return None
    places = classes.repeated.nonzero().squeeze(1)
    places = places[step.drawn(len(places), step.pair_rows(CLASSES))]
    means, sizes = classes.means[places], classes.sizes[places]
    means, pairs = means - means.mean(0), len(places) * (len(places) - 1)
    terms, distances = _terms(means, classes.scatter[places] / sizes)
    below = terms < LARGEST
    of_variance = below / distances
    of_mean = of_variance * terms
    pulls = of_mean.sum(1)[:, None] * means - of_mean @ means
    spread = places.new_full((len(classes.ids),), len(places)).index_copy_(0, places, _range(places))
    own = spread[classes.of_token]  # the place of each token's class among the chosen; the last, of zeros, for others
    factors = _with_zero(of_variance.sum(1) * (2 / pairs) / sizes)[own]
    gradient = _with_zero(pulls * (-4 / pairs / sizes)[:, None])[own]
    gradient.addcmul_(classes.deviations, factors[:, None])
    return Penalty(terms.clamp(max=LARGEST).sum() / pairs, of_features=gradient)


def _terms(means: "Tensor", variances: "Tensor") -> "tuple[Tensor, Tensor]":
    """T of every pair and its squared distance; a class with itself, or at its very place, has 0 and infinity."""
    import torch

    norms = means.square().sum(1)
    distances = torch.addmm(norms[:, None] + norms, means, means.T, alpha=-2)
    coincident = distances <= 4 * torch.finfo(means.dtype).eps * (norms[:, None] + norms)
    distances.masked_fill_(coincident, torch.inf).fill_diagonal_(torch.inf)
    return (variances[:, None] + variances) / 2 / distances, distances


def _range(places: "Tensor") -> "Tensor":
    import torch

    return torch.arange(len(places), device=places.device)


def _with_zero(rows: "Tensor") -> "Tensor":
    import torch

    return torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])


CDNV = Intervention(
    "cdnv",
    "Makes classes narrow for their distance (+), or wide (−), pair by pair.",
    f"pair mean of (V_c + V_c')/(2‖h̄_c − h̄_c'‖²), at most {LARGEST:g}, over {CLASSES} classes of the step",
    "arXiv:2509.17738",
    "cdnv_log",
    "both",
    penalty,
    plus="falls",
    cost="N·D, and n²·D for n ≤ 256 classes",
)
