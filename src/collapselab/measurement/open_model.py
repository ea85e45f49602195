"""From a name, a folder or a loaded module to a model that can be measured, or to its result if it is there already."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import nn

from collapselab.errors import ConfigError
from collapselab.measurement.compare_tokenizers import compare_tokenizers
from collapselab.measurement.finished import FinishedResult, files_hash, finished_path
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.model_warnings import ModelFiles
from collapselab.measurement.plan import MeasureRequest
from collapselab.measurement.resume import ResumeFolder
from collapselab.models.find import Source
from collapselab.models.place import place_of, weights_on_disk
from collapselab.records.measurement import Result
from collapselab.records.run import RunFolder, verify_checkpoint

NUMBERING = "classes of the sample"
"""How the tables of an unfinished measurement number classes; earlier versions numbered the whole vocabulary."""


@final
@dataclass(frozen=True)
class OpenedModel:
    """A model that is to be measured, and where its files go."""

    model: MeasuredModel
    finished: FinishedResult
    resume: ResumeFolder | None = None
    """The folder of its sums, to continue from."""
    moments_file: Path | None = None
    """The file for the moments of the last layer."""


def open_source(source: Source, request: MeasureRequest) -> Result | OpenedModel:
    """A model on disk or on the hub; its result, without loading it, if there is one of the same files."""
    from collapselab.models.load import find_device, load_model

    corpus, options = request.corpus, request.options
    place = place_of(source)
    tokenizers = compare_tokenizers(
        source, place, corpus, trust_code=request.trust_code, other_tokenizer=request.other_tokenizer
    )
    device = request.processes.device(request.device)
    run = RunFolder.of_checkpoint(source.path) if source.run else None
    if run is not None:
        path: Path | None = run.measurement_path(source.checkpoint)
    else:
        kind = find_device(device).type
        path = finished_path(request.state, corpus, options, model=source.name, revision=source.revision, device=kind)
    finished = _finished(path, request)
    files = files_hash(source.path) if path else None
    if (result := _find(finished, source.name, request, files_hash=files)) is not None:
        return result
    if run is not None:
        verify_checkpoint(Path(source.path))
    module = load_model(source, device=device, dtype=options.torch_dtype, trust_code=request.trust_code, place=place)
    stored = ModelFiles(tokenizers, weights_on_disk(source, place))
    model = MeasuredModel(
        module,
        name=source.name,
        run=source.run,
        checkpoint=source.checkpoint or source.revision,
        facts={"files_hash": files, **stored.facts(module)},
        warnings=stored.warnings(module, source.name, in_a_run=bool(source.run)),
    )
    model.check(corpus)
    if (result := _find(finished, source.name, request, model_hash=model.hash)) is not None:
        return result
    if run is None:
        return OpenedModel(model, finished, _resume(model, request, request.state))
    moments_file = run.measurement_path(source.checkpoint).with_suffix(".safetensors")
    return OpenedModel(model, finished, _resume(model, request, moments_file.parent / ".state"), moments_file)


def open_module(module: nn.Module, request: MeasureRequest) -> Result | OpenedModel:
    """A model that is loaded already, as it is and on its device."""
    _check_loaded(module, request)
    name = getattr(getattr(module, "config", None), "_name_or_path", "") or type(module).__name__
    unknown = ModelFiles()
    warnings = unknown.warnings(module, name, in_a_run=False)
    model = MeasuredModel(module, name=name, facts=unknown.facts(module), warnings=warnings)
    model.check(request.corpus)
    named = {"model": name, "model_hash": model.hash, "device": model.device.type}
    finished = _finished(finished_path(request.state, request.corpus, request.options, **named), request)
    result = _find(finished, name, request, model_hash=model.hash)
    return result or OpenedModel(model, finished, _resume(model, request, request.state))


def _check_loaded(model: nn.Module, request: MeasureRequest) -> None:
    parameter, dtype = next(model.parameters(), None), request.options.dtype
    if parameter is None:
        raise ConfigError(f"{type(model).__name__}: has no parameters; a causal language model is needed.")
    if request.device != "auto" and parameter.device.type != request.device.split(":")[0]:
        raise ConfigError(f"device is {request.device}, but the model is on {parameter.device}. Move it first.")
    if dtype is not None and str(parameter.dtype) != f"torch.{dtype}":
        raise ConfigError(f"dtype is {dtype}, but the model is {parameter.dtype}. Convert it first.")


def _finished(path: Path | None, request: MeasureRequest) -> FinishedResult:
    return FinishedResult(path, request.say, ignored=request.again or not request.processes.first)


def _find(finished: FinishedResult, name: str, request: MeasureRequest, **hashes: str | None) -> Result | None:
    """The finished result of this model, corpus and options, if there is one; the same in all processes."""
    result = request.processes.broadcast(finished.find(request.corpus, request.options, **hashes))
    if result is not None:
        request.say(f"{name}: measured already; {finished.path}. With --again it is measured again.")
    return result


def _resume(model: MeasuredModel, request: MeasureRequest, state: str | Path | None) -> ResumeFolder | None:
    """The folder of this measurement inside the state folder, if there is one."""
    if state is None:
        return None
    together = request.processes if request.options.shard_classes else None
    resume = ResumeFolder(Path(state) / _task_name(model, request), together)
    if resume.folder.exists():
        request.say(f"{model.name}: continuing where it stopped, from {resume.folder}")
    return resume


def _task_name(model: MeasuredModel, request: MeasureRequest) -> str:
    """The name of an unfinished measurement's folder: all that decides its numbers, and how it is cut into parts."""
    identity = request.identity(model)
    named = {
        "run": identity["run"],
        "checkpoint": identity["checkpoint"],
        "model_hash": identity["model_hash"],
        "corpus_hash": identity["corpus_hash"],
        "options": identity["options"],
    }
    parts = [NUMBERING, request.processes.world, str(model.device), model.dtype]
    text = json.dumps([named, *parts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
