"""A batch of features with the next tokens as labels: what is refused, and what is skipped."""

import torch
from torch import Tensor

IGNORED = -100
"""The label of a token that has no next token to predict, as in PyTorch's cross-entropy."""


def checked_batch(
    features: Tensor,
    labels: Tensor,
    classes: int,
    dim: int,
    *,
    device: torch.device,
    same_as: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The batch on the device, labels as int64, without ignored tokens; ValueError if anything in it is wrong.

    `same_as`: what an earlier call returned for the same features; it is returned again if no token is ignored.
    """
    if features.ndim != 2 or features.shape[1] != dim:
        raise ValueError(f"features of shape {tuple(features.shape)}; (tokens, {dim}) is needed.")
    if labels.ndim != 1 or len(labels) != len(features):
        what = f"{len(labels):,} labels" if labels.ndim == 1 else f"labels of shape {tuple(labels.shape)}"
        raise ValueError(f"{len(features):,} features but {what}; each feature needs its next token.")
    if not features.is_floating_point():
        raise ValueError(f"features are {features.dtype}; floating-point numbers are needed.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype}; integers are needed.")
    labels = labels.detach().to(device, torch.int64)
    ignored = len(labels) > 0 and bool(labels.amin() < 0 or labels.amax() >= classes)
    if ignored:
        _check_range(labels, classes)
    elif same_as is not None and len(same_as) == len(labels) and same_as.device == device:
        return same_as, labels
    features = features.detach().to(device)
    if features.dtype.itemsize == 1:  # torch has no arithmetic for float8
        features = features.float()
    positions = None
    if ignored:
        positions = (labels != IGNORED).nonzero().squeeze(1)
        features, labels = features.index_select(0, positions), labels.index_select(0, positions)
    _check_finite(features, positions)
    return features, labels


def _check_range(labels: Tensor, classes: int) -> None:
    bad = labels[((labels < 0) & (labels != IGNORED)) | (labels >= classes)]
    if len(bad):
        raise ValueError(
            f"{len(bad):,} of {len(labels):,} labels are outside 0 … {classes - 1:,}, the first {int(bad[0]):,}; "
            f"only {IGNORED} is skipped."
        )


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
