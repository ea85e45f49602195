"""The parts of a recipe that are not settings of a run: its corpora, how to measure, what a cluster's job needs."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from collapselab.corpus.build import Recipe, default_tokenizer
from collapselab.records.options import Options
from collapselab.records.outcomes import SUITE_OUTCOMES
from collapselab.suite.recipe_text import has_control_characters

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

ADDED_FIELDS = ("begin",)
"""Fields of CorpusSpec that its first version did not have: a corpus that does not use them keeps its folder's name."""


def _one_line(text: str) -> str:
    if has_control_characters(text):
        raise ValueError("a line break or another control character is not allowed here")
    return text


OneLine = Annotated[str, AfterValidator(_one_line)]
"""Text that becomes part of a line of a job's script, of a path or of a message."""

OptionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


class CorpusSpec(BaseModel):
    """A corpus that is there (`folder`), or one that the suite builds from a source as `corpus build` would."""

    model_config = STRICT

    folder: OneLine | None = None
    source: OneLine | list[OneLine] | None = None
    validation: OneLine | list[OneLine] | None = None
    tokenizer: OneLine | None = None
    block: int | None = Field(None, ge=2, le=10**9)
    packing: Literal["stream", "paper", "document"] = "stream"
    boundary: Literal["auto", "end", "begin"] = "auto"
    begin: Literal["auto", "block", "document"] = "auto"
    validation_share: float = Field(0.02, gt=0, lt=1)
    seed: int = 0
    text_column: OneLine = "text"
    separator: str | None = "<|endoftext|>"
    blocks: int | None = Field(None, ge=1, le=10**12)
    """About how many blocks the training split has: for planning alone, before the corpus is built."""

    @property
    def sources(self) -> list[str]:
        return [self.source] if isinstance(self.source, str) else self.source or []

    @property
    def recipe(self) -> Recipe:
        """The recipe of `corpus build`, with its defaults where nothing is given."""
        return Recipe(
            tokenizer=self.tokenizer or default_tokenizer(self.sources),
            block=self.block or (2048 if self.packing == "paper" else Recipe.block),
            packing=self.packing,
            boundary=self.boundary,
            begin=self.begin,
            validation_share=self.validation_share,
            seed=self.seed,
        )


class DataSpec(BaseModel):
    """Text for models to be measured on, each in its own tokens, as `measure --data` takes it."""

    model_config = STRICT

    source: OneLine | list[OneLine]
    block: int | None = Field(None, ge=2, le=10**9)
    max_tokens: int | None = Field(None, ge=1, le=10**15)
    """Where reading stops; without it, `tokens` of `measure`."""
    split: OneLine | None = None
    revision: OneLine | None = None
    text_column: OneLine = "text"

    @property
    def sources(self) -> list[str]:
        return [self.source] if isinstance(self.source, str) else self.source


class Resources(BaseModel):
    """What one run needs as a job of a cluster. `memory` is in GB; `setup` are lines of shell before the run."""

    model_config = STRICT

    gpus: int = Field(0, ge=0, le=10**6)
    cpus: int = Field(2, ge=1, le=10**6)
    memory: float = Field(8.0, gt=0, le=1e9)
    minutes: int = Field(240, ge=1, le=10**9)
    partition: OneLine | None = None
    account: OneLine | None = None
    at_once: int = Field(100, ge=1, le=10**6)
    """Most jobs of the array that run at the same time."""
    setup: list[OneLine] = []
    extra: dict[OptionName, OneLine | int] = {}
    """Further options of sbatch, such as qos or constraint."""


def _measure_fields() -> dict[str, Any]:
    hints = get_type_hints(Options)
    options = (option for option in fields(Options) if option.name not in ("shard_classes", "on"))
    defaults = {"outcomes": SUITE_OUTCOMES}
    return {option.name: (hints[option.name], defaults.get(option.name, option.default)) for option in options}


Measure: type[BaseModel] = create_model("Measure", __config__=STRICT, **_measure_fields())
"""The options of `measure` that shape its numbers, strictly checked."""


def resolved_paths(spec: CorpusSpec, beside: Path | None) -> CorpusSpec:
    """Paths made whole: a relative one is looked for beside the recipe first, then where the command runs."""
    if spec.folder is not None:
        return spec.model_copy(update={"folder": whole_path(spec.folder, beside, always=True)})
    given = [spec.validation] if isinstance(spec.validation, str) else spec.validation
    return spec.model_copy(
        update={
            "source": [whole_path(name, beside) for name in spec.sources],
            "validation": given and [whole_path(name, beside) for name in given],
            "tokenizer": spec.tokenizer and whole_path(spec.tokenizer, beside),
        }
    )


def whole_path(name: str, beside: Path | None, *, always: bool = False) -> str:
    """A path beside the recipe, or where the command runs; the name as it is where there is neither."""
    for place in (beside, Path.cwd()):
        if place is not None and (place / name).exists():
            return str((place / name).resolve())
    return str(Path(name).absolute()) if always else name
