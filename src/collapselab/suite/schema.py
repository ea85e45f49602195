"""The JSON schema of a recipe, with which an editor completes it, explains it and underlines most mistakes.

It is pydantic's schema of the models that check a recipe, put together as `recipe.py` reads the sections. Rules that
involve more than one value, such as a setting that is both in `grid` and in `zip`, are checked by the tool alone.
"""

from typing import Any

from pydantic import BaseModel

from collapselab.core.catalogue import METRICS
from collapselab.models.families import FAMILIES
from collapselab.records.options import LEAST, MOST
from collapselab.records.suite import Primary
from collapselab.suite.recipe import SECTIONS, THE_CORPUS
from collapselab.suite.recipe_sections import CorpusSpec, DataSpec, Measure, Resources
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import Settings

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
DOSE: Schema = TEXT | {"examples": [f"{name}:+0.1" for name in INTERVENTIONS]}


def recipe_schema() -> Schema:
    """The schema of a whole recipe, as JSON schema draft 7, which editors support.

    >>> from collapselab import recipe_schema
    >>> list(recipe_schema()["properties"])[:3]
    ['question', 'corpus', 'corpora']
    """
    sections = _sections()
    sections["small"] = _object(sections, "What is different at --scale small.")
    corpora = [{"required": [name]} for name in ("corpus", "corpora")]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A recipe of collapselab",
        **_object({name: sections[name] for name in SECTIONS}),
        "required": ["question"],
        "oneOf": [*corpora, {"required": ["data"], "not": {"anyOf": corpora}}],
    }


def _sections() -> dict[str, Schema]:
    settings = setting_schemas()
    with_corpus = settings | {THE_CORPUS: TEXT | {"description": "One of the corpora, where there are several."}}
    lists = {name: _list_of(schema) for name, schema in with_corpus.items()}
    grid = _object(lists, "All combinations of these values.")
    zipped = _object(lists, "Values side by side, each line with every combination of the grid.")
    corpus = {"anyOf": [TEXT, _model(CorpusSpec)]}
    arm = {"anyOf": [{"type": "null"}, DOSE, {"type": "array", "items": DOSE}, _object(settings)]}
    number = {"type": "number"}
    return {
        "question": TEXT | {"pattern": r"\S", "description": "What the suite asks, in a sentence."},
        "corpus": corpus,
        "corpora": {
            "description": "Several corpora by name; a run chooses one with the setting `corpus`.",
            "type": "object",
            "additionalProperties": corpus,
            "minProperties": 1,
        },
        "base": _object(with_corpus, "Settings of every run: those of `collapselab train`."),
        "grid": grid,
        "zip": zipped,
        "arms": _list_of(arm, "What runs of one seed differ in; `none` is the control."),
        "runs": _list_of(
            _object(with_corpus | {"grid": grid, "zip": zipped}),
            "Further runs, each with a grid and a zip of its own if need be.",
        ),
        "checkpoints": {
            "description": "Epochs, as in [0, 0.5, 1], or log:20.",
            "anyOf": [number, TEXT, {"type": "array", "items": number}],
        },
        "models": _list_of(TEXT, "Models to measure, in place of runs to train."),
        "data": _model(DataSpec),
        "measure": _measure(),
        "resources": _model(Resources),
        "primary": _primary(),
    }


def setting_schemas() -> dict[str, Schema]:
    """The schema of each setting of a run."""
    schemas: dict[str, Schema] = _model(Settings)["properties"]
    schemas["optimizer"]["enum"], schemas["head"]["enum"] = list(OPTIMIZERS), list(HEADS)
    schemas["family"]["examples"] = list(FAMILIES)  # not an enum: the path of a configuration is allowed too
    schemas["intervene"] |= {"type": ["string", "array"], "items": DOSE}
    return schemas


def _measure() -> Schema:
    schema = _model(Measure) | {"description": "Options of `collapselab measure`."}
    for keyword, limits in (("minimum", LEAST), ("maximum", MOST)):
        for name, limit in limits.items():
            schema["properties"][name][keyword] = limit
    return schema


def _primary() -> Schema:
    schema = _model(Primary)
    schema["properties"]["metrics"]["items"] = {"enum": list(METRICS)}
    return schema


def _model(kind: type[BaseModel]) -> Schema:
    """The schema of a model that refuses unknown names. None is required: `small` changes some and keeps the rest."""
    schema = kind.model_json_schema()
    return _object(schema["properties"], schema.get("description", ""))


def _object(properties: dict[str, Schema], description: str = "") -> Schema:
    described = {"description": description} if description else {}
    return {**described, "type": "object", "properties": dict(properties), "additionalProperties": False}


def _list_of(items: Schema, description: str = "") -> Schema:
    described = {"description": description} if description else {}
    return {**described, "type": "array", "items": items, "minItems": 1}
