import csv
import json
import time
from pathlib import Path

import numpy as np
import pytest

from analysis.planted import drawn, row_of, run_of, seeds_study
from collapselab.analysis.analyze import Analysis, analyze
from collapselab.analysis.models import NothingToRelate
from collapselab.analysis.relate import reversals
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.analysis.words import SHOWN, Sentence, short_summary
from collapselab.core.catalogue import METRICS
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.published import import_published
from collapselab.records.suite import Primary
from collapselab.records.tables import RESULTS, RUNS, Row, Run
from collapselab.report.data import load_report_data
from report.suites import write_suite

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "reference" / "lc-2024_05_18.csv"
needs_published = pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published table is not beside this checkout")

CONTRACT = {  # r, R² and p of METRICS.md
    "cdnv_k2": (+0.438, 0.192011, 0.047),
    "lognorm_cv": (+0.162, 0.026174, 0.481),
    "cosine_cv": (-0.468, 0.218574, 0.032),
    "logdist_uncentred_cv": (-0.699, 0.487935, 0.0005),
    "duality_cos_mean": (-0.568, 0.322210, 0.0073),
    "duality_cos_cv": (+0.006, 0.000036, 0.979),
    "agreement": (-0.700, 0.490278, 0.0004),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("published")
    runs, rows = import_published(PUBLISHED)
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    start = time.process_time()
    analysis = analyze(folder)
    assert time.process_time() - start < 30  # seconds of work; the clock would also count what else runs here
    return analysis


@pytest.fixture(scope="module")
def table_1(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """The 21 seeds of the paper's Table 1 alone; data/README.md says where the figures come from."""
    folder = tmp_path_factory.mktemp("table-1")
    runs, rows = import_published(Path(__file__).parent / "data" / "table1.csv")
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return analyze(folder)


@pytest.mark.parametrize("metric", CONTRACT)
def test_table_1_of_the_paper_is_reproduced_from_its_figures(table_1: Analysis, metric: str) -> None:
    assert_as_in_the_contract(table_1, metric)


def test_three_metrics_of_table_1_survive_holm(table_1: Analysis) -> None:
    rows = [r for r in table_1.tables["relate"] if r.subset == WITHIN and r.family == "paper"]
    assert {row.metric for row in rows} == set(CONTRACT)
    survive = {row.metric for row in rows if row.p_holm is not None and row.p_holm < 0.05}
    assert survive == {"logdist_uncentred_cv", "duality_cos_mean", "agreement"}
    verdicts = {row.metric: row.verdict for row in rows if row.metric in survive}
    assert verdicts.pop("logdist_uncentred_cv") is Verdict.DESCRIPTION, "a ratio has no direction"
    assert set(verdicts.values()) == {Verdict.AS_PREDICTED}


@needs_published
def test_the_figures_of_table_1_are_those_of_the_published_table() -> None:
    with PUBLISHED.open(newline="") as file:
        whole = {line["model"]: line for line in csv.DictReader(file)}
    with (Path(__file__).parent / "data" / "table1.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 21
    for line in lines:
        assert line == {name: whole[line["model"]][name] for name in line}


@needs_published
@pytest.mark.parametrize("metric", CONTRACT)
def test_the_seeds_of_the_paper_have_the_numbers_of_the_contract(published: Analysis, metric: str) -> None:
    assert_as_in_the_contract(published, metric)


@needs_published
def test_one_order_for_all_units_costs_the_published_table_one_trend_with_width_or_depth(published: Analysis) -> None:
    """With an order for each unit `cosine_cv` had a corrected p of .0007 with width; all others are as they were."""
    rows = {(row.axis, row.metric): row for row in published.tables["trends"] if row.family == "paper"}
    shown = {
        axis: {metric for along, metric in rows if along == axis and rows[axis, metric].verdict in SHOWN}
        for axis in ("width", "depth", "epochs", "epoch")
    }
    always = {"cdnv_k2", "lognorm_cv", "logdist_uncentred_cv", "agreement", "val_loss"}
    assert shown["width"] == always | {"duality_cos_cv"}
    assert shown["depth"] == always | {"cosine_cv"}
    assert rows["width", "cosine_cv"].p_corrected == pytest.approx(41 / 360)
    assert {rows["depth", metric].p_corrected for metric in shown["depth"]} == {2 / 120}
    # Three lengths have six orders, and all runs are of one data order: neither can show anything.
    assert (shown["epochs"], shown["epoch"]) == (set(), set())
    assert rows["epochs", "val_loss"].verdict is Verdict.TOO_FEW
    assert rows["epoch", "val_loss"].verdict is Verdict.DESCRIPTION


def assert_as_in_the_contract(analysis: Analysis, metric: str) -> None:
    row = next(r for r in analysis.tables["relate"] if (r.subset, r.metric, r.transform) == (WITHIN, metric, "raw"))
    r, r2, p = CONTRACT[metric]
    assert (row.n, row.cells, row.missing) == (21, 1, 0)
    assert row.r is not None
    assert row.r2 is not None
    assert row.p_permutation is not None
    assert round(row.r, 3) == r
    assert round(row.r2, 6) == r2
    # four standard errors of 10,000 permutations, and half a unit of the digit that the contract prints
    assert abs(row.p_permutation - p) < 4 * np.sqrt(p * (1 - p) / 10_000) + 0.0005


@needs_published
def test_three_of_the_seven_survive_holm(published: Analysis) -> None:
    rows = [r for r in published.tables["relate"] if r.subset == WITHIN and r.family == "paper"]
    assert {row.metric for row in rows} == set(CONTRACT)
    survive = {row.metric for row in rows if row.p_holm is not None and row.p_holm < 0.05}
    assert survive == {"logdist_uncentred_cv", "duality_cos_mean", "agreement"}
    verdicts = {row.metric: row.verdict for row in rows if row.metric in survive}
    assert verdicts.pop("logdist_uncentred_cv") is Verdict.DESCRIPTION, "a ratio has no direction"
    assert set(verdicts.values()) == {Verdict.AS_PREDICTED}


@needs_published
def test_equiangularity_is_judged_by_its_parts(published: Analysis) -> None:
    rows = [r for r in published.tables["relate"] if r.metric == "cosine_cv"]
    assert len(rows) == 2
    assert {(row.goes, row.verdict) for row in rows} == {(None, Verdict.DESCRIPTION)}
    within = {row.metric: row for row in published.tables["relate"] if row.subset == WITHIN}
    assert within["cosine_mean"].verdict is Verdict.AS_PREDICTED
    assert within["cosine_std"].verdict in (Verdict.AS_PREDICTED, Verdict.NOT_SHOWN)


@needs_published
def test_sentences_are_at_most_two_lines(published: Analysis) -> None:
    texts = [s.text for s in published.sentences]
    assert len(texts) > 20
    assert not [text for text in texts if len(text) > 200]


@needs_published
def test_beyond_a_smooth_function_of_scale_nothing_is_shown_of_the_published_models(published: Analysis) -> None:
    """Metrics correlate with the loss across models, and none does in all specifications beyond scale."""
    joint = [row for row in published.tables["controls"] if row.family == "paper"]
    assert len(joint) == 7
    assert {row.verdict for row in joint} <= {Verdict.NOT_SHOWN, Verdict.TOO_FEW, Verdict.DESCRIPTION}


@needs_published
def test_the_seeds_of_the_paper_have_a_slope_and_a_power(published: Analysis) -> None:
    rows = {(row.subset, row.metric, row.transform): row for row in published.tables["relate"]}
    row = rows[WITHIN, "agreement", "raw"]
    assert (row.slope, row.slope_low, row.slope_high) == pytest.approx((-0.0068, -0.0102, -0.0035), abs=5e-5)
    assert row.detectable_r == pytest.approx(0.58, abs=0.005)


@needs_published
def test_six_widths_are_compared_under_two_decays(published: Analysis) -> None:
    rows = [row for row in published.tables["trends"] if row.axis == "weight_decay"]
    assert {str(row.where) for row in rows} == {"epochs=1 epoch=1", "epochs=10 epoch=10"}
    assert {row.groups for row in rows} == {6}, "widths"
    assert {(row.axis, row.groups) for row in published.tables["trends"] if row.axis != "weight_decay"} == {
        ("width", 5), ("depth", 6), ("epochs", 30), ("epoch", 1)
    }  # fmt: skip


def planted(folder: Path, *, slope: float) -> tuple[list[Run], list[Row]]:
    study = seeds_study(cells=6, seeds=8, metrics=("agreement", "cdnv_k2"))
    models = drawn(study, np.random.default_rng(5), slope=slope)
    runs, rows = [], []
    for record in models.frame.to_dict("records"):
        given = {name: record[name] for name in ("width", "depth", "seed", "parameters", "val_loss")}
        run = run_of(record["run"], **{k: int(v) if k != "val_loss" else v for k, v in given.items()})
        runs.append(run)
        rows += [row_of(run, metric, record[metric]) for metric in models.metrics]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return runs, rows


def claims(analysis: Analysis) -> dict[str, Verdict]:
    """The verdict on every metric at fixed scale, on the scale of the catalogue."""
    rows = [row for row in analysis.tables["relate"] if row.subset == WITHIN]
    return {row.metric: row.verdict for row in rows if row.transform == METRICS[row.metric].transform}


def test_an_effect_that_is_there_is_claimed_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    planted(tmp_path / "there", slope=-0.8)
    planted(tmp_path / "none", slope=0.0)
    there, none = (analyze(tmp_path / name, permutations=499) for name in ("there", "none"))
    assert claims(there) == {"agreement": Verdict.AS_PREDICTED, "cdnv_k2": Verdict.NOT_SHOWN}
    assert set(claims(none).values()) == {Verdict.NOT_SHOWN}
    within = [row for row in none.tables["relate"] if row.subset == WITHIN]
    assert {(row.n, row.cells) for row in within} == {(48, 6)}


def test_the_registered_outcome_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = planted(tmp_path, slope=0.0)
    RUNS.write(tmp_path / "runs.csv", [{**run, "val_accuracy": 1 / (run["val_loss"] or 1)} for run in runs])
    registered = Primary(outcome="val_accuracy")
    monkeypatch.setattr("collapselab.analysis.analyze.registered_primary", lambda directory: registered)
    assert analyze(tmp_path, permutations=99).outcome == "val_accuracy"
    assert analyze(tmp_path, permutations=99, outcome="val_loss").outcome == "val_loss"


def test_without_seeds_nothing_is_said_of_fixed_scale(tmp_path: Path) -> None:
    runs = [run_of(f"{w}", width=w, val_loss=5.0 - w) for w in range(1, 7)]
    RUNS.write(tmp_path / "runs.csv", runs)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "agreement", run["width"] / 10) for run in runs])
    analysis = analyze(tmp_path, permutations=99)
    rows = [row for row in analysis.tables["relate"] if row.subset == WITHIN]
    assert {(row.verdict, row.why_code, row.n) for row in rows} == {(Verdict.TOO_FEW, Cause.TOO_FEW, 0)}
    assert len([s for s in analysis.sentences if s.topic == "scale held fixed"]) == 1


