"""Penalties of the output layer: `uniform`, `centre`, `dual`, `dual_uniform` and `flat`."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.models.taps import OutputLayer
from collapselab.training.interventions.features import (
    ROWS,
    BatchMeans,
    Directions,
    batch_means,
    directions,
    log_energy,
)
from collapselab.training.interventions.step import HeadRows, Penalty, Step, if_finite, or_infinite

FLAT_TOKENS = 8
"""Tokens that `flat` uses at least."""


@torch.no_grad()
def uniform(step: Step) -> Penalty | None:
    """Rows of the output layer spread evenly over all directions.

        R = pair mean of −log‖û_i − û_j‖,        û_c = (w_c − w̄) / ‖w_c − w̄‖

    over rows drawn at every step among the classes seen so far, at most 512; w̄ is their mean. Free of scale; distances
    below 0.01 count as 0.01, so it is bounded. All other rows have no gradient.
    """
    seen = step.kept.setdefault("seen", step.classes.counts.new_zeros(step.classes.vocabulary))
    seen += step.total(step.classes.counts)
    classes = seen.nonzero().squeeze(1)
    if len(classes) < 2:
        return None
    chosen = classes[step.drawn(len(classes), step.pair_rows(ROWS))]
    rows = step.head.weight.detach()[chosen].to(step.features.dtype)
    value, gradient = log_energy(rows - rows.mean(0))
    return Penalty(value, of_head=HeadRows(chosen.to(rows.device), gradient - gradient.mean(0)))


class SharedRow(NamedTuple):
    """The gradient a·W + 1 rᵀ of the output layer W: a multiple of each row, and one row for all."""

    weight: Tensor
    multiple: Tensor
    row: Tensor
    square: Tensor

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.addcmul_(self.weight.to(total.dtype), (self.multiple * factor).to(total.dtype))
        total.add_((self.row * factor).to(total.dtype))


@torch.no_grad()
def centre(step: Step) -> Penalty | None:
    """The rows of the output layer brought to the mean zero, which is NC0.

        R = ‖Σ_s w_s‖² / ‖W‖²_F

    over all rows s. Free of scale; 0 where the rows sum to zero, K where all rows are equal.

        ∂R/∂w_c = 2 (Σ_s w_s − R w_c) / ‖W‖²_F
    """
    weight = step.head.weight.detach().to(step.features.dtype)
    total, square = weight.sum(0), or_infinite(torch.linalg.vector_norm(weight).square())
    value = total.square().sum() / square
    of_gradient = 4 * value * (len(weight) - value) / square
    return Penalty(
        if_finite(value, square), of_head=SharedRow(weight, -2 * value / square, total * (2 / square), of_gradient)
    )


class Cosines(NamedTuple):
    """cos(w_c, m_c − m̄) of the classes of a step, with their means and the centre m̄ from the table of class means."""

    values: Tensor
    ids: Tensor
    rows: Directions
    centred: Directions
    means: BatchMeans

    def penalty(self, value: Tensor, of_values: Tensor, step: Step) -> Penalty:
        """Return a penalty with this gradient in the cosines."""
        of_row = self.rows.gradient(self.centred.units * of_values[:, None])
        of_centred = self.centred.gradient(self.rows.units * of_values[:, None])
        rows = HeadRows(self.ids.to(of_row.device), of_row)
        return Penalty(value, self.means.of_features(of_centred, step.classes), rows)


def _cosines(step: Step) -> Cosines | None:
    """Return the cosines of the step's classes, None where fewer than two have a mean."""
    means = batch_means(step)
    if means is None:
        return None
    ids = step.classes.ids[means.indices]
    rows = directions(step.head.weight.detach()[ids].to(step.features.dtype))
    centred = directions(means.centred)
    return Cosines(torch.linalg.vecdot(rows.units, centred.units), ids, rows, centred, means)


@torch.no_grad()
def dual(step: Step) -> Penalty | None:
    """Rows of the output layer and centred class means brought to one direction.

        R = mean_c (1 − cos(w_c, m_c − m̄))

    over the classes of the step. It acts on features and output layer at once; its dose is over the features.
    """
    cosines = _cosines(step)
    if cosines is None:
        return None
    values = cosines.values
    return cosines.penalty(1 - values.mean(), values.new_full(values.shape, -1 / len(values)), step)


@torch.no_grad()
def dual_uniform(step: Step) -> Penalty | None:
    """The same angle between output row and class mean for every class, whatever that angle is.

        R = standard deviation over classes of cos(w_c, m_c − m̄)

    of the same classes and means as `dual`: ∂R/∂cos_c = (cos_c − mean) / (K R).
    """
    cosines = _cosines(step)
    if cosines is None:
        return None
    differences = cosines.values - cosines.values.mean()
    value = or_infinite(differences.square().mean().sqrt())
    return cosines.penalty(if_finite(value, value), differences / (len(differences) * value), step)


