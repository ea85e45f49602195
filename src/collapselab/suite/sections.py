"""The text of a recipe: YAML with the line of every value, and the sections as pydantic models, which check it.

Plain words are read as YAML 1.2 does: 5e-4 is a number, `yes` and `on` are words, 010 is ten. PyYAML by itself takes
5e-4 for text and `no` for false, and recipes are full of learning rates.

Rules that involve more than one value, such as a setting that is both in `grid` and in `zip`, are checked by recipe.py.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_type_hints

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from collapselab.declared import options_of
from collapselab.errors import ConfigError, did_you_mean
from collapselab.records.options import Options
from collapselab.records.outcomes import SUITE_OUTCOMES
from collapselab.records.suite import Primary

if TYPE_CHECKING:
    from collapselab.corpus.build import Recipe

Section = dict[str, JsonValue]
Place = tuple[str | int, ...]
"""The place of a value in a recipe: ("grid", "width", 2)."""

LineNumbers = dict[Place, int]

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # thirty times faster, and there with every wheel of PyYAML
_WORDS: dict[str, bool | None] = {"": None, "null": None, "~": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.I)


def read_yaml(text: str, name: str) -> tuple[JsonValue, LineNumbers]:
    """Return the values in the text, and the line of each; ConfigError names the line of what is not YAML."""
    lines: LineNumbers = {}
    try:
        root = yaml.compose(text, Loader=_Loader)
        return (None if root is None else _value(root, (), lines, name)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {min(mark.line, text.count(chr(10))) + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{name}{where}: not YAML: {problem}.") from error


def _value(node: yaml.Node, path: Place, lines: LineNumbers, name: str) -> JsonValue:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), lines, name) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        values: Section = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, key_node.value
            if key in values:
                raise ConfigError(f"{name}, line {line}: {'.'.join(map(str, (*path, key)))} is there twice.")
            lines[(*path, key)] = line
            values[key] = _value(value_node, (*path, key), lines, name)
        return values
    if node.style:  # quoted, or a block of text
        return str(node.value)
    return _scalar(node.value)


def _scalar(text: str) -> bool | int | float | str | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text


def short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


@dataclass
class Written:
    """The name of a file and the lines of its values: an error in a value names its line."""

    name: str
    lines: LineNumbers

    def fail(self, path: Place, message: str) -> NoReturn:
        """Refuse the value at a place, written as in grid.width[2]."""
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
        raise ConfigError(f"{self.at(path)}: {f'{place}: {message}' if place else message}")

    def at(self, path: Place) -> str:
        """The file, and the line of the value or of the nearest thing around it."""
        lines = (self.lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in self.lines)
        return next((f"{self.name}, line {line}" for line in lines), self.name)

    def mapping(self, path: Place, values: JsonValue, known: Collection[str] = (), what: str = "") -> Section:
        """Return the values if they are names with values, and the names are among the known ones."""
        if not isinstance(values, dict):
            problem = "it is empty" if values is None and not path else f"{short(values)} is not valid"
            self.fail(path, f"{problem}: settings with their values are needed.")
        for name in values if known else ():
            if name not in known:
                self.fail_unknown((*path, name), known, what)
        return dict(values)

    def fail_unknown(self, path: Place, known: Collection[str], what: str) -> NoReturn:
        """Refuse a name, with the nearest one that is known."""
        hint = did_you_mean(str(path[-1]), known, otherwise=f"Choose from {', '.join(known)}.")
        self.fail(path, f"is not {what}. {hint}")

    def sections(self, values: Section) -> "Sections":
        """Return the values as the sections of a recipe."""
        try:
            return Sections(**values)
        except ValidationError as error:
            found = max(error.errors(), key=lambda one: len(one["loc"]))  # of a union, the most specific complaint
            path: Place = ()
            for part in found["loc"]:  # without the names of a union's members
                path = (*path, part) if (*path, part) in self.lines or found["type"] == "missing" else path
            if found["type"] == "extra_forbidden":
                model, noun = NESTED[str(path[0])] if len(path) > 1 else (Sections, "a section of a recipe")
                self.fail_unknown(path, tuple(model.model_fields), noun)
            reason = found["msg"].removeprefix("Value error, ").rstrip(".")
            value = "" if found["type"] == "missing" else f"{short(found['input'])} is not valid: "
            self.fail(path, f"{value}{reason[0].lower()}{reason[1:]}.")


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

        given: dict[str, Any] = {"tokenizer": default_tokenizer(self.sources)}
        given["block"] = 2048 if self.packing == "paper" else Recipe.block
        given |= self.model_dump(include=set(Recipe.__dataclass_fields__), exclude_none=True)
        return Recipe(**given)

    def resolved(self, beside: Path | None) -> "CorpusSpec":
        """The corpus with whole paths: a relative one is looked for beside the recipe first, then where we run."""
        if self.folder is not None:
            return self.model_copy(update={"folder": str(Path(whole_path(self.folder, beside)).absolute())})
        return self.model_copy(
            update={
                "source": [whole_path(name, beside) for name in self.sources],
                "validation": [whole_path(name, beside) for name in listed(self.validation)] or None,
                "tokenizer": self.tokenizer and whole_path(self.tokenizer, beside),
            }
        )


class Resources(BaseModel):
    """What one run needs as a job of a cluster. `memory` is in GB; `setup` are lines of shell before the run."""

    model_config = STRICT

    gpus: int = Field(0, ge=0, le=1)
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
        if option.name not in ("shard_classes", "on", "against")
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
    measure: Measure = Measure()
    resources: Resources = Resources()
    primary: Primary | None = None
    small: Section | None = None
    """What is different at --scale small."""


SECTIONS = tuple(Sections.model_fields)
NESTED: dict[str, tuple[type[BaseModel], str]] = {
    "corpus": (CorpusSpec, "a setting of a corpus"),
    "corpora": (CorpusSpec, "a setting of a corpus"),
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
