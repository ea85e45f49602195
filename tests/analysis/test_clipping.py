"""Planted shares of clipped steps: named where arm and control differ notably, and nowhere else."""

import numpy as np
import pytest

from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.clipping import NOTABLE, Clipped, Clipping, clipping, sentences
from collapselab.analysis.effect_words import TOPIC
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Cause
from collapselab.analysis.words import LONGEST

WITHIN, SHAM = "within:+0.1", "within:+0.1:sham"


def planted(*arms: tuple[str, float | None], control: float | None = 0.1, seeds: int = 8) -> Models:
    """A control and arms with these shares of clipped steps."""
    made = [Planted(arm, {"cdnv_log": -0.3}, clipped=share) for arm, share in arms]
    models = arms_table(made, seeds=seeds, rng=np.random.default_rng(0))
    of_control = models.frame["intervene"].isna()
    luck = np.random.default_rng(1).random(len(models.frame)) * 0.02
    models.frame.loc[of_control, "clipped"] = None if control is None else control + luck[of_control]
    return models


def judged(models: Models) -> dict[str, Clipping]:
    return {row.label: row for row in clipping(models, permutations=999, seed=0)}


def said(models: Models) -> list[str]:
    made = list(sentences(models, clipping(models, permutations=999, seed=0)))
    assert all(sentence.topic == TOPIC and sentence.table == "clipping" for sentence in made)
    assert all(len(sentence.text) <= LONGEST for sentence in made), made
    return [sentence.text for sentence in made]


def test_an_arm_that_is_clipped_more_is_named_with_both_shares() -> None:
    models = planted((WITHIN, 0.6), (SHAM, 0.1))
    rows = judged(models)
    assert (rows[WITHIN].verdict, rows[SHAM].verdict) == (Clipped.MORE, Clipped.NOT_SHOWN)
    assert rows[WITHIN].treated == pytest.approx(0.61, abs=0.01)
    assert rows[WITHIN].control == pytest.approx(0.11, abs=0.01)
    (text,) = said(models)
    assert text.startswith("within:+0.1 has 50 points [")
    assert "more of its steps clipped than its control (61 against 11 %, 8 pairs, p 0.0078)" in text
    assert text.endswith("a way to val_loss around the property.")


def test_an_arm_that_is_clipped_less_is_named_too() -> None:
    models = planted((WITHIN, 0.1), control=0.5)
    assert judged(models)[WITHIN].verdict is Clipped.LESS
    assert "has 40 points [39, 41] fewer of its steps clipped than its control (11 against 51 %" in said(models)[0]


def test_a_small_difference_is_not_named_however_well_it_is_known() -> None:
    models = planted((WITHIN, 0.1 + NOTABLE / 2))
    row = judged(models)[WITHIN]
    assert row.p_corrected == pytest.approx(2 / 2**8)
    assert row.verdict is Clipped.NOT_SHOWN
    assert said(models) == []


def test_a_large_difference_of_one_run_is_chance() -> None:
    models = planted((WITHIN, 0.1))
    models.frame.loc[models.frame["run"] == f"64-3-{WITHIN}", "clipped"] = 1.0
    row = judged(models)[WITHIN]
    assert row.difference > NOTABLE
    assert row.verdict is Clipped.NOT_SHOWN


def test_three_pairs_cannot_tell() -> None:
    row = judged(planted((WITHIN, 0.9), seeds=3))[WITHIN]
    assert (row.verdict, row.p_corrected, row.why_code) == (Clipped.CANNOT_TELL, None, Cause.TOO_FEW)
    assert said(planted((WITHIN, 0.9), seeds=3)) == []


@pytest.mark.parametrize("control", [None, 0.1])
def test_runs_that_do_not_say_their_share_have_no_row(control: float | None) -> None:
    models = planted((WITHIN, None), control=control)
    assert clipping(models, permutations=99, seed=0) == []
    del models.frame["clipped"]
    assert clipping(Models(models.frame, models.metrics, models.outcome), permutations=99, seed=0) == []


def test_of_many_arms_the_largest_differences_have_a_sentence_each() -> None:
    doses = [0.1, 0.2, 0.3, 0.4, 0.5]
    texts = said(planted(*((f"within:+{dose}", 0.2 + dose) for dose in doses)))
    assert [text.partition(" ")[0] for text in texts[:3]] == ["within:+0.5", "within:+0.4", "within:+0.3"]
    assert texts[3:] == [
        "Clipped steps differ from the control's too, in points, for within:+0.2 (+30), within:+0.1 (+20)."
    ]
