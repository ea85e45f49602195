"""The schema of recipes: it takes what the tool takes, and refuses with the same words."""

import json
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from collapselab import cli
from collapselab.errors import ConfigError
from collapselab.suite.recipe import SECTIONS, parse_suite, shipped_recipes
from collapselab.suite.recipe_text import read_yaml
from collapselab.suite.schema import recipe_schema, setting_schemas
from collapselab.training.settings import Settings

BEGIN = "question: Why?\ncorpus: {source: storyworld}\n"
SCHEMA: Any = recipe_schema()
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def messages(document: Any) -> list[str]:
    """What an editor would show: `errorMessage` of the schema nearest to what is wrong."""
    found = []
    for error in VALIDATOR.iter_errors(document):
        found += [str(one.schema.get("errorMessage", one.message)) for one in [error, *(error.context or [])]]
    return found


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_allowed(name: str) -> None:
    document, _ = read_yaml(shipped_recipes()[name], name)
    assert messages(document) == []


def test_the_schema_is_one_and_has_every_section_and_setting() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert list(SCHEMA["properties"]) == list(SECTIONS)
    assert setting_schemas().keys() == Settings.model_fields.keys()
    described = [name for name, schema in setting_schemas().items() if schema.get("description")]
    assert len(described) > len(Settings.model_fields) / 2, "editors explain settings"


REFUSED = {
    "base: {width: abc, depth: 1}": "input should be a valid integer",
    "base: {width: 1, depth: 1}": "input should be greater than or equal to 2",
    "base: {width: 8, depth: 1, dropout: 1}": "input should be less than 1",
    "base: {width: 8, depth: 1, lr: 0}": "input should be greater than 0",
    "base: {width: 8, depth: 1, lr: fast}": "input should be a valid number",
    "base: {width: 8, depth: 1, tied: maybe}": "input should be a valid boolean",
    "base: {width: 8, depth: 1, schedule: steep}": "input should be 'linear', 'cosine' or 'constant'",
    "base: {width: 8, depth: 1, optimizer: lion}": "it is 'adamw', 'adam', 'sgd' or 'coupled-adam'",
    "base: {width: 8, depth: 1, seed: -1}": "input should be greater than or equal to 0",
    "base: {widht: 8, depth: 1}": "is not a setting",
    "grid: {width: [8, 1], depth: [1]}": "input should be greater than or equal to 2",
    "runs: [{width: 8, depth: 0}]": "input should be greater than or equal to 1",
    "base: {width: 8, depth: 1}\ngrd: {width: [8]}": "is not a section of a recipe",
    "base: {width: 8, depth: 1}\nmeasure: {bin: 4}": "is not an option of measure",
    "base: {width: 8, depth: 1}\nresources: {gpus: -1}": "input should be greater than or equal to 0",
    "base: {width: 8, depth: 1}\nresources: {gpu: 1}": "is not a resource",
    "base: {width: 8, depth: 1}\ncheckpoints: {a: 1}": "write them as in [0, 1, 3] or as log:20",
    "base: {width: 8, depth: 1}\narms: none": "a list is needed, as in [none, within:+0.1]",
    "base: {width: 8, depth: 1}\nprimary: {seeds: 1}": "input should be greater than or equal to 2",
    "base: {width: 8, depth: 1}\nprimary: {metrics: [cndv]}": "is not a metric",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_editor_and_tool_refuse_with_the_same_words(text: str) -> None:
    document, _ = read_yaml(BEGIN + text, "recipe")
    assert REFUSED[text] in messages(document)
    with pytest.raises(ConfigError) as refused:
        parse_suite(BEGIN + text, name="recipe")
    assert REFUSED[text].lower() in str(refused.value).lower()


def test_a_recipe_needs_a_question_and_one_kind_of_corpus() -> None:
    for text in ("corpus: a", "question: Why?", "question: Why?\ncorpus: a\ncorpora: {b: c}"):
        assert messages(read_yaml(f"{text}\nbase: {{width: 8, depth: 1}}", "recipe")[0])


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(cli.app, ["suite", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == SCHEMA