def grid(folder: Path) -> list[Run]:
    """Five widths by eight depths; the values of each metric go one known way."""
    runs = [
        run_of(f"{w} {d}", width=w, depth=d, val_loss=5 - w / 100 - d / 1000)
        for w in (4, 8, 16, 32, 64)
        for d in range(1, 9)
    ]
    ways = {
        "agreement": lambda w, d: w / 100,  # toward collapse
        "cdnv_k2": lambda w, d: w + d**2 / 10,  # away from it
        "norm_cv": lambda w, d: 1 / w,  # toward, not of the paper
        "cosine_std": lambda w, d: w if d % 2 else 1 / w,  # either way, not of the paper
        "effective_rank": lambda w, d: w,  # one way where collapse predicts none, not of the paper
    }
    rows = [row_of(run, metric, way(run["width"], run["depth"])) for metric, way in ways.items() for run in runs]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return runs


def told(folder: Path, topic: str) -> list[str]:
    return [sentence.text for sentence in analyze(folder, permutations=99).sentences if sentence.topic == topic]


def test_trends_have_a_sentence_for_the_outcome_and_each_direction(tmp_path: Path) -> None:
    grid(tmp_path)
    width, depth = (
        [text for text in told(tmp_path, "trends") if text.startswith(f"With {axis}")] for axis in ("width", "depth")
    )
    assert len(width) == 4
    assert depth
    assert "agreement" in width[1]
    assert "norm_cv" not in "".join(width), "not of the paper: counted"


