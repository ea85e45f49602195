from collections.abc import Sequence
from typing import Any

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.curves import Finding, diagnose
from collapselab.analysis.models import combine
from collapselab.records.tables import Row, Run


def findings(runs: list[Run], rows: list[Row]) -> dict[str, Finding]:
    return {finding.run: finding for finding in diagnose(combine(runs, rows))}


def checkpoints(name: str, *losses: float, **given: Any) -> list[Run]:
    return [
        run_of(name, checkpoint=str(e), epoch=float(e), epochs=float(len(losses) - 1), val_loss=loss, **given)
        for e, loss in enumerate(losses)
    ]


def of_seeds(rises: Sequence[float], *, value: float = 0.3, noise: float = 0.0) -> Finding:
    """Seeds whose loss is flat until half of eight epochs and then rises by this share; they share the noise."""
    runs = []
    for seed, rise in enumerate(rises):
        after = [1 + rise * step / 4 for step in range(5)]
        losses = [share * (1 + noise * (-1) ** at) for at, share in enumerate([1.5, 1, 1, 1, *after])]
        runs += checkpoints(str(seed), *(2 * loss for loss in losses), seed=seed)
    found = findings(runs, [row_of(run, "cdnv_log", value, null=1.1) for run in runs])
    return found["0"]


def test_a_loss_that_rises_in_all_five_seeds_is_over_fitted() -> None:
    """One of 32 sign patterns has a mean as large."""
    finding = of_seeds([0.2, 0.21, 0.19, 0.22, 0.18])
    assert finding.found is True
    assert "val_loss +20.0% from epoch 4 to 8 (5 seeds)" in finding.evidence


@pytest.mark.parametrize(
    ("rises", "answer"),
    [
        ([0.2, 0.2, 0.2, 0.2], None),
        ([0.2, 0.2, 0.2, 0.2, -0.01], False),
        ([0.5, 0.4, 0.1, 0.1, -0.2, -0.3, 0.2], False),
        ([0.009] * 6, False),
        ([-0.1] * 6, False),
        ([0.2, 0.2, 0.2, 0.2, 0.2, -0.01], True),
        ([0.2] * 5, True),
    ],
)
def test_seeds_decide_whether_a_rise_is_more_than_noise(rises: list[float], answer: bool | None) -> None:
    assert of_seeds(rises).found is answer


def test_noise_that_all_seeds_share_is_not_a_rise() -> None:
    """A rise of 3 % in every seed is one where checkpoints are smooth, and none where all of them jump by 4 %."""
    assert of_seeds([0.03] * 8).found is True
    assert of_seeds([0.03] * 8, noise=0.02).found is False


def test_the_best_checkpoint_is_no_reference() -> None:
    """The loss at epoch 3 is far below the last one in every seed; only epoch 4, half of the training, counts."""
    losses = (3.0, 2.5, 1.5, 2.1, 2.08, 2.06, 2.04, 2.02)
    runs = [run for seed in range(8) for run in checkpoints(f"{seed}", *losses, seed=seed)]
    found = findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])
    assert found["0"].found is False


def test_few_checkpoints_cannot_be_judged() -> None:
    runs = [run for seed in range(8) for run in checkpoints(f"{seed}", 2.0, 2.0, 2.5, seed=seed)]
    assert findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])["0"].found is None


def test_a_single_run_is_never_called_over_fitted() -> None:
    runs = checkpoints("risen", 5.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8)
    found = findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])
    assert found["risen"].found is None


def test_a_risen_loss_with_loose_classes_is_not_called_over_fitted() -> None:
    assert of_seeds([0.2] * 5, value=1.3).found is False


def test_what_was_not_measured_is_unknown() -> None:
    runs = [run for seed in range(5) for run in checkpoints(f"{seed}", 3.0, 2.0, 2.0, 2.1, 2.2, seed=seed)]
    found = findings(runs, [row_of(run, "cdnv_log", 0.3) for run in runs])
    assert {finding.found for finding in found.values()} == {None}
    assert found["0"].evidence.endswith("no NC1 metric with a null beside it.")


def test_an_initialisation_alone_is_no_patient() -> None:
    run = run_of("a", checkpoint="0", epoch=0.0, val_loss=8.0)
    other = run_of("b", val_loss=2.0)
    assert set(findings([run, other], [row_of(run, "cdnv_log", 1.0, null=1.0)])) == {"b"}
