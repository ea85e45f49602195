"""The command: tables for people, one JSON document for programs, exit 1 where some failed."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from checkpoints import save_checkpoint
from collapselab import METRICS
from collapselab.cli.measure import measure
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement.show import sweep_table
from collapselab.models.build import build_config, build_model
from collapselab.records.profile import HEADLINES
from collapselab.records.result_folder import load_results
from collapselab.records.tables import RESULTS

app = typer.Typer()
app.command()(measure)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, two models, and a run with two checkpoints."""
    place = tmp_path_factory.mktemp("place")
    source = open_source(["storyworld:stories=8,validation=3"])
    build_corpus(source, place / "corpus", Recipe(tokenizer="bpe:300", block=32))
    config = build_config("gpt-neo", width=8, depth=2, vocabulary=320, positions=32)
    for seed, name in enumerate(("one", "two", "three")):
        build_model(config, seed=seed).save_pretrained(place / name)
    for seed, checkpoint in ((3, "0"), (4, "1")):
        save_checkpoint(build_model(config, seed=seed), place / "run", checkpoint)
    return place


def invoked(place: Path, *words: str | Path, columns: int = 200) -> Result:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    arguments = [str(word) for word in words]
    env = {"COLUMNS": str(columns), "XDG_CACHE_HOME": str(place / "cache")}
    try:
        return CliRunner().invoke(
            app, ["--full", *arguments, "--corpus", str(place / "corpus"), "--tokens", "200"], env=env
        )
    finally:
        torch.set_num_threads(threads)


def test_the_table_shows_every_metric_by_property_with_its_null(place: Path) -> None:
    result = invoked(place, place / "one", "--layers", "all", "--bins", "2", "--bootstrap", "3")
    assert result.exit_code == 0, result.output
    table = result.stdout
    for metric in METRICS.values():
        assert re.search(rf"\b{metric.id}★?\s+[-\d–]", table), metric.id
    assert all(table.count(f"\n {name}  ") == 1 for name in {metric.property for metric in METRICS.values()})
    for word in ("null", "95 % interval", "halves differ", "loss", "by layer", "by count of the class", "↓", "↑", "→"):
        assert word in table, word
    kept = {path.name for path in (place / "cache" / "collapselab" / "measure").iterdir()}
    assert kept == {"finished"}, "finished work leaves nothing but its result"


def test_a_terminal_of_80_columns_shows_names_whole_and_says_once_what_blocks_lack(place: Path) -> None:
    shown = invoked(place, place / "run", "--layers", "all", "--contexts", "1,2", "--min-uses", "2", columns=80).stdout
    assert "…" not in shown, "a name that is cut off could be another"
    assert max(map(len, shown.splitlines())) <= 80
    by_layer = shown.split("by layer")[1].split("\ncontexts")[0]
    assert re.search(r"– scatter_pinv,.*the\s+covariance\s+within\s+classes\s+is", by_layer.replace("\n", " "))
    assert not re.search(r"\n scatter_pinv +–", by_layer), "no line of dashes"
    assert shown.count(" token_between_contexts ") == 2, "a line in both models' tables"


def test_the_number_of_drawn_samples_is_said(place: Path) -> None:
    shown = invoked(place, place / "two", "--per-class", "3").stdout
    assert re.search(
        r"tokens a class, 3 of which are drawn; .* whose class the training sample has fewer than 3", shown
    )
    shown = invoked(place, place / "two", "--min-count", "2").stdout
    assert "drawn" not in shown
    assert "whose class the training sample has fewer than 2 times" in shown


def test_outcomes_are_shown_with_what_they_are(place: Path) -> None:
    shown = invoked(place, place / "two", "--outcomes", "ece,gap", "--on", place / "corpus").stdout
    assert re.search(r"\n ece +0\.\d+ +expected calibration error", shown)
    assert re.search(r"\n gap +-?[\d.]+ +validation loss minus", shown)
    assert re.search(r"\n loss_on:corpus +[\d.]+ +bits per byte", shown)
    assert re.search(r"validation: .* perplexity [\d.]+, [\d.]+ bits per byte", shown)


