"""The sections of a recipe as pydantic models, which check it, and the JSON schema that editors make of them.

With the schema an editor completes a recipe, explains it and underlines most mistakes. Rules that involve more than one
value, such as a setting that is both in `grid` and in `zip`, are checked by recipe.py alone.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from collapselab.declared import options_of
from collapselab.records.options import Options
from collapselab.records.outcomes import SUITE_OUTCOMES
from collapselab.records.suite import Primary
from collapselab.suite.recipe_text import Section

if TYPE_CHECKING:
    from collapselab.corpus.build import Recipe

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

ADDED_FIELDS = ("begin",)
"""Fields of CorpusSpec that its first version did not have: a corpus that does not use them keeps its folder's name."""


class CorpusSpec(BaseModel):
    """A corpus that is there (`folder`), or one that the suite builds from a source as `corpus build` would."""

    model_config = STRICT

    folder: str | None = None
    source: str | list[str] | None = None
    validation: str | list[str] | None = None
    tokenizer: str | None = None
    block: int | None = Field(None, ge=2)
    packing: Literal["stream", "paper", "document"] = "stream"
    boundary: Literal["auto", "end", "begin"] = "auto"
    begin: Literal["auto", "block", "document"] = "auto"
    validation_share: float = Field(0.02, gt=0, lt=1)
    seed: int = 0
    text_column: str = "text"
    separator: str | None = "<|endoftext|>"
    blocks: int | None = Field(None, ge=1)
    """About how many blocks the training split has: for planning alone, before the corpus is built."""

    @property
    def sources(self) -> list[str]:
        return listed(self.source)

    @property
    def recipe(self) -> "Recipe":
        """The recipe of `corpus build`, with its defaults where nothing is given."""
        from collapselab.corpus.build import Recipe, default_tokenizer

        return Recipe(
            tokenizer=self.tokenizer or default_tokenizer(self.sources),
            block=self.block or (2048 if self.packing == "paper" else Recipe.block),
            packing=self.packing,
            boundary=self.boundary,
            begin=self.begin,
            validation_share=self.validation_share,
            seed=self.seed,
        )

    def resolved(self, beside: Path | None) -> "CorpusSpec":
        """The corpus with whole paths: a relative one is looked for beside the recipe first, then where we run."""
        if self.folder is not None:
            folder = whole_path(self.folder, beside)
            return self.model_copy(update={"folder": str(Path(folder).absolute())})
        return self.model_copy(
            update={
                "source": [whole_path(name, beside) for name in self.sources],
                "validation": [whole_path(name, beside) for name in listed(self.validation)] or None,
                "tokenizer": self.tokenizer and whole_path(self.tokenizer, beside),
            }
        )


class DataSpec(BaseModel):
    """Text for models to be measured on, each in its own tokens, as `measure --data` takes it."""

    model_config = STRICT

    source: str | list[str]
    block: int | None = Field(None, ge=2)
    max_tokens: int | None = Field(None, ge=1)
    """Where reading stops; without it, `tokens` of `measure`."""
    split: str | None = None
    revision: str | None = None
    text_column: str = "text"

    @property
    def sources(self) -> list[str]:
        return listed(self.source)


class Resources(BaseModel):
    """What one run needs as a job of a cluster. `memory` is in GB; `setup` are lines of shell before the run."""

    model_config = STRICT

    gpus: int = Field(0, ge=0)
    cpus: int = Field(2, ge=1)
    memory: float = Field(8.0, gt=0, allow_inf_nan=False)
    minutes: int = Field(240, ge=1)
    partition: str | None = None
    account: str | None = None
    at_once: int = Field(100, ge=1)
    """Most jobs of the array that run at the same time."""
    setup: list[str] = []
    extra: dict[str, str | int] = {}
    """Further options of sbatch, such as qos or constraint."""


def _measure_fields() -> dict[str, Any]:
    hints, defaults = get_type_hints(Options, include_extras=True), {"outcomes": SUITE_OUTCOMES}
    return {
        option.name: (hints[option.name], Field(defaults.get(option.name, option.default), description=option.help))
        for option in options_of(Options)
        if option.name not in ("shard_classes", "on")
    }


Measure: type[BaseModel] = create_model(
    "Measure", __config__=STRICT, __doc__="Options of `collapselab measure`.", **_measure_fields()
)
"""The options of `measure` that shape its numbers, strictly checked."""

CorpusName = Annotated[str, Field(pattern=r"^\w[\w. +-]{0,99}$")]
"""Part of the name of the corpus's folder."""

Axes = Annotated[dict[str, Annotated[list[JsonValue], Field(min_length=1)]], Field(min_length=1)]


