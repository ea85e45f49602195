"""Conformance of every entry of INTERVENTIONS: against its definition, known answers, and what must not matter."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from collapselab.core.catalogue import METRICS
from collapselab.core.output_curvature import OutputCurvature
from collapselab.models.taps import OutputLayer
from collapselab.training.interventions import INTERVENTIONS, Dose, features, output_layer
from collapselab.training.interventions.features import READY
from collapselab.training.interventions.step import Classes, Penalty, Step
from collapselab.training.interventions.term import StepNorm, Term, Tokens
from training.penalty_oracles import ORACLES, Table

DEFINED = [name for name in INTERVENTIONS if name != "noise"]
OF_HEAD = {"uniform", "centre", "dual", "dual_uniform", "flat"}
WITH_TABLE = {"uniform_means", "dual", "dual_uniform"}
WITHOUT_LABELS = {"disperse", "isotropy", "centre", "flat", "noise"}
CLASSES, DIM = 9, 5


@dataclass(frozen=True)
class World:
    """15 tokens of 3 sequences and an output layer, in float64; the classes 0 to 6 have a mean already."""

    features: Tensor
    labels: Tensor
    sequences: Tensor
    weight: Tensor
    table: Tensor
    head: OutputLayer | None = None
    seen: int = 20
    kept: dict[str, Tensor] = field(default_factory=dict)

    def step(self, name: str, *, number: int = 30) -> Step:
        kept = self.kept
        if name in WITH_TABLE and not kept:
            counts = torch.zeros(CLASSES, dtype=torch.int64)
            counts[:7] = self.seen
            kept |= {"counts": counts, "means": self.table.clone()}
        classes = Classes(self.features, self.labels, vocabulary=len(self.weight))
        head = self.head or OutputLayer(self.weight)
        generator = torch.Generator().manual_seed(number)
        return Step(self.features, self.labels, self.sequences, classes, head, number, generator, kept, lambda one: one)


def world(seed: int = 0) -> World:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.tensor([0, 1, 0, 2, 0, 3, 3, 1, 4, 5, 5, 6, 2, 1, 7])
    centres = 2 * normal(CLASSES, DIM)
    return World(
        features=centres[labels] + normal(15, DIM),
        labels=labels,
        sequences=torch.arange(3).repeat_interleave(5),
        weight=normal(CLASSES, DIM) + centres / 4,
        table=centres + normal(CLASSES, DIM) / 2,
    )


def penalty(name: str, given: World) -> Penalty:
    found = INTERVENTIONS[name].penalty(given.step(name))
    assert isinstance(found, Penalty)
    return found


def of_head(found: Penalty, given: World) -> Tensor:
    total = torch.zeros_like(given.weight)
    if found.of_head is not None:
        found.of_head.add_to(total, torch.ones((), dtype=torch.float64))
    return total


def of_features(found: Penalty, given: World) -> Tensor:
    return torch.zeros_like(given.features) if found.of_features is None else found.of_features


def updated_table(given: World) -> Table:
    """The table after the step, class by class from its definition, of the classes that have enough tokens."""
    table = {}
    for c in range(CLASSES):
        own = [feature for feature, label in zip(given.features, given.labels.tolist(), strict=True) if label == c]
        before = given.seen if c < 7 else 0
        if before + len(own) < READY:
            continue
        mean = given.table[c]
        if own:
            share = max(len(own) / (before + len(own)), 1 - 0.9 ** len(own))
            mean = mean + share * (sum(own) / len(own) - mean)
        table[c] = mean
    return table


def expected(name: str, given: World) -> tuple[Tensor, Tensor, Tensor]:
    features, weight = given.features.clone().requires_grad_(), given.weight.clone().requires_grad_()
    value = ORACLES[name](features, given.labels, given.sequences, weight, updated_table(given))
    gradients = torch.autograd.grad(value, [features, weight], allow_unused=True)
    whole = [torch.zeros_like(x) if g is None else g for x, g in zip((features, weight), gradients, strict=True)]
    return value.detach(), whole[0], whole[1]


@pytest.fixture(autouse=True)
def all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `flat` use all tokens of a small step."""
    monkeypatch.setattr(output_layer, "FLAT_TOKENS", 100)


# The catalogue ---------------------------------------------------------------------------------------------------------