def test_where_nothing_is_shown_no_name_is_listed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    runs = [
        run_of(f"{w} {d}", width=w, depth=d, val_loss=rng.random()) for w in (4, 8, 16, 32, 64) for d in range(1, 9)
    ]
    RUNS.write(tmp_path / "runs.csv", runs)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "agreement", rng.random()) for run in runs])
    assert "agreement" not in "".join(told(tmp_path, "trends"))


def test_where_nothing_of_the_paper_was_measured_the_others_are_named(tmp_path: Path) -> None:
    runs = grid(tmp_path)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "norm_cv", 1 / run["width"]) for run in runs])
    assert "norm_cv -0.23" in told(tmp_path, "trends")[1]


def test_a_run_that_failed_is_not_a_model_and_is_said(tmp_path: Path) -> None:
    runs = grid(tmp_path)
    (before,) = told(tmp_path, "models")
    failed = run_of("bad", width=99, epoch=None, val_loss=None, why="training failed: loss is nan.")
    RUNS.write(tmp_path / "runs.csv", [*runs, failed])
    (after,) = told(tmp_path, "models")
    assert after.startswith(before.rstrip("."))
    assert "1 run failed" in after


def test_across_models_numbers_are_described_and_nothing_is_called_shown(tmp_path: Path) -> None:
    analysis = planted_across(tmp_path)
    rows = [row for row in analysis.tables["relate"] if row.subset == ALL]
    assert {row.verdict for row in rows} == {Verdict.DESCRIPTION}
    (text,) = [s.text for s in analysis.sentences if s.topic == "across models"]
    assert "agreement" in text, "the strongest"
    assert "shown" not in text


