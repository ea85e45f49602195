"""Which models a name means, and where their files are.

    runs/small                  a run              every Checkpoint of it
    runs/small/checkpoints/2    a checkpoint       that Checkpoint
    models/llama  tiny.gguf     a folder or file   LocalModel
    owner/model@revision        the hub            HubModel
    base+adapter  adapter       an adapter         AdaptedModel, on the base that is named or that it names
    owner/model@step*  out/*    a pattern          every model that matches, in order of step

`find_models` is the one place that reads such a name; from there on a model is one of these objects. All that can be
refused by the files alone is refused here, before the library is loaded, which takes seconds.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from collapselab.errors import ModelError, RunError
from collapselab.hub import Pretrained, cached_folder, download_command, hub_answers, hub_id, hub_revisions, in_gguf
from collapselab.models.adapters import CONFIG, adapter_settings, described
from collapselab.models.weight_files import StoredWeights, first_of, stored_weights
from collapselab.records.run import Checkpoint, RunFolder, checkpoint_at


@dataclass(frozen=True)
class LocalModel:
    """A Hugging Face folder, or a .gguf file."""

    path: Path


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, in its newest version or in that of a revision."""

    identity: str
    revision: str | None = None
    commit: str | None = None
    """Commit of the revision, if the hub or its cache has been asked."""
    is_cached: bool = False
    """Whether the hub does not answer, so that its cache is where the model is."""


@dataclass(frozen=True)
class AdaptedModel:
    """A base with an adapter of peft on top."""

    base: Checkpoint | LocalModel | HubModel
    adapter: Path


@dataclass(frozen=True)
class ModelSource:
    """A model that can be loaded, and its name in messages and results."""

    name: str
    model: Checkpoint | LocalModel | HubModel | AdaptedModel

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.model if isinstance(self.model, Checkpoint) else None

    @property
    def revision(self) -> str | None:
        return self.model.revision if isinstance(self.model, HubModel) else None

    @property
    def commit(self) -> str | None:
        """Commit of a model of the hub, if it is known without a request."""
        return self.model.commit if isinstance(self.model, HubModel) else None

    @property
    def path(self) -> Path | None:
        """Folder or file on this machine, for an adapter its own; None for a model of the hub."""
        if isinstance(self.model, AdaptedModel):
            return self.model.adapter
        return None if isinstance(self.model, HubModel) else self.model.path


def find_models(names: Sequence[str]) -> list[ModelSource]:
    """Return the models that names stand for, in order; a run stands for all its checkpoints.

    A name is a Hugging Face folder, a .gguf file, a run, one checkpoint of a run, or an id on the hub, `id@revision`
    for a revision. What exists here wins over the hub. A pattern (`out/step*`, `id@step*`) means all that match.
    """
    return [source for name in names for source in _models_of(name)]


def is_model(path: Path) -> bool:
    """Whether a folder or file looks like a model or a run, by its name and by the names of the files in it."""
    if path.is_file():
        return path.suffix == ".gguf"
    signs = ("config.json", "adapter_config.json", "run.json")
    return any((path / sign).is_file() for sign in signs) or any(path.glob("*.gguf"))


def checkpoint_model(checkpoint: Checkpoint, *, name: str | None = None) -> ModelSource:
    """Return a checkpoint of a run as a model, called `name` or by its path; raise ModelError if it holds no model."""
    _check_folder(checkpoint.path)
    return ModelSource(name or str(checkpoint.path), checkpoint)


