"""Verdicts and names: no stronger than the tables, and in words that every metric has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.models import Regime
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.verdict import Direction, Verdict
from collapselab.core.catalogue import METRICS
from collapselab.records.outcomes import OUTCOMES
from collapselab.report import words as names
from collapselab.report.answer import Mark, answer, headline, opening, remaining, verdicts
from collapselab.report.data import ReportData, load_report_data
from report.suites import write_suite


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    folder = write_suite(
        tmp_path_factory.mktemp("suites") / "small", widths=(32, 64), depths=(1, 2), seeds=6, inside=False
    )
    analyze(folder, permutations=199)
    return load_report_data(folder)


def with_table(data: ReportData, name: str, rows: list[Any]) -> ReportData:
    """The same tables with other rows in one table of its analysis."""
    assert data.analysis is not None
    return replace(data, analysis=replace(data.analysis, tables={**data.analysis.tables, name: rows}))


def test_a_verdict_is_yes_only_where_the_table_shows_it(data: ReportData) -> None:
    for line in verdicts(data):
        for verdict, subset in ((line.cells["outcome"], ALL), (line.cells["fixed"], WITHIN)):
            relation = data.relation(line.metric, subset)
            assert relation is not None
            assert (verdict.kind == "with") == (relation.verdict is Verdict.AS_PREDICTED)
            assert f"{relation.r:+.2f}" in verdict.evidence or f"{relation.r:+.2f}" in verdict.word
            interval = f"[{relation.low:+.2f}, {relation.high:+.2f}]" if relation.low is not None else "runs"
            assert interval in verdict.evidence.replace("\N{NO-BREAK SPACE}", " ")


def test_what_is_not_shown_is_not_called_yes_whatever_its_sign(data: ReportData) -> None:
    assert data.analysis is not None
    weak = [replace(row, verdict=Verdict.NOT_SHOWN, goes=Direction.WITH) for row in data.analysis.tables["relate"]]
    weak_data = with_table(data, "relate", weak)
    lines = verdicts(weak_data)
    assert {line.cells["fixed"].kind for line in lines} == {"unshown"}
    across, fixed = headline(weak_data, lines).split(". ")[:2]
    assert "7 of 7" in across
    assert "none of the 7" in fixed


def test_a_property_comes_with_scale_only_if_every_axis_shows_it(data: ReportData) -> None:
    assert data.analysis is not None
    rows = [
        replace(row, verdict=Verdict.AS_PREDICTED if row.axis == "width" else Verdict.NOT_SHOWN)
        for row in data.analysis.tables["trends"]
    ]  # fmt: skip
    lines = verdicts(with_table(data, "trends", rows))
    assert {line.cells["scale"].kind for line in lines} == {"mixed"}


def test_the_evidence_of_scale_counts_the_groups_that_move_toward_collapse(data: ReportData) -> None:
    assert data.analysis is not None
    judged = with_table(
        data, "trends", [replace(row, verdict=Verdict.NOT_SHOWN) for row in data.analysis.tables["trends"]]
    )
    rows = [
        row for row in data.analysis.tables["trends"] if row.metric == "lognorm_cv" and row.axis in ("width", "depth")
    ]
    told = next(line.cells["scale"].evidence for line in verdicts(judged) if line.metric == "lognorm_cv")
    assert told.startswith("toward collapse in ")
    assert all(f"{row.falls} of {row.groups} by {row.axis}" in told for row in rows)


def test_rows_are_ordered_by_evidence_and_what_has_none_is_told_once(data: ReportData) -> None:
    assert data.analysis is not None
    first = verdicts(data)[-1].metric
    relations = [
        replace(row, verdict=Verdict.AS_PREDICTED if row.metric == first else Verdict.TOO_FEW, why="too few seeds.")
        if row.subset == WITHIN else row for row in data.analysis.tables["relate"]
    ]  # fmt: skip
    told = answer(with_table(data, "relate", relations))
    assert told.lines[0].metric == first
    assert "fixed" in told.columns
    assert [reason for reason, _ in told.silent].count("too few seeds.") == 1
    few = [replace(row, verdict=Verdict.TOO_FEW, why="too few seeds.") for row in relations if row.subset == WITHIN]
    told = answer(with_table(data, "relate", [*few, *(row for row in relations if row.subset != WITHIN)]))
    assert "fixed" not in told.columns, "a column in which nothing is known is no column"
    assert all(line.cells["outcome"].kind is not Mark.ABSENT for line in told.lines)


def test_runs_have_short_labels_of_their_own(data: ReportData) -> None:
    labels = set(data.labels.values())
    assert len(labels) == len(data.labels)
    assert "2×64, weight decay 0.1, seed 0" in labels


def test_a_note_says_what_is_shown_and_adds_nothing_up(data: ReportData) -> None:
    assert data.analysis is not None
    first = replace(data.analysis.tables["trends"][0], rises=9, falls=1, groups=10)
    shown, unshown, untold = (
        replace(first, verdict=code, where=Regime.read(f"epochs={i}"))
        for i, code in enumerate((Verdict.AS_PREDICTED, Verdict.NOT_SHOWN, Verdict.TOO_FEW))
    )
    assert names.trend_note([shown]) == "rises, toward collapse"
    assert names.trend_note([unshown]) == "not shown"
    both = names.trend_note([shown, unshown, untold])
    assert both == "rises, toward collapse (0 epochs); not shown (1 epoch); too few runs (2 epochs)"


def test_no_sentence_of_the_summary_is_lost_or_told_twice(data: ReportData) -> None:
    assert data.analysis is not None
    topics = {sentence.topic for sentence in data.analysis.sentences}
    told = [*opening(data), *remaining(data, *topics)]
    assert sorted(sentence.text for sentence in told) == sorted(sentence.text for sentence in data.analysis.sentences)
    assert 3 <= len(opening(data)) <= 6


def test_every_metric_of_the_catalogue_has_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS.values()}) == len(METRICS)
    assert set(names.PROPERTY_NAMES) < {metric.property for metric in METRICS.values()}


def test_every_outcome_has_a_name_in_words() -> None:
    assert set(names.FURTHER_NAMES) == set(OUTCOMES)
    assert names.outcome_name("loss_on:imdb") == "loss on imdb"
    assert names.outcome_name("ece") == "calibration error"
    assert names.outcome_name("score:arc") == "score:arc"
    assert "gap between" not in names.in_words("The entropy gap is 0."), "a plain word"


def test_a_sentence_in_words_keeps_its_numbers_and_escapes_the_rest() -> None:
    told = names.in_words("cdnv_k2 (r +0.56) and log cdnv <b> beat val_loss (`relate<.csv`)")
    assert "(<code>relate&lt;.csv</code>)" in told
    assert "&lt;b&gt;" in told
    assert "(r +0.56)" in told
    assert '<span class="metric" title="cdnv_k2">within-class variability, fourth power</span>' in told
    assert "cdnv_k2 (r" not in told


def test_code_in_a_message_is_set_as_code_and_a_lone_back_tick_is_left() -> None:
    assert names.coded("give `--bins <N>`.") == "give <code>--bins &lt;N&gt;</code>."
    assert names.coded("it`s") == "it`s"


def name_of(text: str) -> str:
    return names.regime_name(Regime.read(text))


def test_a_regime_reads_like_words() -> None:
    assert name_of("epochs=10 epoch=6 weight_decay=0.1") == "10 epochs, at epoch 6, weight decay 0.1"
    assert name_of("epochs=1 epoch=1 weight_decay=0.0005") == "1 epoch, weight decay 0.0005"
    assert name_of("epochs=1 epoch=1.00023") == "1 epoch"
    assert name_of("the only one") == "the only one"
    assert name_of("epoch=0.5 intervene=within:+0.1") == "at epoch 0.5, within:+0.1"
    assert name_of("epoch=0.5 intervene=?") == "at epoch 0.5, no intervention"


def test_an_analysis_that_is_read_back_is_the_one_that_was_written(data: ReportData) -> None:
    fresh = analyze(data.directory, permutations=199)
    again = load_report_data(data.directory).analysis
    assert again == fresh


def test_tables_that_changed_since_the_analysis_are_analysed_again_as_before(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    analyze(folder, permutations=123, seed=5)
    write_suite(folder, widths=(32, 64, 128), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    analysis = load_report_data(folder).analysis
    assert analysis is not None
    assert (analysis.permutations, analysis.seed) == (123, 5)
    assert analysis.models == 3 * (4 + 1 + 1)  # and two runs that failed
