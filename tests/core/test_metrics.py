"""Conformance: every entry of METRICS against its definition, its known answer and what must leave it unchanged."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oracles
from collapselab import METRICS, ClassMoments, Measurement, NearestCentre, collapse_metrics
from collapselab.core import contexts
from collapselab.core.catalogue import CONTEXT_METRICS, Need, ReasonCode
from collapselab.core.centre_loss import CentreLoss, CentreScores
from collapselab.core.geometry import Geometry
from collapselab.core.output_curvature import OutputCurvature
from frames import around, orthoplex, rotation, simplex

CLASSES = 14
MADE = {"agreement", "ncc_accuracy", "model_accuracy"}
OF_COVARIANCE = {id for id, metric in METRICS.items() if metric.needs & {Need.COVARIANCE, Need.SPECTRUM}}
OF_FREQUENCY = {"norm_frequency_r", "head_norm_frequency_r", "frequency_r2"}
SMALL = [id for id in METRICS if id != "alpha_req"]
"""Metrics that exist in six dimensions: the decay of eigenvalues is that from rank 11 on."""
OF_CURVATURE = {id for id, metric in METRICS.items() if Need.CURVATURE in metric.needs}
OF_ALL_TOKENS = OF_COVARIANCE | {id for id, metric in METRICS.items() if Need.DIRECTIONS in metric.needs}
"""Metrics of sums over all tokens, which say nothing of some classes alone."""


@dataclass(frozen=True)
class World:
    """Features and labels of both splits and an output layer."""

    features: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor
    validation: Tensor
    validation_labels: Tensor
    min_count: int = 1


def drawn(dim: int = 6, *, seed: int = 0, min_count: int = 1) -> World:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = 2 * normal(CLASSES, dim)
    counts = torch.tensor([1, 1, 2, 3, 5, 8, 8, 9, 10, 12, 15, 20, 30, 0])
    labels = torch.arange(CLASSES).repeat_interleave(counts)[torch.randperm(124, generator=generator)]
    later = torch.randint(0, CLASSES, (60,), generator=generator)
    return World(
        features=centres[labels] + normal(len(labels), dim),
        labels=labels,
        weight=centres + normal(CLASSES, dim),
        bias=normal(CLASSES),
        validation=centres[later] + normal(60, dim),
        validation_labels=later,
        min_count=min_count,
    )


def measured(world: World, *, batch: int = 50, tile: int = 1024) -> dict[str, Measurement]:
    moments = ClassMoments.empty(CLASSES, world.features.shape[1], covariance=True)
    for start in range(0, len(world.labels), batch):
        moments.update(world.features[start : start + batch], world.labels[start : start + batch])
    decider = NearestCentre(moments, weight=world.weight, bias=world.bias, min_count=world.min_count)
    decisions = decider.decide(world.validation, world.validation_labels)
    return collapse_metrics(
        moments,
        weight=world.weight,
        bias=world.bias,
        min_count=world.min_count,
        decisions=decisions,
        curvature=OutputCurvature(world.weight, world.bias).sums(world.features),
        centre_loss=by_centres(moments, world),
        tile=tile,
    )


def by_centres(moments: ClassMoments, world: World) -> CentreLoss:
    scores = CentreScores.of(moments, min_count=world.min_count)
    scores.fit(world.features, world.labels)
    logits = world.validation @ world.weight.T + world.bias
    losses = torch.nn.functional.cross_entropy(logits, world.validation_labels, reduction="none")
    return scores.loss(world.validation, world.validation_labels, losses)


def expected(world: World) -> dict[str, float]:
    return oracles.catalogue(
        world.features.numpy(),
        world.labels.numpy(),
        weight=world.weight.numpy(),
        bias=world.bias.numpy(),
        validation=(world.validation.numpy(), world.validation_labels.numpy()),
        min_count=world.min_count,
    )


def assert_value(found: Measurement, value: float, *, rel: float = 1e-8) -> None:
    assert found.why is None, found
    assert found.value == pytest.approx(value, rel=rel, abs=1e-12), found.metric


# Known entries -------------------------------------------------------------------------------------------------------


def test_the_catalogue_and_the_oracles_name_the_same_metrics() -> None:
    assert set(METRICS) == set(expected(drawn(20)))
    assert set(SMALL) == set(expected(drawn()))
    assert sum(metric.in_paper for metric in METRICS.values()) == 7


@pytest.mark.parametrize("id", METRICS)
def test_every_entry_is_complete(id: str) -> None:
    metric = METRICS[id]
    assert metric.name
    assert metric.property
    assert metric.formula
    assert metric.reference
    assert metric.meaning.count(". ") == 1, "two sentences"
    assert metric.range
    assert metric.version >= 1
    assert metric.direction in ("falls", "rises", "approaches", None)
    assert metric.transform in ("raw", "log")
    assert metric.varies_with <= {"unit", "origin"}


@pytest.mark.parametrize("id", CONTEXT_METRICS)
def test_every_entry_of_contexts_is_complete(id: str) -> None:
    metric = CONTEXT_METRICS[id]
    assert metric.name
    assert metric.meaning.count(". ") == 1, "two sentences"
    assert metric.range
    assert id in contexts.FUNCTIONS


# The definition ------------------------------------------------------------------------------------------------------

WORLDS = {
    "more classes than dimensions": drawn(6),
    "more dimensions than classes": drawn(20, seed=1),
    "as many": drawn(CLASSES - 2, seed=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("id", METRICS)
def test_the_value_is_that_of_the_definition(id: str, name: str) -> None:
    if id not in expected(WORLDS[name]):
        assert id == "alpha_req"
        assert measured(WORLDS[name])[id].code is ReasonCode.FEW_DIMENSIONS
        return
    assert_value(measured(WORLDS[name])[id], expected(WORLDS[name])[id])


@pytest.mark.parametrize("id", [id for id in METRICS if id not in OF_ALL_TOKENS | OF_CURVATURE])
def test_classes_below_min_count_take_part_in_nothing(id: str) -> None:
    world = drawn(6, min_count=5)
    assert_value(measured(world)[id], expected(world)[id])


def test_a_pooled_covariance_over_more_than_the_kept_classes_is_not_used() -> None:
    assert (
        measured(drawn(6, min_count=5))["scatter_pinv"].why
        == "the pooled covariance also covers classes that are not kept."
    )
    # Single samples have no scatter: leaving them out leaves the covariance as it is.
    world = drawn(6, min_count=2)
    assert_value(measured(world)["scatter_pinv"], expected(world)["scatter_pinv"])


FAULTS: dict[str, Callable[[World], World]] = {
    "a feature moved": lambda w: replace(w, features=torch.cat([w.features[:1] + 1, w.features[1:]])),
    "a label changed": lambda w: replace(w, labels=torch.where(torch.arange(len(w.labels)) == 7, 13, w.labels)),
    "a row of the output layer scaled": lambda w: replace(
        w, weight=w.weight * torch.linspace(0.5, 2, CLASSES)[:, None]
    ),
    "the output layer turned": lambda w: replace(w, weight=-w.weight.flip(0)),
    "validation labels shifted": lambda w: replace(w, validation_labels=w.validation_labels.roll(1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("id", SMALL)
def test_a_planted_fault_is_seen(id: str) -> None:
    """The comparison with the oracle can fail: for each metric, some fault in the data makes it."""
    truth = expected(WORLDS["more classes than dimensions"])[id]
    caught = []
    for name, spoil in FAULTS.items():
        try:
            assert_value(measured(spoil(WORLDS["more classes than dimensions"]))[id], truth)
        except AssertionError:
            caught.append(name)
    assert caught, f"no fault changes {id}"


# What leaves a value unchanged ---------------------------------------------------------------------------------------


def turned(world: World) -> World:
    turn = rotation(world.features.shape[1], seed=5)
    return replace(
        world, features=world.features @ turn, validation=world.validation @ turn, weight=world.weight @ turn
    )


def scaled(world: World) -> World:
    return replace(world, features=world.features * 4, validation=world.validation * 4, bias=world.bias * 4)


def shifted(world: World) -> World:
    return replace(world, features=world.features + 3, validation=world.validation + 3)


def renamed(world: World) -> World:
    names = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(9))
    back = torch.argsort(names)
    return replace(
        world,
        labels=names[world.labels],
        validation_labels=names[world.validation_labels],
        weight=world.weight[back],
        bias=world.bias[back],
    )


def reordered(world: World) -> World:
    order = torch.randperm(len(world.labels), generator=torch.Generator().manual_seed(3))
    return replace(world, features=world.features[order], labels=world.labels[order])


INVARIANCES: dict[str, tuple[Callable[[World], World], str | None]] = {
    "rotation": (turned, None),
    "scale": (scaled, "unit"),
    "shift": (shifted, "origin"),
    "renaming classes": (renamed, None),
    "order": (reordered, None),
}
"""Changes of a world, and the name of what changes in `Metric.varies_with`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", INVARIANCES)
@pytest.mark.parametrize("id", METRICS)
def test_what_must_not_matter_does_not(id: str, name: str) -> None:
    change, what = INVARIANCES[name]
    world = drawn(6 if id in SMALL else 16, seed=4)
    before, after = measured(world)[id], measured(change(world))[id]
    assert before.value is not None
    if what in METRICS[id].varies_with:
        assert after.value != pytest.approx(before.value, rel=1e-6)
    else:
        assert_value(after, before.value)


