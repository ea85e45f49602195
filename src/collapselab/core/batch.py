"""A batch of features with the next tokens as labels: what is refused, and what is skipped."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

IGNORED = -100
"""The label of a token that has no next token to predict, as in PyTorch's cross-entropy."""


@dataclass(frozen=True)
class CheckedLabels:
    """Labels of a batch on a device, without ignored tokens.

    Checked where the given labels are: for labels on a CPU the host does not wait for the device.
    """

    labels: Tensor
    positions: Tensor | None
    """Of the tokens that are not ignored; None where all are."""
    given: int
    """Tokens, with ignored ones."""

    @classmethod
    def checked(cls, labels: Tensor, classes: int, device: torch.device) -> Self:
        """The labels as int64; ValueError where one is neither a class nor ignored."""
        if labels.ndim != 1:
            raise ValueError(f"labels of shape {tuple(labels.shape)}; each feature needs its next token.")
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise ValueError(f"labels are {labels.dtype}; integers are needed.")
        labels, given, positions = labels.detach().long(), len(labels), None
        if given and bool(labels.amin() < 0 or labels.amax() >= classes):
            bad = labels[((labels < 0) & (labels != IGNORED)) | (labels >= classes)]
            if len(bad):
                raise ValueError(
                    f"{len(bad):,} of {given:,} labels are outside 0 … {classes - 1:,}, the first {int(bad[0]):,}; "
                    f"only {IGNORED} is skipped."
                )
            positions = (labels != IGNORED).nonzero().squeeze(1)
            labels = labels.index_select(0, positions)
            positions = positions.to(device, non_blocking=True)
        return cls(labels.to(device, non_blocking=True), positions, given)

    def features(self, features: Tensor, dim: int, *, check: bool = True) -> Tensor:
        """The features of these tokens, on their device; ValueError if one is not finite, unless it is not checked."""
        if features.ndim != 2 or features.shape[1] != dim:
            raise ValueError(f"features of shape {tuple(features.shape)}; (tokens, {dim}) is needed.")
        if self.given != len(features):
            raise ValueError(
                f"{len(features):,} features but {self.given:,} labels; each feature needs its next token."
            )
        if not features.is_floating_point():
            raise ValueError(f"features are {features.dtype}; floating-point numbers are needed.")
        features = (features.detach() if features.requires_grad else features).to(self.labels.device)
        if features.dtype.itemsize == 1:  # torch has no arithmetic for float8
            features = features.float()
        if self.positions is not None:
            features = features.index_select(0, self.positions)
        if check:
            _check_finite(features, self.positions)
        return features


def _check_finite(features: Tensor, positions: Tensor | None) -> None:
    # The sum of numbers with a nan or an infinity among them is not finite. It can also overflow: then check each.
    if torch.isfinite(features.sum(dtype=torch.promote_types(features.dtype, torch.float32))):
        return
    bad = ~torch.isfinite(features)
    if bad.any():
        row, column = (int(index) for index in bad.nonzero()[0])
        raise ValueError(
            f"{int(bad.sum()):,} features are nan or infinite, the first {float(features[row, column])} "
            f"at token {row if positions is None else int(positions[row]):,}, dimension {column:,}."
        )
