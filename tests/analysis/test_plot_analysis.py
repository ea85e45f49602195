"""An analysis as a notebook shows it: sentences, one line, charts."""

from dataclasses import replace

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.analyze import analyze
from collapselab.analysis.effects import Effect
from collapselab.analysis.stored import COLOURS, DRAWN, Analysis
from collapselab.analysis.verdict import RELATION, Role, Verdict
from collapselab.analysis.words import Sentence
from collapselab.records.tables import RESULTS, RUNS


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("suite")
    runs = [run_of(f"s{seed}", seed=seed, val_loss=2 + seed**2 / 100) for seed in range(8)]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", [row_of(run, "agreement", 0.5 - run["seed"] / 50) for run in runs])
    return analyze(folder, permutations=99)


def test_correlations_are_drawn_with_their_intervals_and_verdicts(analysis: Analysis) -> None:
    chart = analysis.plot().to_dict()
    (values,) = chart["datasets"].values()
    row = next(one for one in values if one["panel"] == "within cells" or one["line"] == "agreement")
    relation = next(one for one in analysis.relations if one.metric == "agreement" and one.r is not None)
    assert row["estimate"] == pytest.approx(relation.r)
    assert row["low"] <= row["estimate"] <= row["high"]
    assert row["judged"] in COLOURS
    assert "val_loss" in chart["title"]


def test_every_verdict_has_a_colour() -> None:
    assert COLOURS.keys() == {*RELATION, Verdict.DESCRIPTION, Verdict.TOO_FEW}


@pytest.mark.parametrize(("table", "words"), [("trends", "not a table that can be drawn"), ("effects", "no row of it")])
def test_what_cannot_be_drawn_says_why(analysis: Analysis, table: str, words: str) -> None:
    with pytest.raises(KeyError, match=words):
        analysis.plot(table)


def test_drawn_columns_are_columns(analysis: Analysis) -> None:
    for table, (value, _, line, panel) in DRAWN.items():
        columns = analysis.frames[table].columns
        assert {value, line, panel, "verdict", "low", "high"} <= set(columns)


def test_effects_are_those_on_the_outcome(analysis: Analysis) -> None:
    rows = [
        Effect(arm, None, False, metric, effect=0.1, low=0.0, high=0.2, label=arm, role=role)
        for arm in ("a", "b")
        for metric, role in (("val_loss", Role.OUTCOME), ("cdnv", Role.TARGET))
    ]
    chart = replace(analysis, tables={**analysis.tables, "effects": rows}).plot("effects")
    (values,) = chart.to_dict()["datasets"].values()
    assert [(one["line"], one["panel"], one["judged"]) for one in values] == [
        ("a", "val_loss", "none"),
        ("b", "val_loss", "none"),
    ]


def test_sentences_are_escaped_and_one_line_is_short(analysis: Analysis) -> None:
    shown = replace(analysis, sentences=[Sentence("<i>", "relate", "a < b & c")])._repr_html_()
    assert "<i><i>" not in shown
    assert "a &lt; b &amp; c" in shown
    assert analysis.sentences[0].text in analysis._repr_html_()
    assert repr(analysis).endswith(f": val_loss, 8 models; {len(analysis.tables)} tables)")