@pytest.mark.parametrize("batch", [1, 7, 124])
@pytest.mark.parametrize("tile", [1, 5, 4096])
def test_neither_batches_nor_tiles_matter(batch: int, tile: int) -> None:
    world = drawn(16, seed=4)
    reference = measured(world)
    for id, found in measured(world, batch=batch, tile=tile).items():
        value = reference[id].value
        assert value is not None
        assert_value(found, value, rel=1e-10)


def test_the_fourth_power_of_the_distance_gives_cdnv_k2_a_unit() -> None:
    world = drawn(6)
    near, far = measured(world)["cdnv_k2"].value, measured(scaled(world))["cdnv_k2"].value
    assert near is not None
    assert far == pytest.approx(near / 16, rel=1e-10)


# Known answers -------------------------------------------------------------------------------------------------------


def collapsed(frame: Tensor, *, spread: float = 0.0, weight: Tensor | None = None) -> dict[str, Measurement]:
    classes, dim = frame.shape
    features, labels = around(frame, spread * torch.eye(dim, dtype=torch.float64))
    moments = ClassMoments.empty(classes, dim, covariance=True)
    moments.update(features, labels)
    weight = frame if weight is None else weight
    decisions = NearestCentre(moments, weight=weight).decide(features, labels)
    return collapse_metrics(
        moments, weight=weight, decisions=decisions, curvature=OutputCurvature(weight).sums(features)
    )


