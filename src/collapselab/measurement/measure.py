"""`measure`: models × corpus → results, for any kind of model; what is measured already is not measured again.

Read it from top to bottom: the arguments; each model with its corpus; the model opened, or its result found
(`open_model.py`); `measure_model.py` has the rest.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from collapselab.corpus.blocks import Corpus
from collapselab.disk import check_writable
from collapselab.errors import ConfigError, DiskError, Interrupted, UserError
from collapselab.measurement.distributed import Processes
from collapselab.measurement.measure_model import measure_model
from collapselab.measurement.model_corpus import Data, Text, common_block, model_corpus, opened_texts
from collapselab.measurement.open_model import open_model
from collapselab.measurement.plan import MeasureRequest, default_tokens, parsed_settings
from collapselab.measurement.result import named_corpora, report_measurement
from collapselab.messages import logger
from collapselab.models.find import ModelSource, checkpoint_model, find_models
from collapselab.models.function_model import Forward, FunctionModel
from collapselab.models.taps import bare_model
from collapselab.records.measurement import Result, Results, check_suffix, write
from collapselab.records.options import Options, Running
from collapselab.records.result_folder import STATE, open_result_folder, out_folder
from collapselab.records.run import Checkpoint
from collapselab.trackers import NONE, check_tracker

log = logger(__name__)

Model = str | Path | Checkpoint | nn.Module
Corpora = str | Path | Corpus | Sequence[str | Path | Corpus]


def measure(
    model: Model | Sequence[str | Path] | None = None,
    corpus: Corpora | None = None,
    *,
    data: Text | None = None,
    tokenizer: object = None,
    forward: Forward | None = None,
    head: Tensor | None = None,
    bias: Tensor | None = None,
    options: Options | None = None,
    processes: Processes | None = None,
    **settings: Any,
) -> Result | Results:
    """Measure how far a causal language model has collapsed: every metric of the catalogue, each beside its null.

    >>> from collapselab import measure
    >>> results = measure("runs/small", "corpora/stories", classes=True, quiet=True)
    >>> results
    Results(2 measured: 'small, checkpoint 0', 'small, checkpoint 1')
    >>> results[1].row("cdnv").value < results[1].row("cdnv").null
    True
    >>> list(results[1].frames)
    ['results', 'classes']

    `model` is a loaded model, a folder, a .gguf file, an id on the hub, or a run; or a list of them; or a pattern such
    as `"EleutherAI/pythia-70m@step*"`. A run or several models give `Results`, one `Result` for each checkpoint or
    model. Instead of a model, `forward` is any function from token ids (batch, tokens) to the features of its last
    layer (batch, tokens, dim), with `head` (vocabulary × dim) and `bias` that turn these into logits:

        measure(forward=lambda ids: lens.run_with_cache(ids)[1]["ln_final.hook_normalized"], head=lens.W_U.T,
                bias=lens.b_U, corpus="corpora/mine")

    The text is a `corpus` (or several), or `data`: a source as `corpus build` takes it, a list of texts, or rows with a
    column `text`. From `data`, a corpus is built with the model's tokenizer, or with `tokenizer` (an object or a name),
    and kept in the user's cache:

        measure(model, tokenizer=tokenizer, data=texts)

    All other settings are the fields of `Options` and `Running`. `options` sets those of `Options` together; then
    `tokens=None` means all tokens. The same call continues after an interruption, where `state` or `out` names a
    folder, and ends with the same bits; repeated, it returns the stored result.
    """
    options, running, by_default = parsed_settings(options, settings)
    if running.report_to != NONE:
        check_tracker(running.report_to)
    sources = _sources(model, forward, head, bias)
    if (folder := out_folder(running.out)) is not None:
        open_result_folder(folder)
        running = replace(running, state=folder / STATE if running.state is None else running.state)
    elif running.out is not None:
        check_suffix(running.out)
        check_writable(running.out)  # now, not after hours
    if by_default:
        options = replace(options, tokens=default_tokens(sources, running.device))
    texts = opened_texts(corpus, data, options, running, tokenizer=tokenizer)
    processes = processes or Processes()
    further = [[Corpus(path) for path in paths] for paths in (running.on, running.against)]

    results, failures = [], {}
    for text in texts:
        if isinstance(text, Data):
            text = common_block(text, sources, running)
        for number, source in enumerate(sources, 1):
            try:
                found = model_corpus(source, text, running) if isinstance(text, Data) else text
                request = _request(found, options, running, processes, further, by_default=by_default)
                with _in_evaluation(source):
                    opened = open_model(source, request)
                    result = opened if isinstance(opened, Result) else measure_model(opened, request)
            except (Interrupted, DiskError):
                raise
            except UserError as error:  # the others can still be measured
                if len(sources) == 1:
                    raise
                failures[_name_of(source)] = str(error)
                _warn(str(error), running, processes)
            else:
                results.append(result)
                if running.report_to != NONE and processes.first and isinstance(source, ModelSource):
                    report_measurement(running.report_to, result, source.checkpoint)
                if len(sources) > 1:
                    _warn(f"{number:,} of {len(sources):,}: {_name_of(source)}", running, processes)
    measured = results[0] if len(results) == len(sources) == len(texts) == 1 else Results(results, failures)
    if processes.first and folder is not None:
        with suppress(OSError):
            (folder / STATE).rmdir()  # where nothing is unfinished
    elif processes.first and running.out is not None:
        write(running.out, measured)
    return measured


def _sources(
    model: Model | Sequence[str | Path] | None, forward: Forward | None, head: Tensor | None, bias: Tensor | None
) -> Sequence[ModelSource | nn.Module]:
    """Return the models that the arguments mean, those in memory without their wrappers."""
    if forward is not None and head is not None and model is None:
        return [FunctionModel(forward, head, bias, name=getattr(forward, "__qualname__", type(forward).__name__))]
    if model is None or forward is not None or head is not None or bias is not None:
        given = [("model", model), ("forward", forward), ("head", head), ("bias", bias)]
        names = ", ".join(name for name, value in given if value is not None) or "neither"
        raise ConfigError(f"measure: needs a model, or forward and head in its place; found {names}.")
    if isinstance(model, nn.Module):
        return [bare_model(model)]  # a wrapper would call other processes, or compile for every kind of batch
    if isinstance(model, Checkpoint):
        return [checkpoint_model(model)]
    return find_models([str(name) for name in ([model] if isinstance(model, str | Path) else model)])


@contextmanager
def _in_evaluation(source: ModelSource | nn.Module) -> Iterator[None]:
    """Meanwhile turn off dropout in a loaded model, and the mixed precision that accelerate puts around its forward.

    In mixed precision the logits would be those of rounded weights, which differ from its output layer's.
    """
    if isinstance(source, ModelSource):
        yield
        return
    was_training, forward = source.training, source.__dict__.get("forward")
    original = getattr(source, "_original_forward", None)
    try:
        source.eval()
        if original is not None and forward is not None:
            source.forward = original
        yield
    finally:
        if original is not None and forward is not None:
            source.forward = forward
        source.train(was_training)


def _name_of(source: ModelSource | nn.Module) -> str:
    return source.name if isinstance(source, ModelSource) else type(source).__name__


def _warn(text: str, running: Running, processes: Processes) -> None:
    if processes.first and not running.quiet:
        log.warning("%s", text)


def _request(
    corpus: Corpus,
    options: Options,
    running: Running,
    processes: Processes,
    further: list[list[Corpus]],
    *,
    by_default: bool,
) -> MeasureRequest:
    splits, (on, against) = corpus.record.splits, (named_corpora(corpora, corpus) for corpora in further)
    if by_default and max(splits.train.tokens, splits.validation.tokens) <= (options.tokens or 0):
        options = replace(options, tokens=None)  # a small corpus is measured whole
    scores = options.token_scores or bool(against)
    options = replace(options, on=_hashes(on), against=_hashes(against), token_scores=scores)
    return MeasureRequest(corpus, options, running, processes, on, against)


def _hashes(corpora: dict[str, Corpus]) -> str | None:
    return ",".join(f"{name}={one.hash}" for name, one in sorted(corpora.items())) or None