def test_the_table_of_a_sweep_is_narrow_and_has_no_empty_column(place: Path) -> None:
    shown = invoked(place, place / "run", "--out", place / "of-a-run").stdout
    assert [line.split()[0] for line in shown.splitlines()[:3]] == ["model", "run@0", "run@1"]
    assert "bits/byte" in shown, "the corpus is not the run's own"
    results = load_results(place / "of-a-run")
    for result in results:
        result.facts["splits"]["validation"].pop("bits_per_byte")
    header = [column.header for column in sweep_table(results).columns]
    assert header == ["model", "loss", "NC1", "GNC2", "NC3", "UNC3", "NC4"]


def test_json_is_one_document_with_rows_and_facts(place: Path) -> None:
    result = invoked(place, place / "one", "--json", "--no-null")
    document = json.loads(result.stdout)
    assert {row["metric"] for row in document["rows"]} == set(METRICS)
    facts = document["facts"]
    assert facts["splits"]["validation"]["loss"] > 0
    assert facts["options"]["null"] is False
    assert set(facts["versions"]) == {"collapselab", "torch", "transformers"}
    assert facts["seconds"]["all"] > 0
    assert {"model_hash", "corpus_hash", "dtype"} <= set(facts)


def test_the_same_command_shows_the_same_document(place: Path) -> None:
    words = ("--json", "--no-null", "--classes", "--layers", "all")
    first, again = (json.loads(invoked(place, place / "two", *words).stdout) for _ in range(2))
    assert len(first["tables"]["classes"]) == 1
    assert first == again


def test_rows_are_written_as_csv_json_or_parquet(place: Path, tmp_path: Path) -> None:
    for suffix in ("csv", "json", "parquet"):
        assert invoked(place, place / "one", "--out", tmp_path / f"rows.{suffix}").exit_code == 0
    rows = RESULTS.read(tmp_path / "rows.csv")
    assert len(rows) == len(json.loads((tmp_path / "rows.json").read_text())["rows"])
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert frame["value"].dropna().tolist() == [row.value for row in rows if row.value is not None]


@pytest.mark.slow
def test_several_models_end_side_by_side_with_their_reliability(place: Path) -> None:
    result = invoked(place, place / "one", place / "two", place / "three", "--bootstrap", "2")
    assert result.exit_code == 0, result.output
    last = result.stdout[result.stdout.rindex("reliability") :]
    assert re.search(r"cdnv( +[-\d.e]+†?){4}", last)
    assert "validation perplexity" in last


def test_a_run_shows_its_initial_values_and_is_measured_once(place: Path) -> None:
    first = invoked(place, place / "run")
    assert "initial" in first.stdout
    assert "run@0" in first.stdout
    again = invoked(place, place / "run")
    assert again.stdout == first.stdout
    assert "run/0" in again.stderr


def test_a_model_that_fails_is_listed_and_the_exit_is_1(place: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text('{"model_type": "gpt_neo"}')
    result = invoked(place, place / "one", empty)
    assert result.exit_code == 1
    assert "cdnv" in result.stdout
    assert str(empty) in result.stderr


def test_a_batch_that_is_no_number_is_refused(place: Path) -> None:
    result = invoked(place, place / "one", "--batch", "many")
    assert isinstance(result.exception, ConfigError)
    assert "'many'" in str(result.exception)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_first_answer_has_a_line_for_each_property_and_fits(place: Path, columns: int) -> None:
    env = {"COLUMNS": str(columns), "XDG_CACHE_HOME": str(place / "cache")}
    words = [str(place / "one"), "--corpus", str(place / "corpus"), "--tokens", "200", "--layers", "all"]
    result = CliRunner().invoke(app, words, env=env)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    for headline in HEADLINES:
        assert sum(line.startswith(headline.code) and headline.metric in line for line in lines) == 1
    assert "bits per byte" in result.stdout