UNSURE = 1 - (math.e**2 + 7) / (math.e + 7) ** 2
"""1 − Σ p², where the logit of the right class is larger than all others by 1."""

SIMPLEX = {
    "cdnv": 0, "cdnv_k2": 0, "scatter_ratio": 0, "scatter_pinv": 0, "norm_cv": 0, "lognorm_cv": 0,
    "cosine_mean": -1 / 7, "cosine_std": 0, "cosine_cv": 0, "etf_error": 0, "etf_floor": 0,
    "logdist_mean": -0.5 * math.log(2 + 2 / 7), "logdist_std": 0, "logdist_cv": 0,
    "logdist_uncentred_mean": -0.5 * math.log(2 + 2 / 7), "logdist_uncentred_std": 0, "logdist_uncentred_cv": 0,
    "duality_cos_mean": 1, "duality_cos_std": 0, "duality_cos_cv": 0, "duality_error": 0,
    "agreement": 1, "ncc_accuracy": 1, "model_accuracy": 1,
    "head_norm_cv": 0, "head_cosine_mean": -1 / 7, "head_cosine_std": 0,
    "head_logdist_mean": -0.5 * math.log(2 + 2 / 7), "head_logdist_std": 0, "head_logdist_cv": 0, "head_sum": 0,
    "effective_rank": 7, "effective_rank_share": 1, "within_share": 0, "participation": 7, "anisotropy": 0, "vci": 0,
    "lognorm_mean": 0.5 * math.log(7 / 8), "duality_frobenius": 0, "head_etf_error": 0,
    "spectral_entropy": math.log(7) / math.log(12), "rankme": 7, "rankme_share": 7 / 12, "dispersion": 192 / 191,
    "rankme_covariance": 7, "head_effective_rank": 7,
    "directional_cdnv": 0, "cosine_error": 0,
    "curvature": 7 / 8 * UNSURE, "curvature_relative": 8 / 7 * UNSURE,
}  # fmt: skip


@pytest.mark.parametrize("id", SIMPLEX)
def test_a_collapsed_simplex_is_ideal_in_every_metric(id: str) -> None:
    found = collapsed(simplex(8, 12) @ rotation(12))[id]
    assert found.why is None
    # The duality error is the root of a difference that is 0 up to rounding.
    assert found.value == pytest.approx(SIMPLEX[id], abs=1e-7 if id == "duality_error" else 1e-12, rel=1e-12)
    if found.ideal is not None and "logdist" not in id:
        assert found.value == pytest.approx(found.ideal, abs=1e-7)


def test_a_collapsed_simplex_has_no_log_cdnv_and_says_so() -> None:
    found = collapsed(simplex(8))["cdnv_log"]
    assert (found.value, found.why, found.left_out) == (None, "all 28 pairs were left out.", 28)


