"""Moments, pairs, decisions and the pseudo-inverse against the bare products and additions they are made of."""

import itertools
import time

import torch
import torch.nn.functional as F

from benchmarks.timing import Line, at_least, at_most, in_a_process, in_turns, peak_bytes, shown
from collapselab.core.decisions import NearestCentre
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.pairs import pair_statistics


def moments(quick: bool) -> list[Line]:
    """One batch of 2,048 tokens into 50,257 classes × 768, labels drawn uniformly: the worst case for the memory.

    37 batches of features and 24 of labels do not meet again, as in a stream. Where the same few are given again and
    again, every class is a point, and tight.
    """
    classes, dim, tokens, batches = 50257, 768, 2048, 24
    generator = torch.Generator().manual_seed(0)
    features = itertools.cycle([torch.randn(tokens, dim, generator=generator) for _ in range(37)])
    even = itertools.cycle([torch.randint(0, classes, (tokens,), generator=generator) for _ in range(batches)])
    rank = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
    natural = itertools.cycle([torch.multinomial(rank, tokens, True, generator=generator) for _ in range(batches)])
    collected = ClassMoments.empty(classes, dim)
    table = torch.zeros(classes, dim, dtype=torch.float64)
    wide = itertools.cycle([next(features).double() for _ in range(13)])
    points, collapsed = [(next(features), next(even)) for _ in range(4)], ClassMoments.empty(classes, dim)
    same = itertools.cycle(points)

    def one_hot(dtype: torch.dtype) -> object:
        return F.one_hot(next(even), classes).to(dtype).T @ next(features).to(dtype)

    fast = in_turns(
        {
            "ours": lambda: collected.update(next(features), next(even)),
            "ours, float64": lambda: collected.update(next(wide), next(even)),
            "ours, collapsed": lambda: collapsed.update(*next(same)),
            "ours, natural": lambda: collected.update(next(features), next(natural)),
            "limit": lambda: table.index_add_(0, next(even), next(wide)),
            "limit, natural": lambda: table.index_add_(0, next(natural), next(wide)),
        },
        turns=40 if quick else 90,
        warm_up=15,  # until nearly every class has been seen: the first touch of its row takes longer
    )
    if quick:  # a product takes seconds
        return _moment_lines(fast)
    products = {"float64": lambda: one_hot(torch.float64), "float32": lambda: one_hot(torch.float32)}
    return _product_lines(fast, in_turns(products, turns=3, warm_up=1)) + _moment_lines(fast)


def _product_lines(fast: dict[str, float], slow: dict[str, float]) -> list[Line]:
    ours, limit = fast["ours"], fast["limit"]
    return [
        at_least(
            "moments: × a float64 one-hot product",
            slow["float64"] / ours,
            300,
            ours=shown(ours),
            baseline=shown(slow["float64"]),
            limit=shown(limit),
        ),
        Line(
            "moments: × a float32 one-hot product",
            slow["float32"] / ours,
            "×",
            "–",
            None,
            ours=shown(ours),
            baseline=shown(slow["float32"]),
        ),
    ]


def _moment_lines(fast: dict[str, float]) -> list[Line]:
    ours, limit = fast["ours"], fast["limit"]
    natural_ratio = fast["ours, natural"] / fast["limit, natural"]
    return [
        at_most("moments: × one float64 index_add_", ours / limit, 3, ours=shown(ours), limit=shown(limit)),
        at_most(
            "moments: × index_add_, float64 features",
            fast["ours, float64"] / limit,
            3,
            ours=shown(fast["ours, float64"]),
            limit=shown(limit),
        ),
        Line(
            "moments: × index_add_, every class a point",
            fast["ours, collapsed"] / limit,
            "×",
            "–",
            None,
            ours=shown(fast["ours, collapsed"]),
            limit=shown(limit),
        ),
        Line(
            "moments: × index_add_, labels as in text",
            natural_ratio,
            "×",
            "–",
            None,
            ours=shown(fast["ours, natural"]),
            limit=shown(fast["limit, natural"]),
        ),
    ]