def test_a_reversal_is_the_first_thing_said(tmp_path: Path) -> None:
    planted(tmp_path, slope=0.9)
    analysis = analyze(tmp_path, permutations=499)
    ((across, within),) = reversals(analysis.tables["relate"])
    assert across.metric == within.metric == "agreement"
    assert (across.slope or 0) < 0 < (within.slope or 0)
    assert (analysis.sentences[0].topic, [s.topic for s in analysis.sentences].count("reversal")) == ("reversal", 1)


def planted_across(folder: Path) -> Analysis:
    """Twelve models of one regime: agreement follows the loss closely, lognorm_cv hardly."""
    runs = [run_of(f"{w}", width=w, val_loss=5 - w / 10) for w in range(1, 13)]
    noise = np.random.default_rng(1).standard_normal(12)
    rows = [row_of(run, "agreement", run["width"] / 20 + 0.001 * noise[i]) for i, run in enumerate(runs)]
    rows += [row_of(run, "lognorm_cv", 1 + 0.1 * noise[i] - 0.005 * i) for i, run in enumerate(runs)]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return analyze(folder, permutations=999)


def test_the_tables_are_written_with_the_columns_of_the_design(tmp_path: Path) -> None:
    planted(tmp_path, slope=0.0)
    analysis = analyze(tmp_path, permutations=99)
    starts = {
        "relate": "subset,metric,outcome,n,r,r2,low,high,p_permutation,p_holm",
        "controls": "metric,n,partial_r,p,p_holm,specifications",
    }
    for name, rows in analysis.tables.items():
        with (tmp_path / "analysis" / f"{name}.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == len(rows)
        if name in starts:
            assert ",".join(lines[0]).startswith(starts[name])
        if name == "relate":
            assert float(lines[0]["r"]) == analysis.tables["relate"][0].r
    summary = json.loads((tmp_path / "analysis" / "summary.json").read_text())
    assert [s["text"] for s in summary["sentences"]] == [s.text for s in analysis.sentences]


def test_everything_is_in_the_json_and_nothing_in_it_is_nan(tmp_path: Path) -> None:
    planted(tmp_path, slope=0.0)
    document = json.loads(json.dumps(analyze(tmp_path, permutations=99).to_json(), allow_nan=False))
    assert {"relate", "controls", "trends", "diagnosis", "sentences", "outcome", "models"} <= set(document)
    assert {row["metric"] for row in document["controls"]} == {row["metric"] for row in document["relate"]}


def test_the_same_seed_gives_the_same_analysis(tmp_path: Path) -> None:
    planted(tmp_path, slope=0.3)
    first, again, other = (analyze(tmp_path, permutations=99, seed=seed) for seed in (1, 1, 2))
    assert first.tables["relate"] == again.tables["relate"]
    assert first.tables["relate"] != other.tables["relate"]


def test_two_models_are_analysed_to_reasons(tmp_path: Path) -> None:
    runs = [run_of(f"{s}", seed=s, val_loss=1.0 + s) for s in range(2)]
    RUNS.write(tmp_path / "runs.csv", runs)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "agreement", 0.1 + run["seed"]) for run in runs])
    analysis = analyze(tmp_path, permutations=99)
    assert all(row.r is None and row.why for row in analysis.tables["relate"])
    assert all(row.partial_r is None and row.why for row in analysis.tables["controls"])
    within = [row for row in analysis.tables["relate"] if row.subset == WITHIN]
    assert {(row.why_code, row.n) for row in within} == {(Cause.TOO_FEW, 2)}


