"""`flat`: relative flatness of the loss in the output layer, the rival explanation of what collapse is said to do.

    R = E[‖h‖² (Σ_s p_s ‖w_s‖² − ‖Σ_s p_s w_s‖²)] / (E‖h‖² · ‖W‖²_F / K)

over 2N/√K of the step's N tokens, drawn; p are the model's predictions. The numerator is Σ_{s,s'} ⟨w_s, w_s'⟩ tr H_ss',
H the Hessian of the cross-entropy in the output layer. Under a soft cap each row counts with the slope g_s of the cap
at its logit, w_s g_s, as in the metric. It acts on features and output layer at once.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

if TYPE_CHECKING:
    from torch import Tensor

    from collapselab.models.taps import OutputLayer

FEWEST = 8
"""Tokens that are used at least."""


class RowsAndProduct(NamedTuple):
    """The gradient diag(d) W + Lᵀ R of the output layer W."""

    weight: "Tensor"
    diagonal: "Tensor"
    left: "Tensor"
    right: "Tensor"
    square: None = None

    def add_to(self, total: "Tensor", factor: "Tensor") -> None:
        total.addcmul_(self.weight.to(total.dtype), (self.diagonal * factor).to(total.dtype)[:, None])
        total.addmm_(self.left.T.to(total.dtype), (self.right * factor).to(total.dtype))


@closed_form
def penalty(step: Step) -> Penalty:
    """With v = Σ p_s g_s w_s and G_s = g_s²‖w_s‖² − 2 g_s⟨v, w_s⟩, a token's part k has, in its capped logits u and in
    the slopes,

        ∂k/∂u_s = p_s (G_s − Σ p G)        ∂k/∂g_s = 2 p_s (g_s‖w_s‖² − ⟨v, w_s⟩)
    """
    import torch

    tokens = len(step.features)
    chosen = step.drawn(tokens, max(FEWEST, round(2 * tokens / math.sqrt(len(step.head.weight)))))
    features = step.features.detach()[chosen]
    weight = step.head.weight.detach().to(features.dtype)
    chances, bent = _chances(step.head, features, weight)
    slopes = None if bent is None else 1 - bent.square()
    lengths = torch.linalg.vector_norm(weight, dim=1).square_()
    once = chances if slopes is None else chances * slopes  # p g
    twice = once if slopes is None else once * slopes  # p g²
    mixed = once @ weight  # Σ_s p_s g_s w_s
    parts = twice @ lengths - torch.linalg.vecdot(mixed, mixed)
    squares = torch.linalg.vecdot(features, features)
    scale = squares.sum() * lengths.mean()
    value = (squares @ parts) / scale
    shares = squares / scale  # ∂R/∂k of each token
    if slopes is None or bent is None or step.head.softcap is None:
        of_scores = torch.addmm(lengths, mixed, weight.T, alpha=-2)
        of_scores.sub_(torch.linalg.vecdot(chances, of_scores)[:, None]).mul_(chances)
    else:
        products = mixed @ weight.T
        of_scores = slopes * (slopes * lengths - 2 * products)
        of_scores.sub_(torch.linalg.vecdot(chances, of_scores)[:, None]).mul_(once)  # ∂u/∂z is g
        of_slopes = chances * (slopes * lengths - products)
        of_scores -= of_slopes * bent * slopes * (4 / step.head.softcap)  # ∂g/∂z is −2 tanh g / cap
    of_scores.mul_(shares[:, None]).mul_(step.head.scale)
    of_chosen = of_scores @ weight
    of_chosen.addcmul_(features, 2 * (parts / scale - value / squares.sum())[:, None])
    diagonal = (shares @ twice).sub_(value / lengths.sum()).mul_(2)
    left, right = torch.cat([of_scores, once]), torch.cat([features, mixed * (-2 * shares)[:, None]])
    of_head = RowsAndProduct(weight, diagonal, left, right)
    of_features = torch.zeros_like(step.features).index_copy_(0, chosen, of_chosen)
    return Penalty(value, of_features, of_head)


def _chances(head: "OutputLayer", features: "Tensor", weight: "Tensor") -> "tuple[Tensor, Tensor | None]":
    """(tokens, vocab) p, and the capped logits over the cap where there is one."""
    scores = features @ weight.T
    if head.bias is not None:
        scores += head.bias.to(scores.dtype)
    scores *= head.scale
    if head.softcap is None:
        return scores.softmax(1), None
    bent = (scores / head.softcap).tanh_()
    return (head.softcap * bent).softmax(1), bent


FLAT = Intervention(
    "flat",
    "Makes the loss flat in the output layer (+), or sharp (−): the rival of collapse.",
    "E[‖h‖²(Σ_s p_s‖w_s‖² − ‖Σ_s p_s w_s‖²)] / (E‖h‖²·‖W‖²_F/K)",
    "exact form of the relative flatness of arXiv:2509.17738",
    "curvature_relative",
    "both",
    penalty,
    plus="falls",
    cost="seven products of n tokens with the output layer, n = 2N/√K",
    blind=True,
)