def test_every_entry_of_the_catalogue_has_an_oracle() -> None:
    assert set(DEFINED) == set(ORACLES)
    assert len(DEFINED) == 12


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_an_entry_is_complete(name: str) -> None:
    entry = INTERVENTIONS[name]
    assert entry.name == name
    assert entry.words.endswith(".")
    assert entry.formula
    assert entry.source
    assert (entry.primary is None) == (name == "noise")
    if entry.primary is not None:
        assert entry.primary in METRICS
        assert entry.plus in ("falls", "rises")


# The definition --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", DEFINED)
def test_value_and_gradients_are_those_of_the_definition(name: str, seed: int) -> None:
    given = world(seed)
    found, (value, in_features, in_head) = penalty(name, given), expected(name, given)
    assert_close(found.value, value, rtol=1e-10, atol=1e-12)
    assert_close(of_features(found, given), in_features, rtol=1e-9, atol=1e-12)
    assert_close(of_head(found, given), in_head, rtol=1e-9, atol=1e-12)
    assert (name in OF_HEAD) == bool(in_head.any())
    assert bool(in_features.any()) == (name not in ("uniform", "centre"))


@final
class _WithItsGradients(torch.autograd.Function):
    """A penalty as a function of features and output layer, with the gradients that it gives itself."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, name: str, given: World) -> Tensor:
        now = replace(given, features=features, weight=weight, kept={})
        found = penalty(name, now)
        ctx.save_for_backward(of_features(found, now), of_head(found, now))
        return found.value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, Tensor, None, None]:
        in_features, in_head = ctx.saved_tensors
        return outer[0] * in_features, outer[0] * in_head, None, None


@pytest.mark.parametrize("name", DEFINED)
def test_gradients_are_those_of_finite_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of penalties with a table in their first step, where the mean of a class is that of its tokens in the step."""
    monkeypatch.setattr(features, "READY", 1)
    given = replace(world(), seen=0)
    inputs = (given.features.clone().requires_grad_(), given.weight.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda *two: _WithItsGradients.apply(*two, name, given), inputs, eps=1e-6)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", DEFINED)
def test_a_planted_fault_is_seen(name: str) -> None:
    given = world()
    value, in_features, in_head = expected(name, given)
    moved = replace(given, features=given.features + torch.eye(15, DIM, dtype=torch.float64), weight=given.weight + 0.1)
    if name == "uniform":
        moved = replace(given, weight=given.weight + torch.eye(CLASSES, DIM, dtype=torch.float64))
    found = penalty(name, moved)
    with pytest.raises(AssertionError):
        assert_close(found.value, value, rtol=1e-6, atol=1e-9)
    gradients = [of_features(found, moved), of_head(found, moved)]
    with pytest.raises(AssertionError):
        assert_close(gradients, [in_features, in_head])


@pytest.mark.parametrize("name", DEFINED)
def test_a_small_step_against_the_gradient_lowers_the_penalty(name: str) -> None:
    """The gradient is that of the value which is reported, by finite differences: without the table, which moves."""
    given = world(1)
    found = penalty(name, given)
    if name in WITH_TABLE:  # what the table adds is constant: only the output layer can be moved by itself
        moved = replace(given, weight=given.weight - 1e-6 * of_head(found, given), kept={})
        expected_change = -1e-6 * float(of_head(found, given).square().sum())
    else:
        moved = replace(
            given,
            features=given.features - 1e-6 * of_features(found, given),
            weight=given.weight - 1e-6 * of_head(found, given),
            kept={},
        )
        gradients = of_features(found, given), of_head(found, given)
        expected_change = -1e-6 * sum(float(one.square().sum()) for one in gradients)
    change = float(penalty(name, moved).value - found.value)
    assert change == pytest.approx(expected_change, rel=1e-3, abs=1e-13)
    assert name == "uniform_means" or change < 0


@pytest.mark.parametrize("name", DEFINED)
def test_float32_gives_the_same_within_its_rounding(name: str) -> None:
    given = world(2)
    single = replace(
        given, features=given.features.float(), weight=given.weight.float(), table=given.table.float(), kept={}
    )
    found, whole = penalty(name, single), penalty(name, given)
    assert found.value.dtype == torch.float32
    assert_close(found.value.double(), whole.value, rtol=1e-4, atol=1e-5)
    assert_close(of_features(found, single).double(), of_features(whole, given), rtol=1e-3, atol=1e-5)
    assert_close(of_head(found, single).double(), of_head(whole, given), rtol=1e-3, atol=1e-5)