def test_crosses_on_a_simplex_have_the_cdnv_of_their_radius() -> None:
    found = collapsed(simplex(5), spread=0.3)
    variance, distance = 0.3**2, 2.0
    assert_value(found["cdnv"], variance / distance)
    assert_value(found["cdnv_k2"], variance / distance**2)
    assert_value(found["cdnv_log"], math.log(variance / distance))
    assert_value(found["scatter_ratio"], variance / (4 / 5))
    assert_value(found["within_share"], variance / (variance + 4 / 5))


def test_crosses_vary_alike_between_means_and_across() -> None:
    found = collapsed(simplex(5), spread=0.3)
    assert_value(found["directional_cdnv"], 0.3**2 / 2 / 5)
    assert_value(found["directional_gain"], 1.0)
    single = moments_of(simplex(5), torch.arange(5))
    assert collapse_metrics(single)["directional_gain"].code is ReasonCode.ZERO


def test_variance_along_one_direction_counts_where_class_means_differ_in_it() -> None:
    frame, spread = simplex(3, 5), torch.zeros(5, 5, dtype=torch.float64)
    spread[4, 4] = 0.7  # the simplex does not reach the last axis
    features, labels = around(frame, spread)
    across = collapse_metrics(moments_of(features, labels))
    assert across["directional_cdnv"].value == pytest.approx(0, abs=1e-15)
    assert across["cdnv"].value is not None
    assert across["cdnv"].value > 0.01
    line = torch.tensor([[0.0, 0], [2, 0]], dtype=torch.float64)
    features, labels = around(line, torch.tensor([[0.5, 0], [0, 0]], dtype=torch.float64))
    along = collapse_metrics(moments_of(features, labels))
    assert_value(along["directional_gain"], 2.0)


def test_the_distance_of_cosines_from_a_simplex_is_that_of_an_orthoplex() -> None:
    # 11 pairs of a point are at 1/11 from the simplex's cosine, or at 1 - 1/11 with the opposite point.
    assert_value(collapsed(orthoplex(6))["cosine_error"], (10 * 1 / 11 + 10 / 11) / 11)


def test_a_model_that_predicts_by_the_nearest_centre_loses_nothing_to_it() -> None:
    world = drawn(6, seed=3)
    moments = moments_of(world.features, world.labels)
    scores, kept = CentreScores.of(moments), (moments.counts > 0).nonzero().squeeze(1)
    tau = scores.fit(world.features, world.labels)
    means, priors = moments.means[kept], (moments.counts[kept].double() / moments.counts.sum()).log()
    logits = tau * (world.features @ means.T - means.square().sum(1) / 2) + priors
    places = torch.searchsorted(kept, world.labels)
    own = torch.nn.functional.cross_entropy(logits, places, reduction="none")
    loss = scores.loss(world.features, world.labels, own)
    assert (loss.tokens, loss.left_out) == (124, 0)
    assert_value(collapse_metrics(moments, centre_loss=loss)["ncc_loss"], 0.0)
    best = scores.scale
    for factor in (0.9, 1.1):  # the fitted τ is the best
        scores.scale = factor * best
        assert scores.loss(world.features, world.labels, own).centres > loss.centres


def test_tau_of_gaussian_classes_is_one_over_their_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (4000,), generator=generator)
    centres = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    features = centres[labels] + 0.7 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    assert CentreScores.of(moments_of(features, labels)).fit(features, labels) == pytest.approx(1 / 0.49, rel=0.05)


def test_tokens_without_a_centre_are_left_out_of_both_losses() -> None:
    world = drawn(6)
    moments = moments_of(world.features, world.labels)
    scores = CentreScores.of(moments, min_count=5)
    scores.fit(world.features, world.labels)
    rare = moments.counts[world.labels] < 5
    loss = scores.loss(world.features, world.labels, torch.where(rare, torch.nan, 1.0))
    assert (loss.tokens, loss.left_out, loss.model) == (int((~rare).sum()), int(rare.sum()), float((~rare).sum()))
    none = scores.loss(world.features[rare], world.labels[rare], torch.ones(int(rare.sum())))
    found = collapse_metrics(moments, centre_loss=none)["ncc_loss"]
    assert (found.code, found.left_out) == (ReasonCode.NOTHING_LEFT, int(rare.sum()))


def test_a_tight_frame_reaches_the_floor_and_nothing_goes_below() -> None:
    found = collapsed(orthoplex(6))
    floor = found["etf_floor"].value
    assert floor == pytest.approx(math.sqrt(2 - 2 * math.sqrt(6 / 11)))
    assert found["etf_error"].value == pytest.approx(floor, rel=1e-12)
    assert found["etf_error"].ideal == floor
    other = measured(drawn(6))
    assert other["etf_error"].value is not None
    assert other["etf_floor"].value is not None
    assert other["etf_error"].value > other["etf_floor"].value