def pairs_in_process(classes: int, dim: int, turns: int) -> dict[str, float]:
    """Seconds of the sweep and of the bare products of its tiles, and the peak memory of the sweep alone."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    points *= 0.5 + torch.rand(classes, 1, generator=generator, dtype=torch.float64)
    variances = torch.rand(classes, generator=generator, dtype=torch.float64)
    variances[::7] = 0
    pair_statistics(points[:2048], variances[:2048], uncentred=True)

    def ours() -> float:
        start = time.perf_counter()
        pair_statistics(points, variances, uncentred=True)
        return time.perf_counter() - start

    times, peak = [ours()], peak_bytes()
    bare = [_bare_products(points)]
    for _ in range(turns - 1):
        times.append(ours())
        bare.append(_bare_products(points))
    return {"ours": min(times), "limit": min(bare), "peak": peak}


def _bare_products(points: torch.Tensor) -> float:
    """Seconds of the float64 products of all pairs, in tiles of 512 × 1,024 points."""
    classes, space = len(points), points.new_empty(1024 * 1024)
    start = time.perf_counter()
    for row in range(0, classes, 512):
        left = points[row : row + 512]
        for right in (left, *torch.split(points[row + 512 :], 1024)):
            torch.mm(left, right.T, out=space[: len(left) * len(right)].view(len(left), len(right)))
    return time.perf_counter() - start


def pairs(quick: bool) -> list[Line]:
    """All pair statistics of class means, in a process of their own."""
    lines = []
    large, small = ((4000, 1024, 3), (8192, 64, 3)) if quick else ((29233, 1024, 2), (8192, 64, 10))
    for (classes, dim, turns), bar in ((large, 1.0), (small, 3.0)):  # a sweep of a tenth of a second is soon disturbed
        found = in_a_process("benchmarks.core", "pairs_in_process", classes, dim, turns)
        ratio, peak = found["ours"] / found["limit"], found["peak"] / 1e9
        times = {"ours": shown(found["ours"]), "limit": shown(found["limit"])}
        lines += [
            at_most(f"pairs, {classes:,} × {dim:,}: × their products", ratio, bar, **times),
            at_most(f"pairs, {classes:,} × {dim:,}: peak memory", peak, 1.5, "GB"),
        ]
    return lines


def decisions(quick: bool) -> list[Line]:
    """Both classifiers over all of 50,257 classes."""
    classes, dim, tokens = (20000, 768, 512) if quick else (50257, 768, 2048)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, dim, generator=generator)
    collected = ClassMoments.empty(classes, dim)
    collected.update(weight + torch.randn(classes, dim, generator=generator), torch.arange(classes))
    decider = NearestCentre(collected, weight=weight)
    labels = torch.randint(0, classes, (tokens,), generator=generator)
    features = weight[labels] + torch.randn(tokens, dim, generator=generator)
    space = torch.empty(tokens, 2048)
    centres = collected.means.float()

    def products() -> None:
        for table in (weight, centres):
            for start in range(0, classes, 2048):
                some = table[start : start + 2048]
                torch.mm(features, some.T, out=space.view(-1)[: tokens * len(some)].view(tokens, len(some)))

    found = in_turns({"ours": lambda: decider.choices(features), "limit": products}, turns=3, warm_up=1)
    times = {"ours": shown(found["ours"]), "limit": shown(found["limit"])}
    return [at_most("decisions: × their two products", found["ours"] / found["limit"], 1.2, **times)]


def inverse(quick: bool) -> list[Line]:
    """tr(Σ_W Σ_B⁺) from moments, against the bare formula, to which class means and Σ_W are given."""
    classes, dim = (5000, 512) if quick else (50257, 768)
    generator = torch.Generator().manual_seed(0)
    collected, rank = ClassMoments.empty(classes, dim, covariance=True), 1 / torch.arange(1, classes + 1)
    points = torch.randn(classes, dim, generator=generator)
    for turn in range(4):  # each class once, and as many tokens again as frequent as in a text
        drawn = torch.multinomial(rank, classes // 4, True, generator=generator)
        labels = torch.cat([torch.arange(turn, classes, 4), drawn])
        collected.update(points[labels] + torch.randn(len(labels), dim, generator=generator), labels)
    covariance = collected.covariance
    assert covariance is not None
    given = {dtype: (collected.means.to(dtype), covariance.to(dtype)) for dtype in (torch.float64, torch.float32)}

    def formula(dtype: torch.dtype) -> float:
        means, within = given[dtype]
        centred = means - means.mean(0)
        return float(torch.trace(within @ torch.linalg.pinv(centred.T @ centred / classes))) / classes

    found = in_turns(
        {
            "ours": lambda: collapse_metrics(collected, only=["scatter_pinv"]),
            "float64": lambda: formula(torch.float64),
            "float32": lambda: formula(torch.float32),
        },
        turns=5,
        warm_up=1,
    )
    name, ours = f"pseudo-inverse, {classes:,} × {dim:,}: × the formula with Σ_W given", shown(found["ours"])
    ratios = {kind: found[kind] / found["ours"] for kind in ("float64", "float32")}
    return [
        Line(f"{name}, {kind}", ratios[kind], "×", "–", None, ours=ours, baseline=shown(found[kind])) for kind in ratios
    ]


ALL = {"moments": moments, "pairs": pairs, "decisions": decisions, "inverse": inverse}
