"""One model on one corpus → its result: plan, training pass, validation pass, rows. The middle of every measurement."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory

from collapselab.measurement.bootstrap import resample
from collapselab.measurement.catalogue import value_rows
from collapselab.measurement.class_table import class_chunks
from collapselab.measurement.collector import Collectors, Values
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.forward_pass import ForwardPass
from collapselab.measurement.further_scores import further_scores
from collapselab.measurement.memory import check_memory
from collapselab.measurement.open_model import OpenedModel
from collapselab.measurement.outcomes import outcome_facts
from collapselab.measurement.plan import SPLITS, MeasurePlan, MeasureRequest, Split, make_plan
from collapselab.measurement.result_facts import result_facts
from collapselab.measurement.resume import ResumeFolder
from collapselab.records.facts import Seconds
from collapselab.records.measurement import Result


def measure_model(opened: OpenedModel, request: MeasureRequest) -> Result:
    """One model on one corpus, written where the same call finds it; the result in every process."""
    start = time.perf_counter()
    with _resume_folder(opened, request) as resume:
        plan = _begun(make_plan(request, opened.model, opened.moments_file), resume)
        values, seconds = Values(), list[float]()
        collected: dict[Split, Collectors] = {}
        for split in SPLITS:
            collected[split] = _collected(plan, split, collected.get("train"), resume)
            values.add(collected[split].values())
            seconds.append(time.perf_counter() - start)
        further = further_scores(plan)
        result = None
        if plan.processes.first:
            if plan.options.classes:
                values.add_rows("classes", class_chunks(plan, collected))
            resamples = resample(plan, resume, collected) if plan.options.bootstrap and resume is not None else None
            rows = value_rows(plan, values, None if resamples is None else resamples.interval)
            outcomes = outcome_facts(plan, collected, further)
            times: Seconds = {"train": seconds[0], "all": time.perf_counter() - start}
            result = Result(rows, result_facts(plan, rows, collected, resamples, outcomes, times), values.tables)
    result = plan.processes.broadcast(result)
    assert result is not None, "the first process has made it"
    if plan.processes.first:
        opened.finished.write(result)
        if opened.resume is not None:
            opened.resume.remove()
    return result


def _begun(plan: MeasurePlan, resume: ResumeFolder | None) -> MeasurePlan:
    """The plan once it is known to fit into memory, with the batch that the measurement began with."""
    if not plan.request.running.force:
        check_memory(plan)
    batch = plan.batch
    if resume is not None and plan.processes.first:
        batch = resume.batch(plan.request.identity(plan.model), batch)
    return replace(plan, batch=plan.processes.broadcast(batch))


def _collected(plan: MeasurePlan, split: Split, trained: Collectors | None, resume: ResumeFolder | None) -> Collectors:
    """What all processes collected from a split."""
    collectors = Collectors.wanted(COLLECTORS, plan, split, trained)
    with nullcontext() if resume is None else resume.stoppable():
        collected = ForwardPass(plan, split, collectors, resume).run()
    collected.finish(plan.processes)
    return collected


@contextmanager
def _resume_folder(opened: OpenedModel, request: MeasureRequest) -> Iterator[ResumeFolder | None]:
    """Where the state of finished groups is kept: for continuing, or for the bootstrap alone; None for neither."""
    processes = request.processes
    if opened.resume is not None:
        with opened.resume.lock(rank=processes.rank):
            yield opened.resume
    elif request.options.bootstrap:
        with TemporaryDirectory() if processes.first else nullcontext("") as folder:  # for the groups of all processes
            yield ResumeFolder(processes.broadcast(folder), temporary=True)
    else:
        yield None
