"""The loss with interventions: against gradients taken by hand, and in whole trainings of toys added from outside."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from collapselab.core.batch import IGNORED
from collapselab.errors import Interrupted, RunError
from collapselab.models.taps import OutputLayer
from collapselab.records.run import RunFolder
from collapselab.training.checkpointing import Checkpointing
from collapselab.training.interventions import INTERVENTIONS, Intervention
from collapselab.training.interventions.step import Step
from collapselab.training.objective import Objective
from collapselab.training.settings import settings_from
from training import two_processes
from training.runs import assert_same_bits, logged, run, weights


def norm(step: Step) -> Tensor:
    return step.features.square().mean()


def classes(step: Step) -> Tensor:
    """Squared distance of the features of a class from the mean that is kept of it: a penalty with labels and memory."""
    vocab, dim = step.head.weight.shape
    means = step.kept.setdefault("means", step.features.new_zeros(vocab, dim))
    sums = torch.zeros_like(means).index_add_(0, step.labels, step.features.detach())
    counts = step.total(torch.bincount(step.labels, minlength=vocab).float())
    means.lerp_(step.total(sums) / counts.clamp(min=1)[:, None], 0.1 * (counts > 0)[:, None])
    return (step.features - means[step.labels]).square().mean()


def rows(step: Step) -> Tensor:
    return step.head.weight.square().mean()


def seldom(step: Step) -> Tensor | None:
    return None if step.number % 3 else step.features.square().mean()


TOYS = [
    Intervention(penalty.__name__, "For tests.", "", "ours", "cdnv", "both", penalty)
    for penalty in (norm, classes, rows, seldom)
]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss terms added from outside, by their entries alone."""
    for toy in TOYS:
        monkeypatch.setitem(INTERVENTIONS, toy.name, toy)
    monkeypatch.setitem(INTERVENTIONS, "rows", replace(TOYS[2], dose_over="head"))


# One step, by hand -----------------------------------------------------------------------------------------------------


