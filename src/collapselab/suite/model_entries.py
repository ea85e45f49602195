"""Models in place of runs: a recipe with `models:` trains nothing, and measures each model as a run of its own.

    models: ["EleutherAI/pythia-70m@step*", "EleutherAI/pythia-160m@step*"]
    data: {source: "hf:roneneldan/TinyStories"}      # or corpus: a folder
    measure: {tokens: 2_000_000, layers: all}

Each is an entry with the name, lock, log and failure of a run, so that every launcher performs it; its result is a file
in the suite's folder `models`, as `measure --out` writes it.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from pydantic import JsonValue

from collapselab.corpus.sources import Reading, open_source
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.result_folder import result_files
from collapselab.suite.corpora import CorpusFacts
from collapselab.suite.recipe import Suite
from collapselab.suite.recipe_sections import DataSpec
from collapselab.training.settings import Plan

if TYPE_CHECKING:
    from collapselab.measurement.model_corpus import Text

FOLDER = "models"
"""Of the results, inside the suite's folder."""

LONGEST = 80
"""Characters of a model's name in that of its entry."""


@final
@dataclass(frozen=True)
class ModelEntry:
    """One model on one text. What a run has and a model has not (steps, disk) is empty."""

    name: str
    model: str
    text: DataSpec | CorpusFacts
    planned: Plan = field(default_factory=lambda: Plan(0, 1, 1, 0, 0, {}))
    parameters: int = 0
    flops: float = 0.0
    disk: int = 0
    checkpoints: tuple[str, ...] = ("-",)

    def facts(self) -> dict[str, JsonValue]:
        """What a record of its failure says in place of settings."""
        return {"model": self.model}


def model_entries(suite: Suite, corpora: dict[str, CorpusFacts]) -> list[ModelEntry]:
    """Every model that the recipe's names and patterns mean, on every text of it; each once."""
    from collapselab.models.find import find_models

    names = dict.fromkeys(source.name for source in find_models(suite.models))
    texts: list[DataSpec | CorpusFacts] = [suite.data] if suite.data is not None else list(corpora.values())
    return [ModelEntry(_name(model, text), model, text) for text in texts for model in names]


def _name(model: str, text: DataSpec | CorpusFacts) -> str:
    label = re.sub(r"[^\w.@+-]", "_", "--".join(Path(model).parts[-2:]))[-LONGEST:].lstrip("._-")
    on = text.model_dump_json() if isinstance(text, DataSpec) else str(text.path)
    return f"{label}-{hashlib.sha256(f'{model} {on}'.encode()).hexdigest()[:8]}"


def is_measured(folder: Path, entry: ModelEntry, options: Options) -> bool:
    """Whether the result of a model is in the suite's folder; nothing is loaded to know it."""
    for path in result_files(folder / FOLDER):
        facts = Result.load(path).facts
        same_text = isinstance(entry.text, DataSpec) or facts["corpus_hash"] == entry.text.hash
        if facts["model"] == entry.model and facts["options"] == options.facts() and same_text:
            return True
    return False


def measure_entry(folder: Path, entry: ModelEntry, options: Options, *, device: str) -> None:
    """Measure a model; its result is written when it is finished, and continued where it was interrupted."""
    from collapselab.measurement.measure import measure

    corpus: Path | None = None
    data: Text | None = None
    block = max_tokens = None
    if isinstance(entry.text, DataSpec):
        reading = Reading(text_column=entry.text.text_column, split=entry.text.split, revision=entry.text.revision)
        data = open_source(entry.text.sources, reading=reading)
        block, max_tokens = entry.text.block, entry.text.max_tokens
    else:
        corpus = entry.text.path
    measure(
        entry.model,
        corpus,
        data=data,
        block=block,
        max_tokens=max_tokens,
        options=options,
        device=device,
        out=f"{folder / FOLDER}/",
    )