# What must not matter --------------------------------------------------------------------------------------------------

SCALES: dict[str, Callable[[World], World]] = {
    "features": lambda w: replace(w, features=64 * w.features, table=64 * w.table, kept={}),
    "output layer": lambda w: replace(w, weight=64 * w.weight, kept={}),
    "both, the other way": lambda w: replace(
        w, features=8 * w.features, table=8 * w.table, weight=w.weight / 8, kept={}
    ),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", DEFINED)
def test_scale_does_not_matter(name: str, scale: str) -> None:
    given = world(3)
    before, after = penalty(name, given), penalty(name, SCALES[scale](given))
    if name == "flat" and scale != "both, the other way":  # it depends on the predictions, which do
        assert after.value != pytest.approx(float(before.value), rel=1e-3)
    else:
        assert_close(after.value, before.value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(WITHOUT_LABELS))
def test_a_penalty_that_is_blind_to_labels_is(name: str) -> None:
    given = world(1)
    other = replace(given, labels=given.labels.flip(0), kept={})
    assert_close(penalty(name, other).value, penalty(name, given).value)


@pytest.mark.parametrize("name", sorted(set(DEFINED) - WITHOUT_LABELS - {"uniform"}))
def test_one_that_is_not_blind_sees_other_labels(name: str) -> None:
    given = world(1)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    other = replace(given, labels=given.labels[order], kept={})
    assert penalty(name, other).value != pytest.approx(float(penalty(name, given).value), rel=1e-3)


@pytest.mark.parametrize("name", ["within", "floor", "cdnv", "isotropy"])
def test_shifting_all_features_does_not_matter(name: str) -> None:
    given = world(1)
    shifted = replace(given, features=given.features + 100)
    assert_close(penalty(name, shifted).value, penalty(name, given).value, rtol=1e-8, atol=0)


# Known answers ---------------------------------------------------------------------------------------------------------


def test_collapsed_classes_have_nothing_within_them() -> None:
    given = world()
    collapsed = replace(given, features=given.table[given.labels])
    assert float(penalty("within", collapsed).value) == pytest.approx(0, abs=1e-12)
    assert float(penalty("cdnv", collapsed).value) == pytest.approx(0, abs=1e-12)
    assert float(penalty("floor", collapsed).value) == pytest.approx(0.85, abs=1e-12)


def test_classes_without_difference_have_a_within_of_about_one() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat(50)
    features = torch.randn(2000, DIM, generator=generator, dtype=torch.float64)
    many = replace(world(), features=features, labels=labels, weight=torch.ones(40, DIM), sequences=labels * 0)
    assert float(penalty("within", many).value) == pytest.approx(1, abs=0.02)
    assert float(penalty("floor", many).value) == pytest.approx(0, abs=0.02)


def test_centre_is_the_number_of_rows_where_all_are_equal_and_zero_where_they_sum_to_zero() -> None:
    given = world()
    equal = replace(given, weight=given.weight[:1].expand(CLASSES, -1).clone())
    assert float(penalty("centre", equal).value) == pytest.approx(CLASSES, rel=1e-12)
    centred = replace(given, weight=given.weight - given.weight.mean(0))
    assert float(penalty("centre", centred).value) == pytest.approx(0, abs=1e-24)
    assert not of_head(penalty("centre", centred), centred).abs().max() > 1e-12


@pytest.mark.parametrize("name", ["uniform", "centre"])
def test_the_square_of_a_gradient_of_the_output_layer_is_that_of_the_matrix(name: str) -> None:
    given = world()
    found = penalty(name, given)
    assert found.of_head is not None
    assert found.of_head.square is not None
    assert float(found.of_head.square) == pytest.approx(float(of_head(found, given).square().sum()), rel=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_isotropy_is_the_share_of_directions_that_have_variance(rank: int) -> None:
    features = torch.zeros(2 * rank, DIM, dtype=torch.float64)
    features[:rank, :rank] = torch.eye(rank, dtype=torch.float64)
    features[rank:, :rank] = -torch.eye(rank, dtype=torch.float64)
    one = replace(
        world(), features=features + 3, labels=torch.arange(2 * rank) % CLASSES, sequences=torch.zeros(2 * rank).long()
    )
    assert float(penalty("isotropy", one).value) == pytest.approx(-(rank - 1) / (DIM - 1), abs=1e-12)


def test_curvature_is_that_of_a_finite_difference_hessian() -> None:
    """Σ ⟨w_s, w_s'⟩ tr H_{s,s'} = Σ over d of Σ w_{s,i} w_{s',i} ∂²L / ∂W_{s,d} ∂W_{s',d}: along the directions e_d ⊗ w_i."""
    given = world()
    features, labels = given.features, given.labels

    def loss(weight: Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(features @ weight.T, labels))

    trace, size = 0.0, 1e-4
    for d in range(DIM):
        for i in range(DIM):
            direction = torch.zeros_like(given.weight)
            direction[:, d] = given.weight[:, i]
            up, down = loss(given.weight + size * direction), loss(given.weight - size * direction)
            trace += (up + down - 2 * loss(given.weight)) / size**2
    normal = features.square().sum(1).mean() * given.weight.square().sum() / CLASSES
    assert float(penalty("flat", given).value * normal) == pytest.approx(trace, rel=1e-5)


def test_flat_sees_the_output_layer_as_the_model_applies_it() -> None:
    given = world()
    bias = torch.linspace(-1, 1, CLASSES, dtype=torch.float64)
    for head in (OutputLayer(given.weight, bias, 0.5), OutputLayer(given.weight, bias, 0.5, 2.0)):
        features, weight = given.features.clone().requires_grad_(), given.weight.clone().requires_grad_()
        chances = OutputLayer(weight, bias, head.scale, head.softcap).logits(features).softmax(1)
        plain = head.scale * (features @ weight.T + bias)
        slopes = 1.0 if head.softcap is None else 1 - torch.tanh(plain / head.softcap).square()
        mixed = (chances * slopes) @ weight
        parts = (chances * slopes * slopes) @ weight.square().sum(1) - mixed.square().sum(1)
        squares = features.square().sum(1)
        value = (squares * parts).mean() / (squares.mean() * weight.square().sum() / CLASSES)
        in_features, in_head = torch.autograd.grad(value, [features, weight])
        found = penalty("flat", replace(given, head=head, kept={}))
        assert_close(found.value, value.detach())
        sums = OutputCurvature(given.weight, bias, scale=head.scale, softcap=head.softcap).sums(given.features)
        metric = sums.total / sums.squares / sums.row_square
        assert float(found.value) == pytest.approx(metric, rel=1e-9), "what it penalises is what is measured"
        assert_close(of_features(found, given), in_features)
        assert_close(of_head(found, given), in_head)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("uniform", -math.log(2), -math.log(0.01)),
        ("uniform_means", -math.log(2), -math.log(0.01)),
        ("cdnv", 0, 1),
        ("within", 0, 2),
        ("dual", 0, 2),
        ("dual_uniform", 0, 1),
        ("isotropy", -1, 0),
        ("centre", 0, CLASSES),
        ("flat", 0, CLASSES),
    ],
)
def test_a_penalty_that_may_be_made_larger_is_bounded(name: str, low: float, high: float) -> None:
    assert {one for one in INTERVENTIONS if INTERVENTIONS[one].signs == "both"} == {
        "uniform", "uniform_means", "cdnv", "within", "dual", "dual_uniform", "isotropy", "centre", "flat"
    }  # fmt: skip
    for seed in range(10):
        given = world(seed)
        near = given.weight[:1] + 1e-9 * given.weight
        values = [
            float(penalty(name, one).value)
            for one in (
                given,
                replace(given, weight=near, kept={}),
                replace(given, table=given.table[:1] + 1e-3 * given.table, kept={}),
                replace(given, features=given.features[:1] + 1e-3 * given.features, kept={}),
            )
        ]
        assert all(low - 1e-9 <= value <= high + 1e-9 for value in values), values


