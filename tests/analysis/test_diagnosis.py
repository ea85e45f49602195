from collections.abc import Sequence
from typing import Any

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.diagnosis import Finding, diagnose
from collapselab.analysis.models import combine
from collapselab.records.tables import RUNS, Row, Run


def findings(runs: list[Run], rows: list[Row]) -> dict[tuple[str, str], Finding]:
    return {(finding.run, finding.signature): finding for finding in diagnose(combine(runs, rows))}


def checkpoints(name: str, *losses: float, **given: Any) -> list[Run]:
    return [
        run_of(name, checkpoint=str(e), epoch=float(e), epochs=float(len(losses) - 1), val_loss=loss, **given)
        for e, loss in enumerate(losses)
    ]


def test_no_tighter_than_shuffled_labels_is_under_fitted() -> None:
    runs = [run_of("a", val_loss=3.0), run_of("b", val_loss=2.0)]
    rows = [row_of(runs[0], "cdnv_log", 1.2, null=1.1), row_of(runs[1], "cdnv_log", 0.3, null=1.1)]
    found = findings(runs, rows)
    assert found["a", "under-fitted"].found == "yes"
    assert found["b", "under-fitted"].found == "no"
    assert "cdnv_log 1.2 (null 1.1)" in found["a", "under-fitted"].evidence


def of_seeds(rises: Sequence[float], *, value: float = 0.3) -> Finding:
    """What is said of over-fitting where the loss of each seed rises so from epoch 2 of 4 to the end."""
    runs = [
        run
        for seed, rise in enumerate(rises)
        for run in checkpoints(f"{seed}", 5.0, 1.0, 2.0, 1.5, 2.0 * (1 + rise), seed=seed)
    ]
    found = findings(runs, [row_of(run, "cdnv_log", value, null=1.1) for run in runs])
    (answer,) = {found[f"{seed}", "over-fitted"].found for seed in range(len(rises))}
    assert answer == found["0", "over-fitted"].found
    return found["0", "over-fitted"]


def test_a_loss_that_rises_in_all_five_seeds_is_over_fitted() -> None:
    """One of 32 sign patterns has a mean as large."""
    finding = of_seeds([0.2, 0.21, 0.19, 0.22, 0.18])
    assert finding.found == "yes"
    assert "val_loss +20.0% from epoch 2 to 4 (5 seeds)" in finding.evidence


@pytest.mark.parametrize(
    ("rises", "answer"),
    [
        ([0.2, 0.2, 0.2, 0.2], "unknown"),
        ([0.2, 0.2, 0.2, 0.2, -0.01], "no"),
        ([0.5, 0.4, 0.1, 0.1, -0.2, -0.3, 0.2], "no"),
        ([0.009] * 6, "no"),
        ([-0.1] * 6, "no"),
        ([0.2, 0.2, 0.2, 0.2, 0.2, -0.01], "yes"),
        ([0.2] * 5, "yes"),
    ],
)
def test_seeds_decide_whether_a_rise_is_more_than_noise(rises: list[float], answer: str) -> None:
    assert of_seeds(rises).found == answer


def test_the_best_checkpoint_is_no_reference() -> None:
    """The loss at epochs 1 and 3 is far below the last one in every seed; only epoch 2, half of the training, counts."""
    assert of_seeds([-0.05] * 8).found == "no"


def test_a_single_run_is_never_called_over_fitted() -> None:
    runs = checkpoints("risen", 5.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8)
    found = findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])
    assert found["risen", "over-fitted"].found == "unknown"


def test_a_risen_loss_with_loose_classes_is_not_called_over_fitted() -> None:
    assert of_seeds([0.2] * 5, value=1.3).found == "no"


def test_a_collapsed_rank_under_strong_decay_is_over_regularised() -> None:
    weak, strong, mild = (
        run_of(f"{d}", weight_decay=d, val_loss=loss) for d, loss in [(0.0, 2.0), (10.0, 3.0), (0.1, 1.9)]
    )
    ranks = [(weak, 50.0), (strong, 10.0), (mild, 45.0)]
    found = findings([weak, strong, mild], [row_of(run, "effective_rank", rank) for run, rank in ranks])
    assert found["10.0", "over-regularised"].found == "yes"
    assert "effective_rank 10, 0.20 times the twin's" in found["10.0", "over-regularised"].evidence
    assert found["0.1", "over-regularised"].found == "no"
    assert found["0.0", "over-regularised"].found == "unknown"


def test_a_low_rank_that_does_not_hurt_is_not_called_over_regularised() -> None:
    weak, strong = run_of("weak", val_loss=2.0), run_of("strong", weight_decay=1.0, val_loss=1.5)
    rows = [row_of(weak, "effective_rank", 50.0), row_of(strong, "effective_rank", 10.0)]
    assert findings([weak, strong], rows)["strong", "over-regularised"].found == "no"


