"""`similarity`: how alike the class means of measured checkpoints are, from the moments that measuring them has kept.

No model runs. Layers below the last are compared too where they were kept. A name is a run that was measured (all its
checkpoints), one checkpoint, a model, file or folder of results that was measured with classes, or a file of class
moments.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

from collapselab.core.geometry import Similarity, class_mean_similarity
from collapselab.core.moments import ClassMoments
from collapselab.errors import ConfigError, RunError
from collapselab.models.find import step_order
from collapselab.records.measurement import Result
from collapselab.records.result_folder import (
    StoredResult,
    find_results,
    kept_moments,
    load_moments,
    moments_identity,
    result_files,
)
from collapselab.records.run import Checkpoint, RunFolder, checkpoint_at, kept_layers


@final
@dataclass(frozen=True)
class Similarities:
    """The similarity of every two of some measurements, by their places in `names`."""

    names: list[str]
    pairs: dict[tuple[int, int], Similarity]

    def at(self, i: int, j: int) -> Similarity:
        return self.pairs[min(i, j), max(i, j)]

    def to_json(self) -> str:
        """One JSON document: the names, and a row for every two of them."""
        rows = [
            {
                "first": self.names[i],
                "second": self.names[j],
                "cka": pair.value,
                "classes": pair.classes,
                "why": pair.why,
            }
            for (i, j), pair in self.pairs.items()
        ]
        return json.dumps({"names": self.names, "pairs": rows}, ensure_ascii=False, allow_nan=False)


@final
@dataclass(frozen=True)
class _Source:
    name: str
    file: Path
    tokenizer: str | None
    """Its hash, where the measurement says it."""
    identity: dict[str, object]
    """What its class moments have to say of themselves."""
    has_layers: bool = True
    """Whether its measurement keeps the class means of every layer; unknown of a mere file of moments."""

    def by_layer(self) -> "list[_Source]":
        """One for each layer that was kept, from the first to the last; RunError where there is only the last."""
        layers = kept_layers(self.file) if self.has_layers else {}
        if not layers:
            raise RunError(
                f"{self.name}: class means of its layers were not kept. "
                "`collapselab measure … --layers all --classes` keeps them, with --again if it was measured so before."
            )
        below = [
            replace(self, name=f"{self.name} layer {layer}", file=file, identity=self.identity | {"layer": layer})
            for layer, file in layers.items()
        ]
        return [*below, replace(self, name=f"{self.name} last")]


def similarity(
    names: Sequence[str | Path], *, layers: Literal["last", "all"] = "last", min_count: int = 1
) -> Similarities:
    """The CKA of class means for every two of these measurements of one vocabulary, or for every two of their layers.

    >>> from collapselab import similarity
    >>> found = similarity(["runs/small"])
    >>> found.names
    ['small/0', 'small/1']
    >>> 0 < found.at(0, 1).value <= 1
    True

    ConfigError where two have different vocabularies or tokenizers: then a class is not the same in both.
    """
    if min_count < 1:
        raise ConfigError(f"min_count is {min_count}; a whole number from 1 on is needed.")
    if layers not in ("last", "all"):
        raise ConfigError(f"layers is {layers!r}; it is last or all.")
    sources = [source for name in names for source in _sources(str(name))]
    if layers == "all":
        sources = [layer for source in sources for layer in source.by_layer()]
    if len(sources) < 2:
        raise ConfigError(
            f"{len(sources)} measurement; at least 2 are needed to compare. Name another run or checkpoint."
        )
    pairs: dict[tuple[int, int], Similarity] = {}
    for i, source in enumerate(sources):
        moments = load_moments(source.file, source.identity)
        for j in range(i + 1, len(sources)):
            other = load_moments(sources[j].file, sources[j].identity)  # two in memory, however many there are
            _check_same(source, moments, sources[j], other)
            pairs[i, j] = class_mean_similarity(moments, other, min_count=min_count)
    return Similarities([source.name for source in sources], pairs)


def _check_same(first: _Source, moments: ClassMoments, second: _Source, other: ClassMoments) -> None:
    if moments.classes != other.classes:
        raise ConfigError(
            f"{first.name} has a vocabulary of {moments.classes:,} tokens, {second.name} one of {other.classes:,}. "
            "Only measurements of one vocabulary are compared."
        )
    if first.tokenizer and second.tokenizer and first.tokenizer != second.tokenizer:
        raise ConfigError(
            f"{first.name} was measured with the tokenizer {first.tokenizer}, {second.name} with {second.tokenizer}: "
            "the same number means another token. Only measurements of one tokenizer are compared."
        )


def _sources(name: str) -> list[_Source]:
    path = Path(name)
    if path.is_file() and path.suffix != ".json":
        return [_Source(name, path, None, {})]
    if RunFolder(path).exists():
        run = RunFolder(path)
        measured = [checkpoint for checkpoint in run.checkpoints() if checkpoint.moments.is_file()]
        if not measured:
            raise RunError(
                f"{path}: no checkpoint of this run has been measured. `collapselab measure {name}` does it."
            )
        return [_source(f"{run.name}/{checkpoint.name}", checkpoint) for checkpoint in measured]
    if path.is_dir() and (checkpoint := checkpoint_at(path)) is not None:
        if not checkpoint.moments.is_file():
            raise RunError(f"{path}: has not been measured. `collapselab measure {name}` does it.")
        return [_source(name, checkpoint)]
    stored = find_results(path)
    of_one_model = not path.is_file() and not (path.is_dir() and result_files(path))
    sources = [_stored_source(result) for result in (stored[-1:] if of_one_model else stored)]
    return sorted(sources, key=lambda source: step_order(source.name))


def _source(name: str, checkpoint: Checkpoint) -> _Source:
    if not checkpoint.measurement.is_file():
        return _Source(name, checkpoint.moments, None, {"checkpoint": checkpoint.name, "layer": "last"})
    source = _measured_source(name, checkpoint.moments, Result.load(checkpoint.measurement))
    return replace(source, identity=source.identity | {"checkpoint": checkpoint.name})


def _stored_source(stored: StoredResult) -> _Source:
    facts, file = stored.result.facts, kept_moments(stored)
    name = f"{facts['run']}/{facts['checkpoint']}" if facts["in_a_run"] else str(facts["model"])
    if file is None:
        raise RunError(f"{name}: its class means were not kept. `collapselab measure … --classes` keeps them.")
    return _measured_source(name, file, stored.result)


def _measured_source(name: str, file: Path, result: Result) -> _Source:
    options, tokenizers = result.facts["options"], result.facts.get("tokenizer")
    has_layers = options.get("layers") == "all" and bool(options.get("classes"))
    tokenizer = tokenizers["corpus"] if tokenizers else None
    return _Source(name, file, tokenizer, moments_identity(result.facts), has_layers)
