import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import oracles
from collapselab.core import points as module
from collapselab.core.pairs import pair_statistics
from frames import orthoplex, rotation, simplex


def drawn(classes: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return points, torch.rand(classes, generator=generator, dtype=torch.float64)


def by_definition(points: Tensor, variances: Tensor) -> dict[str, float]:
    rows = points.numpy()
    return {
        **oracles.cdnv_family(rows, variances.tolist()),
        **oracles.angles("cosine", rows - rows.mean(0)),
        **oracles.log_distances("logdist", rows - rows.mean(0)),
        **oracles.log_distances("logdist_uncentred", rows),
    }


def ours(points: Tensor, variances: Tensor, **options: int) -> dict[str, float]:
    found = pair_statistics(points, variances, uncentred=True, **options)
    values = {}
    for name in ("cosine", "logdist", "logdist_uncentred"):
        summary = getattr(found, name)
        values |= {f"{name}_mean": summary.mean, f"{name}_std": summary.std, f"{name}_cv": summary.std / summary.mean}
    return values | {name: getattr(found, name).mean for name in ("cdnv", "cdnv_k2", "cdnv_log")}


def assert_agree(found: dict[str, float], expected: dict[str, float], rtol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=rtol, abs=1e-14), name


@given(classes=st.integers(2, 40), dim=st.integers(2, 20), tile=st.integers(1, 50), seed=st.integers(0, 99))
def test_all_statistics_are_those_of_the_definition(classes: int, dim: int, tile: int, seed: int) -> None:
    points, variances = drawn(classes, dim, seed)
    assert_agree(ours(points, variances, tile=tile), by_definition(points, variances), rtol=1e-9)


def test_distances_agree_with_cdist() -> None:
    points, variances = drawn(60, 12)
    squares = torch.cdist(points, points).square()
    i, j = torch.triu_indices(60, 60, offset=1)
    expected = ((variances[i] + variances[j]) / 2 / squares[i, j]).mean()
    assert ours(points, variances, tile=16)["cdnv"] == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("offset", [0, 1e3])
@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_pairs_that_nearly_coincide_keep_their_distance(gap: float, offset: float) -> None:
    points, variances = drawn(30, 24)
    points[7] = points[3] + gap * points[11]
    points += offset
    expected = by_definition(points, variances)
    found = ours(points, variances, tile=8)
    if offset:  # the definition itself has lost these digits: unit vectors differ by gap / offset
        for name in [name for name in expected if "uncentred" in name]:
            del expected[name], found[name]
    assert_agree(found, expected)


def test_points_in_nearly_one_direction_keep_their_log_distance() -> None:
    points, variances = drawn(30, 24)
    points[20] = points[4] * 3 + 1e-6 * points[11]
    assert_agree(ours(points, variances, tile=8), by_definition(points, variances))


def test_distances_from_the_product_alone_would_lose_them() -> None:
    points, _ = drawn(30, 24)
    points[7] = points[3] + 1e-9 * points[11]
    squares = points.square().sum(1)
    naive = squares[7] + squares[3] - 2 * points[7] @ points[3]
    exact = (points[7] - points[3]).square().sum()
    assert abs(float(naive / exact) - 1) > 1e-2


def test_a_control_without_the_second_look_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    points, variances = drawn(30, 24)
    points[7] = points[3] + 1e-6 * points[11]
    expected = by_definition(points, variances)
    monkeypatch.setattr(module, "TRUSTED", 1e300)
    with pytest.raises(AssertionError):
        assert_agree(ours(points, variances), expected)


def test_coincident_points_are_left_out_and_counted() -> None:
    points, variances = drawn(20, 6)
    points[5] = points[2]
    points[9] = points[2]
    found = pair_statistics(points, variances, uncentred=True, tile=8)
    assert found.cdnv is not None
    assert found.logdist is not None
    assert found.cosine is not None
    assert (found.cdnv.left_out, found.logdist.left_out, found.cosine.left_out) == (3, 3, 0)
    assert (found.cdnv.pairs, found.cosine.pairs) == (187, 190)
    assert_agree(ours(points, variances, tile=8), by_definition(points, variances))


def test_pairs_without_variance_have_no_log_cdnv() -> None:
    points, variances = drawn(20, 6)
    variances[[1, 5, 6, 17]] = 0
    found = pair_statistics(points, variances, tile=8)
    assert found.cdnv_log is not None
    assert found.cdnv is not None
    assert (found.cdnv_log.left_out, found.cdnv.left_out) == (6, 0)
    assert_agree(ours(points, variances, tile=8), by_definition(points, variances))


def test_a_simplex_has_equal_angles_and_distances() -> None:
    found = pair_statistics(simplex(9) @ rotation(9), torch.ones(9), uncentred=True)
    assert found.cosine is not None
    assert found.logdist is not None
    assert found.cosine.mean == pytest.approx(-1 / 8, rel=1e-12)
    assert found.cosine.std < 1e-14
    assert found.logdist.mean == pytest.approx(-0.5 * math.log(2 + 2 / 8), rel=1e-12)
    assert found.logdist.std < 1e-14


def test_an_orthoplex_has_two_distances() -> None:
    dim = 6
    found = pair_statistics(orthoplex(dim) @ rotation(dim), tile=5)
    logs = [-math.log(2.0)] * dim + [-0.5 * math.log(2.0)] * (dim * (2 * dim - 1) - dim)
    assert found.logdist is not None
    assert found.logdist.mean == pytest.approx(np.mean(logs), rel=1e-12)
    assert found.logdist.std == pytest.approx(np.std(logs), rel=1e-9)


def test_a_large_common_offset_changes_no_centred_statistic() -> None:
    points, variances = drawn(40, 8)
    near, far = ours(points, variances), ours(points + 1e7, variances)
    for name in near:
        if "uncentred" not in name:
            assert far[name] == pytest.approx(near[name], rel=1e-6), name
    # From the origin the directions are all but one, and still as far apart as the definition says.
    expected = oracles.log_distances("logdist_uncentred", (points + 1e7).numpy())
    assert far["logdist_uncentred_mean"] == pytest.approx(expected["logdist_uncentred_mean"], rel=1e-6)


def test_a_point_at_the_centre_has_distances_but_no_direction() -> None:
    points = torch.cat([orthoplex(3), torch.zeros(1, 3, dtype=torch.float64)])
    found = pair_statistics(points, torch.ones(7), uncentred=True)
    assert found.cosine is None
    assert found.logdist is None
    assert found.logdist_uncentred is None
    assert found.cdnv is not None
    assert found.cdnv.mean == pytest.approx(oracles.cdnv_family(points.numpy(), [1.0] * 7)["cdnv"], rel=1e-12)


def test_all_points_at_one_place_leave_nothing() -> None:
    found = pair_statistics(torch.ones(4, 3, dtype=torch.float64), torch.ones(4), tile=2)
    assert found.cdnv is not None
    assert (found.cdnv.pairs, found.cdnv.left_out) == (0, 6)
    assert math.isnan(found.cdnv.mean)


def test_never_holds_a_matrix_of_classes_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    original = torch.mm

    def recording(*args: Tensor, out: Tensor) -> Tensor:
        sizes.append(out.numel())
        return original(*args, out=out)

    monkeypatch.setattr(torch, "mm", recording)
    points, variances = drawn(300, 4)
    pair_statistics(points, variances, tile=32)
    assert max(sizes) <= 32 * 32


def test_float32_points_are_taken_as_they_are() -> None:
    points, variances = drawn(12, 5)
    assert_close(
        ours(points.float(), variances.float())["cdnv"],
        ours(points.float().double(), variances.float().double())["cdnv"],
    )
