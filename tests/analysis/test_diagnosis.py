from collections.abc import Sequence
from typing import Any

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.diagnosis import Finding, diagnose
from collapselab.analysis.models import combine
from collapselab.records.tables import Row, Run


def findings(runs: list[Run], rows: list[Row]) -> dict[tuple[str, str], Finding]:
    return {(finding.run, finding.signature): finding for finding in diagnose(combine(runs, rows))}


def checkpoints(name: str, *losses: float, **given: Any) -> list[Run]:
    return [
        run_of(name, checkpoint=str(e), epoch=float(e), epochs=float(len(losses) - 1), val_loss=loss, **given)
        for e, loss in enumerate(losses)
    ]


def of_seeds(rises: Sequence[float], *, value: float = 0.3) -> Finding:
    """What is said of over-fitting where the loss of each seed rises so from epoch 2 of 4 to the end."""
    runs = [
        run
        for seed, rise in enumerate(rises)
        for run in checkpoints(f"{seed}", 5.0, 1.0, 2.0, 1.5, 2.0 * (1 + rise), seed=seed)
    ]
    found = findings(runs, [row_of(run, "cdnv_log", value, null=1.1) for run in runs])
    (answer,) = {found[f"{seed}", "over-fitted"].found for seed in range(len(rises))}
    assert answer is found["0", "over-fitted"].found
    return found["0", "over-fitted"]


def test_a_loss_that_rises_in_all_five_seeds_is_over_fitted() -> None:
    """One of 32 sign patterns has a mean as large."""
    finding = of_seeds([0.2, 0.21, 0.19, 0.22, 0.18])
    assert finding.found is True
    assert "val_loss +20.0% from epoch 2 to 4 (5 seeds)" in finding.evidence


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


def test_the_best_checkpoint_is_no_reference() -> None:
    """The loss at epochs 1 and 3 is far below the last one in every seed; only epoch 2, half of the training, counts."""
    assert of_seeds([-0.05] * 8).found is False


def test_a_single_run_is_never_called_over_fitted() -> None:
    runs = checkpoints("risen", 5.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8)
    found = findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])
    assert found["risen", "over-fitted"].found is None


def test_a_risen_loss_with_loose_classes_is_not_called_over_fitted() -> None:
    assert of_seeds([0.2] * 5, value=1.3).found is False


def test_what_was_not_measured_is_unknown() -> None:
    runs = [run for seed in range(5) for run in checkpoints(f"{seed}", 5.0, 1.0, 2.0, seed=seed)]
    found = findings(runs, [row_of(run, "cdnv_log", 0.3) for run in runs])
    assert {finding.found for finding in found.values()} == {None}
    assert found["0", "over-fitted"].evidence.endswith("no NC1 metric with a null beside it.")


def test_an_initialisation_alone_is_no_patient() -> None:
    run = run_of("a", checkpoint="0", epoch=0.0, val_loss=8.0)
    other = run_of("b", val_loss=2.0)
    assert {name for name, _ in findings([run, other], [row_of(run, "cdnv_log", 1.0, null=1.0)])} == {"b"}