def world(*intervene: str) -> tuple[Objective, Tensor, Tensor, Tensor]:
    """An objective that has seen its first steps, features (2 × 5 tokens × 4), labels with padding, and the weight."""
    torch.manual_seed(0)
    features, weight = torch.randn(2, 5, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    labels = torch.randint(7, (2, 5))
    labels[1, 3:] = IGNORED
    settings = settings_from({"width": 16, "depth": 1, "intervene": intervene})
    objective = Objective(OutputLayer(weight), settings, steps=100)
    for step in range(20):
        taken(objective, step, features, labels, weight)
    return objective, features, labels, weight


def taken(objective: Objective, step: int, features: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    features.grad = weight.grad = None
    objective.begin_step(step)
    objective(features, labels).backward()
    objective.end_step()
    assert features.grad is not None
    assert weight.grad is not None
    return features.grad, weight.grad


def cross_entropy(features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    return F.cross_entropy((features @ weight.T).reshape(-1, 7), labels.reshape(-1), ignore_index=IGNORED)


@pytest.mark.parametrize("dose", [0.3, -0.3])
def test_the_gradient_is_that_of_cross_entropy_and_the_penalty_at_its_dose(dose: float) -> None:
    objective, features, labels, weight = world(f"norm:{dose:+}")
    of_features, of_weight = taken(objective, 20, features, labels, weight)
    expected, plain = torch.autograd.grad(cross_entropy(features, labels, weight), [features, weight])
    (penalty,) = torch.autograd.grad(features[labels != IGNORED].square().mean(), features)
    assert_close(of_features, expected + dose * penalty * expected.norm() / penalty.norm())
    assert_close(of_weight, plain)


def test_a_penalty_of_the_output_layer_has_its_dose_over_that_layers_gradient() -> None:
    objective, features, labels, weight = world("rows:+0.3")
    of_features, of_weight = taken(objective, 20, features, labels, weight)
    plain, expected = torch.autograd.grad(cross_entropy(features, labels, weight), [features, weight])
    assert_close(of_weight, expected + 0.3 * weight * expected.norm() / weight.norm())
    assert_close(of_features, plain)


def test_the_value_is_plain_cross_entropy() -> None:
    objective, features, labels, weight = world("norm:+0.3", "rows:-0.1")
    objective.begin_step(20)
    assert_close(objective(features, labels), cross_entropy(features, labels, weight))


def test_in_its_first_twenty_steps_a_penalty_does_not_act() -> None:
    objective, features, labels, weight = world("norm:+0.3")
    fresh = Objective(objective.head, settings_from({"width": 16, "depth": 1, "intervene": ["norm:+0.3"]}), steps=100)
    plain = Objective(objective.head, settings_from({"width": 16, "depth": 1}), steps=100)
    expected = taken(plain, 0, features, labels, weight)
    for step in range(20):
        assert all(map(torch.equal, taken(fresh, step, features, labels, weight), expected))
    assert not torch.equal(taken(fresh, 20, features, labels, weight)[0], expected[0])


def test_the_dose_starts_from_the_median_of_the_first_twenty_steps() -> None:
    settings = settings_from({"width": 16, "depth": 1, "intervene": ["norm:+0.3"]})
    _, features, labels, weight = world()
    objective, ratios = Objective(OutputLayer(weight), settings, steps=100), []
    for step in range(20):
        scaled = (features.detach() * (1 + step**2)).requires_grad_()
        taken(objective, step, scaled, labels, weight)
        (of_loss,) = torch.autograd.grad(cross_entropy(scaled, labels, weight), scaled)
        (of_penalty,) = torch.autograd.grad(scaled[labels != IGNORED].square().mean(), scaled)
        ratios.append(math.log(float(of_loss.norm() / of_penalty.norm())))
    objective.begin_step(20)
    middle = sorted(ratios)[9:11]
    assert objective.terms[0].factor == pytest.approx(0.3 * math.exp(sum(middle) / 2), rel=1e-5)


def test_parts_of_a_step_add_up_to_the_step() -> None:
    objective, features, labels, weight = world("norm:+0.3", "rows:+0.3")
    labels = labels.clamp(min=0)  # parts with equally many labels
    whole = taken(objective, 20, features, labels, weight)
    before = objective.log_values()
    for name, value in before.items():
        assert value == value, name
    features.grad = weight.grad = None
    again, *_ = world("norm:+0.3", "rows:+0.3")
    again.head, again.parts = OutputLayer(weight), 2
    again.begin_step(20)
    for part in range(2):
        (again(features[part : part + 1], labels[part : part + 1]) / 2).backward()
    compared = {one.name: one for one in again.end_step()[0]}
    assert features.grad is not None
    assert weight.grad is not None
    assert_close(features.grad, whole[0])
    assert_close(weight.grad, whole[1])
    of_features, of_weight = torch.autograd.grad(cross_entropy(features, labels, weight), [features, weight])
    assert compared["norm"].of_loss == pytest.approx(float(of_features.norm()), rel=1e-5)
    assert compared["rows"].of_loss == pytest.approx(float(of_weight.norm()), rel=1e-5)


def test_a_sham_has_the_labels_of_its_batch_in_another_order() -> None:
    seen: dict[str, list[Tensor]] = {"norm:+0": [], "norm:+0:sham": []}
    for text, labels_seen in seen.items():
        with pytest.MonkeyPatch.context() as patch:
            note = replace(TOYS[0], penalty=lambda step, to=labels_seen: (to.append(step.labels), norm(step))[1])
            patch.setitem(INTERVENTIONS, "norm", note)
            world(text)
            world(text)
    real, sham = seen["norm:+0"], seen["norm:+0:sham"]
    assert all(torch.equal(one, real[0]) for one in real)
    assert all(torch.equal(one.sort().values, real[0].sort().values) for one in sham)
    assert not torch.equal(sham[0], real[0])
    assert not torch.equal(sham[0], sham[1])  # another order in each step
    assert all(map(torch.equal, sham[:20], sham[20:]))  # and the same one in the same step


def test_what_an_intervention_draws_follows_from_seed_step_and_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[float]] = []

    def note(step: Step) -> Tensor:
        drawn.append(torch.rand(3, generator=step.generator).tolist())
        return norm(step)

    for name in ("norm", "rows"):
        monkeypatch.setitem(INTERVENTIONS, name, replace(TOYS[0], name=name, penalty=note))

    def numbers(*intervene: str, seed: int = 0, step: int = 40, before: int = 0) -> list[float]:
        torch.manual_seed(before)
        features, weight = torch.randn(2, 5, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
        settings = settings_from({"width": 16, "depth": 1, "seed": seed, "intervene": intervene})
        objective = Objective(OutputLayer(weight), settings, steps=100)
        for number in range(step - before, step + 1):
            taken(objective, number, features, torch.randint(7, (2, 5)), weight)
        return drawn[-1]

    known = numbers("norm:+0.1")
    assert numbers("norm:+0.1", before=3) == known, "other data, other numbers drawn elsewhere, and steps before it"
    assert numbers("norm:-0.3:sham") == known, "another dose"
    assert numbers("classes:+0.1", "norm:+0.1") == known, "another intervention beside it"
    assert numbers("norm:+0.1", seed=1) != known
    assert numbers("norm:+0.1", step=41) != known
    assert numbers("rows:+0.1") != known


# Whole trainings -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_thread")
def test_a_loss_term_is_an_entry_its_dose_is_held_and_it_moves_what_it_penalises(
    corpus_folder: Path, tmp_path: Path
) -> None:
    runs = {dose: tmp_path / dose for dose in ("norm:+1", "norm:-1")}
    for dose, out in runs.items():
        run(corpus_folder, out, intervene=[dose], steps=80, lr=1e-2, options={"log_every": 1})
        rho, factors = logged(out, "norm/rho"), logged(out, "norm/lambda")
        assert len(rho) == 80
        assert rho[:20] == factors[:20] == [0.0] * 20
        held = sum(rho[20:]) / 60
        assert held == pytest.approx(float(dose.removeprefix("norm:")), rel=0.2)
    shorter, longer = (logged(out, "norm/penalty")[-1] for out in runs.values())
    assert shorter < 0.9 * longer
    assert {entry["norm/idle_steps"] for entry in RunFolder(out).read_log() if "loss" in entry} == {0}


@pytest.mark.usefixtures("one_thread")
def test_a_dose_of_0_is_the_run_without_it_bit_for_bit(corpus_folder: Path, tmp_path: Path) -> None:
    doses = {"none": [], "zero": ["norm:0", "classes:0:sham", "rows:0"]}
    for name, intervene in doses.items():
        run(corpus_folder, tmp_path / name, intervene=intervene, steps=30, dropout=0.1)
    assert_same_bits(weights(tmp_path / "none"), weights(tmp_path / "zero"))
    assert logged(tmp_path / "none", "loss") == logged(tmp_path / "zero", "loss")
    assert logged(tmp_path / "zero", "classes/penalty")


@pytest.mark.usefixtures("one_thread")
def test_sham_and_real_begin_alike_and_differ(corpus_folder: Path, tmp_path: Path) -> None:
    for name, text in (("real", "classes:+0.3"), ("sham", "classes:+0.3:sham")):
        run(corpus_folder, tmp_path / name, intervene=[text], steps=30)
    real, sham = (logged(tmp_path / name, "loss") for name in ("real", "sham"))
    assert real[:20] == sham[:20]
    assert real[22:] != sham[22:]
    assert_same_bits(weights(tmp_path / "real", first=True), weights(tmp_path / "sham", first=True))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("after", [7, 25])
def test_stopped_among_its_first_steps_or_while_it_acts_it_goes_on_to_the_same_bits(
    after: int, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"intervene": ["classes:-0.3:sham", "rows:+0.1@0.6-1"], "steps": 40}
    values |= {"options": {"log_every": 4}, "clip": 0.9}
    run(corpus_folder, tmp_path / "whole", **values)
    with monkeypatch.context() as patch:
        real = Checkpointing.on_step_end

        def stop(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.stop = state.global_step == after
            real(self, args, state, control, **rest)

        patch.setattr(Checkpointing, "on_step_end", stop)
        with pytest.raises(Interrupted):
            run(corpus_folder, tmp_path / "stopped", **values)
    run(corpus_folder, tmp_path / "stopped", **values)
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    for name in ("loss", "classes/lambda", "classes/rho", "classes/penalty", "rows/lambda", "rows/rho"):
        assert logged(tmp_path / "whole", name) == logged(tmp_path / "stopped", name) != []
    assert logged(tmp_path / "whole", "clipped") == logged(tmp_path / "stopped", "clipped")
    assert set(logged(tmp_path / "whole", "clipped")) > {0.0}
    shares = [_clipped_of_last(tmp_path / name) for name in ("whole", "stopped")]
    assert shares[0] == shares[1]
    assert shares[0]
    assert logged(tmp_path / "whole", "rows/lambda")[-1] != 0


def _clipped_of_last(out: Path) -> float | None:
    record = RunFolder(out).checkpoint(RunFolder(out).checkpoint_names()[-1])
    return None if record is None else record.clipped


@pytest.mark.usefixtures("one_thread")
def test_the_live_line_shows_the_step_and_the_cross_entropy_alone(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    @contextmanager
    def noting(*_: Any, **__: Any) -> Iterator[Any]:
        yield lambda amount, note="": notes.append(note)

    monkeypatch.setattr("collapselab.training.train.progress", noting)
    run(corpus_folder, tmp_path / "run", intervene=["norm:+0.3@0.5-0.9"], steps=60, options={"log_every": 1})
    losses = logged(tmp_path / "run", "loss")
    assert [note for note in notes if note] == [f"step {n}/60  loss {loss:.3f}" for n, loss in enumerate(losses, 1)]


@pytest.mark.usefixtures("one_thread")
def test_steps_in_which_a_penalty_cannot_act_are_counted_and_said_once(
    corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(corpus_folder, tmp_path / "run", intervene=["seldom:+0.1"], steps=30)
    assert logged(tmp_path / "run", "seldom/idle_steps")[-1] == 20
    assert capsys.readouterr().err.count("seldom had no penalty with a gradient in step 2.") == 1


@pytest.mark.usefixtures("one_thread")
def test_a_penalty_that_is_not_finite_stops_before_the_update(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        INTERVENTIONS,
        "norm",
        replace(TOYS[0], penalty=lambda step: norm(step) * (math.nan if step.number == 22 else 1)),
    )
    with pytest.raises(RunError, match=r"run: the penalty norm is nan at step 23\. Stopped before the update"):
        run(corpus_folder, tmp_path / "run", intervene=["norm:+0.1"], steps=30)


@pytest.mark.usefixtures("one_thread")
def test_accumulation_divides_a_step_and_leaves_the_dose_what_it_is(corpus_folder: Path, tmp_path: Path) -> None:
    for parts in (1, 4):
        options = {"accumulation": parts, "log_every": 1}
        run(corpus_folder, tmp_path / str(parts), intervene=["norm:+0.3", "rows:+0.1"], steps=26, options=options)
    for name in ("loss", "norm/lambda", "rows/lambda"):  # each part's penalty is the mean of as many numbers
        assert_close(logged(tmp_path / "4", name), logged(tmp_path / "1", name), rtol=1e-3, atol=0)


@pytest.mark.slow
def test_two_processes_hold_the_dose_of_one(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = str(Path(two_processes.__file__))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29518", script]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    command += [str(corpus_folder), str(tmp_path / "2")]
    subprocess.run(command, check=True, capture_output=True, timeout=240, env=env)
    with monkeypatch.context() as patch:
        for name in ("kept", "rows"):
            patch.setitem(INTERVENTIONS, name, TOYS[0])
        two_processes.add_toys()
        two_processes.train_with_toys(corpus_folder, tmp_path / "1")
    for name in ("loss", "kept/lambda", "kept/penalty", "kept/rho", "rows/lambda", "rows/rho"):
        assert_close(logged(tmp_path / "2", name), logged(tmp_path / "1", name), rtol=1e-3, atol=0)
    assert logged(tmp_path / "1", "rows/rho")[-1] > 0
