from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapselab.errors import ConfigError
from collapselab.training.interventions import INTERVENTIONS, Dose, Intervention, parse_doses, sham_notes
from collapselab.training.settings import plan, resolved, settings_from


def entry(name: str, signs: Any, *, blind: bool = False) -> Intervention:
    return Intervention(name, "For tests.", "0", "ours", "cdnv", signs, lambda step: None, blind=blind)


TOYS = {name: entry(name, signs) for name, signs in {"within": "both", "floor": "+", "loosen": "-"}.items()}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in reversed(list(INTERVENTIONS)):  # put back in reverse, so that their order stays
        monkeypatch.delitem(INTERVENTIONS, name)
    for name, toy in TOYS.items():
        monkeypatch.setitem(INTERVENTIONS, name, toy)


def parsed(*texts: str) -> list[Dose]:
    return list(parse_doses(texts))


@pytest.mark.parametrize(
    ("text", "dose"),
    [
        ("within:+0.1", Dose("within", 0.1)),
        ("within:-0.1:sham", Dose("within", -0.1, sham=True)),
        ("within:+0.1@0.7-1.0", Dose("within", 0.1, window=(0.7, 1.0))),
        ("within:-1e-3:sham@0-.25", Dose("within", -0.001, sham=True, window=(0.0, 0.25))),
        ("within:0", Dose("within", 0.0)),
        ("floor:0.3", Dose("floor", 0.3)),
        ("loosen:0.3", Dose("loosen", -0.3)),
        ("floor:+0.3", Dose("floor", 0.3)),
        ("loosen:-0.3", Dose("loosen", -0.3)),
    ],
)
def test_a_text_is_a_dose(text: str, dose: Dose) -> None:
    assert parsed(text) == [dose]
    assert parsed(str(dose)) == [dose]


def test_a_sign_that_says_nothing_is_left_out_of_the_one_form() -> None:
    assert [str(dose) for text in ("floor:+0.3:sham", "loosen:-0.3@0-0.5") for dose in parsed(text)] == [
        "floor:0.3:sham",
        "loosen:0.3@0-0.5",
    ]


@given(
    st.floats(-10, 10).map(lambda dose: dose or 0.0),
    st.booleans(),
    st.lists(st.integers(0, 10**6), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_the_text_of_a_dose_gives_the_same_dose(dose: float, sham: bool, window: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(INTERVENTIONS, "within", TOYS["within"])
        made = Dose("within", dose, sham, (window[0] / 10**6, window[1] / 10**6))
        assert parsed(str(made)) == [made]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["withn:+0.1"], "withn is not an intervention. Did you mean within\\?"),
        (["zzz:+0.1"], "zzz is not an intervention. Choose from within, floor, loosen\\."),
        (["within:0.1"], "within:0.1 has no sign. Both exist: write within:\\+0.1 or within:-0.1"),
        (["within:0.1:sham@0-0.5"], "write within:\\+0.1:sham@0-0.5 or within:-0.1:sham@0-0.5"),
        (["floor:-0.1"], "floor:-0.1 has a -, but floor acts in one direction. Write floor:0.1"),
        (["loosen:+0.1"], "loosen:\\+0.1 has a \\+, but loosen acts in one direction. Write loosen:0.1"),
        (["within:+0.1@0.5-1.5"], "within:\\+0.1@0.5-1.5 has no window.*0 to 1"),
        (["within:+0.1@0.5-0.5"], "has no window"),
        (["within:+0.1@0.7-0.2"], "has no window"),
        (["within:+0.1", "within:-0.3:sham"], "within is there twice, as within:\\+0.1 and as within:-0.3:sham"),
        (["within:+1e999"], "has a dose above 10"),
        (["within:+1e9"], "within:\\+1e9 has a dose above 10.*usual are 0.01 to 0.3"),
        (["within:-10.1:sham"], "has a dose above 10"),
        (["within"], "'within' is not NAME:DOSE"),
        (["within:+0.1:shame"], "is not NAME:DOSE"),
        (["within:nan"], "is not NAME:DOSE"),
        (["within:+0.1@-1-2"], "is not NAME:DOSE"),
        (3, "intervene: 3 is not valid: a list of texts as in within:\\+0.1 is needed"),
        ([3], "intervene: \\[3\\] is not valid: a list of texts"),
    ],
)
def test_what_is_not_a_dose_is_refused_by_the_settings(texts: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^intervene: .*{message.removeprefix('intervene: ')}"):
        settings_from({"width": 16, "depth": 1, "intervene": texts})


def test_a_sham_of_a_penalty_that_does_not_depend_on_labels_is_said_to_be_the_penalty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(INTERVENTIONS, "spread", entry("spread", "both", blind=True))
    assert parsed("spread:-0.03:sham@0.5-1.0") == [Dose("spread", -0.03, True, (0.5, 1.0))]
    (note,) = sham_notes(["spread:-0.03:sham@0.5-1.0", "within:+0.1:sham"])
    assert note.startswith("spread:-0.03:sham@0.5-1 is the same training as without sham: spread does not depend")
    assert sham_notes(["spread:+0.1", "within:+0.1"]) == []


def test_the_same_doses_said_in_another_way_are_the_same_run() -> None:
    def values(intervene: object) -> object:
        return resolved(settings_from({"width": 16, "depth": 1, "intervene": intervene}))

    assert values(["within:+0.10@0-1", "floor:.3"]) == values(("floor:0.3", "within:+1e-1"))
    assert values("within:+0.1") == values(["within:+0.1"])
    assert values(["within:+0.1"]) != values(["within:+0.1:sham"])
    assert "intervene" not in values([])  # as before there were interventions: no run is renamed


@pytest.mark.parametrize(
    ("text", "steps", "computed"),
    [
        ("within:+0.1", 100, range(100)),
        ("within:+0.1@0.5-0.8", 100, range(30, 80)),
        ("within:+0.1@0.1-0.5", 100, range(50)),
        ("within:+0.1", 21, range(21)),
    ],
)
def test_gradients_are_compared_in_the_twenty_steps_before_it_acts(text: str, steps: int, computed: range) -> None:
    assert parsed(text)[0].steps(steps) == computed


@pytest.mark.parametrize(
    ("text", "steps"), [("within:+0.1", 20), ("within:+0.1@0-0.2", 100), ("within:+0.1@0.1-0.101", 300)]
)
def test_a_dose_that_acts_in_no_step_is_refused(text: str, steps: int) -> None:
    settings = settings_from({"width": 16, "depth": 1, "batch": 4, "steps": steps, "intervene": [text]})
    with pytest.raises(ConfigError, match=f"intervene: within.* acts in no step of a training of {steps}"):
        plan(settings, blocks=100, block=32)
