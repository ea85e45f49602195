"""The schema of recipes: it accepts every recipe of the project, and refuses only what the tool refuses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from collapselab import cli
from collapselab.errors import ConfigError
from collapselab.suite.recipe import parse_suite, shipped_recipes
from collapselab.suite.recipe_text import read_yaml
from collapselab.suite.sections import SECTIONS, recipe_schema, setting_schemas
from collapselab.training.settings import Settings

BEGIN = "question: Why?\ncorpus: {source: storyworld}\n"
SCHEMA: Any = recipe_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PUBLISHED = sorted((Path(__file__).parents[2] / "docs/results/recipes").glob("*.yaml"))


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_accepted(name: str) -> None:
    VALIDATOR.validate(read_yaml(shipped_recipes()[name], name)[0])


def test_every_published_recipe_is_accepted() -> None:
    assert PUBLISHED
    for path in PUBLISHED:
        VALIDATOR.validate(read_yaml(path.read_text(encoding="utf-8"), path.name)[0])


def test_the_schema_is_valid_and_has_every_section_and_setting() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(SCHEMA["properties"]) == list(SECTIONS)
    assert setting_schemas().keys() == Settings.model_fields.keys()
    described = [name for name, schema in setting_schemas().items() if schema.get("description")]
    assert len(described) > len(Settings.model_fields) / 2, "editors explain settings"


REFUSED = [
    "base: {width: abc, depth: 1}",
    "base: {width: 1, depth: 1}",
    "base: {width: 8, depth: 1, dropout: 1}",
    "base: {width: 8, depth: 1, lr: 0}",
    "base: {width: 8, depth: 1, lr: fast}",
    "base: {width: 8, depth: 1, tied: maybe}",
    "base: {width: 8, depth: 1, schedule: steep}",
    "base: {width: 8, depth: 1, optimizer: lion}",
    "base: {width: 8, depth: 1, seed: -1}",
    "base: {widht: 8, depth: 1}",
    "grid: {width: [8, 1], depth: [1]}",
    "runs: [{width: 8, depth: 0}]",
    "base: {width: 8, depth: 1}\ngrd: {width: [8]}",
    "base: {width: 8, depth: 1}\nmeasure: {bin: 4}",
    "base: {width: 8, depth: 1}\nresources: {gpus: -1}",
    "base: {width: 8, depth: 1}\nresources: {gpu: 1}",
    "base: {width: 8, depth: 1}\ncheckpoints: {a: 1}",
    "base: {width: 8, depth: 1}\narms: none",
    "base: {width: 8, depth: 1}\nprimary: {seeds: 1}",
    "base: {width: 8, depth: 1}\nprimary: {metrics: [cndv]}",
    "base: {width: 8, depth: 1}\nprimary: {metrics: []}",
    "base: [8]",
    "base: {width: 8, depth: 1, intervene: 5}",
    "base: {width: 8, depth: 1, head: lerned}",
    "grid: {width: 8, depth: [1]}",
    "grid: {width: [], depth: [1]}",
    "base: {width: 8, depth: 1}\nmeasure: {tokens: 0}",
    "base: {width: 8, depth: 1}\nmeasure: {bins: 5000}",
    "base: {width: 8, depth: 1}\nmeasure: {batch: fast}",
    "base: {width: 8, depth: 1}\nruns: []",
    "base: {width: 8, depth: 1}\narms: [none, {widht: 8}]",
    "base: {width: 8, depth: 1}\narms: [none, 5]",
    "base: {width: 8, depth: 1}\nsmall: {bse: {width: 4}}",
]


@pytest.mark.parametrize("text", REFUSED)
def test_editor_and_tool_refuse_the_same_values(text: str) -> None:
    assert not VALIDATOR.is_valid(read_yaml(BEGIN + text, "recipe")[0])
    with pytest.raises(ConfigError, match="recipe, line [0-9]+: "):
        parse_suite(BEGIN + text, name="recipe")


WHOLE = [
    "corpus: a",
    "question: ' '\ncorpus: a",
    "question: Why?",
    "question: Why?\ncorpus: a\ncorpora: {b: c}",
    "question: Why?\ncorpora: {}",
    "question: Why?\ncorpus: {sorce: a}",
    "question: Why?\ncorpus: {source: a, block: 1}",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_recipe_needs_a_question_and_one_kind_of_corpus(text: str) -> None:
    text += "\nbase: {width: 8, depth: 1}"
    assert not VALIDATOR.is_valid(read_yaml(text, "recipe")[0])
    with pytest.raises(ConfigError):
        parse_suite(text, name="recipe")


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(cli.app, ["suite", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == SCHEMA
