"""The sweep in float32 keeps the promise of float64: a millionth of the definition, for every statistic.

`naive` is the control: the same formulas in float32, with no pair computed again and nothing checked. Each kind of points
but the one marked harmless makes it fail.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from collapselab.core import pairs
from collapselab.core.pair_sweep import Sums, Sweep
from collapselab.core.pairs import PairStatistics, pair_statistics
from frames import rotation, simplex

POINTS = 300


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small clouds are swept in float32 too."""
    monkeypatch.setattr(pairs, "FEW_POINTS", 1)
    monkeypatch.setattr(pairs, "SAMPLE", 64)


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> dict[torch.dtype, int]:
    """Tiles of all points, by precision, that were added."""
    counts = {torch.float32: 0, torch.float64: 0}
    add = Sweep._add

    def counting(self: Sweep, columns: slice, sums: Sums) -> None:
        add(self, columns, sums)
        counts[self.table.dtype] += len(self.points) > 64

    monkeypatch.setattr(Sweep, "_add", counting)
    return counts


def drawn(classes: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return points * (0.5 + torch.rand(classes, 1, generator=generator, dtype=torch.float64))


def spread(points: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(len(points), generator=generator, dtype=torch.float64) * points.var()


def within(dim: int) -> Tensor:
    """A covariance within classes, with variances that fall as one over the rank."""
    turn = rotation(dim, seed=7)
    return turn @ torch.diag(1 / torch.arange(1, dim + 1, dtype=torch.float64)) @ turn.T


def definition(points: Tensor, variances: Tensor) -> dict[str, float]:
    """From differences of points, pair by pair, in float64."""
    i, j = torch.triu_indices(len(points), len(points), offset=1)
    points = points.double()
    points = points / points.abs().max()
    variances = variances / variances.max()
    centred = points - points.mean(0)
    units, units_uncentred = (p / p.norm(dim=1, keepdim=True) for p in (centred, points))
    squares = (points[i] - points[j]).square().sum(1)
    apart = squares > 0
    terms = (variances[i] + variances[j])[apart] / 2
    cosines = (units[i] * units[j]).sum(1)
    values = {"cosine_mean": float(cosines.mean()), "cosine_std": float(cosines.std(correction=0))}
    for name, directions in (("logdist", units), ("logdist_uncentred", units_uncentred)):
        chords = (directions[i] - directions[j]).norm(dim=1)
        logs = -chords[chords > 0].log()
        values |= {f"{name}_mean": float(logs.mean()), f"{name}_std": float(logs.std(correction=0))}
    values["cdnv"] = float((terms / squares[apart]).mean())
    values["cdnv_k2"] = float((terms / squares[apart].square()).mean())
    values["cdnv_log"] = float((terms / squares[apart]).log().mean())
    values["cosine_error"] = float((cosines + 1 / (len(points) - 1)).abs().mean())
    differences = (points[i] - points[j])[apart]
    along = ((differences @ within(points.shape[1])) * differences).sum(1)
    values["directional"] = float((along / squares[apart].square()).mean())
    return values


def values_of(found: PairStatistics) -> dict[str, float]:
    values = {}
    for name in ("cosine", "logdist", "logdist_uncentred"):
        summary = getattr(found, name)
        values |= {f"{name}_mean": summary.mean, f"{name}_std": summary.std}
    others = ("cdnv", "cdnv_k2", "cdnv_log", "cosine_error", "directional")
    return values | {name: getattr(found, name).mean for name in others}


def ours(points: Tensor, variances: Tensor) -> dict[str, float]:
    """With points and variances over their largest, as in `definition`."""
    points = points / points.abs().max()
    covariance = within(points.shape[1])
    return values_of(
        pair_statistics(points, variances / variances.max(), uncentred=True, covariance=covariance, tile=128)
    )


def naive(points: Tensor, variances: Tensor) -> dict[str, float]:
    points, variances = (points / points.abs().max()).float(), (variances / variances.max()).float()
    i, j = torch.triu_indices(len(points), len(points), offset=1)
    centred = points - points.mean(0)
    norms, lengths = centred.norm(dim=1), points.norm(dim=1)
    cosines = ((centred / norms[:, None]) @ (centred / norms[:, None]).T)[i, j]
    squares = (norms.square()[:, None] + norms.square() - 2 * centred @ centred.T)[i, j]
    chords = 2 - 2 * ((points / lengths[:, None]) @ (points / lengths[:, None]).T)[i, j]
    terms = (variances[i] + variances[j]) / 2 / squares
    values = {"cosine_mean": float(cosines.mean()), "cosine_std": float(cosines.std(correction=0))}
    for name, values_squared in (("logdist", 2 - 2 * cosines), ("logdist_uncentred", chords)):
        logs = -values_squared.log() / 2
        values |= {f"{name}_mean": float(logs.mean()), f"{name}_std": float(logs.std(correction=0))}
    factor = torch.linalg.cholesky(within(points.shape[1])).float()
    projected = centred @ factor
    reach = projected.square().sum(1)
    along = (reach[:, None] + reach - 2 * projected @ projected.T)[i, j]
    return values | {
        "cosine_error": float((cosines + 1 / (len(points) - 1)).abs().mean()),
        "directional": float((along / squares.square()).mean()),
        "cdnv": float(terms.mean()),
        "cdnv_k2": float((terms / squares).mean()),
        "cdnv_log": float(terms.log().mean()),
    }


def worst(found: dict[str, float], expected: dict[str, float]) -> float:
    """The largest relative error of a statistic."""
    assert found.keys() == expected.keys()
    errors = [abs(found[name] / value - 1) for name, value in expected.items()]
    return math.inf if any(math.isnan(error) for error in errors) else max(errors)


def planted(gap: float) -> Tensor:
    points = drawn(POINTS, 48)
    points[7], points[200] = points[150] + gap * points[11], points[201] + gap * points[12]
    return points


def coincident() -> Tensor:
    points = drawn(POINTS, 48)
    points[5], points[9], points[250] = points[2], points[2], points[249]
    return points


def line() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(POINTS, 1, generator=generator, dtype=torch.float64)
    return along * drawn(1, 20) + 0.3 * drawn(1, 20, seed=1) + 1e-4 * drawn(POINTS, 20, seed=2)


def clusters() -> Tensor:
    return drawn(5, 30)[torch.arange(POINTS) % 5] + 1e-5 * drawn(POINTS, 30, seed=1)


def equal_signs(share: float) -> Tensor:
    """Entries of equal size, whose products round alike at each addition: the worst case of a float32 product."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.where(torch.rand(POINTS // 2, 700, generator=generator, dtype=torch.float64) < share, -1.0, 1.0)
    return torch.cat([signs, -signs]) / math.sqrt(700)


def odd_norms() -> Tensor:
    """Two points near the centre, whose pair dominates the CDNV, and one far away."""
    points = drawn(POINTS, 40)
    points[3] *= 1e-4
    points[4] = points[3] + 1e-5 * points[8]
    points[5] *= 1e3
    return points


KINDS: dict[str, Callable[[], Tensor]] = {
    "planted 1e-2": lambda: planted(1e-2),
    "planted 1e-6": lambda: planted(1e-6),
    "planted 1e-9": lambda: planted(1e-9),
    "coincident": coincident,
    "far from the origin": lambda: drawn(POINTS, 32) + 1e4,
    "huge norms, tiny distances": lambda: 1e15 * (drawn(1, 32) + 1e-5 * drawn(POINTS, 32, seed=1)),
    "line": line,
    "clusters": clusters,
    "worst rounding": lambda: equal_signs(0.05),
    "odd norms": odd_norms,
    "two dimensions": lambda: drawn(POINTS, 2),
    "three dimensions": lambda: drawn(POINTS, 3),
    "scale 1e15": lambda: 1e15 * planted(1e-4),
    "scale 1e-15": lambda: 1e-15 * planted(1e-4),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_statistic_is_within_a_millionth_of_the_definition(kind: str) -> None:
    points = KINDS[kind]()
    variances = spread(points / points.abs().max())
    expected = definition(points, variances)
    assert worst(ours(points, variances), expected) < 1e-6
    assert worst(naive(points, variances), expected) > 1e-6, "the control"


def test_ordinary_points_are_swept_in_float32(tiles: dict[torch.dtype, int]) -> None:
    points = planted(1e-6)
    variances = spread(points)
    assert worst(ours(points, variances), definition(points, variances)) < 1e-7
    assert tiles[torch.float32] > 10
    assert tiles[torch.float64] == 0


def test_points_with_many_near_pairs_are_swept_in_float64(tiles: dict[torch.dtype, int]) -> None:
    points = drawn(POINTS, 40)
    order = points.sub(points.mean(0)).norm(dim=1).argsort()
    points[order[:90]] = points[order[:1]] + 1e-4 * points[order[:90]]  # 9 % of all pairs
    variances = spread(points)
    assert worst(ours(points, variances), definition(points, variances)) < 1e-6
    assert tiles[torch.float64] > 0
    assert tiles[torch.float32] == 0


def test_points_for_which_a_sample_shows_bias_are_swept_in_float64(tiles: dict[torch.dtype, int]) -> None:
    points = simplex(POINTS) @ rotation(POINTS)  # all angles are equal, which rounding in float32 hides
    found = pair_statistics(points, tile=128)
    assert found.cosine is not None
    assert found.cosine.std < 1e-12
    assert tiles[torch.float32] == 0
    assert tiles[torch.float64] > 0


def test_coincident_pairs_are_left_out_and_counted() -> None:
    points = coincident()
    found = pair_statistics(points, torch.ones(POINTS), uncentred=True, tile=128)
    for family in (found.cdnv, found.cdnv_k2, found.cdnv_log, found.logdist, found.logdist_uncentred):
        assert family is not None
        assert (family.left_out, family.pairs) == (4, POINTS * (POINTS - 1) // 2 - 4)
    assert found.cosine is not None
    assert found.cosine.pairs == POINTS * (POINTS - 1) // 2


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (2, 5), (3, 1), (POINTS, 1)])
def test_few_points_and_one_dimension(classes: int, dim: int) -> None:
    points = drawn(classes, dim)
    found = pair_statistics(points, torch.ones(classes), tile=128)
    squares = torch.nn.functional.pdist(points).square()
    assert found.cdnv is not None
    assert found.cdnv.mean == pytest.approx(float((1 / squares).mean()), rel=1e-6)


def test_float32_points_are_those_points_in_float64() -> None:
    points = drawn(POINTS, 24).float()
    assert ours(points, spread(points)) == pytest.approx(ours(points.double(), spread(points)), rel=1e-6)


def test_pairs_without_variance_are_left_out_of_the_log() -> None:
    points, variances = drawn(POINTS, 24), torch.ones(POINTS, dtype=torch.float64)
    variances[:100] = 0
    found = pair_statistics(points, variances, tile=128)
    assert found.cdnv_log is not None
    assert found.cdnv_log.left_out == 100 * 99 // 2


def test_the_programs_own_precision_of_products_is_neither_used_nor_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    mm = torch.mm

    def recording(*args: Tensor, out: Tensor) -> Tensor:
        seen.add(torch.get_float32_matmul_precision())
        return mm(*args, out=out)

    monkeypatch.setattr(torch, "mm", recording)
    torch.set_float32_matmul_precision("medium")
    try:
        pair_statistics(drawn(POINTS, 24), tile=128)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == {"highest"}
