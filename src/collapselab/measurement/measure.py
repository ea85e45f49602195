"""The stage: models × corpus → results, whatever a model is given as; what is finished is not measured again."""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.disk import check_writable
from collapselab.errors import ConfigError, DiskError, Interrupted, UserError
from collapselab.hub import Pretrained
from collapselab.measurement.compare_tokenizers import compare_tokenizers
from collapselab.measurement.distributed import Processes
from collapselab.measurement.finished import Finished, files_hash, place_in
from collapselab.measurement.model import Subject
from collapselab.measurement.model_warnings import ModelFacts
from collapselab.measurement.resume import Store
from collapselab.measurement.task import Task
from collapselab.models.find import ModelSource, checkpoint_model, find_models, place_of, weights_on_disk
from collapselab.records.options import Options
from collapselab.records.result import Result, Results, check_suffix, write
from collapselab.records.run import Checkpoint, verify_checkpoint

NUMBERING = "classes of the sample"
"""How the tables of an unfinished measurement number classes; earlier versions numbered the whole vocabulary."""


def measure(
    model: str | Path | Checkpoint | nn.Module | Sequence[str | Path],
    corpus: str | Path | Corpus,
    *,
    layers: Literal["last", "all"] = "last",
    bins: int = 0,
    null: bool = True,
    bootstrap: int = 0,
    device: str = "auto",
    dtype: str | None = None,
    batch: int | Literal["auto"] = "auto",
    tokens: int | None = None,
    min_count: int = 1,
    train_loss: bool = False,
    strict: bool = False,
    seed: int = 0,
    shard_classes: bool = False,
    skip_positions: int = 1,
    out: str | Path | None = None,
    state: str | Path | None = None,
    again: bool = False,
    force: bool = False,
    trust_code: bool = False,
    other_tokenizer: bool = False,
    quiet: bool = False,
    processes: Processes | None = None,
    options: Options | None = None,
) -> Result | Results:
    """How far a causal language model has collapsed: every metric of the catalogue on a corpus, with its null.

        result = measure("EleutherAI/pythia-70m", "corpora/mine", layers="all")
        result.row("cdnv").value, result.row("cdnv").null
        result.to_frame(), result.facts["splits"]["validation"]["loss"]

    `model` is a loaded model, or a folder, a .gguf file, an id on the hub, a run of ours. A run, or a list, gives
    `Results`: one `Result` a checkpoint or model. Results of a run are kept in its folder `measure` and made once.

    NC1-NC3 come from one pass over the training split, NC4 from one over validation. `tokens` measures a seeded sample
    of the blocks of each split; `bins` adds rows for classes of like frequency; `bootstrap` adds intervals. With
    layers="all", the first `skip_positions` of every block are no samples below the last layer, where attention sinks
    rule. `state`, a folder, keeps what is gathered as it goes, and the result: the same call after an interruption ends
    with the same bits, and repeated it gives the result that is kept, unless `again` asks to measure once more.

    A model whose tokenizer is not the corpus's is refused unless `other_tokenizer` allows it; so is what would need
    more memory than is free, unless `force` is set. `options` takes the place of all arguments that it has.
    """
    options = options or Options(
        layers,
        bins,
        null,
        bootstrap,
        dtype,
        batch,
        tokens,
        min_count,
        train_loss,
        strict,
        seed,
        shard_classes,
        skip_positions,
    )
    if out is not None:
        check_suffix(out)
        check_writable(out)  # now, not after hours
    opened = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    stage = _Stage(
        opened, options, processes or Processes(), device, trust_code, other_tokenizer, state, again, force, quiet
    )
    found: Result | Results
    if isinstance(model, nn.Module):
        found = stage.of_module(model)
    elif isinstance(model, Checkpoint):
        found = stage.of_source(checkpoint_model(model))
    else:
        found = stage.of_names(_names(model))
    if out is not None and stage.processes.first:
        write(out, found)
    return found


