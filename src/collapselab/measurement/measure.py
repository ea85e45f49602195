"""`measure`: models × corpus → results, for any kind of model; what is measured already is not measured again.

Read it from top to bottom: the arguments; each model opened, or its result found; then for one model (`_measure`) plan,
training pass, catalogue, validation pass with the nearest centres, result.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from torch import Tensor, nn

from collapselab.core.contexts import Gap
from collapselab.corpus.blocks import Corpus
from collapselab.disk import check_writable
from collapselab.errors import ConfigError, DiskError, Interrupted, UserError
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
from collapselab.measurement.model_corpus import Data, Role, Text, model_corpus, open_data, role_of
from collapselab.measurement.nearest_centre import NearestCentres
from collapselab.measurement.open_model import OpenedModel, open_model, open_module
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
from collapselab.models.find import LocalModel, ModelSource, checkpoint_model, find_models
from collapselab.models.function_model import Forward, FunctionModel
from collapselab.models.spread import DeviceMap, parsed_device_map
from collapselab.progress import hidden_progress
from collapselab.records.measurement import Result, Results, check_suffix, joined, write
from collapselab.records.options import Options, parsed_contexts
from collapselab.records.outcomes import parsed_outcomes
from collapselab.records.result_folder import STATE, moments_identity, open_result_folder, out_folder
from collapselab.records.run import Checkpoint, kept_layers, layer_moments
from collapselab.trackers import check_tracker

log = logger(__name__)


def measure(
    model: str | Path | Checkpoint | nn.Module | Sequence[str | Path] | None = None,
    corpus: str | Path | Corpus | Sequence[str | Path | Corpus] | None = None,
    *,
    forward: Forward | None = None,
    head: Tensor | None = None,
    bias: Tensor | None = None,
    data: Text | None = None,
    block: int | None = None,
    max_tokens: int | None = None,
    chat: bool | Role = False,
    layers: Literal["last", "all"] = "last",
    bins: int = 0,
    null: bool = True,
    bootstrap: int = 0,
    device: str = "auto",
    dtype: str | None = None,
    batch: int | Literal["auto"] = "auto",
    tokens: int | None = None,
    min_count: int = 1,
    per_class: int | None = None,
    train_loss: bool = False,
    strict: bool = False,
    seed: int = 0,
    shard_classes: bool = False,
    skip_positions: int = 1,
    push: str | None = None,
    classes: bool = False,
    contexts: str | Sequence[int] | None = None,
    min_uses: int = 10,
    deciders: bool = False,
    outcomes: str | Sequence[str] | None = None,
    load_in: Literal["4bit", "8bit"] | None = None,
    on: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    state: str | Path | None = None,
    again: bool = False,
    force: bool = False,
    trust_code: bool = False,
    device_map: DeviceMap | None = None,
    other_tokenizer: bool = False,
    quiet: bool = False,
    report_to: str = "none",
    processes: Processes | None = None,
    options: Options | None = None,
) -> Result | Results:
    """How far a causal language model has collapsed: every metric of the catalogue on a corpus, with its null.

    >>> from collapselab import measure
    >>> results = measure("runs/small", "corpora/stories", classes=True, quiet=True)
    >>> results
    Results(2 measured: 'small, checkpoint 0', 'small, checkpoint 1')
    >>> results[1].row("cdnv").value < results[1].row("cdnv").null
    True
    >>> list(results[1].frames)
    ['results', 'classes']

    Instead of a corpus, `data` gives text, as in `measure("EleutherAI/pythia-70m", data="hf:roneneldan/TinyStories",
    tokens=2_000_000)`, and the corpus that the model's tokenizer makes of it is built and kept in the user's cache.
    It takes what `corpus build` takes, a list of texts, or rows with a column `text`. Its blocks have `block` tokens
    (512, or the model's context if that is shorter); reading stops after `max_tokens` (`tokens`, where that is given).
    With `chat` each text is a user's turn, in the model's chat template, or with chat="assistant" one of its own.

    `model` is a loaded model, or a folder, a .gguf file, an id on the hub, a run of ours. A run, or a list, gives
    `Results`: one `Result` for each checkpoint or model. Results of a run are stored in its folder `measure`. A name
    may be a pattern, `"EleutherAI/pythia-70m@step*"` or `"out/checkpoint-*"`: all that match, in order of step.

    In place of a model, `forward` is any function from token ids (batch, tokens) to the features of its last layer
    (batch, tokens, dim), and `head` (vocabulary × dim) with `bias` what turns them into logits:

        measure(forward=lambda ids: lens.run_with_cache(ids)[1]["ln_final.hook_normalized"], head=lens.W_U.T,
                bias=lens.b_U, corpus="corpora/mine")

    `out` is a file for the rows, or a folder: then each result is a file in it, written as soon as it is finished and
    found again by the next call. Several corpora give a result for each model and corpus, corpus by corpus:

        measure("EleutherAI/pythia-70m@step*", ["corpora/one", "corpora/two"], out="pythia/")

    NC1-NC3 come from one pass over the training split, NC4 from one over validation. `tokens` measures a seeded
    sample of the blocks of each split; `per_class` keeps that number of samples of every class, drawn from the seed,
    and leaves out classes with fewer, so that classes and models can be compared; `bins` adds rows for classes of
    similar frequency; `bootstrap` adds intervals. With layers="all", the first `skip_positions` of every block are
    not samples below the last layer, where attention sinks dominate. `push`, numbers as in "-0.3,0.3" (or "default"),
    moves features toward the class means that the model expects: the table `push` says what loss, calibration and
    agreement then are. `classes` makes the table `classes`: a row for each next token. `deciders` makes the table
    `deciders`: on how many tokens the output layer, the nearest centre and the logit lens of each layer agree.
    `contexts`, as in (1, 2, 3), groups features by the last tokens before them too, in contexts with at least
    `min_uses` uses: the table `contexts`. `outcomes`, as in ("ece", "macro_loss") or "all", adds what collapse can be
    related to beside the loss, and `on` the loss on further corpora in bits per byte: `result.facts["outcomes"]`.
    `state` is a folder for unfinished sums and for results: after an interruption the same call continues and ends
    with the same bits; repeated, it returns the stored result, unless `again` is set.

    A model whose tokenizer is not the corpus's is refused unless `other_tokenizer` allows it; so is a measurement that
    needs more memory than is free, unless `force` is set. `load_in` ("4bit", "8bit") rounds weights while they are
    loaded; `device_map` ("auto", or a device for each module) spreads a model over devices, host and disk. `report_to`
    names a tracker that gets the results: numbers as curves, rows as a table, and a page. `options` replaces all
    arguments that `Options` has.
    """
    options = options or Options(
        layers=layers,
        bins=bins,
        null=null,
        bootstrap=bootstrap,
        dtype=dtype,
        batch=batch,
        tokens=tokens,
        min_count=min_count,
        train_loss=train_loss,
        strict=strict,
        seed=seed,
        shard_classes=shard_classes,
        skip_positions=skip_positions,
        push=push,
        classes=classes,
        contexts=None if contexts is None else ",".join(map(str, parsed_contexts(contexts))),
        min_uses=min_uses,
        deciders=deciders,
        outcomes=parsed_outcomes(outcomes),
        load_in=load_in,
        per_class=per_class,
    )
    check_tracker(report_to)
    model = _function_or_model(model, forward, head, bias)
    folder = out_folder(out)
    if folder is not None:
        open_result_folder(folder)
        state = folder / STATE if state is None else state
    elif out is not None:
        check_suffix(out)
        check_writable(out)  # now, not after hours
    further = [Corpus(path) for path in ([on] if isinstance(on, str | Path) else on)]
    texts = opened_texts(corpus, data, block, max_tokens or options.tokens, chat=chat)
    request = partial(
        MeasureRequest,
        options=options,
        processes=processes or Processes(),
        device=device,
        state=state,
        again=again,
        force=force,
        trust_code=trust_code,
        other_tokenizer=other_tokenizer,
        quiet=quiet,
        report_to=report_to,
        folder=folder,
        device_map=parsed_device_map(device_map),
    )
    is_first = processes is None or processes.first

    def request_on(text: Corpus | Data, source: ModelSource | None) -> MeasureRequest:
        with hidden_progress(quiet):
            corpus = _corpus_of(text, source, trust_code=trust_code)
        return _on_further(request(corpus), further)

    def say(words: str) -> None:
        if is_first and not quiet:
            log.warning("%s", words)

    by_corpus = [_measure_any(model, partial(request_on, text), say) for text in texts]
    measured = by_corpus[0] if len(by_corpus) == 1 else joined(by_corpus)
    if folder is not None and is_first:
        with suppress(OSError):
            (folder / STATE).rmdir()  # where nothing is unfinished
    elif out is not None and is_first:
        write(out, measured)
    return measured


def _function_or_model(
    model: str | Path | Checkpoint | nn.Module | Sequence[str | Path] | None,
    forward: Forward | None,
    head: Tensor | None,
    bias: Tensor | None,
) -> str | Path | Checkpoint | nn.Module | Sequence[str | Path]:
    if forward is not None and head is not None and model is None:
        return FunctionModel(forward, head, bias, name=getattr(forward, "__qualname__", type(forward).__name__))
    if model is None or forward is not None or head is not None or bias is not None:
        given = [("model", model), ("forward", forward), ("head", head), ("bias", bias)]
        names = ", ".join(name for name, value in given if value is not None) or "neither"
        raise ConfigError(f"measure: needs a model, or forward and head in its place; found {names}.")
    return model


def opened_texts(
    corpus: str | Path | Corpus | Sequence[str | Path | Corpus] | None,
    data: Text | None,
    block: int | None,
    max_tokens: int | None,
    *,
    chat: bool | Role = False,
) -> list[Corpus] | list[Data]:
    """The corpora, or the text that one is made of for each model; ConfigError unless one of the two is given."""
    corpora = [] if corpus is None else [corpus] if isinstance(corpus, str | Path | Corpus) else list(corpus)
    if data is not None and not corpora:
        return [Data(open_data(data), block, max_tokens, role_of(chat))]
    if chat:
        raise ConfigError("chat: a corpus that is built is as it is; conversations are made of data.")
    if not corpora or data is not None:
        given = "both" if corpora else "neither"
        raise ConfigError(f"measure: needs a corpus, or data to make one of; found {given}.")
    return [item if isinstance(item, Corpus) else Corpus(item) for item in corpora]


def _corpus_of(on: Corpus | Data, source: ModelSource | None, *, trust_code: bool) -> Corpus:
    """The corpus of all models, or that of this one's tokenizer."""
    if isinstance(on, Corpus):
        return on
    if source is None:
        raise ConfigError(
            "data: the loaded model does not say where its tokenizer is. Name its folder in place of the model, or "
            "build a corpus with its tokenizer."
        )
    return model_corpus(source, on, trust_code=trust_code)


def _on_further(request: MeasureRequest, corpora: list[Corpus]) -> MeasureRequest:
    """The request with further corpora, whose hashes are among its options."""
    named = named_corpora(corpora, request.corpus)
    if not named:
        return request
    on = ",".join(f"{name}={corpus.hash}" for name, corpus in sorted(named.items()))
    return replace(request, on=named, options=replace(request.options, on=on))


def _measure_any(
    model: str | Path | Checkpoint | nn.Module | Sequence[str | Path],
    request_for: Callable[[ModelSource | None], MeasureRequest],
    say: Callable[[str], None],
) -> Result | Results:
    if isinstance(model, nn.Module):
        return _measure_module(model, request_for)
    if isinstance(model, Checkpoint):
        return _measure_source(checkpoint_model(model), request_for)
    names = [str(model)] if isinstance(model, str | Path) else [str(name) for name in model]
    sources = find_models(names)
    if len(sources) == len(names) == 1:
        return _measure_source(sources[0], request_for)
    results, failures = [], {}
    for number, source in enumerate(sources, 1):
        try:
            results.append(_measure_source(source, request_for))
            say(f"{number:,} of {len(sources):,}: {source.name}")
        except (Interrupted, DiskError):
            raise
        except UserError as error:  # the others can still be measured
            failures[source.name] = str(error)
            say(str(error))
    return Results(results, failures)


def _measure_source(source: ModelSource, request_for: Callable[[ModelSource | None], MeasureRequest]) -> Result:
    request = request_for(source)
    opened = open_model(source, request)
    result = opened if isinstance(opened, Result) else measure_model(opened, request)
    if request.processes.first:
        report_measurement(request.report_to, result, source.checkpoint)
    return result


def _measure_module(model: nn.Module, request_for: Callable[[ModelSource | None], MeasureRequest]) -> Result:
    name = getattr(getattr(model, "config", None), "_name_or_path", "")
    source = ModelSource(name, LocalModel(Path(name))) if name and Path(name).is_dir() else None
    was_training = model.training
    try:
        request = request_for(source)
        opened = open_module(model.eval(), request)
        return opened if isinstance(opened, Result) else measure_model(opened, request)
    finally:
        model.train(was_training)


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