class Sections(BaseModel):
    """A recipe of collapselab"""

    model_config = STRICT

    question: str = Field(pattern=r"\S")
    """What the suite asks, in a sentence."""
    corpus: str | CorpusSpec | None = None
    """A corpus folder, or a text source from which the suite builds the corpus."""
    corpora: dict[CorpusName, str | CorpusSpec] | None = None
    """Several corpora by name; a run chooses one with the setting `corpus`."""
    base: Section = {}
    """Settings of every run: those of `collapselab train`."""
    grid: Axes | None = None
    """All combinations of these values."""
    zip: Axes | None = None
    """Values side by side, each line with every combination of the grid."""
    arms: list[JsonValue] | None = Field(None, min_length=1)
    """What runs of one seed differ in; `none` is the control."""
    runs: list[Section] | None = Field(None, min_length=1)
    """Further runs, each with a grid and a zip of its own if need be."""
    checkpoints: float | str | list[float] | None = None
    """Epochs, as in [0, 0.5, 1], or log:20."""
    models: list[Annotated[str, Field(min_length=1)]] | None = Field(None, min_length=1)
    """Models to measure, in place of runs to train."""
    data: DataSpec | None = None
    measure: Measure = Measure()
    resources: Resources = Resources()
    primary: Primary | None = None
    small: Section | None = None
    """What is different at --scale small."""


SECTIONS = tuple(Sections.model_fields)
NESTED: dict[str, tuple[type[BaseModel], str]] = {
    "corpus": (CorpusSpec, "a setting of a corpus"),
    "corpora": (CorpusSpec, "a setting of a corpus"),
    "data": (DataSpec, "a setting of data"),
    "measure": (Measure, "an option of measure"),
    "resources": (Resources, "a resource"),
    "primary": (Primary, "a choice of primary"),
}
"""The models of sections, and what their fields are called in a message."""


def listed(value: str | list[str] | None) -> list[str]:
    """One name, several or none, as a list."""
    return [value] if isinstance(value, str) else value or []


def whole_path(name: str, beside: Path | None) -> str:
    """A path beside the recipe, or where the command runs; the name as it is where there is neither."""
    for folder in (beside, Path.cwd()):
        if folder is not None and (folder / name).exists():
            return str((folder / name).resolve())
    return name


def recipe_schema() -> dict[str, Any]:
    """The JSON schema of recipes, for editors.

    >>> from collapselab import recipe_schema
    >>> list(recipe_schema()["properties"])[:3]
    ['question', 'corpus', 'corpora']
    """
    from collapselab.core.catalogue import METRICS

    schema = Sections.model_json_schema()
    definitions, sections = schema["$defs"], schema["properties"]
    names = setting_schemas() | {"corpus": {"type": "string"}}
    axes = {name: {"type": "array", "items": one, "minItems": 1} for name, one in names.items()}
    settings = {"type": "object", "properties": names, "additionalProperties": False}
    sections["base"] |= settings
    sections["corpora"]["anyOf"][0]["minProperties"] = 1
    for axis in ("grid", "zip"):
        sections[axis]["anyOf"][0] = settings | {"properties": axes, "minProperties": 1}
    runs = settings | {"properties": names | {axis: sections[axis] for axis in ("grid", "zip")}}
    sections["runs"]["anyOf"][0]["items"] = runs
    dose = names["intervene"]["items"]
    arm = {"anyOf": [{"type": "null"}, dose, {"type": "array", "items": dose}, settings]}
    sections["arms"]["anyOf"][0]["items"] = arm
    definitions["Primary"]["properties"]["metrics"]["items"] = {"enum": list(METRICS)}
    for definition in definitions.values():  # `small` may change one field and keep the rest
        definition.pop("required", None)
    small = {name: section for name, section in sections.items() if name != "small"}
    sections["small"] |= {"type": "object", "properties": small, "additionalProperties": False}
    corpora = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("corpus", "corpora")]
    one_text = [*corpora, {"required": ["data"], "not": {"anyOf": corpora}}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"oneOf": one_text}


def setting_schemas() -> dict[str, Any]:
    """The schema of each setting of a run."""
    from collapselab.models.families import FAMILIES
    from collapselab.training.heads import HEADS
    from collapselab.training.interventions import INTERVENTIONS
    from collapselab.training.optimizers import OPTIMIZERS
    from collapselab.training.settings import Settings

    schemas: dict[str, Any] = Settings.model_json_schema()["properties"]
    schemas["optimizer"]["enum"], schemas["head"]["enum"] = list(OPTIMIZERS), list(HEADS)
    schemas["family"]["examples"] = list(FAMILIES)  # not an enum: the path of a configuration is allowed too
    dose = {"type": "string", "examples": [f"{name}:+0.1" for name in INTERVENTIONS]}
    schemas["intervene"] |= {"type": ["string", "array"], "items": dose}
    return schemas
