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
    "base: {width: 8, depth: 1}\nprimary: {metrics: []}": "tuple should have at least 1 item after validation, not 0",
    "base: [8]": "settings with their values are needed",
    "base: {width: 8, depth: 1, intervene: 5}": "a list of texts as in within:+0.1 is needed",
    "base: {width: 8, depth: 1, head: lerned}": "it is 'learned', 'frozen-init'",
    "grid: {width: 8, depth: [1]}": "is not a list. Write it in brackets, [ ], or put it under base",
    "grid: {width: [], depth: [1]}": "has no values",
    "base: {width: 8, depth: 1}\nmeasure: {tokens: 0}": "a whole number from 1 on is needed",
    "base: {width: 8, depth: 1}\nmeasure: {bins: 5000}": "it is at most 1,000",
    "base: {width: 8, depth: 1}\nmeasure: {batch: fast}": "input should be a valid integer",
    "base: {width: 8, depth: 1}\nruns: []": "a list with at least one run is needed",
    "base: {width: 8, depth: 1}\narms: [none, {widht: 8}]": "is not a setting",
    "base: {width: 8, depth: 1}\narms: [none, 5]": "settings with their values are needed",
    "base: {width: 8, depth: 1}\nsmall: {bse: {width: 4}}": "is not a section of a recipe",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_editor_and_tool_refuse_with_the_same_words(text: str) -> None:
    document, _ = read_yaml(BEGIN + text, "recipe")
    assert [message for message in messages(document) if message.startswith(REFUSED[text])]
    with pytest.raises(ConfigError) as refused:
        parse_suite(BEGIN + text, name="recipe")
    assert REFUSED[text].lower() in str(refused.value).lower()


WHOLE = {
    "corpus: a": "every recipe asks one, in a sentence",
    "question: ' '\ncorpus: a": "every recipe asks one, in a sentence",
    "question: Why?": "a recipe has either one corpus or several corpora",
    "question: Why?\ncorpus: a\ncorpora: {b: c}": "a recipe has either one corpus or several corpora",
    "question: Why?\ncorpora: {}": "names with a corpus each are needed",
    "question: Why?\ncorpus: {sorce: a}": "is not a setting of a corpus",
    "question: Why?\ncorpus: {source: a, block: 1}": "input should be greater than or equal to 2",
}


@pytest.mark.parametrize("text", WHOLE)
def test_a_recipe_needs_a_question_and_one_kind_of_corpus(text: str) -> None:
    text += "\nbase: {width: 8, depth: 1}"
    refused = WHOLE[text.rpartition("\n")[0]]
    assert refused in messages(read_yaml(text, "recipe")[0])
    with pytest.raises(ConfigError, match=refused):
        parse_suite(text, name="recipe")


OWN_WORDS = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
    "uniqueItems", "minProperties", "anyOf", "oneOf", "not",
}  # fmt: skip
"""Keywords for which the YAML language server has words of its own, whatever `errorMessage` says."""


def own_words(schema: Any) -> list[str]:
    """The keywords in a schema that an editor would explain with words of its own; an `if` is no refusal."""
    if isinstance(schema, list):
        return [word for part in schema for word in own_words(part)]
    if not isinstance(schema, dict):
        return []
    parts = [*schema.get("properties", {}).values(), schema.get("additionalProperties")]
    parts += [schema.get(key) for key in ("items", "allOf", "then", "else")]
    return [*sorted(OWN_WORDS & schema.keys()), *own_words(parts)]


def test_an_editor_shows_the_words_of_the_schema() -> None:
    assert own_words(SCHEMA) == []
    assert own_words({"properties": {"width": {"allOf": [{"minimum": 2}]}}}) == ["minimum"]


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(cli.app, ["suite", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == SCHEMA