def place_of(source: ModelSource) -> Pretrained:
    """Return where transformers finds a model: its files, the hub, or the cache if the hub does not answer."""
    model = source.model
    if isinstance(model, AdaptedModel):
        return _place_of_adapted(source.name, model)
    if not isinstance(model, HubModel):
        if model.path.suffix != ".gguf" or model.path.is_dir():
            return Pretrained(str(model.path))
        if (place := in_gguf(model.path)) is None:
            raise ModelError(f"{source.name}: GGUF files need the package gguf. Install collapselab[gguf].")
        stored_weights(model.path, name=source.name)  # refuses what is no such file; the library reads on
        return place
    if model.commit is not None and not model.is_cached:  # the hub has just named it
        return Pretrained(model.identity, revision=model.commit, is_local=False)
    if not model.is_cached and hub_answers():
        return Pretrained(model.identity, revision=model.revision, is_local=False)
    cached = cached_folder(model.identity, model.revision)
    if cached is None:
        raise ModelError(
            f"{source.name}: no such folder here, not in the hub's cache, and the hub cannot be reached. Fetch it "
            f"where there is a network ({download_command(model.identity, model.revision)}) and name that folder."
        )
    return Pretrained(str(cached))


def _place_of_adapted(name: str, model: AdaptedModel) -> Pretrained:
    base = model.base.identity if isinstance(model.base, HubModel) else str(model.base.path)
    try:
        return replace(place_of(ModelSource(base, model.base)), adapter=model.adapter)
    except ModelError as error:
        what = f"{name}: {described(model.adapter)}"
        raise ModelError(f"{what}, which is not at hand: {error} Or name the base: BASE+{model.adapter}.") from error


def weights_on_disk(source: ModelSource, place: Pretrained) -> StoredWeights | None:
    """Return the stored weights of a model, for the hub those in its cache; None if they are not on this machine."""
    if place.is_local:
        return stored_weights(place.file, name=source.name)
    cached = cached_folder(place.path, place.revision)
    return None if cached is None else stored_weights(cached, name=source.name)


def check_no_adapter(source: ModelSource, place: Pretrained) -> None:
    """ModelError if there is an adapter beside the weights: the library would add it without a word."""
    from transformers.utils.peft_utils import find_adapter_config_file

    found = None if place.gguf_file else find_adapter_config_file(place.path, revision=place.revision)
    if found is not None:
        raise ModelError(
            f"{source.name}: {described(Path(found).parent)} beside a whole model. Move the two apart, and name the "
            "model, or BASE+ADAPTER for both."
        )


def _models_of(name: str) -> list[ModelSource]:
    path = Path(name)
    if name and path.is_dir():
        return _models_in(name, path)
    if "+" in name and not path.exists():
        return [_adapted(name)]
    if re.search(r"[*?\[]", name) and not path.exists():
        return _matching(name)
    if path.is_file():
        if path.suffix == ".gguf":
            return [ModelSource(name, LocalModel(path))]
        raise ModelError(f"{name}: a file. A model is a folder with a config.json, or a .gguf file.")
    known = None if path.suffix == ".gguf" else hub_id(name)
    if known is None:
        raise ModelError(
            f"{name}: no such folder or file, and not an id on the hub (owner/model or owner/model@revision)."
        )
    return [ModelSource(name, HubModel(*known))]


def _adapted(name: str) -> ModelSource:
    """base+adapter."""
    base, _, adapter = name.rpartition("+")
    folder = Path(adapter)
    if not base or not (folder / CONFIG).is_file():
        raise ModelError(
            f"{name}: no such folder or file, and not base+adapter: {adapter or 'nothing'} is no folder with an "
            f"{CONFIG}."
        )
    sources = _models_of(base)
    if len(sources) != 1 or isinstance(sources[0].model, AdaptedModel):
        raise ModelError(f"{name}: {base} is {len(sources):,} models or an adapter; an adapter goes on one base.")
    model = sources[0].model
    assert not isinstance(model, AdaptedModel)
    return ModelSource(name, AdaptedModel(model, folder))


def _named_base(folder: Path) -> LocalModel | HubModel:
    """Return the base that an adapter names: a folder, relative to us or to the adapter, or a model of the hub."""
    settings = adapter_settings(folder)
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{folder}: {described(folder)}. Name its base: BASE+{folder}.")
    for place in (Path(base), folder / base, folder.parent / base):
        with suppress(OSError):  # a name that no file can have
            if (place / "config.json").is_file():
                return LocalModel(place)
    known = hub_id(base)
    if known is None:
        raise ModelError(
            f"{folder}: {described(folder)}, which is no folder here and no id on the hub. Name its base: "
            f"BASE+{folder}."
        )
    return HubModel(known[0], revision if isinstance(revision, str) else known[1])


