"""The JSON schema of a recipe: an editor completes it, explains it, and underlines what `suite run` would refuse.

It is made from the pydantic models that check a recipe. Every constraint carries `errorMessage`, which the editors with
a YAML language server show: the same words that the tool says, since both are taken from pydantic. What depends on more
than one value, such as a grid whose setting is in `zip` too, the tool alone can refuse.
"""

from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticKnownError

from collapselab.core.metrics import METRICS
from collapselab.models.families import FAMILIES
from collapselab.records.suite import Primary
from collapselab.suite.recipe import SECTIONS, THE_CORPUS
from collapselab.suite.recipe_sections import CorpusSpec, DataSpec, Measure, Resources
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import Settings

Schema = dict[str, JsonValue]

DIALECT = "http://json-schema.org/draft-07/schema#"
"""What editors know."""

TYPES = {"integer": "int_type", "number": "float_type", "string": "string_type", "boolean": "bool_type"}
LIMITS = {
    "minimum": ("greater_than_equal", "ge"),
    "exclusiveMinimum": ("greater_than", "gt"),
    "maximum": ("less_than_equal", "le"),
    "exclusiveMaximum": ("less_than", "lt"),
}
"""A keyword of the schema, and pydantic's name of the error and of its limit."""

CHOICES = {"optimizer": list(OPTIMIZERS), "head": list(HEADS)}
EXAMPLES = {"family": list(FAMILIES), "intervene": [f"{name}:+0.1" for name in INTERVENTIONS]}
"""Settings that also take what is not listed, such as the path of a configuration."""

QUESTION: Schema = {"type": "string", "minLength": 1, "description": "What the suite asks, in a sentence."}
CHECKPOINTS: Schema = {
    "description": "Epochs, as in [0, 0.5, 1], or log:20.",
    "anyOf": [{"type": ["number", "string"]}, {"type": "array", "items": {"type": "number"}}],
    "errorMessage": "write them as in [0, 1, 3] or as log:20",
}


def recipe_schema() -> Schema:
    """The schema of a whole recipe, as JSON schema draft 7.

    >>> from collapselab import recipe_schema
    >>> recipe_schema()["required"]
    ['question']
    """
    sections = _sections()
    small = {name: section for name, section in sections.items() if name != "small"}
    small = {name: _without_required(section) for name, section in small.items()}
    sections["small"] = _mapping(small, "a section of a recipe", "What is different at --scale small.")
    return {
        "$schema": DIALECT,
        "title": "A recipe of collapselab",
        "required": ["question"],
        "oneOf": [{"required": ["corpus"]}, {"required": ["corpora"]}, {"required": ["models", "data"]}],
        **_mapping({name: sections[name] for name in SECTIONS}, "a section of a recipe"),
    }


def _sections() -> dict[str, Schema]:
    settings = setting_schemas()
    with_corpus = settings | {
        THE_CORPUS: {"type": "string", "description": "One of the corpora, where there are several."}
    }
    lists = {name: _list_of(schema) for name, schema in with_corpus.items()}
    grid = _mapping(lists, "a setting", "All combinations of these values.")
    zipped = _mapping(lists, "a setting", "Values side by side, each line with every combination of the grid.")
    run = _mapping(with_corpus | {"grid": grid, "zip": zipped}, "a setting")
    corpus: Schema = {
        "description": "A folder, or a corpus to build, as `corpus build` would.",
        "anyOf": [{"type": "string"}, _model(CorpusSpec, "a setting of a corpus")],
    }
    return {
        "question": QUESTION,
        "corpus": corpus,
        "corpora": {"type": "object", "minProperties": 1, "additionalProperties": corpus},
        "base": _mapping(with_corpus, "a setting", "Settings of every run: those of `collapselab train`."),
        "grid": grid,
        "zip": zipped,
        "arms": _arms(settings),
        "runs": _list_of(run) | {"description": "Further runs, each with a grid and a zip of its own if need be."},
        "checkpoints": CHECKPOINTS,
        "models": _list_of({"type": "string"}) | {"description": "Models to measure, in place of runs to train."},
        "data": _model(DataSpec, "a setting of data", "Text for these models, each in its own tokens."),
        "measure": _model(Measure, "an option of measure", "Options of `collapselab measure`."),
        "resources": _model(Resources, "a resource", "What one run needs as a job of a cluster."),
        "primary": _primary(),
    }