class _Stage:
    """What is the same for all models of a call."""

    def __init__(
        self,
        corpus: Corpus,
        options: Options,
        processes: Processes,
        device: str,
        trust_code: bool,
        other_tokenizer: bool,
        state: str | Path | None,
        again: bool,
        force: bool,
        quiet: bool,
    ) -> None:
        self.corpus, self.options, self.processes = corpus, options, processes
        self.device, self.trust_code, self.state = device, trust_code, state
        self.again, self.force, self.quiet, self.other_tokenizer = again, force, quiet, other_tokenizer

    def of_names(self, names: Sequence[str]) -> Result | Results:
        sources = find_models(names)
        if len(sources) == 1 and len(names) == 1:
            return self.of_source(sources[0])
        results, failures = [], {}
        for source in sources:
            try:
                results.append(self.of_source(source))
            except (Interrupted, DiskError):
                raise
            except UserError as error:  # the others can still be measured
                failures[source.name] = str(error)
                self._say(str(error))
        return Results(results, failures)

    def of_source(self, source: ModelSource) -> Result:
        from collapselab.models.load import find_device

        place = place_of(source)
        tokenizers = compare_tokenizers(
            source, place, self.corpus, trust_code=self.trust_code, other_tokenizer=self.other_tokenizer
        )
        device = self.processes.device(self.device)
        named = {"model": source.name, "revision": source.revision, "device": find_device(device).type}
        checkpoint = source.checkpoint
        kept = self._finished(checkpoint.measurement if checkpoint else self._place(named))
        files = files_hash(source.path) if kept.path and source.path else None
        if (found := self._found(kept, source.name, files_hash=files)) is not None:
            return found
        loaded = self._loaded(source, place, device)
        about = ModelFacts(tokenizers, weights_on_disk(source, place))
        run, step = (checkpoint.run.name, checkpoint.name) if checkpoint else ("", source.revision)
        task = self._task(loaded, source.name, run, step, about)
        task.identity["files_hash"] = files
        if (found := self._found(kept, source.name, model_hash=task.identity["model_hash"])) is not None:
            return found
        state = checkpoint.run.measurements / ".state" if checkpoint else self.state
        return self._measured(task, state, kept, checkpoint.moments if checkpoint else None)

    def _loaded(self, source: ModelSource, place: Pretrained, device: str) -> nn.Module:
        import torch

        from collapselab.models.load import load_model

        dtype = None if self.options.dtype is None else getattr(torch, self.options.dtype)
        if source.checkpoint is not None:
            verify_checkpoint(source.checkpoint)
        return load_model(source, device=device, dtype=dtype, trust_code=self.trust_code, place=place)

    def of_module(self, model: nn.Module) -> Result:
        """A loaded model is measured as it is, where it is, and left in the mode it was in."""
        self._check_loaded(model)
        name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
        was_training = model.training
        try:
            task = self._task(model.eval(), name, "", None, ModelFacts())
            named = {"model": name, "model_hash": task.identity["model_hash"], "device": task.subject.device.type}
            kept = self._finished(self._place(named))
            found = self._found(kept, name, model_hash=task.identity["model_hash"])
            return found or self._measured(task, self.state, kept, None)
        finally:
            model.train(was_training)

    def _place(self, named: dict[str, Any]) -> Path | None:
        return place_in(self.state, named | {"corpus_hash": self.corpus.hash, "options": self.options.facts()})

    def _finished(self, path: Path | None) -> Finished:
        return Finished(path, self._say, ignored=self.again or not self.processes.first)

    def _found(self, kept: Finished, name: str, **model: str | None) -> Result | None:
        """The result that is kept, if it answers for this model, corpus and options; the same in all processes."""
        wanted = {**model, "corpus_hash": self.corpus.hash, "options": self.options.facts()}
        found = self.processes.from_first(kept.answer(wanted))
        if found is not None:
            self._say(f"{name}: measured already; {kept.path}. With --again it is measured again.")
        return found

    def _task(self, model: Any, name: str, run: str, checkpoint: str | None, about: ModelFacts) -> Task:
        from collapselab.models.load import model_hash

        subject = Subject(model, name=name)
        subject.check(self.corpus)
        identity = {
            "model": name,
            "run": run or name,
            "checkpoint": checkpoint or "-",
            "in_a_run": bool(run),
            "model_hash": model_hash(model),
            "corpus": str(self.corpus.path),
            "corpus_hash": self.corpus.hash,
            "options": self.options.facts(),
        }
        facts, warnings = about.facts(model), about.warnings(model, name, in_a_run=bool(run))
        return Task(
            subject, self.corpus, self.options, self.processes, identity, self.quiet, self.force, facts, warnings
        )

    def _measured(self, task: Task, root: str | Path | None, kept: Finished, moments_to: Path | None) -> Result:
        together = self.processes if self.options.shard_classes else None
        store = None if root is None else Store(Path(root) / fingerprint(task), together)
        if store is not None and store.folder.exists():
            self._say(f"{task.subject.name}: going on where it stopped, from {store.folder}")
        result = self.processes.from_first(task.result(store, moments_to=moments_to))
        assert result is not None
        if self.processes.first:
            kept.keep(result)
            if store is not None:
                store.remove()
        return result

    def _check_loaded(self, model: nn.Module) -> None:
        parameter = next(model.parameters(), None)
        if parameter is None:
            raise ConfigError(f"{type(model).__name__}: has no parameters; a causal language model is needed.")
        if self.device != "auto" and parameter.device.type != self.device.split(":")[0]:
            raise ConfigError(f"device is {self.device}, but the model is on {parameter.device}. Move it first.")
        if self.options.dtype is not None and str(parameter.dtype) != f"torch.{self.options.dtype}":
            raise ConfigError(f"dtype is {self.options.dtype}, but the model is {parameter.dtype}. Convert it first.")

    def _say(self, text: str) -> None:
        if self.processes.first and not self.quiet:
            print(text, file=sys.stderr)


def fingerprint(task: Task) -> str:
    """The name of an unfinished measurement's folder: all that shapes its numbers, and how it is cut up."""
    named = {key: task.identity[key] for key in ("run", "checkpoint", "model_hash", "corpus_hash", "options")}
    how = [NUMBERING, task.processes.world, str(task.subject.device), task.subject.dtype]
    text = json.dumps([named, *how], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _names(model: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(model)] if isinstance(model, str | Path) else [str(name) for name in model]