@pytest.mark.parametrize(("dim", "value"), [(2, 0.0), (3, 0.5 - math.log(2))])
def test_log_distance_of_the_uniform_sphere_is_known_in_small_dimensions(dim: int, value: float) -> None:
    assert METRICS["logdist_mean"].ideal_at(classes=10, dim=dim) == pytest.approx(value, abs=1e-12)


def test_log_distance_of_the_uniform_sphere_is_that_of_random_directions() -> None:
    points = torch.randn(3000, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moments = ClassMoments.empty(3000, 10)
    moments.update(points, torch.arange(3000))
    found = collapse_metrics(moments)["logdist_mean"]
    assert found.ideal is not None
    assert found.value == pytest.approx(found.ideal, abs=1e-3)


# Reasons -------------------------------------------------------------------------------------------------------------


def test_without_an_output_layer_only_its_metrics_are_missing() -> None:
    world = drawn(6)
    moments = ClassMoments.empty(CLASSES, 6)
    moments.update(world.features, world.labels)
    found = collapse_metrics(moments)
    missing = {id: found[id].why for id in found if found[id].value is None}
    head = {id for id, metric in METRICS.items() if metric.needs & {Need.HEAD, Need.OUTPUT_LAYER}}
    assert set(missing) == head | MADE | OF_COVARIANCE | OF_CURVATURE | {"ncc_loss"}
    assert {missing[id] for id in head} == {"no output layer was given."}
    assert {missing[id] for id in MADE} == {"no decisions were given; they are made on the validation split."}
    assert missing["scatter_pinv"] == "the pooled covariance was not collected; ask for covariance=True."


@pytest.mark.parametrize("classes", [0, 1])
def test_too_few_classes_leave_every_metric_with_a_reason(classes: int) -> None:
    moments = ClassMoments.empty(4, 3, covariance=True)
    if classes:
        moments.update(torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
    found = collapse_metrics(moments, weight=torch.randn(4, 3))
    for id in METRICS:
        if classes and Need.OUTPUT_LAYER in METRICS[id].needs:
            continue
        assert found[id].value is None, id
        assert found[id].why, id
    assert found["cdnv"].why in ("0 kept classes; at least 1 are needed.", "1 kept class; at least 2 are needed.")


def test_a_mean_at_the_centre_is_named_as_the_reason() -> None:
    frame = torch.cat([orthoplex(3), torch.zeros(1, 3, dtype=torch.float64)])
    moments = ClassMoments.empty(9, 3)
    moments.update(frame, torch.arange(7) + 2)
    found = collapse_metrics(moments, weight=torch.ones(9, 3))
    for id in ("lognorm_cv", "cosine_mean", "cosine_cv", "logdist_std", "duality_cos_mean"):
        assert found[id].why == "class 8 has a centred mean of zero (1 class in all).", id
    assert found["logdist_uncentred_mean"].why == "class 8 has a mean of zero (1 class in all)."
    assert found["norm_cv"].value is not None
    assert found["head_cosine_mean"].why == "class 2 has a centred output row of zero (7 classes in all)."


def test_coincident_means_are_counted_beside_the_value() -> None:
    frame = simplex(5)
    moments = ClassMoments.empty(7, 5)
    features, labels = around(torch.cat([frame, frame[:2]]), 0.1 * torch.eye(5, dtype=torch.float64))
    moments.update(features, labels)
    moments.sums[5:] = moments.sums[:2]
    found = collapse_metrics(moments)
    assert (found["cdnv"].left_out, found["logdist_mean"].left_out, found["cosine_mean"].left_out) == (2, 2, 0)


def test_measurements_say_what_they_rest_on() -> None:
    world = drawn(6, min_count=5)
    found = measured(world)
    judged = int(torch.isin(world.validation_labels, torch.arange(4, 13)).sum())
    assert (found["cdnv"].classes, found["cdnv"].tokens, found["cdnv"].min_count) == (9, 117, 5)
    assert (found["agreement"].tokens, found["agreement"].left_out) == (judged, 60 - judged)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": torch.zeros(3, 3)}, r"output layer of shape \(3, 3\); \(4, 3\), classes × dim, is needed"),
        ({"bias": torch.zeros(4)}, "an output bias without an output layer"),
        ({"min_count": 0}, "min_count must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collapse_metrics(ClassMoments.empty(4, 3), **arguments)  # type: ignore[arg-type]


def test_decisions_over_other_classes_are_refused() -> None:
    world = drawn(6)
    moments = ClassMoments.empty(CLASSES, 6)
    moments.update(world.features, world.labels)
    decisions = NearestCentre(moments, weight=world.weight, min_count=2).decide(
        world.validation, world.validation_labels
    )
    with pytest.raises(ValueError, match="with min_count 2, but moments of 14 classes with min_count 1"):
        collapse_metrics(moments, weight=world.weight, decisions=decisions)


# Some classes, some metrics, some precision ------------------------------------------------------------------------------


def test_a_mask_of_classes_gives_the_metrics_of_those_classes_alone() -> None:
    world = drawn()
    chosen = torch.arange(CLASSES) % 2 == 0
    moments = ClassMoments.empty(CLASSES, 6)
    moments.update(world.features, world.labels)
    decider = NearestCentre(moments, weight=world.weight, bias=world.bias)
    decisions = decider.decide(world.validation, world.validation_labels)
    found = collapse_metrics(moments, weight=world.weight, bias=world.bias, decisions=decisions, classes=chosen)
    some = chosen[world.labels]
    alone = oracles.catalogue(world.features[some].numpy(), world.labels[some].numpy(), weight=world.weight.numpy())
    for id in set(METRICS) - MADE - OF_ALL_TOKENS - OF_CURVATURE - {"ncc_loss"}:
        assert_value(found[id], alone[id])
    assert found["scatter_pinv"].why == "the pooled covariance was not collected; ask for covariance=True."
    head, nearest = decider.choices(world.validation)
    judged = chosen[world.validation_labels] & (moments.counts > 0)[world.validation_labels]
    assert_value(found["agreement"], float((head == nearest)[judged].double().mean()))
    assert found["agreement"].tokens == int(judged.sum())


def test_only_the_metrics_asked_for_are_computed() -> None:
    moments = ClassMoments.empty(CLASSES, 6)
    moments.update(drawn().features, drawn().labels)
    assert list(collapse_metrics(moments, only=["norm_cv", "cdnv"])) == ["cdnv", "norm_cv"]
    with pytest.raises(ValueError, match="cdvn is not a metric of the catalogue"):
        collapse_metrics(moments, only=["cdvn"])
    with pytest.raises(ValueError, match=r"classes must be a mask over 14 classes"):
        collapse_metrics(moments, classes=torch.tensor([1, 2, 3]))


def test_unseen_classes_in_between_do_not_hide_the_pooled_covariance() -> None:
    # The scatter of 3,000 classes, added up with 3,000 zeros in between, need not have the same last bit.
    generator = torch.Generator().manual_seed(0)
    labels = 2 * torch.randint(0, 3000, (9000,), generator=generator)
    moments = ClassMoments.empty(6000, 5, covariance=True)
    moments.update(torch.randn(9000, 5, generator=generator).exp(), labels)
    assert collapse_metrics(moments, only=["scatter_pinv"])["scatter_pinv"].why is None


def test_directions_that_hold_nothing_but_the_features_rounding_are_no_directions() -> None:
    # LayerNorm puts features into a plane. In float32 they leave it by rounding, and what the pseudo-inverse makes of
    # that must not count: the value is that of the exact features, which have no such direction.
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat(25)
    wide = torch.randn(40, 12, generator=generator, dtype=torch.float64)[labels]
    wide = wide + torch.randn(1000, 12, generator=generator, dtype=torch.float64)
    exact = torch.nn.functional.layer_norm(wide, (12,))
    found = {}
    for dtype in (torch.float64, torch.float32):
        moments = ClassMoments.empty(40, 12, covariance=True)
        moments.update(torch.nn.functional.layer_norm(wide.to(dtype), (12,)), labels)
        found[dtype] = collapse_metrics(moments, only=["scatter_pinv"])["scatter_pinv"].value
    oracle = oracles.catalogue(exact.numpy(), labels.numpy(), weight=exact[:40].numpy())["scatter_pinv"]
    assert found[torch.float64] == pytest.approx(oracle, rel=1e-9)
    assert found[torch.float32] == pytest.approx(oracle, rel=1e-5)


MEMORY_OF_THE_CATALOGUE = """
import torch
from pathlib import Path
from collapselab import ClassMoments, collapse_metrics

def memory(field):
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines() if field in line)

classes, dim = 10000, 1024
moments = ClassMoments.empty(classes, dim)
for start in range(0, 2 * classes, 2000):
    moments.update(torch.randn(2000, dim), torch.arange(start, start + 2000) % classes)
weight = torch.randn(classes, dim)
before = memory("VmHWM")
collapse_metrics(moments, weight=weight, only=["cdnv", "duality_cos_mean", "head_norm_cv", "head_sum"])
print((memory("VmHWM") - before) / (8 * classes * dim))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's record of the peak")
def test_the_catalogue_needs_at_most_one_and_a_half_tables_beside_the_moments_and_the_output_layer() -> None:
    """With these, one table and half a table, that is three.

    Blocks of a megabyte and more go back to the system when they are freed; how many of them glibc would keep is chance.
    """
    result = subprocess.run(
        [sys.executable, "-c", MEMORY_OF_THE_CATALOGUE],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)},
    )
    assert 0.4 < float(result.stdout) < 1.5


# The second part: known answers and what it is blind to ----------------------------------------------------------------


def moments_of(features: Tensor, labels: Tensor) -> ClassMoments:
    moments = ClassMoments.empty(int(labels.max()) + 1, features.shape[1], covariance=True)
    moments.update(features, labels)
    return moments


def test_no_linear_map_changes_the_variability_collapse_index() -> None:
    world = drawn(6)
    bent = world.features @ torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, other = (collapse_metrics(moments_of(some, world.labels))["vci"] for some in (world.features, bent))
    assert one.value is not None
    assert other.value == pytest.approx(one.value, rel=1e-8)
    shares = [collapse_metrics(moments_of(some, world.labels))["within_share"].value for some in (world.features, bent)]
    assert shares[0] != pytest.approx(shares[1], rel=1e-3)


def test_crosses_on_a_simplex_have_the_index_of_their_radius() -> None:
    """Between has 1/5 in 4 directions, within r²/5 in all 5 of the frame: the index is r²/(1 + r²) of any one."""
    found = collapsed(simplex(5), spread=0.3)
    assert_value(found["vci"], 0.09 / 5 / (0.09 / 5 + 1 / 5))


def test_class_means_that_coincide_have_an_index_of_a_reason_and_noise_has_nearly_one() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    found = collapse_metrics(moments_of(noise, torch.arange(4000) % 8))["vci"].value
    assert found is not None
    assert 0.99 < found <= 1


def test_eigenvalues_of_a_power_law_have_its_slope_and_equal_ones_its_entropy() -> None:
    dim = 40
    for power in (0.0, 1.0, 2.0):
        sizes = torch.arange(1, dim + 1, dtype=torch.float64) ** (-power / 2)
        cross = torch.cat([torch.diag(sizes), -torch.diag(sizes)]) @ rotation(dim)
        found = collapse_metrics(moments_of(cross, torch.arange(2 * dim) % 3))
        assert_value(found["alpha_req"], power)
        if power == 0:
            assert_value(found["spectral_entropy"], 1)
            assert_value(found["rankme"], dim)
            assert_value(found["rankme_share"], 1)
            assert_value(found["rankme_covariance"], dim)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("centre", [0.0, 0.3, 30.0])
def test_the_second_moment_of_all_features_is_enough_for_the_spectra(dtype: torch.dtype, centre: float) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.arange(1, 41, dtype=torch.float64) ** -0.5
    drawn = sizes * torch.randn(3000, 40, generator=generator, dtype=torch.float64)
    features, labels = (drawn @ rotation(40) + centre).to(dtype), torch.arange(3000) % 7
    parts = [ClassMoments.empty(7, 40, spectrum=True) for _ in range(2)]
    for start in range(0, 3000, 500):
        parts[start > 1000].update(features[start : start + 500], labels[start : start + 500])
    found = collapse_metrics(parts[0].merge(parts[1]))
    truth = oracles.of_all_tokens(features.double().numpy(), 0.0)
    for id in [id for id, metric in METRICS.items() if Need.SPECTRUM in metric.needs]:
        assert found[id].value == pytest.approx(truth[id], rel=1e-9 if dtype == torch.float64 else 2e-6), id
    assert found["scatter_pinv"].code is ReasonCode.NO_COVARIANCE


def test_directions_without_features_have_no_share_of_products_in_float32() -> None:
    """30 of 64 directions hold nothing; products in float32 leave up to 1e-7 of the variance there."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2000, 34, generator=generator) @ rotation(64)[:34].float()
    moments = ClassMoments.empty(3, 64, spectrum=True)
    moments.update(features, torch.arange(2000) % 3)
    wide = moments_of(features, torch.arange(2000) % 3)
    assert int((Geometry(moments).total_eigenvalues > 0).sum()) == 34
    narrow, truth = (collapse_metrics(some, only=["alpha_req", "rankme"]) for some in (moments, wide))
    for id in narrow:
        assert narrow[id].value == pytest.approx(truth[id].value, rel=1e-6)


def test_what_features_have_in_common_is_a_direction_of_rankme_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(500, 8, generator=generator, dtype=torch.float64), torch.arange(500) % 5
    near, far = (collapse_metrics(moments_of(some, labels)) for some in (features, features + 1e6))
    assert far["rankme_covariance"].value == pytest.approx(near["rankme_covariance"].value, rel=1e-6)
    assert near["rankme"].value == pytest.approx(8, rel=0.01)
    assert far["rankme"].value == pytest.approx(1, rel=1e-4)


def test_every_row_of_the_output_layer_counts_also_those_of_classes_that_are_never_seen() -> None:
    """Two classes with opposite rows are seen, two more with the same row are not: ‖2w‖ / √4‖w‖ = 1, in 2 directions."""
    weight = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 1, 0]], dtype=torch.float64)
    moments = ClassMoments.empty(4, 3)
    moments.update(weight[:2], torch.arange(2))
    found = collapse_metrics(moments, weight=weight)
    assert_value(found["head_sum"], 1)
    assert_value(found["head_effective_rank"], 2)


