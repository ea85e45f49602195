import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.planted import run_of, table
from collapselab import METRICS
from collapselab.analysis.models import NUMBERS, Regime
from collapselab.analysis.relate import relate
from collapselab.analysis.verdict import (
    ATTRIBUTION,
    EFFECT,
    MOVEMENT,
    RELATION,
    Cause,
    Direction,
    Estimate,
    Reason,
    Verdict,
    Words,
    direction_of,
    judge,
)
from collapselab.analysis.words import ALONG, SHOWN
from collapselab.report.words import TEST_WORDS, VERDICT_WORDS


@pytest.mark.parametrize(
    ("effect", "expected", "goes"),
    [
        (0.5, 1, Direction.WITH),
        (-0.5, -1, Direction.WITH),
        (0.5, -1, Direction.AGAINST),
        (0.5, 0, None),
        (0.0, 1, None),
    ],
)
def test_a_direction_is_the_sign_beside_the_expected_one(effect: float, expected: int, goes: Direction | None) -> None:
    assert direction_of(effect, expected) is goes


@pytest.mark.parametrize("words", [RELATION, EFFECT, MOVEMENT, ATTRIBUTION])
def test_a_verdict_is_significant_only_where_the_test_is(words: Words) -> None:
    signs = {1: words[0], -1: words[1], 0: words[2]}
    for sign, verdict in signs.items():
        assert judge(Estimate(0.5, 0.049, sign), words)["verdict"] is verdict
        assert judge(Estimate(0.5, 0.0, sign), words)["verdict"] is verdict, "a tiny p is printed as 0"
        assert judge(Estimate(0.5, 0.05, sign), words)["verdict"] is words[3]


def test_a_reason_forbids_the_test_and_a_doubt_one_claim() -> None:
    few = Reason.too_few(5, "pairs", 6)
    assert judge(Estimate(0.5, 0.01, 1, 0.01, few), EFFECT) == few.columns
    assert few.columns == {
        "verdict": Verdict.TOO_FEW,
        "why": "too few pairs: 6 needed, 5 found.",
        "why_code": Cause.TOO_FEW,
    }
    doubts = {Verdict.HELPS: Reason(Cause.MISSING, "lost runs.", Verdict.UNDECIDED)}
    assert judge(Estimate(0.5, 0.01, 1, doubts=doubts), EFFECT) == doubts[Verdict.HELPS].columns
    assert judge(Estimate(0.5, 0.01, -1, doubts=doubts), EFFECT)["verdict"] is Verdict.HARMS
    assert judge(Estimate(0.5, 0.01, 1, 0.01, doubts=doubts), EFFECT)["verdict"] is Verdict.EQUIVALENT
    assert judge(Estimate(0.5), EFFECT)["verdict"] is Verdict.TOO_FEW, "no p, no claim"


def test_every_verdict_has_words_of_its_own_in_every_place() -> None:
    given = {*RELATION, Verdict.DESCRIPTION, Verdict.TOO_FEW}
    for words, codes in ((ALONG, set(SHOWN)), (VERDICT_WORDS, given), (TEST_WORDS, given)):
        assert set(words) == codes
        assert len(set(words.values())) == len(codes) > 2


def test_a_reason_has_a_code_beside_its_text() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i) for i in range(3)]
    few = relate(table(runs, {"agreement": [1, 2, 4]}), permutations=99)
    same = relate(table(runs, {"agreement": [1, 1, 1], "model_accuracy": [1, 2, 3]}), permutations=99)
    assert {row.subset: (row.why_code, row.verdict) for row in few} == {
        "all models": (Cause.NOT_A_TEST, Verdict.DESCRIPTION),
        "within cells": (Cause.TOO_FEW, Verdict.TOO_FEW),
    }
    assert {row.metric: row.why_code for row in same} == {
        "agreement": Cause.NO_VARIATION,
        "model_accuracy": Cause.NOT_A_TEST,
    }
    assert all(row.why for row in [*few, *same])
    assert {row.metric: row.verdict for row in same} == {
        "agreement": Verdict.TOO_FEW,
        "model_accuracy": Verdict.DESCRIPTION,
    }


TEXT = st.text(alphabet="ab =%?2D.", max_size=5)
NAMES = st.one_of(st.sampled_from(NUMBERS), st.text(alphabet="ab =%", min_size=1, max_size=4))


@given(st.dictionaries(NAMES, st.one_of(st.none(), TEXT, st.floats(-1e9, 1e9)), max_size=4))
def test_a_regime_that_is_written_is_read_again(settings: dict[str, float | str | None]) -> None:
    numbers = {name: value for name, value in settings.items() if name not in NUMBERS or not isinstance(value, str)}
    regime = Regime.of(numbers, numbers.values())
    assert Regime.read(str(regime)) == regime


def test_a_regime_knows_its_numbers_and_drops_a_setting() -> None:
    regime = Regime.of(("epochs", "epoch", "dropout"), (10.0, 6.0, "0.0"))
    assert str(regime) == "epochs=10 epoch=6 dropout=0.0"
    assert (regime.number("epoch"), regime.number("dropout"), regime.number("lr")) == (6.0, None, None)
    assert str(regime.without("epoch")) == "epochs=10 dropout=0.0"
    assert str(Regime()) == "the only one"


def test_ratios_whose_denominator_may_change_its_sign_have_parts_and_no_direction() -> None:
    ratios = {metric.id: metric.parts for metric in METRICS.values() if metric.parts}
    assert set(ratios) == {"cosine_cv", "logdist_cv", "logdist_uncentred_cv", "head_logdist_cv"}
    assert all(METRICS[metric].direction is None for metric in ratios)
    assert all(METRICS[part].direction is not None for parts in ratios.values() if parts for part in parts)