def test_directions_that_coincide_are_not_torn_apart() -> None:
    given = world()
    doubled = replace(given, weight=torch.cat([given.weight[:1], given.weight[:1], given.weight[2:]]))
    found = penalty("uniform", doubled)
    assert torch.isfinite(found.value)
    assert torch.isfinite(of_head(found, given)).all()
    same = replace(given, features=given.features[:1].expand(15, -1).clone())
    assert torch.isfinite(of_features(penalty("disperse", same), given)).all()
    assert torch.isfinite(of_features(penalty("simreg", same), given)).all()


def test_noise_has_no_direction_and_another_one_at_every_step() -> None:
    given = world()
    drawn = INTERVENTIONS["noise"].penalty(given.step("noise", number=1))
    again = INTERVENTIONS["noise"].penalty(given.step("noise", number=1))
    later = INTERVENTIONS["noise"].penalty(given.step("noise", number=2))
    assert isinstance(drawn, Penalty)
    assert isinstance(again, Penalty)
    assert isinstance(later, Penalty)
    gradients = [of_features(one, given) for one in (drawn, again, later)]
    assert torch.equal(gradients[0], gradients[1])
    assert abs(float((gradients[0] * gradients[2]).sum() / gradients[0].norm() / gradients[2].norm())) < 0.5
    assert_close(drawn.value, (gradients[0] * given.features).sum())