@pytest.mark.parametrize(("classes", "dim"), [(5, 12), (24, 12)])
def test_shares_of_dimensions_are_out_of_what_so_many_points_can_have(classes: int, dim: int) -> None:
    """5 class means differ in 4 directions at most, 24 in all 12; of the tokens there are many more than dimensions."""
    frame = simplex(classes, dim) if classes <= dim else orthoplex(dim)
    found = collapsed(frame @ rotation(dim), spread=0.3)
    assert_value(found["effective_rank"], min(classes - 1, dim))
    assert_value(found["effective_rank_share"], 1)
    rankme, share = found["rankme"].value, found["rankme_share"].value
    assert rankme is not None
    assert share == pytest.approx(rankme / dim, rel=1e-12)
    few = moments_of(torch.eye(3, 12, dtype=torch.float64), torch.arange(3))
    assert_value(collapse_metrics(few)["rankme_share"], 1)
    assert_value(collapse_metrics(few)["rankme_covariance"], 2)  # three tokens differ in two directions


@pytest.mark.parametrize("id", ["effective_rank_share", "rankme_share"])
def test_a_share_of_dimensions_has_a_reason_where_there_is_no_direction(id: str) -> None:
    one = collapse_metrics(moments_of(torch.ones(4, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.long)))
    assert one[id].code is ReasonCode.FEW_CLASSES
    same = collapse_metrics(moments_of(torch.zeros(4, 3, dtype=torch.float64), torch.arange(4) % 2))
    assert same[id].code is ReasonCode.COINCIDENT


