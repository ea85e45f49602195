"""YAML to runs: what a recipe means, and what is said of one that is wrong."""

import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collapselab.errors import ConfigError
from collapselab.records.published import import_published
from collapselab.suite import recipe as spec
from collapselab.suite.recipe import Suite, load_suite, parse_suite, shipped_recipes, suite_from
from collapselab.training.settings import Settings, plan

HEAD = "question: Why?\ncorpus: {source: storyworld}\n"
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "reference" / "lc-2024_05_18.csv"


def suite(text: str, **options: Any) -> Suite:
    return parse_suite(HEAD + text, name="mine", where="mine.yaml", **options)


def chosen(found: Suite, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(settings, name) for name in names) for settings, _ in found.runs]


def test_a_grid_is_all_combinations() -> None:
    found = suite("base: {lr: 1e-3}\ngrid: {width: [8, 16], depth: [1, 2, 4]}")
    assert chosen(found, "width", "depth", "lr") == [(w, d, 1e-3) for w in (8, 16) for d in (1, 2, 4)]


def test_a_zip_stands_side_by_side_with_every_combination_of_the_grid() -> None:
    found = suite("base: {depth: 1}\ngrid: {width: [8, 16]}\nzip: {epochs: [1, 3], lr: [1e-3, 2e-3]}")
    assert chosen(found, "width", "epochs", "lr") == [(8, 1, 1e-3), (16, 1, 1e-3), (8, 3, 2e-3), (16, 3, 2e-3)]


def test_listed_runs_come_after_the_grid_and_may_have_grids_of_their_own() -> None:
    found = suite("base: {depth: 1}\ngrid: {width: [8]}\nruns: [{width: 16}, {width: 32, grid: {seed: [1, 2]}}]")
    assert chosen(found, "width", "seed") == [(8, 0), (16, 0), (32, 1), (32, 2)]


def test_without_grid_zip_or_runs_the_base_is_the_run() -> None:
    assert chosen(suite("base: {width: 8, depth: 1}"), "width", "depth") == [(8, 1)]


def test_numbers_and_words_are_those_of_yaml_1_2() -> None:
    found = suite("base: {width: 010, depth: 1, lr: 5e-4, weight_decay: 1E-1, clip: .5}")
    assert chosen(found, "width", "lr", "weight_decay", "clip") == [(10, 5e-4, 0.1, 0.5)]
    with pytest.raises(ConfigError, match="line 3: base.tied: 'yes' is not valid"):
        suite("base: {width: 8, depth: 1, tied: yes}")


@pytest.mark.parametrize(("said", "meant"), [("[0, 0.5, 1]", "0,0.5,1"), ("log:20", "log:20"), ("1", "1"), ("''", "")])
def test_checkpoints_are_a_list_or_as_the_command_takes_them(said: str, meant: str) -> None:
    assert chosen(suite(f"base: {{width: 8, depth: 1}}\ncheckpoints: {said}"), "checkpoints") == [(meant,)]


def test_several_corpora_are_chosen_by_name() -> None:
    text = (
        "question: Why?\ncorpora: {a: {source: storyworld}, b: {source: storyworld, tokenizer: 'bpe:300'}}\n"
        "base: {width: 8, depth: 1}\ngrid: {corpus: [a, b]}"
    )
    found = parse_suite(text, name="mine")
    assert [corpus for _, corpus in found.runs] == ["a", "b"]
    assert found.corpora["b"].recipe.tokenizer == "bpe:300"