# Too little to act on --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 3, 4, 5, 6, 7]], ids=["no class twice", "one"])
@pytest.mark.parametrize("name", ["within", "floor", "cdnv"])
def test_fewer_than_two_repeated_classes_are_nothing_to_act_on(name: str, labels: list[int]) -> None:
    given = world()
    few = replace(given, features=given.features[:8], labels=torch.tensor(labels), sequences=given.sequences[:8])
    assert INTERVENTIONS[name].penalty(few.step(name)) is None


def test_a_sequence_without_a_repeated_label_is_nothing_for_simreg() -> None:
    given = world()
    few = replace(given, features=given.features[:4], labels=torch.arange(4), sequences=given.sequences[:4])
    assert_cannot_act(INTERVENTIONS["simreg"].penalty(few.step("simreg")))
    alone = replace(few, sequences=torch.arange(4))
    assert INTERVENTIONS["disperse"].penalty(alone.step("disperse")) is None


@pytest.mark.parametrize("name", sorted(WITH_TABLE))
def test_a_mean_is_used_from_five_tokens_on(name: str) -> None:
    given = world()
    kept: dict[str, Tensor] = {}
    acted = []
    for number in range(4):
        step = replace(given.step(name, number=number), kept=kept)
        acted.append(INTERVENTIONS[name].penalty(step) is not None)
    # Classes 0 and 1 have three tokens a step, so both have five in the second.
    assert acted == [False, True, True, True]
    assert kept["means"].dtype == torch.float32
    assert kept["counts"].tolist() == [12, 12, 8, 8, 4, 8, 4, 4, 0]


def test_the_share_of_a_class_in_floor_is_a_moving_average_over_its_tokens() -> None:
    """The plain mean of all steps at first; what is far back counts less. The gradient is of classes below on average."""
    kept: dict[str, Tensor] = {}
    averages, freedoms = torch.zeros(CLASSES, dtype=torch.float64), torch.zeros(CLASSES)
    for seed in range(12):
        given = world(seed)
        found = INTERVENTIONS["floor"].penalty(replace(given.step("floor"), kept=kept))
        total = sum_of_squares(given.features[given.labels.bincount()[given.labels] >= 2])
        value = 0.0
        for c in range(CLASSES):
            own = given.features[given.labels == c]
            if len(own) >= 2:
                freedoms[c] += len(own) - 1
                share = float(sum_of_squares(own) / (len(own) - 1) / (total / 11))
                moved = max((len(own) - 1) / float(freedoms[c]), 1 - 0.95 ** (len(own) - 1))
                averages[c] += moved * (share - averages[c])
                value += (len(own) - 1) * max(0.0, 0.85 - float(averages[c])) / 7
        assert isinstance(found, Penalty)
        assert float(found.value) == pytest.approx(value, rel=1e-9)
        touched = of_features(found, given)[given.labels == 0] - of_features(found, given)[given.labels == 0].mean(0)
        spread = given.features[given.labels == 0] - given.features[given.labels == 0].mean(0)
        below = bool(averages[0] < 0.85)
        assert bool(float((touched * spread).sum()) < 0) == below
    assert kept["shares"].shape == (2, CLASSES)


def sum_of_squares(rows: Tensor) -> Tensor:
    return (rows - rows.mean(0)).square().sum()