def test_a_suite_of_which_nothing_is_measured_yet_has_no_numbers(tmp_path: Path) -> None:
    RUNS.write(tmp_path / "runs.csv", [run_of("a", val_loss=1.0)])
    RESULTS.write(tmp_path / "results.csv", [])
    analysis = analyze(tmp_path, permutations=99)
    assert analysis.tables["relate"] == []
    assert len([s for s in analysis.sentences if s.topic == "scale held fixed"]) == 1


def test_wrong_arguments_and_folders_are_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no runs.csv"):
        analyze(tmp_path)
    planted(tmp_path, slope=0.0)
    with pytest.raises(ConfigError, match="permutations: "):
        analyze(tmp_path, permutations=10)
    with pytest.raises(ConfigError, match="outcome: 'loss'"):
        analyze(tmp_path, outcome="loss")


def test_scores_of_the_user_are_outcomes_and_are_kept(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", seeds=2, failures=0, inside=False)
    runs = RUNS.read(folder / "runs.csv")
    names = sorted({run["run"] for run in runs})
    lines = [f"{name},{0.5 + 0.01 * number}" for number, name in enumerate(names[1:])]
    (tmp_path / "scores.csv").write_text("\n".join(["run,blimp", *lines, "other,0.9"]) + "\n")
    analysis = analyze(folder, outcome="score:blimp", scores=tmp_path / "scores.csv", permutations=99)
    said = [sentence.text for sentence in analysis.sentences if sentence.topic == "scores"]
    assert "'other'" in said[1]
    assert names[0] in said[2]
    assert analysis.models == len([run for run in runs if run["epoch"] != 0])
    again = analyze(folder, outcome="score:blimp", permutations=99)
    assert again.tables["relate"] == analysis.tables["relate"]
    assert [sentence.text for sentence in again.sentences if sentence.topic == "scores"] == said
    with pytest.raises(NothingToRelate, match="Choose from score:blimp"):
        analyze(folder, outcome="score:blump", permutations=99)
    assert load_report_data(folder).outcome == "score:blimp"
    kept = folder / "analysis" / "scores.csv"
    kept.write_text(kept.read_text().replace("0.51", "0.99"))
    for stage in (load_report_data, analyze):
        with pytest.raises(DamagedError, match=r"scores\.csv: not the scores that were analysed last"):
            stage(folder)
    analyze(folder, outcome="score:blimp", scores=tmp_path / "scores.csv", permutations=99)
    assert "0.99" not in kept.read_text()


def test_scores_are_not_replaced_by_those_of_an_analysis_that_failed(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", seeds=1, failures=0, inside=False)
    names = sorted({run["run"] for run in RUNS.read(folder / "runs.csv")})
    for name in ("good", "bad"):
        lines = [f"{run},{0.5 + 0.01 * number}" for number, run in enumerate(names)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"run,{name}", *lines]) + "\n")
    analyze(folder, outcome="score:good", scores=tmp_path / "good.csv", permutations=99)
    with pytest.raises(NothingToRelate):
        analyze(folder, outcome="score:good", scores=tmp_path / "bad.csv", permutations=99)
    assert load_report_data(folder).outcome == "score:good"


def test_the_short_summary_answers_first_and_has_ten_sentences_at_most() -> None:
    sentences = [Sentence("models", "runs", "8 runs.")]
    sentences += [Sentence("as a cause", "effects", f"arm {i} helps.") for i in range(20)]
    sentences += [Sentence("trends", "trends", f"With width: {words}.") for words in ("no verdict; too few", "falls")]
    sentences += [Sentence("controls", "controls", "Beyond scale: no verdict; 1 architecture.")]
    sentences += [Sentence("diagnosis", "diagnosis", "under-fitted: 0 of 8 runs.")]
    texts = [sentence.text for sentence in short_summary(sentences)]
    assert texts == [
        "8 runs.",
        "arm 0 helps.",
        "arm 1 helps.",
        "arm 2 helps.",
        "With width: falls.",
        "Beyond scale: no verdict; 1 architecture.",
        "With width: no verdict; too few.",
    ]
