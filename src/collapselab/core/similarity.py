"""How alike two sets of class means are: the linear CKA of the means of the classes that both have.

    CKA = ‖M₁ᵀ M₂‖²_F / (‖M₁ᵀ M₁‖_F ‖M₂ᵀ M₂‖_F)        rows of M: class means less the mean of these means

1: the two differ by a rotation, a scale and a shift alone. Dimensions may differ; no classes × classes matrix is held.
Kornblith et al. (2019), arXiv:1905.00414.
"""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from collapselab.core.gram import add_gram
from collapselab.core.moments import ClassMoments
from collapselab.core.vectors import Vectors


@final
@dataclass(frozen=True)
class Similarity:
    """A value from 0 to 1, or the reason why there is none; `classes` is the number of classes that both have."""

    value: float | None
    classes: int
    why: str | None = None


def class_mean_similarity(first: ClassMoments, second: ClassMoments, *, min_count: int = 1) -> Similarity:
    """The CKA of the means of classes with at least `min_count` samples in both; ValueError if the classes differ."""
    if first.classes != second.classes:
        raise ValueError(f"moments of {first.classes:,} and of {second.classes:,} classes; they must be the same.")
    if min_count < 1:
        raise ValueError(f"min_count is {min_count}; a class needs at least 1 sample to have a mean.")
    common = ((first.counts >= min_count) & (second.counts.to(first.device) >= min_count)).nonzero().squeeze(1)
    if len(common) < 3:
        return Similarity(None, len(common), f"{len(common):,} classes in common; at least 3 are needed.")
    first_means, second_means = (moments.mean_vectors(common.to(moments.device)) for moments in (first, second))
    first_centre, second_centre = first_means.mean(), second_means.mean()
    first_gram, second_gram = _gram(first_means, first_centre), _gram(second_means, second_centre)
    cross = first_centre.new_zeros(first.dim, second.dim)
    for now, block in first_means.blocks():
        cross.addmm_(block.sub_(first_centre).T, second_means.at(now).sub_(second_centre).to(cross))
    norms = float(first_gram.norm()) * float(second_gram.norm())
    if norms == 0:
        return Similarity(None, len(common), "the class means of one of the two coincide.")
    return Similarity(min(1.0, float(cross.square().sum()) / norms), len(common))


def _gram(points: Vectors, centre: Tensor) -> Tensor:
    gram = centre.new_zeros(points.dim, points.dim)
    for _, block in points.blocks():
        add_gram(gram, block.sub_(centre))
    return gram
