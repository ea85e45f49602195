import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Adam, AdamW

from collapselab.errors import ConfigError
from collapselab.training import Choice
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import settings_from
from training.runs import assert_same_bits, run, run_in_two, weights

QUICK = """
import sys
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training import Choice
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import settings_from
settings_from({"width": 16, "depth": 1, "optimizer": "sgd", "head": "learned", "intervene": []})
print("torch" in sys.modules)
"""


def test_a_further_optimiser_is_a_function_and_an_entry(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that moves every weight by -lr · sign(gradient): after one step, each has moved by lr or not at all."""

    class Sign(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(group["lr"] * parameter.grad.sign())

    sign = Choice(lambda groups, settings: Sign(groups, {"lr": settings.lr}), "For tests.", "", "ours")
    monkeypatch.setitem(OPTIMIZERS, "sign", sign)
    run(corpus_folder, tmp_path / "run", optimizer="sign", steps=1, lr=2.0**-10)
    before, after = weights(tmp_path / "run", first=True), weights(tmp_path / "run")
    moved = torch.cat([(after[name] - before[name]).abs().flatten() for name in before])
    assert ((moved == 0) | ((moved - 2.0**-10).abs() < 1e-6)).all()
    assert (moved > 0).float().mean() > 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "adanw",
            "optimizer: 'adanw' is not valid: did you mean adamw\\? Choose from adamw, adam, sgd, coupled-adam\\.",
        ),
        ("lion", "optimizer: 'lion' is not valid: choose from adamw, adam, sgd, coupled-adam\\."),
        (3, "optimizer: 3 is not valid: input should be a valid string"),
    ],
)
def test_an_optimiser_that_there_is_not_is_named_with_the_nearest(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({"width": 16, "depth": 1, "optimizer": given})


def test_settings_are_checked_against_the_tables_without_torch() -> None:
    result = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "coupling"), [("adamw", 0.0), ("adamw", 0.5), ("adam", 0.0), ("sgd", 0.0), ("coupled-adam", 0.0)]
)
def test_the_decay_is_not_part_of_the_clipped_gradient(
    optimizer: str, coupling: float, corpus_folder: Path, tmp_path: Path
) -> None:
    """With the gradient clipped to nothing, what is left of a step is the decay: `clipped` says nothing about it."""
    values = {"optimizer": optimizer, "coupling": coupling, "steps": 1, "lr": 2.0**-6, "clip": 1e-30}
    run(corpus_folder, tmp_path / "decay", **values, weight_decay=0.5)
    run(corpus_folder, tmp_path / "none", **values, weight_decay=0.0)
    before, after = weights(tmp_path / "decay", first=True), weights(tmp_path / "decay")
    name = "transformer.h.0.attn.attention.out_proj.weight"
    moved = (after[name] - before[name]) / -before[name]
    if optimizer == "adam":  # a normalised gradient moves every weight by the rate, and this one is the decay's
        assert ((after[name] - before[name]).abs() > 0.9 * 2.0**-6).float().mean() > 0.9
    elif coupling == 0:
        torch.testing.assert_close(moved, torch.full_like(moved, 0.5 * 2.0**-6), rtol=1e-2, atol=1e-5)
    assert_same_bits({name: weights(tmp_path / "none")[name]}, {name: before[name]})
    assert not torch.equal(after[name], before[name])


def row_sum(of: dict[str, Tensor], name: str = "lm_head.weight") -> float:
    """‖Σ_c w_c‖² of the output layer."""
    return float(of[name].double().sum(0).square().sum())


def shrinkage(lr: float, decay: float, steps: int) -> float:
    """Π (1 - ηλ)² over a linear schedule."""
    product = 1.0
    for step in range(steps):
        product *= (1 - lr * (1 - step / steps) * decay) ** 2
    return product


@pytest.mark.parametrize(
    ("optimizer", "tied", "shrinks"),
    [("coupled-adam", False, True), ("adamw", False, False), ("coupled-adam", True, False)],
)
def test_only_untied_coupled_adam_changes_the_sum_of_rows_by_the_decay_alone(
    optimizer: str, tied: bool, shrinks: bool, corpus_folder: Path, tmp_path: Path
) -> None:
    """Stollenwerk & Stollenwerk: ‖Σ w_c‖² shrinks by Π(1 - ηλ)², as the updates of all rows sum to zero."""
    run(corpus_folder, tmp_path, optimizer=optimizer, tied=tied, steps=30, lr=1e-2, weight_decay=3.0)
    name = "transformer.wte.weight" if tied else "lm_head.weight"
    before, after = (row_sum(weights(tmp_path, first=first), name) for first in (True, False))
    expected = shrinkage(1e-2, 3.0, 30)
    assert 0.1 < expected < 0.9
    assert (abs(after / before / expected - 1) < 1e-4) is shrinks
    if not shrinks:
        assert abs(after / before / expected - 1) > 0.1


def test_coupled_adam_is_adam_with_one_second_moment_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the definition in loops, in double precision; the other parameter is left to AdamW."""
    generator = torch.Generator().manual_seed(0)
    rows, other = (torch.randn(5, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    reference = other.detach().clone().requires_grad_()
    groups = [{"params": [other, rows], "weight_decay": 0.1, "vocabulary": [1]}]
    settings = settings_from({"width": 16, "depth": 1, "optimizer": "coupled-adam", "lr": 1e-2})
    ours, theirs = (
        OPTIMIZERS["coupled-adam"].make(groups, settings),
        AdamW([reference], lr=1e-2, weight_decay=0.1, fused=True),
    )
    w, m, v = rows.detach().clone().tolist(), [[0.0] * 3 for _ in range(5)], [0.0] * 3
    for step in range(1, 5):
        gradient = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        rows.grad, other.grad, reference.grad = gradient.clone(), gradient.clone(), gradient.clone()
        ours.step()
        theirs.step()
        assert torch.equal(rows.grad, gradient)
        for d in range(3):
            v[d] = 0.999 * v[d] + 0.001 * sum(float(gradient[c, d]) ** 2 for c in range(5)) / 5
            for c in range(5):
                m[c][d] = 0.9 * m[c][d] + 0.1 * float(gradient[c, d])
                divisor = (v[d] / (1 - 0.999**step)) ** 0.5 + 1e-8
                w[c][d] = (1 - 1e-3) * w[c][d] - 1e-2 * m[c][d] / (1 - 0.9**step) / divisor
    torch.testing.assert_close(rows.detach(), torch.tensor(w, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    assert torch.equal(other, reference)


@pytest.mark.slow
@pytest.mark.parametrize(("coupling", "same_as"), [(0.0, "adamw"), (1.0, "adam")])
def test_the_ends_of_coupling_are_adamw_and_adam_to_the_bit(
    coupling: float, same_as: str, corpus_folder: Path, tmp_path: Path
) -> None:
    run(corpus_folder, tmp_path / "ours", coupling=coupling, weight_decay=0.5)
    run(corpus_folder, tmp_path / "theirs", optimizer=same_as, weight_decay=0.5)
    run(corpus_folder, tmp_path / "between", coupling=0.5, weight_decay=0.5)
    assert_same_bits(weights(tmp_path / "ours"), weights(tmp_path / "theirs"))
    between = weights(tmp_path / "between")
    assert any(not torch.equal(one, between[name]) for name, one in weights(tmp_path / "ours").items())


def test_coupling_puts_its_share_of_the_decay_into_the_gradient() -> None:
    """λ r w is added to the gradient that Adam sees, and w shrinks by η λ (1 - r)."""
    start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    settings = settings_from({"width": 16, "depth": 1, "lr": 1e-2, "coupling": 0.25})
    optimizer = OPTIMIZERS["adamw"].make([{"params": [ours], "weight_decay": 0.4, "vocabulary": []}], settings)
    reference = Adam([theirs], lr=1e-2)
    for gradient in torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)):
        ours.grad, theirs.grad = gradient.clone(), gradient + 0.4 * 0.25 * theirs.detach()
        with torch.no_grad():
            theirs.mul_(1 - 1e-2 * 0.4 * 0.75)
        optimizer.step()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("one_thread")
def test_at_rest_the_sum_of_rows_falls_with_the_coupling_to_zero() -> None:
    """At rest g_c = −λ(r + (1 − r)√v_c) w_c, and the g_c of a softmax sum to 0: so do the w_c where r is above √v_c.

    A softmax regression on fixed features, 30 classes of unequal frequency: all data at every step, a rate that goes to 0.
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(1 / torch.arange(1.0, 31.0), 600, replacement=True, generator=generator)
    centres, noise = (torch.randn(size, 8, generator=generator, dtype=torch.float64) for size in (30, 600))
    features = torch.nn.functional.layer_norm(0.7 * centres[labels] + noise, (8,)) + 0.5
    shares, sums = (0.0, 0.01, 0.1, 1.0), []
    for share in shares:
        weight = torch.zeros(30, 8, dtype=torch.float64).requires_grad_()
        settings = settings_from({"width": 16, "depth": 1, "lr": 5e-3, "coupling": share})
        optimizer = OPTIMIZERS["adamw"].make([{"params": [weight], "weight_decay": 0.05, "vocabulary": []}], settings)
        for step in range(1500):
            optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / 1500)
            (weight.grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(features @ weight.T, labels), weight)
            optimizer.step()
        rows = weight.detach()
        sums.append(float(rows.sum(0).norm() / rows.norm()))
    assert sums == sorted(sums, reverse=True), sums
    assert sums[0] > 0.5, sums
    assert sums[-1] < 0.002, sums


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"optimizer": "coupled-adam", "tied": False}, {"coupling": 0.5}])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_stopped_training_goes_on_to_the_same_bits(
    values: dict[str, Any], precision: str, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(corpus_folder, tmp_path / "whole", precision=precision, **values)
    run_in_two(corpus_folder, tmp_path / "two", monkeypatch, precision=precision, **values)
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "two"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"coupling": 1.5}, "coupling must be ≤ 1, got 1.5"),
        (
            {"coupling": 0.5, "optimizer": "sgd"},
            "coupling: 0.5 is a share of the decay of adamw or coupled-adam; sgd has",
        ),
        (
            {"coupling": 1.0, "optimizer": "adam"},
            "coupling: 1 is a share of the decay of adamw or coupled-adam; adam has",
        ),
    ],
)
def test_a_coupling_that_means_nothing_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({"width": 16, "depth": 1} | values)
