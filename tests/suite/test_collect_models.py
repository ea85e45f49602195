"""Results of any origin in one table: what each model is, and a refusal of what cannot be compared."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab import analyze, measure, publish, report
from collapselab.core.catalogue import METRICS
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.models.build import build_config, build_model
from collapselab.records.result_folder import load_results
from collapselab.records.tables import read_tables
from collapselab.suite.collect_models import Place, collect_models, named_place, read_facts, seed_of, training_tokens

STORIES = "storyworld:stories=60,validation=20"
FEW: dict[str, Any] = {"tokens": 600, "quiet": True}


def corpus_of(folder: Path, tokens: int, *, source: str = STORIES, block: int = 32) -> Corpus:
    return build_corpus(open_source([source]), folder, Recipe(tokenizer=f"bpe:{tokens}", block=block))


def saved(path: Path, corpus: Corpus, *, seed: int = 0, width: int = 32, family: str = "gpt-neo") -> Path:
    config = build_config(family, width=width, depth=2, vocabulary=corpus.vocabulary, positions=32)
    build_model(config, seed=seed).save_pretrained(path)  # type: ignore[operator]
    corpus.tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two families of two tokenizers at three steps each, measured on one text."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    for name, tokens, family in (("neo", 290, "gpt-neo"), ("llama", 300, "llama")):
        corpus = corpus_of(folder / f"corpus-{name}", tokens)
        for step in (0, 100, 2000):
            saved(folder / name / f"step{step}", corpus, seed=step, family=family)
        measure(str(folder / name / "step*"), corpus, out=folder / f"results-{name}", layers="all", classes=True, **FEW)
    return folder


def rows_of(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(run["run"], run["checkpoint"]): dict(run) for run in read_tables(folder).runs}


def test_models_of_several_tokenizers_are_joined_with_what_is_known_of_them(place: Path, tmp_path: Path) -> None:
    collected = collect_models([place / "results-neo", place / "results-llama"], tmp_path / "atlas")
    assert (collected.models, collected.runs, collected.notes) == (6, 2, [])
    rows = rows_of(tmp_path / "atlas")
    assert list(rows) == [(run, f"step{step}") for run in ("llama", "neo") for step in (0, 100, 2000)]
    row, result = rows["llama", "step100"], load_results(place / "results-llama")
    measured = next(one for one in result if one.name.endswith("step100"))
    assert (row["family"], row["width"], row["depth"], row["step"], row["vocabulary"]) == ("llama", 32, 2, 100, 300)
    model = build_model(build_config("llama", width=32, depth=2, vocabulary=300, positions=32), seed=0)
    assert row["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert row["val_loss"] == measured.facts["splits"]["validation"]["loss"]
    assert row["bits_per_byte"] == measured.facts["splits"]["validation"]["bits_per_byte"]
    assert rows["neo", "step0"]["epoch"] == 0.0
    assert row["epoch"] is None
    assert row["tokenizer"] != rows["neo", "step0"]["tokenizer"]
    tables = read_tables(tmp_path / "atlas")
    assert {(one.run, one.checkpoint) for one in tables.rows} == set(rows)
    values = {one.metric: one.value for one in tables.rows if (one.run, one.checkpoint) == ("llama", "step100")
              and (one.layer, one.bin, one.split) == ("last", "all", "train")}  # fmt: skip
    assert values["cdnv"] == measured.row("cdnv").value


def test_collected_models_are_published_without_their_paths(place: Path, tmp_path: Path) -> None:
    collect_models([place / "results-neo"], tmp_path / "atlas")
    made = publish(tmp_path / "atlas", to="hf:me/a")
    assert [found.facts["model"] for found in load_results(made.folder)] == ["step0", "step100", "step2000"]
    assert "classes.parquet" in made.files
    for file in made.files:
        assert str(place).encode() not in (made.folder / file).read_bytes(), file


def test_a_result_in_the_place_of_another_is_refused(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "results-neo", tmp_path / "results")
    one, other, *_ = sorted((tmp_path / "results").glob("*.json"))
    other.unlink()
    other.symlink_to(one)
    with pytest.raises(DamagedError, match=other.name):
        collect_models([tmp_path / "results"], tmp_path / "atlas")


def test_bits_per_byte_are_the_loss_over_the_bytes_of_the_text(place: Path) -> None:
    """By hand: every block decoded, the bytes after its first token counted."""
    import math

    corpus = Corpus(place / "corpus-neo")
    (result, *_) = load_results(place / "results-neo")
    facts = result.facts["splits"]["validation"]
    whole = measure(str(place / "neo" / "step0"), corpus, quiet=True)
    scores = whole.facts["splits"]["validation"]  # type: ignore[union-attr]
    tokenizer, size, tokens = corpus.tokenizer(), 0, 0
    for block in corpus.validation.ids.tolist():
        size += len(tokenizer.decode(block, skip_special_tokens=True).encode())
        size -= len(tokenizer.decode(block[:1], skip_special_tokens=True).encode())
        tokens += len(block) - 1
    assert scores["bytes"] == size
    assert scores["bits_per_byte"] == pytest.approx(scores["loss"] * tokens / math.log(2) / size, rel=1e-12)  # type: ignore[operator]
    assert 0 < facts["bytes"] < size


def test_a_loss_per_token_of_several_tokenizers_is_refused(place: Path, tmp_path: Path) -> None:
    collect_models([place / "results-neo", place / "results-llama"], tmp_path / "atlas")
    with pytest.raises(ConfigError, match="val_loss is a number per token, and these models have 2 tokenizers"):
        analyze(tmp_path / "atlas", outcome="val_loss")
    assert analyze(tmp_path / "atlas", permutations=99).outcome == "bits_per_byte"
    collect_models([place / "results-neo"], tmp_path / "alone")
    assert analyze(tmp_path / "alone", permutations=99).outcome == "val_loss"


def test_the_page_of_an_atlas_draws_every_figure_of_it(place: Path, tmp_path: Path) -> None:
    from collapselab.report.data import load_report_data
    from collapselab.report.report import contents

    collect_models([place / "results-neo", place / "results-llama"], tmp_path / "atlas")
    analyze(tmp_path / "atlas", permutations=99)
    written = report(tmp_path / "atlas")
    page = written.page.read_text()
    assert 'id="overview"' in page
    shown = contents(load_report_data(tmp_path / "atlas"))
    for key in ("explore", "training", "layers"):
        figure = shown.figures[key]
        assert figure.panels, f"{key}: {figure.missing}"
        for panel in figure.panels:
            assert shown.tables[panel.table], panel.key
    assert "along training of 2 runs" in shown.figures["training"].panels[0].numbers
    assert "at step" in shown.figures["training"].panels[0].numbers
    assert set(shown.tables["layers cdnv_k2"]["place"]) == {1, 2, 3}


def test_a_mix_of_corpora_is_refused_unless_it_is_asked_for(place: Path, tmp_path: Path) -> None:
    again = build_corpus(
        open_source(["storyworld:stories=60,validation=20,seed=9"]), tmp_path / "same-tokenizer",
        Recipe(tokenizer=str(place / "corpus-neo" / "tokenizer"), block=32),
    )  # fmt: skip
    measure(str(place / "neo" / "step*"), again, out=tmp_path / "results", layers="all", classes=True, **FEW)
    folders = [place / "results-neo", tmp_path / "results"]
    with pytest.raises(
        ConfigError, match=r"results of 2 texts .*storyworld \w{8}, blocks of 32 .*step0.*--mix corpora"
    ):
        collect_models(folders, tmp_path / "atlas")
    assert not (tmp_path / "atlas").exists()
    collect_models(folders, tmp_path / "atlas", mix=["corpora"])
    runs = {run for run, _ in rows_of(tmp_path / "atlas")}
    assert len(runs) == 2
    assert all(run.startswith("neo on storyworld ") for run in runs)
    from collapselab.report.data import load_report_data
    from collapselab.report.report import contents

    analyze(tmp_path / "atlas", permutations=99)
    assert set(contents(load_report_data(tmp_path / "atlas")).tables["layers cdnv_k2"]["run"]) == runs


def test_a_mix_of_options_is_refused_unless_it_is_asked_for(place: Path, tmp_path: Path) -> None:
    measure(str(place / "neo" / "step0"), place / "corpus-neo", out=tmp_path / "few", tokens=300, quiet=True)
    with pytest.raises(ConfigError, match=r'results of 2 options.*"tokens": 300.*--mix options'):
        collect_models([place / "results-neo", tmp_path / "few"], tmp_path / "atlas")
    with pytest.raises(ConfigError, match="neo step0 is there twice"):
        collect_models([place / "results-neo", tmp_path / "few"], tmp_path / "atlas", mix=["options"])
    with pytest.raises(ConfigError, match="'corpus' is not something that may differ. It is one of corpora"):
        collect_models([place / "results-neo"], tmp_path / "atlas", mix=["corpus"])


@pytest.mark.parametrize(("metric", "version", "models"), [("cdnv", 99, 2), ("head_sum", 1, 3)])
def test_results_of_a_later_definition_are_left_out_and_of_an_earlier_one_their_metric(
    place: Path, tmp_path: Path, metric: str, version: int, models: int
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in sorted((place / "results-neo").glob("*.json")):
        result = next(iter(load_results(path)))
        rows = [replace(row, version=version) if row.metric == metric else row for row in result.rows]
        changed = rows if "step0" in path.name else result.rows
        type(result)(changed, result.facts, result.further).save(other / path.name)
    collected = collect_models([other], tmp_path / "atlas")
    assert collected.models == models
    assert len(collected.notes) == 1
    found = [row for row in read_tables(tmp_path / "atlas").rows if row.metric == metric and row.layer == "last"]
    assert {row.version for row in found} == {METRICS[metric].version}
    assert len({(row.run, row.checkpoint) for row in found}) == 2


@pytest.mark.parametrize(
    ("model", "checkpoint", "expected"),
    [
        ("EleutherAI/pythia-70m@step1000", "step1000", Place("EleutherAI/pythia-70m", "step1000", 1000)),
        (
            "allenai/OLMo@stage1-step10-tokens5B",
            "stage1-step10-tokens5B",
            Place("allenai/OLMo", "stage1-step10-tokens5B", 10),
        ),
        ("gpt2", "-", Place("gpt2", "-", None)),
        ("out/small/checkpoint-500", "-", Place("out/small", "checkpoint-500", 500)),
        ("out/global_step7", "-", Place("out", "global_step7", 7)),
        ("models/llama-7b", "-", Place("models/llama-7b", "-", None)),
    ],
)
def test_run_and_step_follow_from_the_name(model: str, checkpoint: str, expected: Place) -> None:
    facts: Any = {"model": model, "checkpoint": checkpoint, "in_a_run": False, "run": model}
    assert named_place(facts) == expected


def test_training_tokens_follow_from_the_revision_where_they_are_published_or_said() -> None:
    assert training_tokens(Place("EleutherAI/pythia-70m", "step1000", 1000)) == 2_097_152_000
    assert training_tokens(Place("allenai/OLMo-2", "stage1-step600-tokens2.5B", 600)) == 2_500_000_000
    assert training_tokens(Place("mine", "step600", 600)) is None
    assert training_tokens(Place("mine", "step600", 600), 10) == 6000
    assert training_tokens(Place("mine", "step0", 0)) == 0
    assert seed_of(Place("EleutherAI/pythia-14m-seed3", "step1", 1)) == 3
    assert seed_of(Place("seedling/model", "-", None)) is None


def test_a_table_of_facts_says_what_names_do_not(place: Path, tmp_path: Path) -> None:
    facts = tmp_path / "models.csv"
    facts.write_text("model,tokens_per_step,seed,data\nneo,1e3,7,mine\n*llama*,2000,,theirs\nnobody,1,,\n")
    collected = collect_models([place / "results-neo", place / "results-llama"], tmp_path / "atlas", facts=facts)
    assert collected.notes == [f"{facts}: no model is called nobody."]
    rows = rows_of(tmp_path / "atlas")
    assert rows["neo", "step100"]["tokens"] == 100_000
    assert rows["llama", "step2000"]["tokens"] == 4_000_000
    assert (rows["neo", "step0"]["seed"], rows["neo", "step0"]["data"]) == (7, "mine")
    from collapselab.report.data import load_report_data
    from collapselab.report.report import contents

    analyze(tmp_path / "atlas", permutations=99)
    training = contents(load_report_data(tmp_path / "atlas")).figures["training"]
    assert "at training tokens" in training.panels[0].numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,tokens\na,1\n", "no column 'model'"),
        ("model,val_loss\na,1\n", "val_loss comes from measuring and cannot be given"),
        ("model,tokens\na,many\n", "line 2: tokens is 'many'"),
        ("model,tokens\na,-5\n", "line 2: tokens is -5"),
    ],
)
def test_a_table_of_facts_that_is_wrong_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "models.csv").write_text(text)
    with pytest.raises((ConfigError, RunError), match=message):
        read_facts(tmp_path / "models.csv")


def test_nothing_to_collect_is_an_error(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError):
        collect_models([tmp_path / "empty"], tmp_path / "atlas")
    with pytest.raises(ConfigError, match="a model"):
        collect_models([place / "results-neo"], place / "neo" / "step0")


def test_runs_of_ours_join_models_of_others(place: Path, tmp_path: Path) -> None:
    from collapselab.training.settings import Settings
    from collapselab.training.train import train

    corpus = Corpus(place / "corpus-neo")
    settings = Settings(width=16, depth=1, lr=3e-3, batch=8, steps=6, seed=3, checkpoints="0")
    train(settings, corpus.path, tmp_path / "runs" / "own")
    measure(tmp_path / "runs" / "own", corpus, layers="all", classes=True, **FEW)
    collect_models([place / "results-neo", tmp_path / "runs" / "own"], tmp_path / "atlas")
    rows = rows_of(tmp_path / "atlas")
    own = [row for (run, _), row in rows.items() if run == "own"]
    assert len(own) == 2
    assert {row["lr"] for row in own} == {0.003}
    assert {row["epoch"] for row in own} >= {0.0}
    assert all(row["tokenizer"] == rows["neo", "step0"]["tokenizer"] for row in own)
    assert json.loads((tmp_path / "atlas" / "tables.json").read_text())["made_from"]
    assert analyze(tmp_path / "atlas", permutations=99).outcome == "val_loss"
    text = "storyworld:stories=30,validation=10"
    results = measure(tmp_path / "runs" / "own", data=text, tokens=300, out=tmp_path / "others", quiet=True)
    for result in results:  # type: ignore[union-attr]
        assert (result.facts["splits"]["validation"]["bits_per_byte"] or 0) > 0, "on text that is not the run's own"
    shutil.rmtree(tmp_path / "runs")
    collect_models([tmp_path / "others"], tmp_path / "elsewhere")
    known = [(row["step"], row["seed"], row["tokens"]) for row in rows_of(tmp_path / "elsewhere").values()]
    assert known == [(0, 3, 0), (6, 3, 6 * 8 * 31)], "results know their training where the run is gone"


@pytest.mark.parametrize("wrong", [{"parameters": -1}, {"parameters": 10**40}, {"splits": {}}])
def test_facts_that_cannot_be_are_refused_with_the_file(place: Path, tmp_path: Path, wrong: Any) -> None:
    (result, *_) = load_results(place / "results-neo")
    hostile = tmp_path / "hostile.json"
    replace(result, facts={**result.facts, **wrong}).save(hostile)
    with pytest.raises(DamagedError, match=r"hostile\.json"):
        report(hostile)