def setting_schemas() -> dict[str, Schema]:
    """The schema of each setting of a run."""
    schemas = _properties(Settings)
    for name, known in CHOICES.items():
        schemas[name] |= {"enum": [*known], "errorMessage": _it_is(known)}
    for name, known in EXAMPLES.items():
        schemas[name]["examples"] = [*known]
    dose: Schema = {"type": "string", "examples": schemas["intervene"].pop("examples")}
    schemas["intervene"] = {
        "anyOf": [dose, {"type": "array", "items": dose}],
        "errorMessage": "a list of texts as in within:+0.1 is needed",
    }
    return schemas


def _arms(settings: dict[str, Schema]) -> Schema:
    dose: Schema = {"type": "string", "examples": ["none", *(f"{name}:+0.1" for name in INTERVENTIONS)]}
    arm: Schema = {"anyOf": [{"type": "null"}, dose, {"type": "array", "items": dose}, _mapping(settings, "a setting")]}
    return {
        "description": "What runs of one seed differ in; `none` is the control.",
        **_list_of(arm),
        "errorMessage": "a list is needed, as in [none, within:+0.1]",
    }


def _primary() -> Schema:
    primary = _model(Primary, "a choice of primary", "What effects are judged by, registered before the first run.")
    properties: Any = primary["properties"]
    properties["metrics"] = {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"enum": list(METRICS), "errorMessage": "is not a metric"},
    }
    return primary


def _model(kind: type[BaseModel], what: str, description: str = "") -> Schema:
    return _mapping(_properties(kind), what, description)


def _mapping(properties: dict[str, Schema], what: str, description: str = "") -> Schema:
    """Names with values, of which no other is known; `what` is what the tool says that another is not."""
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return schema | ({"description": description} if description else {}) | {"errorMessage": f"is not {what}"}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _properties(kind: type[BaseModel]) -> dict[str, Schema]:
    """The fields of a model, with pydantic's definitions put in where they are used."""
    whole: Any = kind.model_json_schema()
    return {name: _field(schema) for name, schema in whole["properties"].items()}


def _field(schema: dict[str, Any]) -> Schema:
    """One field: its type and its limits, each in a part of its own with the words of the error."""
    described: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    options = schema.get("anyOf", [schema])
    types = [option["type"] for option in options if "type" in option]
    if any(kind in ("array", "object") for kind in types):
        return {**described, **{key: schema[key] for key in ("anyOf", "type", "items", "enum") if key in schema}}
    parts: list[JsonValue] = []
    choices = [
        choice for option in options for choice in option.get("enum", [option["const"]] if "const" in option else [])
    ]
    if choices and types.count("string") == len([t for t in types if t != "null"]):
        allowed = [*choices, *([None] if "null" in types else [])]
        return {**described, "enum": allowed, "errorMessage": _said("literal_error", expected=_either(choices))}
    if types and not choices:
        named = next(kind for kind in types if kind != "null")
        parts.append({"type": types if len(types) > 1 else types[0], "errorMessage": _said(TYPES[named])})
    for option in options:
        for keyword, (error, limit) in LIMITS.items():
            if keyword in option:
                words = _said(error, **{limit: option[keyword]})
                parts.append({keyword: option[keyword], "errorMessage": words})
    return {**described, "allOf": parts} if parts else described


def _said(error: str, **context: object) -> str:
    """What pydantic says, as a message of ours has it in the middle of a sentence."""
    text = PydanticKnownError(error, context or None).message()  # type: ignore[arg-type]
    return text[0].lower() + text[1:]


def _either(choices: list[Any]) -> str:
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last


def _it_is(names: list[str]) -> str:
    return f"it is {_either(names)}"


def _without_required(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "required"}