class RowsAndProduct(NamedTuple):
    """The gradient diag(d) W + Lᵀ R of the output layer W."""

    weight: Tensor
    diagonal: Tensor
    left: Tensor
    right: Tensor
    square: None = None

    def add_to(self, total: Tensor, factor: Tensor) -> None:
        total.addcmul_(self.weight.to(total.dtype), (self.diagonal * factor).to(total.dtype)[:, None])
        total.addmm_(self.left.T.to(total.dtype), (self.right * factor).to(total.dtype))


@torch.no_grad()
def flat(step: Step) -> Penalty:
    """Relative flatness of the loss in the output layer, the rival explanation of what collapse is said to do.

        R = E[‖h‖² (Σ_s p_s ‖w_s‖² − ‖Σ_s p_s w_s‖²)] / (E‖h‖² · ‖W‖²_F / K)

    over 2N/√K of the step's N tokens, drawn; p are the model's predictions. The numerator is
    Σ_{s,s'} ⟨w_s, w_s'⟩ tr H_ss', H the Hessian of the cross-entropy in the output layer. Under a soft cap each row
    counts with the slope g_s of the cap at its logit, w_s g_s, as in the metric. It acts on features and output layer
    at once.

    With v = Σ p_s g_s w_s and G_s = g_s²‖w_s‖² − 2 g_s⟨v, w_s⟩, a token's part k has, in its capped logits u and in the
    slopes,

        ∂k/∂u_s = p_s (G_s − Σ p G)        ∂k/∂g_s = 2 p_s (g_s‖w_s‖² − ⟨v, w_s⟩)
    """
    tokens = len(step.features)
    chosen = step.drawn(tokens, max(FLAT_TOKENS, round(2 * tokens / math.sqrt(len(step.head.weight)))))
    chosen = chosen.to(step.features.device)
    features = step.features.detach()[chosen]
    weight = step.head.weight.detach().to(features.dtype)
    probabilities, tanh = _probabilities(step.head, features, weight)
    slopes = None if tanh is None else 1 - tanh.square()
    lengths = torch.linalg.vector_norm(weight, dim=1).square_()
    once = probabilities if slopes is None else probabilities * slopes  # p g
    twice = once if slopes is None else once * slopes  # p g²
    mixed = once @ weight  # Σ_s p_s g_s w_s
    parts = twice @ lengths - torch.linalg.vecdot(mixed, mixed)
    squares = torch.linalg.vecdot(features, features)
    scale = squares.sum() * lengths.mean()
    value = (squares @ parts) / scale
    shares = squares / scale  # ∂R/∂k of each token
    if slopes is None or tanh is None or step.head.softcap is None:
        of_scores = torch.addmm(lengths, mixed, weight.T, alpha=-2)
        of_scores.sub_(torch.linalg.vecdot(probabilities, of_scores)[:, None]).mul_(probabilities)
    else:
        products = mixed @ weight.T
        of_scores = slopes * (slopes * lengths - 2 * products)
        of_scores.sub_(torch.linalg.vecdot(probabilities, of_scores)[:, None]).mul_(once)  # ∂u/∂z is g
        of_slopes = probabilities * (slopes * lengths - products)
        of_scores -= of_slopes * tanh * slopes * (4 / step.head.softcap)  # ∂g/∂z is −2 tanh g / cap
    of_scores.mul_(shares[:, None]).mul_(step.head.scale)
    of_chosen = of_scores @ weight
    of_chosen.addcmul_(features, 2 * (parts / scale - value / squares.sum())[:, None])
    diagonal = (shares @ twice).sub_(value / lengths.sum()).mul_(2)
    left, right = torch.cat([of_scores, once]), torch.cat([features, mixed * (-2 * shares)[:, None]])
    of_features = torch.zeros_like(step.features).index_copy_(0, chosen, of_chosen)
    return Penalty(value, of_features, RowsAndProduct(weight, diagonal, left, right))


def _probabilities(head: OutputLayer, features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return (tokens, vocab) predictions, and the capped logits over the cap where there is one."""
    scores = features @ weight.T
    if head.bias is not None:
        scores += head.bias.to(scores.dtype)
    scores *= head.scale
    if head.softcap is None:
        return scores.softmax(1), None
    tanh = (scores / head.softcap).tanh_()
    return (head.softcap * tanh).softmax(1), tanh