def test_a_number_of_directions_knows_how_many_there_could_be() -> None:
    for id, most in {"effective_rank": 9, "participation": 29, "rankme": 30, "rankme_share": None}.items():
        assert METRICS[id].at_most(classes=10, tokens=30, dim=64) == most


def test_what_is_a_function_of_frequency_is_found_to_be_one_and_noise_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(1, 60, (300,), generator=generator)
    labels = torch.arange(300).repeat_interleave(counts)
    noise = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    ruled = noise.clone()
    ruled[:, 0] = 5 * counts.double().log()
    for means, low, high in ((noise, -0.2, 0.05), (ruled, 0.95, 1.0)):
        found = collapse_metrics(moments_of(means[labels], labels), weight=means)
        assert low < (found["frequency_r2"].value or 0) < high
    lengths = counts.double().log()[:, None] * torch.nn.functional.normalize(noise)
    found = collapse_metrics(moments_of(noise[labels], labels), weight=lengths)
    assert_value(found["head_norm_frequency_r"], 1)
    assert abs(found["norm_frequency_r"].value or 1) < 0.2


def test_classes_of_one_count_have_no_frequency() -> None:
    for id in OF_FREQUENCY:
        assert collapsed(simplex(5), spread=0.1)[id].why == "all classes have 10 samples; counts must differ."


def test_the_head_of_a_simplex_is_one_and_a_random_one_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(8, 12, generator=generator, dtype=torch.float64)
    found = collapsed(simplex(8, 12), weight=random)
    truth = oracles.frame_error((random - random.mean(0)).numpy() @ (random - random.mean(0)).numpy().T)
    assert_value(found["head_etf_error"], truth)
    assert truth > 0.3


def test_layer_norm_leaves_the_spectrum_of_the_features_without_the_direction_it_removed() -> None:
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(1000, 12, generator=generator, dtype=torch.float64)
    found = {}
    for dtype in (torch.float64, torch.float32):
        features = torch.nn.functional.layer_norm(wide.to(dtype), (12,))
        found[dtype] = collapse_metrics(moments_of(features, torch.arange(1000) % 40))
    for id in ("vci", "rankme", "spectral_entropy"):
        assert found[torch.float32][id].value == pytest.approx(found[torch.float64][id].value, rel=1e-5), id