def test_small_takes_the_place_of_what_it_names_and_leaves_the_rest() -> None:
    text = "base: {lr: 1e-3, epochs: 4}\ngrid: {width: [8, 16], depth: [1]}\nsmall: {base: {epochs: 1}, grid: {width: [4]}}"
    assert chosen(suite(text, scale="small"), "width", "depth", "lr", "epochs") == [(4, 1, 1e-3, 1)]
    assert chosen(suite(text), "width", "epochs") == [(8, 4), (16, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: {widht: 8, depth: 1}", r"mine.yaml, line 3: base.widht: is not a setting. Did you mean width\?"),
        ("bsae: {width: 8}", r"line 3: bsae: is not a section of a recipe. Did you mean base\?"),
        ("grid: {width: [8, abc], depth: [1]}", r"line 3: grid.width\[1\]: 'abc' is not valid.*integer"),
        ("base:\n  width: 8\n  depth: 1\n  lr: fast", r"line 6: base.lr: 'fast' is not valid.*number"),
        ("base: {width: 8, depth: 1}\ngrid: {}", "line 4: grid: "),
        ("grid: {width: []}", "line 3: grid.width: "),
        ("grid: {width: 8}", r"line 3: grid.width: 8 is not valid"),
        ("grid: [8]", r"line 3: grid: \[8\] is not valid"),
        ("zip: {width: [8, 16], depth: [1]}", "line 3: zip: .*width has 2, depth has 1 values"),
        ("grid: {width: [8]}\nzip: {width: [8]}", "line 4: zip.width: is in the grid too"),
        ("base: {width: 8}", "the run with width 8: depth is missing"),
        ("base: {width: 8, depth: 1, epochs: 1, steps: 2}", "epochs and steps are both given"),
        ("runs: []", "line 3: runs: "),
        ("base: {width: 8, depth: 1}\nmeasure: {bin: 3}", r"line 4: measure.bin: is not an option of measure. Did you mean bins\?"),
        ("base: {width: 8, depth: 1}\nmeasure: {bins: many}", "line 4: measure.bins: 'many' is not valid"),
        ("base: {width: 8, depth: 1}\nmeasure: {bootstrap: 1}", "line 4: measure: bootstrap is 1"),
        ("base: {width: 8, depth: 1}\nresources: {gpu: 3}", r"line 4: resources.gpu: is not a resource. Did you mean gpus\?"),
        ("base: {width: 8, depth: 1, corpus: other}", "line 3: base.corpus: 'other' is not a corpus of this recipe"),
        ("base: {width: 8, depth: 1}\ncheckpoints: {a: 1}", "line 4: checkpoints: .* is not valid"),
        ("base: {width: 8, depth: 1, corpus: [other]}", r"line 3: base.corpus: \['other'\] is not a corpus of this recipe"),
        ("base: {width: 8, width: 9}", "line 3: base.width is there twice"),
        ("base: {width: [8", "line 3: not YAML"),
        ("corpora: {a: {source: storyworld}}\nbase: {width: 8, depth: 1}", "either one corpus or several"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        suite(text)


def test_a_large_recipe_is_read() -> None:
    listed = "".join(f"- {{width: {8 + i}, depth: 1}}\n" for i in range(5000))
    assert len(suite(f"runs:\n{listed}").runs) == 5000


@pytest.mark.parametrize("name", ["../../evil", "/evil", "..", "a/b", "", "-x", "a" * 200])
def test_the_name_of_a_corpus_is_no_path(name: str) -> None:
    text = f'question: Why?\ncorpora: {{"{name}": {{source: storyworld}}}}\nbase: {{width: 8, depth: 1}}'
    with pytest.raises(ConfigError, match="mine.yaml, line 2: corpora"):
        parse_suite(text, name="mine", where="mine.yaml")


def test_a_question_is_one_line() -> None:
    text = "question: |\n  Does it\n  grow?\ncorpus: {source: storyworld}\nbase: {width: 8, depth: 1}"
    assert parse_suite(text, name="mine").question == "Does it grow?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty: settings with their values are needed"),
        (
            "question: 3\ncorpus: {source: storyworld}\nbase: {width: 8, depth: 1}",
            "line 1: question: 3 is not valid",
        ),
        ("question: Why?\nbase: {width: 8, depth: 1}", "corpus: a recipe has either one corpus or several"),
        ("question: Why?\ncorpus: {block: 32}", "line 2: corpus: a corpus is a folder, or has a source"),
        ("question: Why?\ncorpus: {source: storyworld, blok: 3}", r"line 2: corpus.blok: .*Did you mean block\?"),
        ("question: Why?\ncorpus: {source: storyworld, block: 1}", "line 2: corpus.block: 1 is not valid"),
    ],
)
def test_a_recipe_has_a_question_and_a_corpus(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_suite(text, name="mine")


def test_a_name_that_is_no_recipe_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sclae: not a recipe, and no such file. Did you mean scale\?"):
        load_suite("sclae")
    with pytest.raises(ConfigError, match="gone.yaml: not a recipe, and no such file"):
        load_suite(tmp_path / "gone.yaml")


def test_paths_of_a_file_are_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Once.")
    (tmp_path / "mine.yaml").write_text("question: Why?\ncorpus: {source: text.txt}\nbase: {width: 8, depth: 1}")
    assert load_suite(tmp_path / "mine.yaml").corpora["corpus"].sources == [str(tmp_path / "text.txt")]


@pytest.mark.parametrize("name", shipped_recipes())
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_shipped_recipe_asks_a_question_and_survives_its_own_record(name: str, scale: str) -> None:
    if (name, scale) == ("paper", "small"):
        with pytest.raises(ConfigError, match="paper: has no section `small`"):
            load_suite(name, scale=scale)
        return
    found = load_suite(name, scale=scale)
    assert found.question.endswith("?")
    assert found.question.count("?") + found.question.count(". ") == 1, "one sentence"
    again = suite_from(json.loads(json.dumps(found.document)), name=name, scale=scale)
    assert again == found


def test_the_recipe_of_the_documents_is_one() -> None:
    text, *sections = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "suites.md").read_text(), flags=re.S)
    assert sections
    for section in sections:
        assert parse_suite(text + section, name="documents").primary
    assert len(parse_suite(text, name="documents").runs) == 6
    assert len(parse_suite(text, name="documents", scale="small").runs) == 3
    module = textwrap.dedent((spec.__doc__ or "").split("\n\n", 1)[1])
    assert len(parse_suite(module, name="module").runs) == 30


