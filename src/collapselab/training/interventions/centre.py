"""`centre`: the rows of the output layer brought to the mean zero, which is NC0.

    R = ‖Σ_s w_s‖² / ‖W‖²_F

over all rows s. Free of scale; 0 where the rows sum to zero, K where all rows are equal.
"""

from typing import TYPE_CHECKING, NamedTuple

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form

if TYPE_CHECKING:
    from torch import Tensor


class SharedRow(NamedTuple):
    """The gradient a·W + 1 rᵀ of the output layer W: a multiple of each row, and one row for all."""

    weight: "Tensor"
    multiple: "Tensor"
    row: "Tensor"
    square: "Tensor"

    def add_to(self, total: "Tensor", factor: "Tensor") -> None:
        total.addcmul_(self.weight.to(total.dtype), (self.multiple * factor).to(total.dtype))
        total.add_((self.row * factor).to(total.dtype))


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂w_c = 2 (Σ_s w_s − R w_c) / ‖W‖²_F."""
    import torch

    weight = step.head.weight.detach().to(step.features.dtype)
    total, square = weight.sum(0), torch.linalg.vector_norm(weight).square()
    if not square > 0:
        return None
    value = total.square().sum() / square
    of_gradient = (4 * value * (len(weight) - value) / square).double()
    return Penalty(value, of_head=SharedRow(weight, -2 * value / square, total * (2 / square), of_gradient))


CENTRE = Intervention(
    "centre",
    "Brings the sum of the rows of the output layer to zero (+), or lets it grow (−).",
    "‖Σ_s w_s‖² / ‖W‖²_F over all rows of the output layer",
    "Output Embedding Centering, arXiv:2601.02031",
    "head_sum",
    "both",
    penalty,
    dose_over="head",
    plus="falls",
    cost="K·D",
    blind=True,
)