def test_features_that_are_all_equal_are_nothing_to_act_on() -> None:
    given = world()
    equal = replace(given, features=torch.ones_like(given.features))
    for name in ("within", "floor", "isotropy"):
        assert_cannot_act(INTERVENTIONS[name].penalty(equal.step(name)))


def assert_cannot_act(found: object) -> None:
    """Whether features vary is not known without a wait for the device: the value is nan, and no feature is moved."""
    assert isinstance(found, Penalty)
    assert found.value.isnan()
    assert found.of_features is not None
    assert not found.of_features.any()


# Sequences of several lengths, many rows, shams ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["simreg", "disperse"])
def test_sequences_may_differ_in_length(name: str) -> None:
    given = replace(world(), sequences=torch.tensor([0] * 7 + [1] * 2 + [2] + [4] * 5))
    found = penalty(name, given)
    features = given.features.clone().requires_grad_()
    known = torch.ones(15, dtype=torch.bool)
    known[9] = name == "simreg"  # a sequence of one token has no pair
    value = ORACLES[name](features[known], given.labels[known], given.sequences[known])
    assert_close(found.value, value.detach())
    assert_close(of_features(found, given), torch.autograd.grad(value, features)[0])


@pytest.mark.parametrize(("vocabulary", "tokens"), [(20_000, 256), (500, 73)])
@pytest.mark.parametrize("name", ["simreg", "disperse"])
def test_of_a_long_sequence_some_tokens_are_drawn_more_where_the_step_is_large(
    name: str, vocabulary: int, tokens: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(700, DIM, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (700,), generator=generator)
    weight = torch.ones(vocabulary, DIM, dtype=torch.float64)
    given = replace(
        world(), features=features, labels=labels, sequences=(torch.arange(700) >= 600).long(), weight=weight
    )
    touched = of_features(penalty(name, given), given).any(1)
    assert int(touched[:600].sum()) == tokens
    assert int(touched[600:].sum()) == min(tokens, 100)


def test_rows_beyond_the_number_compared_are_drawn_at_every_step() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3000, DIM, generator=generator, dtype=torch.float64)
    labels = torch.arange(3000)
    given = replace(world(), features=weight.clone(), labels=labels, weight=weight, sequences=labels * 0)
    found = [INTERVENTIONS["uniform"].penalty(replace(given.step("uniform", number=n), kept={})) for n in (1, 1, 2)]
    rows = [one.of_head.rows for one in found if isinstance(one, Penalty)]  # type: ignore[union-attr]
    assert [len(one) for one in rows] == [512] * 3
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
    assert len(rows[2].unique()) == 512


def test_flat_takes_fewer_tokens_where_the_vocabulary_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_layer, "FLAT_TOKENS", 8)
    given = world()
    many = replace(given, features=given.features.repeat(40, 1), labels=given.labels.repeat(40))
    for repeats, tokens in ((1, 400), (16, 100), (1000, 13)):
        found = penalty("flat", replace(many, weight=given.weight.repeat(repeats, 1), kept={}))
        assert int(of_features(found, many).any(1).sum()) == tokens


def test_only_classes_that_were_seen_are_spread() -> None:
    given = world()
    found = penalty("uniform", given)
    assert of_head(found, given).any(1).tolist() == [True] * 8 + [False]


@pytest.mark.parametrize("name", ["within", "dual", "simreg"])
def test_a_sham_keeps_the_counts_of_labels_and_not_the_labels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Step] = []
    real = INTERVENTIONS[name]
    monkeypatch.setitem(INTERVENTIONS, name, replace(real, penalty=lambda step: seen.append(step)))
    given = world()
    classes = Classes(given.features, given.labels, vocabulary=CLASSES)
    tokens = Tokens(given.features, given.labels, given.sequences, classes, OutputLayer(given.weight))
    for sham in (False, True):
        term = Term(Dose(name, 0.1, sham), seed=0, steps=100)
        term.begin_step(3, StepNorm("features", given.weight, parts=1))
        term.penalty(tokens, lambda one: one)
    plain, sham_step = seen
    assert plain.classes is classes
    assert torch.equal(plain.labels, given.labels)
    assert not torch.equal(sham_step.labels, given.labels)
    assert torch.equal(sham_step.classes.labels, sham_step.labels)
    assert torch.equal(sham_step.classes.counts, classes.counts)
