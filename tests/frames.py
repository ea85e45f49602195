"""Exact constructions with known answers."""

import torch
from torch import Tensor


def simplex(classes: int, dim: int | None = None) -> Tensor:
    """Rows of a centred simplex frame: equal norms, all cosines -1/(classes - 1)."""
    rows = torch.eye(classes, dtype=torch.float64) - 1 / classes
    dim = classes if dim is None else dim
    if dim >= classes:
        return torch.nn.functional.pad(rows, (0, dim - classes))
    # The rows span classes - 1 dimensions: turn them into the first ones.
    assert dim >= classes - 1
    _, vectors = torch.linalg.eigh(rows)
    return rows @ vectors[:, classes - dim :]


def orthoplex(dim: int) -> Tensor:
    """±e_i: 2·dim unit rows with zero mean."""
    eye = torch.eye(dim, dtype=torch.float64)
    return torch.cat([eye, -eye])


def rotation(dim: int, seed: int = 0) -> Tensor:
    """A random orthogonal matrix."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=generator)).Q


def around(means: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Each class a cross: its mean ± each offset row. Mean and variance of every class are exact by symmetry."""
    steps = torch.cat([offsets, -offsets])
    features = (means[:, None, :] + steps[None]).flatten(0, 1)
    return features, torch.arange(len(means)).repeat_interleave(len(steps))