def test_the_recipes_of_the_documents_are_shipped() -> None:
    assert set(shipped_recipes()) == {
        "demo", "init", "scale", "epochs", "seeds", "regularize", "hyper", "architectures", "corpora", "paper",
        "push", "dose", "heads", "coupling", "factorial", "rivals", "ambiguity", "order",
    }  # fmt: skip


def paper_names() -> list[str]:
    """The paper's names of all checkpoints of the recipe; its first seed has none, the others count from 00."""
    names = []
    for settings, _ in load_suite("paper").runs:
        decay = {5e-4: "d", 0.1: "L"}[settings.weight_decay]
        seed = f"{settings.seed - 1:02}" if settings.seed else ""
        run = f"{settings.depth:02}x{settings.width:04}_{settings.epochs:02.0f}{decay}{seed}"
        names += [f"{run}@{int(name) - 1}" for name in plan(settings, blocks=229000, block=2048).checkpoints.values()]
    return names


def test_the_paper_has_230_checkpoints_each_once() -> None:
    names = paper_names()
    assert len(names) == len(set(names)) == 230
    assert Counter(name.split("@")[1] for name in names) == {"0": 80, "2": 30, "5": 60, "9": 60}


def test_the_paper_says_every_setting_of_the_paper() -> None:
    for settings, _ in load_suite("paper").runs:
        assert settings.model_dump(exclude={"width", "depth", "epochs", "weight_decay", "checkpoints", "seed"}) == {
            "family": "gpt-neo", "head_size": None, "tied": True, "dropout": 0.0, "context": 2048, "steps": None, "batch": None,
            "batch_tokens": None, "optimizer": "adamw", "coupling": 0.0, "donor": None, "init_from": None, "lr": 5e-5, "schedule": "linear", "warmup": 0.0, "clip": 1.0,
            "label_smoothing": 0.0, "head": "learned", "intervene": (), "data_seed": None, "precision": "bf16",
        }  # fmt: skip
        assert isinstance(settings, Settings)
    corpus = load_suite("paper").corpora["corpus"].recipe
    assert (corpus.tokenizer, corpus.packing, corpus.block) == ("gpt2", "paper", 2048)


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"returns where {PUBLISHED.name} is in ../shared/reference")
def test_the_paper_is_the_published_table() -> None:
    runs, _ = import_published(PUBLISHED)
    assert sorted(paper_names()) == sorted(f"{run['run']}@{int(run['checkpoint']) - 1}" for run in runs)
