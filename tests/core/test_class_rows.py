"""What each class has by itself, against loops; and that it gives back the metrics."""

import math

import pytest
import torch
from torch import Tensor

from collapselab.core import pairs
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import ClassRows, class_rows, metrics_of
from collapselab.core.moments import ClassMoments
from collapselab.core.pairs import PairRows, pair_statistics
from frames import simplex


def drawn(points: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(points, dim, generator=generator, dtype=torch.float64) + 3
    return rows, torch.rand(points, generator=generator, dtype=torch.float64)


def rows_of(points: Tensor, variances: Tensor | None, **options: int) -> PairRows:
    rows = pair_statistics(points, variances, rows=True, **options).rows
    assert rows is not None
    return rows


def by_loops(points: Tensor, variances: Tensor) -> tuple[list[float], list[float], list[int], list[float]]:
    """Mean CDNV term, mean cosine, nearest and its distance, one point after the other."""
    unit = points - points.mean(0)
    unit = unit / unit.norm(dim=1, keepdim=True)
    cdnv, cosine, nearest, distance = [], [], [], []
    for i in range(len(points)):
        terms, cosines, distances = [], [], []
        for j in range(len(points)):
            gap = float((points[i] - points[j]).norm())
            distances.append(gap if i != j else math.inf)
            if i != j:
                cosines.append(float(unit[i] @ unit[j]))
                terms += [float(variances[i] + variances[j]) / (2 * gap**2)] if gap else []
        cdnv.append(sum(terms) / len(terms) if terms else math.nan)
        cosine.append(sum(cosines) / len(cosines))
        distance.append(min(distances))
        nearest.append(distances.index(min(distances)))
    return cdnv, cosine, nearest, distance


@pytest.mark.parametrize(("few", "tile"), [(2048, 1024), (2048, 16), (1, 16), (1, 7)])
def test_every_row_is_that_of_the_definition_in_loops(few: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, and in float32 with near pairs computed again; whatever the tiles."""
    monkeypatch.setattr(pairs, "FEW_POINTS", few)
    monkeypatch.setattr(pairs, "SAMPLE", 16)
    points, variances = drawn(60, 5)
    points[7] = points[3] + 1e-7
    points[20:30] *= 40
    variances[40:] = 0
    rows = rows_of(points, variances, tile=tile)
    cdnv, cosine, nearest, distance = by_loops(points, variances)
    assert rows.cdnv is not None
    assert rows.cosine is not None
    assert rows.cdnv.tolist() == pytest.approx(cdnv, rel=1e-6)
    assert rows.cosine.tolist() == pytest.approx(cosine, rel=1e-9, abs=1e-12)
    assert rows.distance.tolist() == pytest.approx(distance, rel=1e-9)
    assert rows.nearest.tolist() == nearest
    assert not rows.left_out.any()


@pytest.mark.parametrize("few", [2048, 1])
def test_rows_weighted_equally_give_back_the_pair_means(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEW_POINTS", few)
    points, variances = drawn(700, 12, seed=3)
    statistics = pair_statistics(points, variances, rows=True, tile=128)
    assert statistics.rows is not None
    assert statistics.rows.cdnv is not None
    assert statistics.rows.cosine is not None
    assert statistics.cdnv is not None
    assert statistics.cosine is not None
    assert float(statistics.rows.cdnv.mean()) == pytest.approx(statistics.cdnv.mean, rel=1e-11)
    assert float(statistics.rows.cosine.mean()) == pytest.approx(statistics.cosine.mean, rel=1e-9)


@pytest.mark.parametrize("few", [2048, 1])
def test_asking_for_rows_changes_no_statistic(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEW_POINTS", few)
    points, variances = drawn(300, 6)
    without = pair_statistics(points, variances, uncentred=True, tile=64)
    with_rows = pair_statistics(points, variances, uncentred=True, rows=True, tile=64)
    assert without.rows is None
    assert with_rows.values() == without.values()
    assert len(with_rows.values()) == 10


def test_points_that_coincide_have_no_term_and_are_each_others_nearest() -> None:
    points, variances = drawn(6, 3)
    points[4] = points[1]
    rows = rows_of(points, variances)
    assert rows.cdnv is not None
    assert rows.left_out.tolist() == [0, 1, 0, 0, 1, 0]
    assert (int(rows.nearest[4]), int(rows.nearest[1])) == (1, 4)
    assert rows.distance[[1, 4]].tolist() == [0, 0]
    assert rows.cdnv.tolist() == pytest.approx(by_loops(points, variances)[0], rel=1e-9)
    both = rows_of(points[[1, 4]], variances[[1, 4]])
    assert both.cdnv is not None
    assert both.cdnv.isnan().all(), "no pair has a term"


def test_without_variances_there_are_neighbours_and_cosines() -> None:
    points, variances = drawn(50, 4)
    rows, full = rows_of(points, None), rows_of(points, variances)
    assert rows.cdnv is None
    assert torch.equal(rows.nearest, full.nearest)


def test_on_a_simplex_every_class_is_alike() -> None:
    rows = rows_of(5 * simplex(7), torch.full((7,), 0.5, dtype=torch.float64))
    assert rows.cosine is not None
    assert rows.cdnv is not None
    assert rows.cosine.tolist() == pytest.approx([-1 / 6] * 7, rel=1e-12)
    assert float(rows.cdnv.std()) < 1e-12


def geometry_of(scale: float = 1.0, **options: object) -> Geometry:
    generator = torch.Generator().manual_seed(2)
    moments = ClassMoments.empty(9, 4)
    labels = torch.randint(8, (200,), generator=generator)
    moments.update(scale * torch.randn(200, 4, generator=generator, dtype=torch.float64) + labels[:, None] % 3, labels)
    weight = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    return Geometry(moments, weight=weight, rows=True, **options)  # type: ignore[arg-type]


def test_the_rows_of_classes_give_back_the_metrics() -> None:
    geometry = geometry_of(min_count=2)
    rows, metrics = class_rows(geometry), metrics_of(geometry)
    assert rows.classes.tolist() == list(range(8)), "class 8 was never seen"
    for column, metric in (("cdnv", "cdnv"), ("cosine", "cosine_mean"), ("duality_cos", "duality_cos_mean")):
        assert float(getattr(rows, column).mean()) == pytest.approx(metrics[metric].value, rel=1e-9), column
    assert rows.norm is not None
    assert float(rows.norm.std(correction=0) / rows.norm.mean()) == pytest.approx(metrics["norm_cv"].value, rel=1e-9)
    assert geometry.weight is not None
    assert rows.head_norm is not None
    assert rows.head_norm.tolist() == pytest.approx(geometry.weight[:8].norm(dim=1).tolist(), rel=1e-12)


def test_lengths_are_in_the_unit_of_the_features() -> None:
    features = torch.tensor([[3000.0, 0], [5000, 0], [0, 2000], [0, 2000]], dtype=torch.float64)
    moments = ClassMoments.empty(2, 2)
    moments.update(features, torch.tensor([0, 0, 1, 1]))
    rows = class_rows(Geometry(moments, rows=True))
    assert rows.distance is not None
    assert rows.norm is not None
    assert rows.variance is not None
    assert rows.distance.tolist() == pytest.approx([math.hypot(4000, 2000)] * 2)
    assert rows.norm.tolist() == pytest.approx([math.hypot(4000, 2000) / 2] * 2)
    assert rows.variance.tolist() == [1e6, 0]
    assert rows.duality_cos is None, "no output layer"


def test_one_class_and_none_have_rows_without_pairs() -> None:
    moments = ClassMoments.empty(3, 2)
    assert class_rows(Geometry(moments, rows=True)).counts.tolist() == []
    moments.update(torch.ones(2, 2), torch.tensor([1, 1]))
    rows: ClassRows = class_rows(Geometry(moments, rows=True))
    assert (rows.classes.tolist(), rows.counts.tolist(), rows.cdnv) == ([1], [2], None)