def _matching(pattern: str) -> list[ModelSource]:
    """Return what a pattern matches: folders and files here that are models, or else revisions on the hub."""
    here = sorted(glob(pattern, recursive=True), key=step_order)
    names = [name for name in here if is_model(Path(name))]
    if names:
        return [source for name in names for source in _models_of(name)]
    identity, at, revision = pattern.partition("@")
    known = hub_id(identity) if at and revision else None
    if here or known is None:
        what = f"matches {first_of(here)}, none of which is a model" if here else "matches no folder or file here"
        raise ModelError(f"{pattern}: {what}; on the hub only a revision can be a pattern (owner/model@step*).")
    return _matching_revisions(identity, revision)


def _matching_revisions(identity: str, pattern: str) -> list[ModelSource]:
    try:
        revisions = hub_revisions(identity)
    except (OSError, ValueError) as error:
        raise ModelError(f"{identity}: the hub does not list its revisions: {' '.join(str(error).split())}") from error
    commits, is_cached = revisions.commits, revisions.from_cache
    matching = sorted((name for name in commits if fnmatchcase(name, pattern)), key=step_order)
    if not matching:
        where = "in the hub's cache, as the hub cannot be reached" if is_cached else "on the hub"
        names = first_of(sorted(commits, key=step_order)) or "none"
        raise ModelError(f"{identity}@{pattern}: matches no revision. {len(commits):,} are {where}: {names}.")
    if is_cached:
        print(f"{identity}: the hub cannot be reached; {len(matching):,} in its cache match.", file=sys.stderr)
    return [ModelSource(f"{identity}@{name}", HubModel(identity, name, commits[name], is_cached)) for name in matching]


def step_order(name: str) -> list[tuple[int, float, str]]:
    """Return what names are sorted by: their parts, of which digits count as a number, so step2 is before step10.

    A folder that is named by a number with decimals, as checkpoints of runs are by their epoch, counts as that number;
    elsewhere a point is none, so that v1.9 is before v1.10.
    """
    parts = re.findall(r"(?:(?<=/)|^)[0-9]+\.[0-9]+(?=/|$)|[0-9]+|[^0-9]+", name)
    numbers = [(float(part) if "." in part else int(part)) if part[0] in "0123456789" else None for part in parts]
    return [(1, 0, part) if number is None else (0, number, "") for part, number in zip(parts, numbers, strict=True)]


def _models_in(name: str, path: Path) -> list[ModelSource]:
    run = RunFolder(path)
    if run.exists():
        checkpoints = run.checkpoints()
        if not checkpoints:
            raise RunError(f"{path}: a run without checkpoints; nothing is in its checkpoints/ yet. Train it first.")
        return [checkpoint_model(checkpoint, name=f"{run.name}/{checkpoint.name}") for checkpoint in checkpoints]
    if (checkpoint := checkpoint_at(path)) is not None:
        return [checkpoint_model(checkpoint, name=name)]
    if (gguf := _gguf_in(path)) is not None:
        return [ModelSource(name, LocalModel(gguf))]
    if (path / CONFIG).is_file() and not (path / "config.json").is_file():
        return [ModelSource(name, AdaptedModel(_named_base(path), path))]
    _check_folder(path)
    return [ModelSource(name, LocalModel(path))]


def _gguf_in(path: Path) -> Path | None:
    """Return the GGUF file of a folder without other weights, None without one; raise ModelError for several."""
    files = [] if any(path.glob("*.safetensors")) or any(path.glob("*.bin")) else sorted(path.glob("*.gguf"))
    if len(files) > 1:
        names = first_of([file.name for file in files])
        raise ModelError(f"{path}: holds {len(files):,} GGUF files ({names}). Name one of them.")
    return files[0] if files else None


def _check_folder(path: Path) -> None:
    if (path / "config.json").is_file():
        return
    names = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    raise ModelError(f"{path}: not a model; it has no config.json, and holds {first_of(names) or 'nothing'}.")
