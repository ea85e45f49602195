"""From a name, a folder or a loaded module to a model that can be measured, or to its result if it is there already.

    RUN/measure/<checkpoint>.json      the result of a checkpoint of a run
    STATE/finished/<name>.json         of any other model, named after the model, the corpus and the options
    OUT/<model>.<name>.json            of every model, where a folder was asked for

A result is that of a model if it was made from the same files, or from the same weights and configuration. The files
are compared first: hashing them takes a fraction of the time of loading the model.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from torch import nn

from collapselab.disk import disk_errors, read_document, sha256
from collapselab.errors import ConfigError, DamagedError
from collapselab.measurement.add_metrics import kept_moments, lacking_metrics, with_added_metrics
from collapselab.measurement.compare_tokenizers import compare_tokenizers
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.model_corpus import chat_role
from collapselab.measurement.model_warnings import ModelFiles
from collapselab.measurement.plan import MeasureRequest
from collapselab.measurement.resume import TASK, ResumeFolder, remove_finished
from collapselab.models.find import AdaptedModel, HubModel, ModelSource, place_of, weights_on_disk
from collapselab.records.facts import ModelFacts
from collapselab.records.measurement import Result
from collapselab.records.result_folder import FINISHED, result_file
from collapselab.records.run import RECORD, Checkpoint, RunRecord, verify_checkpoint

OFFLOADED = "offloaded"
"""The folder of weights that a spread model has on the disk, inside the state folder."""

STATE_FORMAT = "2"
"""Format of the tables of an unfinished measurement. One that was begun in another format starts again."""


@final
@dataclass(frozen=True)
class OpenedModel:
    """A model that is to be measured, and where its files go."""

    model: MeasuredModel
    finished: "FinishedResult"
    resume: ResumeFolder | None = None
    """The folder of its sums, to continue from."""
    moments_file: Path | None = None
    """The file for the moments of the last layer; those of layers below are beside it, where classes are asked for."""


def open_model(source: ModelSource | nn.Module, request: MeasureRequest) -> Result | OpenedModel:
    """Open a model on disk or on the hub; return its result, without loading it, if there is one of the same files."""
    if isinstance(source, nn.Module):
        return _open_module(source, request)
    from collapselab.models.load import find_device, load_model

    corpus = request.corpus
    device = request.processes.device(request.running.device)
    checkpoint, kind = source.checkpoint, find_device(device).type
    finished = _finished_of(source, request, device=kind)
    files = source_hash(source) if finished.path else None
    if (result := _found(source, finished, files)) is not None:
        return result
    place = place_of(source)
    tokenizers = compare_tokenizers(
        source, place, corpus, trust_code=request.running.trust_code, other_tokenizer=request.running.other_tokenizer
    )
    if checkpoint is not None:
        verify_checkpoint(checkpoint)
    module = load_model(
        source,
        device=device,
        dtype=request.options.torch_dtype,
        trust_code=request.running.trust_code,
        place=place,
        load_in=request.options.load_in,
        device_map=request.running.device_map,
        offload=None if request.running.state is None else Path(request.running.state) / OFFLOADED,
    )
    stored = ModelFiles(tokenizers, weights_on_disk(source, place))
    model = MeasuredModel(
        module,
        name=source.name,
        run=checkpoint.run.name if checkpoint else "",
        checkpoint=checkpoint.name if checkpoint else source.revision,
        own_corpus=_own_corpus(checkpoint),
        facts={"files_hash": files, "commit": source.commit, **stored.facts(module), **_training_of(checkpoint)},
        warnings=stored.warnings(module, source.name, in_a_run=checkpoint is not None, role=chat_role(corpus)),
    )
    model.check(corpus)
    if (result := finished.find(source.name, model_hash=model.hash)) is not None:
        return result
    return OpenedModel(model, finished, _resume(model, request, finished.state), finished.moments_file)


def _own_corpus(checkpoint: Checkpoint | None) -> str:
    """Hash of the corpus of a run, empty where its record names none."""
    record = _record_of(checkpoint)
    return "" if record is None else record.corpus.hash


def _training_of(checkpoint: Checkpoint | None) -> ModelFacts:
    """How far a checkpoint was trained: a result may be kept, or sent, where the run is not."""
    record = _record_of(checkpoint)
    known = None if record is None or checkpoint is None else checkpoint.run.checkpoint(checkpoint.name, verify=False)
    if record is None or known is None:
        return {}
    seed = record.settings["seed"]
    assert isinstance(seed, int)
    return {"trained": {"step": known.step, "epoch": known.epoch, "tokens": known.tokens, "seed": seed}}


def _record_of(checkpoint: Checkpoint | None) -> RunRecord | None:
    """The record of a run, None where it names no corpus; DamagedError if it was changed."""
    if checkpoint is None:
        return None
    file = checkpoint.run.path / RECORD
    if not file.exists() or "corpus" not in read_document(file, unchecked=True):
        return None
    return checkpoint.run.record()


def _finished_of(source: ModelSource, request: MeasureRequest, *, device: str) -> "FinishedResult":
    """Where the result of a model is, or will be."""
    checkpoint = source.checkpoint
    if checkpoint is not None and request.folder is None:
        state = checkpoint.run.measurements / ".state"
        return FinishedResult(checkpoint.measurement, request, state=state, moments_file=checkpoint.moments)
    named = {"model": source.name, "revision": source.revision, "device": device}
    if request.folder is not None and source.path is not None:  # the same place, by whichever name
        place = source.path.resolve()
        label = f"{checkpoint.run.name}/{checkpoint.name}" if checkpoint is not None else str(place)
        named = {"model": label, "path": str(place), "device": device}
    return FinishedResult(_finished_path(request, **named), request, state=request.running.state)


def _found(source: ModelSource, finished: "FinishedResult", files: str | None) -> Result | None:
    """The result of the same files or commit; in a folder of results also that of a checkpoint, which is copied."""
    result = finished.find(source.name, files_hash=files, commit=source.commit)
    if result is not None or source.checkpoint is None or finished.request.folder is None:
        return result
    own = FinishedResult(source.checkpoint.measurement, finished.request, moments_file=source.checkpoint.moments)
    result = own.find(source.name, files_hash=files)
    if result is not None and finished.request.processes.first:
        finished.write(result)
    return result


def _open_module(module: nn.Module, request: MeasureRequest) -> Result | OpenedModel:
    """A model that is loaded already, as it is and on its device."""
    _check_loaded(module, request)
    name = getattr(getattr(module, "config", None), "_name_or_path", "") or type(module).__name__
    unknown = ModelFiles()
    warnings = unknown.warnings(module, name, in_a_run=False)
    model = MeasuredModel(module, name=name, facts=unknown.facts(module), warnings=warnings)
    model.check(request.corpus)
    path = _finished_path(request, model=name, model_hash=model.hash, device=model.device.type)
    finished = FinishedResult(path, request, state=request.running.state)
    result = finished.find(name, model_hash=model.hash)
    return result or OpenedModel(model, finished, _resume(model, request, request.running.state), finished.moments_file)


def _check_loaded(model: nn.Module, request: MeasureRequest) -> None:
    parameter, dtype = next(model.parameters(), None), request.options.dtype
    if parameter is None:
        raise ConfigError(f"{type(model).__name__}: has no parameters; a causal language model is needed.")
    if request.running.device != "auto" and parameter.device.type != request.running.device.split(":")[0]:
        raise ConfigError(f"device is {request.running.device}, but the model is on {parameter.device}. Move it first.")
    if request.options.load_in is not None:
        raise ConfigError(f"load_in is {request.options.load_in}, but the model is loaded. Round it while loading it.")
    if dtype is not None and str(parameter.dtype) != f"torch.{dtype}":
        raise ConfigError(f"dtype is {dtype}, but the model is {parameter.dtype}. Convert it first.")


@final
class FinishedResult:
    """The file of one result; without a path nothing is read or written."""

    def __init__(
        self,
        path: Path | None,
        request: MeasureRequest,
        *,
        state: str | Path | None = None,
        moments_file: Path | None = None,
    ) -> None:
        """`state` is the folder with the sums of its measurement, while that is not finished.

        `moments_file` is for its class moments; without one they are beside the result, where classes are asked for.
        """
        self.path, self.request, self.state = path, request, state
        beside = path.with_suffix(".safetensors") if path is not None and request.options.classes else None
        self.moments_file = moments_file or beside

    def find(
        self, name: str, *, files_hash: str | None = None, model_hash: str | None = None, commit: str | None = None
    ) -> Result | None:
        """The result in the file, if it is of this request and of a model with one of the hashes; in all processes.

        One that was measured with another tokenizer is found only if that is allowed again.
        """
        result = self._result
        if result is not None:
            facts, corpus_hash, options = result.facts, self.request.corpus.hash, self.request.options.facts()
            same_files = files_hash is not None and facts.get("files_hash") == files_hash
            same_files |= commit is not None and facts.get("commit") == commit
            same_model = same_files or (model_hash is not None and facts["model_hash"] == model_hash)
            is_asked = facts["corpus_hash"] == corpus_hash and facts["options"] == options
            other = facts.get("tokenizer", {}).get("same") is False
            is_asked &= self.request.running.other_tokenizer or not other
            result = result if same_model and is_asked else None
            if result is not None and self.state is not None:
                remove_finished(self.state, result.facts)
            result = None if result is None else self._completed(result)
        result = self.request.processes.broadcast(result)
        if result is not None:
            self.request.say(f"{name}: measured already; {self.path}. With --again it is measured again.")
        return result

    def write(self, result: Result) -> None:
        """Write a result, in place of the file that is there."""
        if self.path is not None:
            if self._result is not None:
                other = "was measured with other options, or of another model or corpus; now replaced."
                self.request.say(f"{self.path}: {other}")
            result.save(self.path)

    def _completed(self, result: Result) -> Result:
        """The result with metrics that came later, if its moments were kept; then it is written with them."""
        assert self.path is not None
        lacking = lacking_metrics(result)
        moments = kept_moments(self.moments_file, result) if lacking else None
        if moments is None:
            return result
        try:
            completed = with_added_metrics(result, moments, lacking)
        except ValueError as error:
            self.request.say(f"{self.moments_file}: {error} Measure with --again to have {', '.join(lacking)}.")
            return result
        completed.save(self.path)
        self.request.say(f"{self.path}: added {', '.join(lacking)} from its kept class moments.")
        return completed

    @cached_property
    def _result(self) -> Result | None:
        """The result in the file, None if there is none, or it is damaged or of another version."""
        if self.path is None or self.request.running.again or not self.request.processes.first:
            return None
        try:
            with disk_errors(self.path, reading=True):
                result = Result.load(self.path)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self.request.say(f"{error} It is made again.")
            return None
        why = result.outdated()
        if why is not None:
            self.request.say(f"{self.path}: measured by another version of collapselab: {why}. It is made again.")
        return result if why is None else None


def _finished_path(request: MeasureRequest, **model: str | None) -> Path | None:
    """The file of a result in the folder of results, or in the state folder; None without either."""
    named = {**model, "corpus_hash": request.corpus.hash, "options": request.options.facts()}
    if request.folder is not None:
        return result_file(request.folder, model["model"] or "model", _digest(named))
    if request.running.state is None:
        return None
    return Path(request.running.state) / FINISHED / f"{_digest(named)}.json"


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
    named = {name: fact for name, fact in request.identity(model).items() if name in TASK}
    return _digest([named, STATE_FORMAT, request.processes.world, str(model.device), model.dtype])


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def source_hash(source: ModelSource) -> str | None:
    """That of its files, of an adapter together with those of its base; None where some of them are elsewhere."""
    if not isinstance(source.model, AdaptedModel):
        return None if source.path is None else files_hash(source.path)
    base = source.model.base
    own = _files_in(source.model.adapter)
    below = None if isinstance(base, HubModel) else files_hash(base.path)
    return None if below is None or not own else _digest([_hashes(source.model.adapter, own), below])


def files_hash(path: str | Path) -> str | None:
    """16 hex digits for the files that a model is loaded from; None where not all of them are in this place.

    That is the case for a model of the hub, and for an adapter, whose base model is elsewhere.
    """
    place = Path(path)
    files = _files_in(place)
    if not files or any(file.name == "adapter_config.json" for file in files):
        return None
    return _digest(_hashes(place, files))


def _files_in(place: Path) -> list[Path]:
    """The file, or those in a folder that are not hidden."""
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.is_file() and not file.name.startswith("."))
    return [place] if place.is_file() else []


def _hashes(place: Path, files: list[Path]) -> dict[str, str]:
    with disk_errors(place, reading=True):
        return {file.name: sha256(file) for file in files}
