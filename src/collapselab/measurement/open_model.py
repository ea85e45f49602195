"""Open a name, a folder or a loaded module as a model to measure, or find its finished result.

    RUN/measure/<checkpoint>.json      the result of a checkpoint of a run
    STATE/finished/<name>.json         of any other model, named after the model, the corpus and the options
    OUT/<model>.<name>.json            of every model, where a folder was asked for

A result is that of a model if it was made from the same files, or from the same weights and configuration. The files
are compared first: hashing them takes a fraction of the time of loading the model.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from torch import nn

from collapselab.disk import disk_errors, read_document, sha256
from collapselab.errors import ConfigError, DamagedError
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.model_corpus import Tokenizers, compare_tokenizers
from collapselab.measurement.plan import MeasureRequest
from collapselab.measurement.resume import ResumeFolder
from collapselab.models.find import AdaptedModel, HubModel, ModelSource, place_of, weights_on_disk
from collapselab.models.function_model import FunctionModel
from collapselab.models.taps import TENSOR_PARALLEL, bare_model, sharded_by
from collapselab.models.weight_files import StoredWeights, quantised_as
from collapselab.records.facts import ModelFacts, WarningFacts
from collapselab.records.measurement import Result
from collapselab.records.result_folder import FINISHED, result_file
from collapselab.records.run import RECORD, Checkpoint, verify_checkpoint

OFFLOADED = "offloaded"
"""Folder inside the state folder for weights that a device map puts on the disk."""

STATE_FORMAT = "3"
"""Format of the tables of an unfinished measurement. One that was begun in another format starts again."""

TASK = ("run", "checkpoint", "model_hash", "corpus_hash", "options")
"""Facts that decide the numbers of a measurement."""

CONVERSATION = re.compile(r"(^|[-_.])(instruct|chat|it|sft|dpo|rlhf)($|[-_.@\d])", re.IGNORECASE)
"""Parts of a name that mark a model as trained on conversations."""


@dataclass(frozen=True)
class OpenedModel:
    """A model to measure, and where its files go."""

    model: MeasuredModel
    finished: "FinishedResult"
    resume: ResumeFolder | None = None
    """The folder of its sums, to continue from."""


def open_model(source: ModelSource | nn.Module, request: MeasureRequest) -> Result | OpenedModel:
    """Open a model on disk or on the hub; return its result, without loading it, if there is one of the same files."""
    if isinstance(source, nn.Module):
        return _open_module(source, request)
    from collapselab.models.load import find_device, load_model

    corpus, running, checkpoint = request.corpus, request.running, source.checkpoint
    device = request.processes.device(running.device)
    finished = _finished_of(source, request, device=find_device(device).type)
    files = source_hash(source) if finished.path else None
    if (result := finished.find(source.name, files_hash=files, commit=source.commit)) is not None:
        return result
    place = place_of(source)
    tokenizers = compare_tokenizers(source, place, corpus, running)
    if checkpoint is not None:
        verify_checkpoint(checkpoint)
    module = load_model(
        source,
        device=device,
        dtype=request.options.torch_dtype,
        trust_code=running.trust_code,
        place=place,
        load_in=request.options.load_in,
        device_map=running.device_map,
        offload=None if running.state is None else Path(running.state) / OFFLOADED,
    )
    own_corpus, trained = ("", ModelFacts()) if checkpoint is None else _training_of(checkpoint)
    facts = _model_facts(module, tokenizers, weights_on_disk(source, place))
    name = source.name if checkpoint is None else ""  # the models of a run know only their corpus: no conversations
    turns = corpus.record.request.source.get("chat")
    role = str(turns).partition(" ")[0] if turns else None
    warnings = list(_warnings(name, tokenizers, facts["quantised"], role))
    model = MeasuredModel(
        module,
        name=source.name,
        run=checkpoint.run.name if checkpoint else "",
        checkpoint=checkpoint.name if checkpoint else source.revision,
        own_corpus=own_corpus,
        facts={"files_hash": files, "commit": source.commit, **facts, **trained},
        warnings=warnings,
    )
    return _opened(model, finished)


def _open_module(module: nn.Module, request: MeasureRequest) -> Result | OpenedModel:
    """Open a loaded module, on its own device."""
    parameter, options, device = next(module.parameters(), None), request.options, request.running.device
    if parameter is None:
        raise ConfigError(f"{type(module).__name__}: has no parameters; a causal language model is needed.")
    if (kind := sharded_by(module)) not in (None, TENSOR_PARALLEL):
        raise ConfigError(
            f"{type(module).__name__}: {kind} spreads its weights over processes; measuring needs all of them in one. "
            "Save a whole checkpoint and measure that."
        )
    if device != "auto" and parameter.device.type != device.split(":")[0]:
        raise ConfigError(f"device is {device}, but the model is on {parameter.device}. Move it first.")
    if options.load_in is not None:
        raise ConfigError(f"load_in is {options.load_in}, but the model is loaded. Round it while loading it.")
    if options.dtype is not None and parameter.dtype != options.torch_dtype:
        raise ConfigError(f"dtype is {options.dtype}, but the model is {parameter.dtype}. Convert it first.")
    name = getattr(getattr(module, "config", None), "_name_or_path", "") or type(module).__name__
    facts = _model_facts(module, Tokenizers(), None)
    warnings = list(_warnings(name, Tokenizers(), facts["quantised"], None))
    model = MeasuredModel(module, name=name, facts=facts, warnings=warnings)
    path = _finished_path(request, model=name, model_hash=model.hash, device=model.device.type)
    return _opened(model, FinishedResult(path, request, state=request.running.state))


def _opened(model: MeasuredModel, finished: "FinishedResult") -> Result | OpenedModel:
    """Return the finished result of a loaded model, or the model with the folder that it continues from."""
    request, state = finished.request, finished.state
    model.check(request.corpus)
    if (result := finished.find(model.name, model_hash=model.hash)) is not None:
        return result
    if state is None:
        return OpenedModel(model, finished)
    run_as = {"processes": request.processes.world, "device": str(model.device), "dtype": model.dtype}
    together = request.processes if request.options.shard_classes else None
    resume = ResumeFolder(Path(state) / _task_name({**request.identity(model), **run_as}), together)
    if resume.folder.exists():
        request.say(f"{model.name}: continuing where it stopped, from {resume.folder}")
    return OpenedModel(model, finished, resume)


def _training_of(checkpoint: Checkpoint) -> tuple[str, ModelFacts]:
    """Return the hash of a run's corpus and how far the checkpoint was trained; nothing without a record."""
    file = checkpoint.run.path / RECORD
    if not file.exists() or "corpus" not in read_document(file, unchecked=True):
        return "", {}
    record, known = checkpoint.run.record(), checkpoint.run.checkpoint(checkpoint.name, verify=False)
    assert record is not None
    if known is None:
        return record.corpus.hash, {}
    seed = record.settings["seed"]
    assert isinstance(seed, int)
    trained: ModelFacts = {"trained": {"step": known.step, "epoch": known.epoch, "tokens": known.tokens, "seed": seed}}
    return record.corpus.hash, trained


