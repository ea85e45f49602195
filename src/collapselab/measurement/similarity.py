"""How alike the class means of measurements of one vocabulary are: checkpoints, seeds, models or layers.

Only the class moments that `measure` keeps are read; no model runs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from collapselab.core.moments import ClassMoments
from collapselab.core.vectors import Vectors
from collapselab.errors import ConfigError, RunError
from collapselab.records.result_folder import (
    StoredResult,
    find_results,
    kept_moments,
    layer_file,
    load_moments,
    moments_identity,
)

if TYPE_CHECKING:
    import pandas as pd

Place = tuple[Path, dict[str, object]]
"""A file of class moments, and what it must say of itself."""


def similarity(
    names: Sequence[str | Path], *, layers: Literal["last", "all"] = "last", min_count: int = 1
) -> "pd.DataFrame":
    """Return the CKA of class means for every two of these measurements, or for every two of their layers.

    >>> from collapselab import similarity
    >>> similarity(["runs/small"]).shape
    (2, 2)

    A name is a run (all its checkpoints), a checkpoint, a model, or a file or folder of results. All must have been
    measured with `classes=True`, except the last layer of runs. Classes with fewer than `min_count` tokens in one of
    two are left out of that pair.
    """
    import pandas as pd

    results = [stored for name in names for stored in find_results(name)]
    known = [stored.result.facts.get("tokenizer") for stored in results]
    if len({one["corpus"] for one in known if one} - {None}) > 1:
        raise ConfigError("similarity: the measurements have different tokenizers, so their classes are not the same.")
    places = {title: place for stored in results for title, place in _places(stored, layers)}
    if len(places) < 2:
        raise ConfigError(f"similarity needs at least 2 measurements, got {len(places)}.")
    table = pd.DataFrame(1.0, index=list(places), columns=list(places))
    titles = list(places)
    for at, title in enumerate(titles):
        moments = load_moments(*places[title])
        for other in titles[at + 1 :]:
            table.loc[title, other] = table.loc[other, title] = cka(moments, load_moments(*places[other]), min_count)
    return table


def cka(first: ClassMoments, second: ClassMoments, min_count: int = 1) -> float:
    """Return the linear CKA of the means of classes with at least `min_count` tokens in both.

        ‖M₁ᵀ M₂‖²_F / (‖M₁ᵀ M₁‖_F ‖M₂ᵀ M₂‖_F)        rows of M: class means less the mean of these means

    1 if a rotation, a scale and a shift turn one into the other; nan with fewer than three classes in common, or if all
    means coincide. Dimensions may differ. Kornblith et al. (2019), arXiv:1905.00414.
    """
    if first.classes != second.classes:
        raise ConfigError(
            f"Vocabularies of {first.classes:,} and {second.classes:,} tokens: only measurements of one are compared."
        )
    common = ((first.counts >= min_count) & (second.counts >= min_count)).nonzero().squeeze(1)
    if len(common) < 3:
        return float("nan")
    left, right = first.mean_vectors(common), second.mean_vectors(common)
    norms = float(_product(left, left).norm()) * float(_product(right, right).norm())
    return min(1.0, float(_product(left, right).square().sum()) / norms) if norms else float("nan")


def _product(left: Vectors, right: Vectors) -> Tensor:
    """leftᵀ right of centred rows, a block of rows at a time."""
    left_mean, right_mean = left.mean(), right.mean()
    product = left_mean.new_zeros(left.dim, right.dim)
    for rows, block in left.blocks():
        product.addmm_((block - left_mean).T, right.at(rows) - right_mean)
    return product


def _places(stored: StoredResult, layers: str) -> Iterator[tuple[str, Place]]:
    facts, file = stored.result.facts, kept_moments(stored)
    title = f"{facts['run']}/{facts['checkpoint']}" if facts["in_a_run"] else str(facts["model"])
    known = sorted({row.layer for row in stored.result.rows if row.layer.isdecimal()}, key=int)
    for layer in [*(known if layers == "all" else []), "last"]:
        place = None if file is None else layer_file(file, layer)
        if place is None or not place.is_file():
            raise RunError(f"{title}: its class means were not kept. Measure it with --classes.")
        yield f"{title} {layer}" if layers == "all" else title, (place, moments_identity(facts, layer))
