"""The JSON schema of a recipe: an editor completes it, explains it, and underlines what `suite run` would refuse.

It is made from the pydantic models that check a recipe, and what is refused carries `errorMessage`: the words that the
tool says. The YAML language server of editors shows that message for a wrong type, value or name and for a missing one,
but has words of its own for a limit (`minimum`, `minItems`) and for alternatives (`anyOf`). So a limit is the condition
of an `if` here, whose `else` nothing can satisfy, and alternatives are one schema with several types. What depends on
more than one value, such as a grid whose setting is in `zip` too, the tool alone can refuse.
"""

from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticKnownError

from collapselab.core.metrics import METRICS
from collapselab.models.families import FAMILIES
from collapselab.records.options import LEAST, MOST, least_needed, most_allowed
from collapselab.records.suite import Primary
from collapselab.suite.arms import ARMS_NEEDED, DOSE_NEEDED
from collapselab.suite.recipe import (
    CHECKPOINTS_NEEDED,
    CORPORA_NEEDED,
    CORPUS_NEEDED,
    MODELS_NEEDED,
    NO_VALUES,
    NOT_A_LIST,
    QUESTION_NEEDED,
    RUNS_NEEDED,
    SECTIONS,
    THE_CORPUS,
)
from collapselab.suite.recipe_sections import CorpusSpec, DataSpec, Measure, Resources
from collapselab.suite.recipe_text import SETTINGS_NEEDED
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import Settings

Schema = dict[str, JsonValue]

DIALECT = "http://json-schema.org/draft-07/schema#"
"""What editors know."""

TYPES = {
    "integer": "int_type", "number": "float_type", "string": "string_type", "boolean": "bool_type",
    "array": "list_type", "object": "dict_type",
}  # fmt: skip
LIMITS = {
    "minimum": ("greater_than_equal", "ge"),
    "exclusiveMinimum": ("greater_than", "gt"),
    "maximum": ("less_than_equal", "le"),
    "exclusiveMaximum": ("less_than", "lt"),
}
"""A keyword of the schema, and pydantic's name of the error and of its limit."""

CHOICES = {"optimizer": list(OPTIMIZERS), "head": list(HEADS)}
DOSES: list[JsonValue] = [f"{name}:+0.1" for name in INTERVENTIONS]


def recipe_schema() -> Schema:
    """The schema of a whole recipe, as JSON schema draft 7.

    >>> from collapselab import recipe_schema
    >>> list(recipe_schema()["properties"])[:3]
    ['question', 'corpus', 'corpora']
    """
    sections = _sections()
    small = _mapping(dict(sections), "a section of a recipe", "What is different at --scale small.")
    whole = _mapping({name: (sections | {"small": small})[name] for name in SECTIONS}, "a section of a recipe")
    corpora: list[JsonValue] = [{"required": [name]} for name in ("corpus", "corpora")]
    data_alone: JsonValue = {"required": ["data"], "not": {"anyOf": corpora}}
    needed: list[Schema] = [
        {"required": ["question"], "errorMessage": QUESTION_NEEDED},
        _unless({"oneOf": [*corpora, data_alone]}, CORPUS_NEEDED),
    ]
    return {"$schema": DIALECT, "title": "A recipe of collapselab", **_and(whole, *needed)}


def _sections() -> dict[str, Schema]:
    settings = setting_schemas()
    the_corpus: Schema = {"type": "string", "description": "One of the corpora, where there are several."}
    with_corpus = settings | {THE_CORPUS: the_corpus}
    lists = {name: _and(_list_of(schema, NOT_A_LIST), _not_empty(NO_VALUES)) for name, schema in with_corpus.items()}
    grid = _mapping(lists, "a setting", "All combinations of these values.")
    zipped = _mapping(lists, "a setting", "Values side by side, each line with every combination of the grid.")
    run = _mapping(with_corpus | {"grid": grid, "zip": zipped}, "a setting")
    corpus = _model(
        CorpusSpec, "a setting of a corpus", "A folder, or a corpus to build, as `corpus build` would.", "string"
    )
    corpora: Schema = {"type": "object", "additionalProperties": corpus, "errorMessage": CORPORA_NEEDED}
    sections: dict[str, Schema] = {
        "question": {"type": "string", "pattern": r"\S", "errorMessage": QUESTION_NEEDED},
        "corpus": corpus,
        "corpora": _and(corpora, _unless({"minProperties": 1}, CORPORA_NEEDED)),
        "base": _mapping(with_corpus, "a setting", "Settings of every run: those of `collapselab train`."),
        "grid": grid,
        "zip": zipped,
        "arms": _and(_list_of(_arm(settings), ARMS_NEEDED), _not_empty(ARMS_NEEDED)),
        "runs": _and(_list_of(run, RUNS_NEEDED), _not_empty(RUNS_NEEDED)),
        "checkpoints": _one_or_list({"type": "number"}, ["number", "string"], CHECKPOINTS_NEEDED),
        "models": _and(_list_of({"type": "string"}, MODELS_NEEDED), _not_empty(MODELS_NEEDED)),
        "data": _model(DataSpec, "a setting of data", "Text for these models, each in its own tokens."),
        "measure": _measure(),
        "resources": _model(Resources, "a resource", "What one run needs as a job of a cluster."),
        "primary": _primary(),
    }
    descriptions: dict[str, JsonValue] = {
        "question": "What the suite asks, in a sentence.",
        "corpora": "Several corpora by name; a run chooses one with the setting `corpus`.",
        "arms": "What runs of one seed differ in; `none` is the control.",
        "runs": "Further runs, each with a grid and a zip of its own if need be.",
        "checkpoints": "Epochs, as in [0, 0.5, 1], or log:20.",
        "models": "Models to measure, in place of runs to train.",
    }
    return sections | {name: {"description": text, **sections[name]} for name, text in descriptions.items()}