def _model_facts(model: nn.Module, tokenizers: Tokenizers, stored: StoredWeights | None) -> ModelFacts:
    """Return the facts of a model and its files."""
    bare = bare_model(model)
    config: Any = getattr(bare, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    family, width, depth = (getattr(config, name, None) for name in ("model_type", "hidden_size", "num_hidden_layers"))
    facts: ModelFacts = {
        "family": family if isinstance(family, str) and family else None,
        "depth": depth if isinstance(depth, int) else None,
        "stored_dtype": None if stored is None else stored.format,
        "quantised": quantised_as(getattr(model, "config", None), stored),
        "tokenizer": {"model": tokenizers.model, "corpus": tokenizers.corpus, "same": tokenizers.same},
    }
    if isinstance(width, int):
        facts["width"] = width
    if getattr(bare, "is_loaded_in_4bit", False):  # packed weights are fewer numbers
        facts["parameters"] = int(bare.num_parameters())  # type: ignore[operator]
    elif not isinstance(bare, FunctionModel):
        facts["parameters"] = sum(parameter.numel() for parameter in bare.parameters())
    return facts


def _warnings(name: str, tokenizers: Tokenizers, quantised: str | None, role: str | None) -> Iterator[WarningFacts]:
    """Yield what may make a number mean something else than a reader would think; no number is wrong for it.

    A model without a `name` is not for conversations. With a `role`, the texts are turns of it in the model's template.
    """
    if tokenizers.same is False:
        text = "The corpus was made with another tokenizer than the model's, as asked."
        yield {"code": "other-tokenizer", "text": text}
    elif tokenizers.unread:
        text = f"The model's tokenizer was not compared: {tokenizers.unread}"
        yield {"code": "unknown-tokenizer", "text": text}
    if quantised is not None:
        text = f"The weights are stored as {quantised}: rounded, whatever precision the model is run in."
        yield {"code": "quantised", "text": text}
    if name and role is not None:
        text = (
            f"Each text is a turn of the {role} in the model’s chat template; the tokens of the turn and those that "
            "the template writes around it all count."
        )
        yield {"code": "chat-template", "text": text}
    elif name and (tokenizers.chat_template or CONVERSATION.search(PurePath(name).name)):
        sign = "its tokenizer has a chat template" if tokenizers.chat_template else "its name says so"
        text = f"A model for conversations ({sign}) is measured on plain text, without turns."
        yield {"code": "chat", "text": text}


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
        """Return the result in the file if this request and a model with one of the hashes made it, in all processes.

        A result with another tokenizer needs `other_tokenizer` again.
        """
        result, request = self._result, self.request
        if result is not None:
            facts, hashes = result.facts, {"files_hash": files_hash, "commit": commit, "model_hash": model_hash}
            same_model = any(value is not None and facts.get(name) == value for name, value in hashes.items())
            asked = (request.corpus.hash, request.options.facts())
            same_tokenizer = facts.get("tokenizer", {}).get("same") is not False
            is_asked = same_model and (facts["corpus_hash"], facts["options"]) == asked
            result = result if is_asked and (same_tokenizer or request.running.other_tokenizer) else None
            if result is not None and self.state is not None:  # a kill can leave the sums of a finished measurement
                ResumeFolder(Path(self.state) / _task_name(facts)).remove()
        result = request.processes.broadcast(result)
        if result is not None:
            request.say(f"{name}: measured already; {self.path}. With --again it is measured again.")
        return result

    def write(self, result: Result) -> None:
        """Write a result, in place of the file that is there."""
        if self.path is not None:
            if self._result is not None:
                other = "was measured with other options, or of another model or corpus; now replaced."
                self.request.say(f"{self.path}: {other}")
            result.save(self.path)

    @cached_property
    def _result(self) -> Result | None:
        """Result in the file; None if there is none, or it is damaged or of another version."""
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


def _finished_of(source: ModelSource, request: MeasureRequest, *, device: str) -> FinishedResult:
    """Return the file of a model's result, whether it exists or not."""
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


def _finished_path(request: MeasureRequest, **model: str | None) -> Path | None:
    """Return the file of a result in the folder of results or in the state folder; None without either."""
    if request.folder is None and request.running.state is None:
        return None
    digest = _digest({**model, "corpus_hash": request.corpus.hash, "options": request.options.facts()})
    if request.folder is not None:
        return result_file(request.folder, model["model"] or "model", digest)
    assert request.running.state is not None
    return Path(request.running.state) / FINISHED / f"{digest}.json"


def _task_name(facts: Mapping[str, Any]) -> str:
    """Name the folder of an unfinished measurement after all that decides its numbers and how it is cut into parts."""
    named = {name: facts[name] for name in TASK}
    return _digest([named, STATE_FORMAT, facts["processes"], facts["device"], facts["dtype"]])


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def source_hash(source: ModelSource) -> str | None:
    """Hash the files of a model (16 hex digits); None where some of them are not on this machine."""
    places = [source.path]
    if isinstance(source.model, AdaptedModel):
        base = source.model.base
        places.append(None if isinstance(base, HubModel) else base.path)
    hashes = [_file_hashes(place) for place in places if place is not None]
    if len(hashes) < len(places) or not all(hashes):
        return None
    return _digest(hashes if len(hashes) > 1 else hashes[0])


def _file_hashes(place: Path) -> dict[str, str]:
    """Hash a file, or the files of a folder that are not hidden."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    with disk_errors(place, reading=True):
        return {file.name: sha256(file) for file in files if file.is_file() and not file.name.startswith(".")}
