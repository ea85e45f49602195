"""`measure`: models × corpus → results, for any kind of model; what is measured already is not measured again.

Read it from top to bottom: the arguments; each model with its corpus; the model opened, or its result found
(`open_model.py`); then for one model (`measure_model`) plan, training pass, catalogue, validation pass with the nearest
centres, result.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor, nn

from collapselab.core.contexts import Gap
from collapselab.corpus.blocks import Corpus
from collapselab.disk import check_writable
from collapselab.errors import ConfigError, DiskError, Interrupted, UserError, did_you_mean
from collapselab.measurement.bootstrap import resample
from collapselab.measurement.catalogue import (
    Values,
    centre_loss_values,
    curvature_values,
    decision_values,
    layer_values,
    output_layer_values,
    value_rows,
    without_labels,
)  # fmt: skip
from collapselab.measurement.centre_loss import CentreLosses
from collapselab.measurement.context_rows import ContextTables
from collapselab.measurement.distributed import Processes
from collapselab.measurement.forward_pass import ForwardPass
from collapselab.measurement.further_scores import further_scores, named_corpora
from collapselab.measurement.half_sample import halfway, own_part
from collapselab.measurement.model_corpus import Text, common_block, model_corpus, opened_texts
from collapselab.measurement.nearest_centre import NearestCentres
from collapselab.measurement.open_model import OpenedModel, open_model
from collapselab.measurement.outcomes import outcome_facts
from collapselab.measurement.plan import MeasurePlan, MeasureRequest, Split, make_plan
from collapselab.measurement.push import Push
from collapselab.measurement.report_to import report_measurement
from collapselab.measurement.result_facts import result_facts
from collapselab.measurement.resume import ResumeFolder
from collapselab.measurement.sums import LAST, Sums
from collapselab.measurement.tables import MeasuredLayer, class_chunks, fill_tables
from collapselab.measurement.temperature import fitted_scale
from collapselab.measurement.token_scores import Observe
from collapselab.messages import logger
from collapselab.models.find import ModelSource, checkpoint_model, find_models
from collapselab.models.function_model import Forward, FunctionModel
from collapselab.models.load import find_device
from collapselab.models.spread import parsed_device_map
from collapselab.records.measurement import Result, Results, check_suffix, write
from collapselab.records.options import Options, Running
from collapselab.records.result_folder import STATE, moments_identity, open_result_folder, out_folder
from collapselab.records.run import Checkpoint, kept_layers, layer_moments
from collapselab.trackers import check_tracker

log = logger(__name__)

CPU_TOKENS, ACCELERATOR_TOKENS = 200_000, 2_000_000
"""Tokens of each split that are measured unless `tokens` says otherwise."""

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
    check_tracker(running.report_to)
    sources = _sources(_function_or_model(model, forward, head, bias))
    if (folder := out_folder(running.out)) is not None:
        open_result_folder(folder)
        running = replace(running, state=folder / STATE if running.state is None else running.state)
    elif running.out is not None:
        check_suffix(running.out)
        check_writable(running.out)  # now, not after hours
    if by_default:
        options = replace(options, tokens=default_tokens(sources, running.device))
    texts = opened_texts(corpus, data, options, running, tokenizer=tokenizer)
    further, processes = [Corpus(path) for path in running.on], processes or Processes()

    results, failures = [], {}
    for text in texts:
        text_for_all = common_block(text, sources, running)
        for number, source in enumerate(sources, 1):
            try:
                found = model_corpus(source, text_for_all, running)
                asked = _all_of_a_small_corpus(options, found) if by_default else options
                named = named_corpora(further, found)
                request = MeasureRequest(found, _with_further(asked, named), running, processes, named)
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
                if processes.first and isinstance(source, ModelSource):
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


def parsed_settings(options: Options | None, settings: dict[str, Any]) -> tuple[Options, Running, bool]:
    """The two classes of options that the keyword arguments belong to, and whether the sample is the default one."""
    names = {field.name for field in fields(Running)}
    running = Running(**{name: value for name, value in settings.items() if name in names})
    running = replace(running, device_map=parsed_device_map(running.device_map))
    rest = {name: value for name, value in settings.items() if name not in names}
    if unknown := [name for name in rest if name not in {field.name for field in fields(Options)}]:
        hint = did_you_mean(unknown[0], [*names, *(field.name for field in fields(Options))])
        raise ConfigError(f"measure: {unknown[0]} is not an option. {hint}".rstrip())
    if options is not None and rest:
        raise ConfigError(f"measure: options and {next(iter(rest))} are both given. Set it in options.")
    return options or Options(**rest), running, options is None and rest.get("tokens") is None


def _function_or_model(
    model: Model | Sequence[str | Path] | None, forward: Forward | None, head: Tensor | None, bias: Tensor | None
) -> Model | Sequence[str | Path]:
    if forward is not None and head is not None and model is None:
        return FunctionModel(forward, head, bias, name=getattr(forward, "__qualname__", type(forward).__name__))
    if model is None or forward is not None or head is not None or bias is not None:
        given = [("model", model), ("forward", forward), ("head", head), ("bias", bias)]
        names = ", ".join(name for name, value in given if value is not None) or "neither"
        raise ConfigError(f"measure: needs a model, or forward and head in its place; found {names}.")
    return model


def _sources(model: Model | Sequence[str | Path]) -> Sequence[ModelSource | nn.Module]:
    if isinstance(model, nn.Module):
        return [model]
    if isinstance(model, Checkpoint):
        return [checkpoint_model(model)]
    return find_models([str(name) for name in ([model] if isinstance(model, str | Path) else model)])


@contextmanager
def _in_evaluation(source: ModelSource | nn.Module) -> Iterator[None]:
    """Turn dropout off in a loaded model meanwhile."""
    was_training = isinstance(source, nn.Module) and source.training
    try:
        if isinstance(source, nn.Module):
            source.eval()
        yield
    finally:
        if isinstance(source, nn.Module):
            source.train(was_training)


def _name_of(source: ModelSource | nn.Module) -> str:
    return source.name if isinstance(source, ModelSource) else type(source).__name__


def _warn(text: str, running: Running, processes: Processes) -> None:
    if processes.first and not running.quiet:
        log.warning("%s", text)


def default_tokens(sources: Sequence[ModelSource | nn.Module], device: str) -> int:
    """How many tokens are measured where nothing is said: fewer on a CPU."""
    loaded = next((source for source in sources if isinstance(source, nn.Module)), None)
    first = None if loaded is None else next(loaded.parameters(), None)
    kind = find_device(device).type if first is None else first.device.type
    return CPU_TOKENS if kind == "cpu" else ACCELERATOR_TOKENS


def _all_of_a_small_corpus(options: Options, corpus: Corpus) -> Options:
    """No sample where the corpus has no more tokens: that is the measurement of all of it."""
    splits = corpus.record.splits
    is_small = max(splits.train.tokens, splits.validation.tokens) <= (options.tokens or 0)
    return replace(options, tokens=None) if is_small else options


def _with_further(options: Options, named: dict[str, Corpus]) -> Options:
    """The options with the hashes of further corpora among them."""
    on = ",".join(f"{name}={corpus.hash}" for name, corpus in sorted(named.items()))
    return replace(options, on=on) if on else options


def measure_model(opened: OpenedModel, request: MeasureRequest) -> Result:
    """One model on one corpus, written where the same call finds it; the result in every process."""
    result: Result | None = None
    with _resume_folder(opened, request) as resume:
        start, values = time.perf_counter(), Values()
        plan = make_plan(request, opened.model, resume)

        with resume.stoppable() if resume is not None else nullcontext():
            own = ForwardPass(plan, "train", resume=resume, halfway=halfway(plan)).run()
        trained = _add_values(plan, "train", own, values, opened.moments_file)
        train_seconds = time.perf_counter() - start

        centres = NearestCentres(plan, trained)
        push = Push(plan, centres) if plan.options.push is not None else None
        losses = CentreLosses(plan, centres)
        scale = fitted_scale(plan) if plan.options.asks("loss_after_temperature") else None
        observe = Observe(plan.options, plan.model.classes, scale)
        with resume.stoppable() if resume is not None else nullcontext():
            own = ForwardPass(
                plan, "validation", resume=resume, centres=centres, push=push, centre_losses=losses, observe=observe
            ).run()
        matrix = centres.matrix
        del centres, losses  # as large as the moments
        validated = _add_values(plan, "validation", own, values)
        further = further_scores(plan)
        if plan.processes.first:
            if push is not None:
                values.tables["push"] = list(push.rows(validated))
            if matrix is not None:
                values.tables["deciders"] = list(matrix.rows(validated))
            if plan.options.classes:
                values.tables["classes"] = class_chunks(plan, values.classes, validated)
            values.measured |= decision_values(plan, validated.decisions) | centre_loss_values(
                plan, validated.centre_losses
            )
            if plan.options.null:
                values.nulls |= decision_values(plan, validated.decisions, null=True)
                values.nulls |= centre_loss_values(plan, validated.centre_losses, null=True)

            resamples = resample(plan, resume) if plan.options.bootstrap and resume is not None else None
            seconds = time.perf_counter() - start
            sums: dict[Split, Sums] = {"train": trained, "validation": validated}
            outcomes = outcome_facts(plan, sums, further, scale)
            rows = value_rows(plan, values, None if resamples is None else resamples.interval)
            facts = result_facts(plan, rows, sums, resamples, outcomes, {"train": train_seconds, "all": seconds})
            result = Result(rows, facts, {name: table for name, table in values.tables.items() if table})
    result = request.processes.broadcast(result)
    assert result is not None, "the first process has made it"
    if request.processes.first:
        opened.finished.write(result)
        if opened.resume is not None:
            opened.resume.remove()
    return result


@contextmanager
def _resume_folder(opened: OpenedModel, request: MeasureRequest) -> Iterator[ResumeFolder | None]:
    """Where the sums of finished groups are kept: for continuing, or for the bootstrap alone; None for neither."""
    processes = request.processes
    if opened.resume is not None:
        with opened.resume.lock(rank=processes.rank):
            yield opened.resume
    elif request.options.bootstrap:
        with TemporaryDirectory() if processes.first else nullcontext("") as folder:  # for the groups of all processes
            yield ResumeFolder(processes.broadcast(folder), temporary=True)
    else:
        yield None


def _add_values(plan: MeasurePlan, split: Split, own: Sums, values: Values, moments_file: Path | None = None) -> Sums:
    """Merge the sums of all processes, and add the catalogue of each layer to the values.

    One layer after the other, so that at most one is in memory twice.
    """
    total = _merged(plan, split, own)
    if plan.processes.first:
        values.measured |= curvature_values(plan, split, total.curvature)
        values.measured |= output_layer_values(plan) if split == "train" else {}
    shards = plan.splits[split].shards
    if moments_file is not None and plan.processes.first:
        for file in kept_layers(moments_file).values():  # of an earlier measurement
            file.unlink()
    for key in list(own.moments):
        moments = own.moments.pop(key)
        total.moments[key] = moments if shards is not None else plan.processes.merge(moments)
        whole = total.moments[key] if shards is None else shards.whole(moments)
        if whole is not None and plan.processes.first:
            is_last = (split, key) == ("train", LAST)
            classes = values.classes if plan.options.classes and not key.null else None
            measured = layer_values(plan, whole, split, key.layer, with_head=is_last, null=key.null, classes=classes)
            if key.null:
                values.nulls |= measured
            else:
                values.measured |= measured
                fill_tables(values.tables, MeasuredLayer(plan, split, key.layer, whole))
            if moments_file is not None and not key.null and (is_last or plan.options.classes):
                file = moments_file if is_last else layer_moments(moments_file, key.layer)
                about = moments_identity(plan.request.identity(plan.model), key.layer)
                plan.splits[split].numbers.save(whole, file, about)
    if plan.options.null:
        free = without_labels()
        values.nulls |= {key: value for key, value in values.measured.items() if key.metric in free}
    _add_contexts(plan, own, total, values)
    return total


def _merged(plan: MeasurePlan, split: Split, own: Sums) -> Sums:
    """The sums of all processes, without their moments."""
    total = Sums()
    for part in plan.processes.gather(
        Sums(
            decisions=own.decisions,
            scores=own.scores,
            spreads=own.spreads,
            push=own.push,
            deciders=own.deciders,
            curvature=own.curvature,
            centre_losses=own.centre_losses,
            scored=own.scored,
            gaps=own.gaps,
        )
    ):
        total.merge(part)
    if split == "train":
        total.part = own.part if plan.processes.world == 1 else own_part(plan, own)
    return total


def _add_contexts(plan: MeasurePlan, own: Sums, total: Sums, values: Values) -> None:
    """The tables of contexts; one layer and length after the other, so that at most one is in memory twice."""
    tables = ContextTables(plan)
    for key in list(own.contexts):
        moments = plan.processes.merge(own.contexts.pop(key))
        if plan.processes.first:
            tables.add(key.layer, plan.contexts[key.n], moments, total.gaps.get(key.n, Gap()))
    values.tables |= {name: rows for name, rows in tables.filled().items() if rows}
