"""Curvature (relative flatness) of the loss in the output layer, summed up over tokens, some at a time.

    κ = E[ ‖h‖² (Σ_s p_s ‖g_s w_s‖² − ‖Σ_s p_s g_s w_s‖²) ]

p are the model's predictions for a token with feature h, w_s the rows of its output layer, g_s the slope of the soft
cap at the logit (1 without a cap). κ is Σ_{s,t} ⟨w_s, w_t⟩ tr H_st, where H is the Hessian in the output layer of the
cross-entropy, expected over the model's own predictions; without a cap it is the same for every label. ‖h‖² belongs
inside the expectation: both factors depend on the token, and tokens that the model is sure of have none of the second.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from collapselab.core.decisions import aligned_rows, aligned_stride, softmax_of_aligned

TOKENS_AT_ONCE = 128
"""Tokens whose probabilities over the whole vocabulary are in memory at the same time."""

ROWS_AT_ONCE = 4096
"""Rows of the output layer that are squared in float64 at once."""


@dataclass(frozen=True)
class CurvatureSums:
    """Sums over tokens: of κ's terms and of ‖h‖²; `row_square` is ‖W‖²_F over the rows."""

    total: float = 0.0
    squares: float = 0.0
    tokens: int = 0
    row_square: float = math.nan


class OutputCurvature:
    """The output layer y = scale · (h Wᵀ + b), then cap · tanh(y / cap) if it has a cap, ready for `curvature`.

    curvature = OutputCurvature(weight, bias)
    sums = curvature.sums(features)         # of any number of tokens
    collapse_metrics(moments, weight=weight, curvature=sums)["curvature"].value
    """

    @torch.no_grad()
    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, scale: float = 1.0, softcap: float | None = None
    ) -> None:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.scale, self.softcap = scale, softcap
        # Memory that is used again: new pages take as long as a softmax. The second is for logits under a cap.
        self._logits, self._capped = self.weight.new_empty(0), self.weight.new_empty(0)
        # Squares are taken about the mean row, where that changes nothing: less is lost in their difference.
        parts = torch.split(self.weight, ROWS_AT_ONCE)
        mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(weight)
        self._origin = (torch.zeros_like(mean) if softcap is not None else mean).to(dtype)
        self._squares = torch.cat([(part.double() - self._origin.double()).square().sum(1) for part in parts]).to(dtype)
        total = sum(float(part.double().square().sum()) for part in parts)
        self.row_square = total / len(weight) * scale**2

    @torch.no_grad()
    def sums(self, features: Tensor) -> CurvatureSums:
        """The sums over these features (tokens, dim)."""
        total, squares, tokens = self.terms(features).tolist()
        return CurvatureSums(total, squares, int(tokens), self.row_square)

    @torch.no_grad()
    def terms(self, features: Tensor) -> Tensor:
        """The first three of the sums, on the device of the features."""
        terms = torch.zeros(3, dtype=torch.float64, device=features.device)
        for some in torch.split(features.detach().to(self.weight.dtype), TOKENS_AT_ONCE):
            terms += self._part(some)
        return terms

    def _part(self, features: Tensor) -> Tensor:
        chances, slopes = self._chances(features)
        weights = chances if slopes is None else chances.mul_(slopes)  # p g
        mixed = (weights @ self.weight).sub_(self._origin).double().square_().sum(1)
        spread = ((weights if slopes is None else weights.mul_(slopes)) @ self._squares).double()
        parts = (spread - mixed).clamp_(min=0).mul_(self.scale**2)  # rounding may take it below
        squares = features.double().square().sum(1)
        return torch.stack([squares @ parts, squares.sum(), squares.new_full((), len(features))])

    def _chances(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """p and g (tokens, vocab), in memory that the next call overwrites; no g where there is no cap."""
        size = len(features) * aligned_stride(len(self.weight), features.element_size())
        if len(self._logits) < size:
            self._logits = features.new_empty(size)
        logits = aligned_rows(self._logits, len(features), len(self.weight))
        torch.mm(features, self.weight.T, out=logits)
        if self.bias is not None:
            logits += self.bias
        if self.scale != 1:
            logits *= self.scale
        if self.softcap is None:
            softmax_of_aligned(logits)
            return logits, None
        bent = logits.div_(self.softcap).tanh_()
        if len(self._capped) < size:
            self._capped = features.new_empty(size)
        chances = aligned_rows(self._capped, len(features), len(self.weight))
        torch.mul(bent, self.softcap, out=chances)
        softmax_of_aligned(chances)
        return chances, bent.square_().neg_().add_(1)
