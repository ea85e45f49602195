import numpy as np
import pytest

from analysis.planted import run_of, table
from collapselab.analysis.arms import Comparison, Target, comparisons
from collapselab.analysis.effects import worth_of_tokens
from collapselab.analysis.models import Models


def suite(settings: list[dict[str, object]], *, seeds: int = 2) -> Models:
    runs = [
        run_of(f"{i}-{seed}", seed=seed, val_loss=3.0 + i + seed / 10, **one)
        for seed in range(seeds)
        for i, one in enumerate(settings)
    ]  # fmt: skip
    return table(runs, {"agreement": [run["val_loss"] / 10 for run in runs]})


def labels(models: Models) -> dict[str, Comparison]:
    return {one.arm.label: one for one in comparisons(models)}


def test_an_arm_is_paired_with_the_run_that_differs_in_it_alone() -> None:
    found = labels(suite([{"intervene": None}, {"intervene": "within:+0.1"}, {"intervene": "within:+0.1:sham"}]))
    assert list(found) == ["within:+0.1", "within:+0.1:sham"]
    arm = found["within:+0.1"].arm
    assert (arm.name, arm.dose, arm.sham, arm.targets) == ("within", 0.1, False, (Target("cdnv_log", -1),))
    assert found["within:+0.1:sham"].arm.targets == ()
    assert found["within:+0.1"].differences["val_loss"].tolist() == pytest.approx([1.0, 1.0])


def test_a_table_without_arms_has_none() -> None:
    assert comparisons(suite([{"weight_decay": 0.0}, {"weight_decay": 0.1}])) == []
    assert comparisons(suite([{"intervene": "within:+0.1"}])) == []
    assert comparisons(suite([{"optimizer": "sgd"}])) == []


def test_seed_epoch_and_every_other_setting_must_be_equal() -> None:
    runs = [
        run_of("a", seed=0, val_loss=1.0), run_of("b", seed=1, val_loss=1.0, intervene="within:+0.1"),
        run_of("c", seed=0, val_loss=1.0, epoch=0.5, intervene="within:+0.1"),
        run_of("d", seed=0, val_loss=1.0, clip="2.0", intervene="within:+0.1"),
        run_of("e", seed=0, val_loss=1.0, width=128, intervene="within:+0.1"),
        run_of("f", seed=0, val_loss=1.0, data_seed="7", intervene="within:+0.1"),
    ]  # fmt: skip
    assert comparisons(table(runs, {"agreement": [0.1] * 6})) == []
    runs.append(run_of("g", seed=0, val_loss=1.5, intervene="within:+0.1"))
    assert len(comparisons(table(runs, {"agreement": [0.1] * 7}))) == 1


def test_an_outcome_is_no_setting_in_which_runs_could_differ() -> None:
    runs = [
        run_of(f"{i}", val_loss=1.0 + i, intervene=arm, ece=0.1 + i / 9) for i, arm in enumerate((None, "within:+0.1"))
    ]
    assert len(comparisons(table(runs, {"agreement": [0.1, 0.2]}))) == 1


def test_several_at_once_are_one_arm() -> None:
    (one,) = comparisons(suite([{"intervene": None}, {"intervene": "dual:-0.3 within:+0.1"}]))
    assert (one.arm.name, one.arm.dose) == ("dual:-0.3 + within:+0.1", None)
    assert one.arm.targets == (Target("duality_cos_mean", -1), Target("cdnv_log", -1))


def test_a_dose_of_zero_is_the_control_once_more() -> None:
    assert comparisons(suite([{"intervene": None}, {"intervene": "flat:0"}])) == []


def test_an_intervention_under_adam_is_compared_with_adam() -> None:
    found = labels(
        suite([
            {"optimizer": "adamw", "intervene": None}, {"optimizer": "adam", "intervene": None},
            {"optimizer": "adam", "intervene": "within:+0.1"},
        ])
    )  # fmt: skip
    assert list(found) == ["adam", "within:+0.1 (optimizer=adam)"]
    assert found["within:+0.1 (optimizer=adam)"].differences["val_loss"].tolist() == pytest.approx([1.0, 1.0])


def test_a_frozen_head_is_compared_with_a_learned_one_that_is_untied_where_there_is_one() -> None:
    head = {"head": "frozen-code", "tied": "False"}
    both = labels(suite([{"head": None, "tied": "True"}, head]))
    assert list(both) == ["frozen-code"]
    three = labels(suite([{"head": None, "tied": "True"}, {"head": None, "tied": "False"}, head]))
    assert list(three) == ["untied", "frozen-code (tied=False)"]
    assert three["frozen-code (tied=False)"].differences["val_loss"].tolist() == pytest.approx([1.0, 1.0])


def test_coupling_has_a_dose_and_a_target_where_input_and_output_are_apart() -> None:
    found = labels(suite([{"coupling": None, "tied": "False"}, {"coupling": "0.5", "tied": "False"}]))
    assert [(one.arm.dose, one.arm.targets) for one in found.values()] == [(0.5, (Target("head_sum", -1),))]


def test_an_intervention_of_a_later_version_is_an_arm_without_a_target() -> None:
    (one,) = comparisons(suite([{"intervene": None}, {"intervene": "warp:+0.1"}]))
    assert (one.arm.name, one.arm.dose, one.arm.targets) == ("warp:+0.1", None, ())


def test_cells_that_share_a_seed_are_one_unit() -> None:
    arms = [{"intervene": None}, {"intervene": "within:+0.1"}]
    (one,) = comparisons(suite([{**arm, "width": width} for width in (64, 128) for arm in arms], seeds=3))
    assert (len(one.pairs), len(one.differences)) == (6, 3)


def training(name: str, losses: list[float], *, intervene: str | None, gap: float) -> list[object]:
    return [
        run_of(name, checkpoint=f"{e}", epoch=e, tokens=int(1e6 * e), train_loss=loss, val_loss=loss + gap,
               intervene=intervene)
        for e, loss in zip((0.25, 0.5, 1.0), losses, strict=True)
    ]  # fmt: skip


def test_one_checkpoint_does_not_say_what_tokens_are_worth() -> None:
    models = suite([{"intervene": None, "train_loss": 3.0}, {"intervene": "within:+0.1", "train_loss": 3.1}])
    assert worth_of_tokens(models, {"0-0"}, 0.05) is None


def test_a_share_of_tokens_is_worth_the_slope_at_the_end() -> None:
    models = table(training("a", [5.0, 4.0, 3.8], intervene=None, gap=0.0), {"agreement": [0.1] * 3})
    assert worth_of_tokens(models, {"a"}, 0.05) == pytest.approx(0.2 / np.log(2) * np.log(1.05))