def setting_schemas() -> dict[str, Schema]:
    """The schema of each setting of a run."""
    schemas = _properties(Settings)
    for name, known in CHOICES.items():
        described = {key: schemas[name][key] for key in ("description", "default")}
        schemas[name] = {**described, "enum": [*known], "errorMessage": f"it is {_either(known)}"}
    schemas["family"]["examples"] = [*FAMILIES]  # it also takes the path of a configuration
    dose: Schema = {"type": "string", "examples": DOSES}
    schemas["intervene"] = _one_or_list(dose, ["string"], "a list of texts as in within:+0.1 is needed")
    return schemas


def _arm(settings: dict[str, Schema]) -> Schema:
    dose: Schema = {"type": "string", "examples": DOSES, "errorMessage": DOSE_NEEDED}
    arm = _mapping(settings, "a setting", "", "null", "string", "array")
    return {**arm, "items": dose, "examples": ["none", *DOSES]}


def _measure() -> Schema:
    options = _properties(Measure)
    for name, least in LEAST.items():
        options[name] = _and(options[name], _unless({"minimum": least}, least_needed(least)))
    for name, most in MOST.items():
        options[name] = _and(options[name], _unless({"maximum": most}, most_allowed(most)))
    return _mapping(options, "an option of measure", "Options of `collapselab measure`.")


def _primary() -> Schema:
    properties = _properties(Primary)
    metric: Schema = {"enum": list(METRICS), "errorMessage": "is not a metric"}
    too_few = _said("too_short", field_type="Tuple", min_length=1, actual_length=0)
    properties["metrics"] = _and(_list_of(metric, _said("tuple_type")), _not_empty(too_few))
    return _mapping(properties, "a choice of primary", "What effects are judged by, registered before the first run.")


def _model(kind: type[BaseModel], what: str, description: str = "", *types: str) -> Schema:
    return _mapping(_properties(kind), what, description, *types)


def _mapping(properties: dict[str, Schema], what: str, description: str = "", *types: str) -> Schema:
    """Names with values, of which no other is known, or a value of other types.

    `what` is what the tool says that another name is not.
    """
    schema: Schema = {"description": description} if description else {}
    schema |= {"properties": dict(properties), "additionalProperties": False, "errorMessage": f"is not {what}"}
    return _and(schema, {"type": ["object", *types], "errorMessage": SETTINGS_NEEDED})


def _list_of(items: Schema, words: str) -> Schema:
    return {"type": "array", "items": items, "errorMessage": words}


def _one_or_list(items: Schema, types: list[str], words: str) -> Schema:
    """A value of these types, or a list of `items`."""
    return {"type": [*types, "array"], "items": {**items, "errorMessage": words}, "errorMessage": words}


def _not_empty(words: str) -> Schema:
    return _unless({"minItems": 1}, words)


def _unless(condition: JsonValue, words: str) -> Schema:
    """The words, where a condition on a number, a list or a mapping is not met: none of these is null."""
    return {"if": condition, "else": {"type": "null", "errorMessage": words}}


def _and(schema: Schema, *parts: Schema) -> Schema:
    """The schema with further parts, each refused with words of its own."""
    before: Any = schema.get("allOf", [])
    return {**schema, "allOf": [*before, *parts]}


def _properties(kind: type[BaseModel]) -> dict[str, Schema]:
    """The fields of a model, with pydantic's definitions put in where they are used."""
    whole: Any = kind.model_json_schema()
    return {name: _field(schema) for name, schema in whole["properties"].items()}


def _field(schema: dict[str, Any]) -> Schema:
    """One field: its type and its limits, each in a part of its own with the words of the error."""
    described: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    options: list[dict[str, Any]] = schema.get("anyOf", [schema])
    named = [option for option in options if "enum" in option or "const" in option]
    choices = [choice for option in named for choice in option.get("enum", [option.get("const")])]
    types = [option["type"] for option in options if option not in named]
    if choices and set(types) <= {"null"}:
        words = _said("literal_error", expected=_either(choices))
        return {**described, "enum": [*choices, *([None] if types else [])], "errorMessage": words}
    typed: Schema = {"type": [*types], "errorMessage": _said(TYPES[types[0]])}
    parts: list[Schema] = [{"if": {"enum": choices}, "else": typed} if choices else typed]
    for option in options:
        for keyword, (error, limit) in LIMITS.items():
            if keyword in option:
                parts.append(_unless({keyword: option[keyword]}, _said(error, **{limit: option[keyword]})))
    return _and(described, *parts)


def _said(error: str, **context: object) -> str:
    """What pydantic says, as a message of ours has it in the middle of a sentence."""
    text = PydanticKnownError(error, context or None).message()  # type: ignore[arg-type]
    return text[0].lower() + text[1:]


def _either(choices: list[Any]) -> str:
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last