def test_what_was_not_measured_is_unknown() -> None:
    found = findings([run_of("a", val_loss=1.0)], [row_of(run_of("a"), "cdnv_log", 0.3)])
    assert {finding.found for finding in found.values()} == {"unknown"}
    assert found["a", "under-fitted"].evidence == "no NC1 metric with a null beside it."


def test_an_initialisation_alone_is_no_patient() -> None:
    run = run_of("a", checkpoint="0", epoch=0.0, val_loss=8.0)
    other = run_of("b", val_loss=2.0)
    assert {name for name, _ in findings([run, other], [row_of(run, "cdnv_log", 1.0, null=1.0)])} == {"b"}


def test_few_directions_and_a_worse_loss_beside_its_cell_are_dimension_collapse() -> None:
    losses = {"a": 2.0, "b": 2.02, "c": 1.98, "flat": 3.0, "odd": 2.0}
    runs = [run_of(name, val_loss=loss, seed=seed) for seed, (name, loss) in enumerate(losses.items())]
    ranks = {"a": 20.0, "b": 21.0, "c": 19.0, "flat": 4.0, "odd": 4.0}
    found = findings(runs, [row_of(run, "participation", ranks[run["run"]]) for run in runs])
    assert found["flat", "dimension collapse"].found == "yes"
    assert "participation 4, 0.21 times the median of 4 other seeds" in found["flat", "dimension collapse"].evidence
    assert found["odd", "dimension collapse"].found == "no", "its loss is no worse"
    assert found["a", "dimension collapse"].found == "no"
    few = findings(runs[:3], [row_of(run, "participation", 1.0) for run in runs[:3]])
    assert few["a", "dimension collapse"].found == "unknown"
    none = findings(runs, [row_of(run, "cdnv_log", 1.0) for run in runs])
    assert none["flat", "dimension collapse"].found == "unknown"


def test_dimensions_are_compared_with_the_control_and_never_with_other_arms() -> None:
    """Arm `b` has a quarter of the directions of arm `a`, and more than its own control."""
    given = {"": (20.0, 2.0), "within:+0.1": (100.0, 1.8), "flat:+0.1": (25.0, 2.2)}
    runs = [
        run_of(f"{arm}{seed}", seed=seed, val_loss=loss, intervene=arm)
        for arm, (_, loss) in given.items() for seed in range(5)
    ]  # fmt: skip
    rows = [row_of(run, "participation", given[str(run.get("intervene"))][0]) for run in runs]
    found = findings(runs, rows)
    assert {found[run["run"], "dimension collapse"].found for run in runs} == {"no"}
    assert "1.25 times the control's" in found["flat:+0.10", "dimension collapse"].evidence
    rows = [row_of(run, "participation", 4.0 if run["run"] == "flat:+0.10" else 20.0) for run in runs]
    yes = [key for key, finding in findings(runs, rows).items() if finding.found == "yes"]
    assert yes == [("flat:+0.10", "dimension collapse")]
    luck = {seed: 0.4 * (-1) ** seed for seed in range(5)}
    for run in runs:
        run["val_loss"] += luck[run["seed"]] if run["run"].startswith("flat") else 0.0
    assert not [key for key, finding in findings(runs, rows).items() if finding.found == "yes"], "the arm is not worse"


def test_row_norms_that_follow_frequency_and_rare_tokens_that_pay_rule_the_head() -> None:
    given = {"ruled": (0.9, 6.0), "paid for": (0.9, 2.5), "even": (0.3, 6.0), "unmeasured": (0.9, None)}
    runs = [RUNS.row(**run_of(name, val_loss=2.0), rare_loss=rare) for name, (_, rare) in given.items()]
    rows = [row_of(run, "head_norm_frequency_r", given[run["run"]][0]) for run in runs]
    found = findings(runs, rows)
    answers = {name: found[name, "frequency-ruled head"].found for name in given}
    assert answers == {"ruled": "yes", "paid for": "no", "even": "no", "unmeasured": "unknown"}
    evidence = found["ruled", "frequency-ruled head"].evidence
    assert "81% of the variance of row norms" in evidence
    assert "rare_loss 6" in evidence


def test_outcomes_that_were_measured_are_part_of_the_evidence() -> None:
    runs = [RUNS.row(**run, gap=0.25) for run in checkpoints("risen", 5.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.4)]
    found = findings(runs, [row_of(run, "cdnv_log", 0.3, null=1.1) for run in runs])
    assert found["risen", "over-fitted"].evidence.endswith("Measured too: gap 0.25.")
    assert "gap" not in found["risen", "dimension collapse"].evidence
