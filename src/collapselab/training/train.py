"""`train`: one model from scratch on a corpus. The same call starts it, continues it, or finds it finished."""

import math
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar, cast, final

import torch
import torch.distributed as dist
from transformers import PreTrainedConfig, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapselab.corpus.blocks import Corpus
from collapselab.disk import disk_errors
from collapselab.errors import ConfigError, CorpusError, DamagedError, RunError, stop_requests
from collapselab.messages import progress
from collapselab.models.build import architecture, build_model
from collapselab.models.load import find_device
from collapselab.records.run import (
    BuiltModel,
    CheckpointRecord,
    PlannedRun,
    Provenance,
    RunFolder,
    RunRecord,
    TrainedOn,
    identity,
)
from collapselab.trackers import NONE, TrackedRun, Tracker, check_tracker, tracked
from collapselab.training.checkpointing import Checkpointing
from collapselab.training.heads import check_head, make_head
from collapselab.training.settings import Plan, Settings, model_config, plan, resolved, settings_from
from collapselab.training.trainer import LanguageTrainer, training_arguments

LOG_LINES = 2000
Decision = TypeVar("Decision")


def train(
    settings: Settings | Mapping[str, object],
    corpus: str | Path,
    out: str | Path,
    *,
    device: str = "auto",
    accumulation: int = 1,
    save_minutes: float = 10.0,
    log_every: int | None = None,
    report_to: str = "none",
) -> list[CheckpointRecord]:
    """Train the model of the settings into the folder `out`; its checkpoints, in order.

    >>> from collapselab import Settings, train
    >>> settings = Settings(width=16, depth=1, head_size=8, epochs=1, batch=16, lr=2e-3)
    >>> [checkpoint.step for checkpoint in train(settings, "corpora/stories", "runs/small")]
    [0, 11]

    Killed at any moment and called again, it ends with the same weights, bit for bit, on the same machine. Every
    process of a `torchrun` calls it alike. `accumulation` divides a step's batch to save memory; `log_every` counts
    steps, by default as few as give a log of at most 2,000 lines.
    """
    if not isinstance(settings, Settings):
        settings = settings_from(settings)
    if not 0 <= save_minutes < math.inf:
        raise ConfigError(f"save_minutes: {save_minutes} is not valid. It is a number of minutes from 0 on.")
    if log_every is not None and log_every < 1:
        raise ConfigError(f"log_every: {log_every} is not valid. It is a number of steps from 1 on.")
    opened, folder = Corpus(corpus), RunFolder(out)
    samples = opened.record.samples("train")
    planned = plan(settings, blocks=len(opened.train), block=opened.block, samples=samples)
    config, target = _model_config(settings, opened), find_device(device)
    check_head(settings, vocabulary=opened.vocabulary, tokenizer=opened.path / "tokenizer" / "tokenizer.json")
    bf16 = settings.precision == "bf16" or (settings.precision == "auto" and _has_bf16(target))
    check_tracker(report_to)
    args = _arguments(settings, planned, folder, target, bf16, accumulation)
    record = _record(settings, planned, opened, config, args, bf16)
    with _lock_by_first_process(folder, args), disk_errors(folder.path):
        missing = _decide_by_first_process(lambda: _missing(folder, record, planned), args)
        if missing:
            lines = log_every or max(1, planned.steps // LOG_LINES)
            reporting = report_to if args.process_index == 0 else NONE
            with tracked(reporting, TrackedRun(folder.name, folder.path)) as tracker:
                model = build_model(config, seed=settings.seed)
                head_updates = make_head(model, settings, counts=opened.train.counts)
                trainer = LanguageTrainer(model, opened.train, settings, planned, args, head_updates)
                if tracker is not None:
                    trainer.add_callback(TrackedTraining(tracker, settings))
                if args.process_index == 0:  # after all that can be refused
                    folder.begin(record)
                quiet = args.process_index > 0
                with progress("training", total=planned.tokens, unit="tokens", quiet=quiet) as advance:
                    checkpointing = Checkpointing(
                        trainer,
                        folder,
                        opened,
                        run=record.hash,
                        missing=missing,
                        save_seconds=60 * save_minutes,
                        log_every=lines,
                        advance=advance,
                    )
                    trainer.add_callback(checkpointing)
                    with (
                        stop_requests() as checkpointing.request,
                        one_message_for_a_lost_process(folder, args.world_size),
                    ):
                        trainer.train()
            if args.process_index == 0:
                folder.drop_states()
        elif args.process_index == 0:
            folder.begin(record)  # all checkpoints are there, and run.json may have been lost
        if args.world_size > 1:
            dist.barrier()
        made = [folder.checkpoint(name) for name in planned.checkpoints.values()]
    return [checkpoint for checkpoint in made if checkpoint is not None]


def _model_config(settings: Settings, corpus: Corpus) -> PreTrainedConfig:
    tokenizer = corpus.tokenizer()
    if len(tokenizer) != corpus.vocabulary:
        raise CorpusError(
            f"{corpus.path}: its tokenizer has {len(tokenizer):,} tokens, but its ids were made with "
            f"{corpus.vocabulary:,}. Build the corpus again."
        )
    if settings.context and settings.context < corpus.block:
        raise ConfigError(f"context: {settings.context:,} positions are too few for blocks of {corpus.block:,} tokens.")
    return model_config(settings, vocabulary=corpus.vocabulary, block=corpus.block, end_of_text=tokenizer.eos_token_id)


def _has_bf16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def _arguments(
    settings: Settings,
    planned: Plan,
    folder: RunFolder,
    device: torch.device,
    bf16: bool,
    accumulation: int,
) -> TrainingArguments:
    if device.type == "cuda":  # before anything runs there: equal configurations, equal bits
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.cuda.set_device(device)
    args = training_arguments(settings, planned, folder=str(folder.path), device=device, bf16=bf16, parts=accumulation)
    shares = args.world_size * accumulation
    if accumulation < 1 or planned.batch % shares:
        raise ConfigError(
            f"batch: {planned.batch} sequences cannot be shared by {args.world_size} process(es) × {accumulation} "
            f"accumulation step(s). Choose a multiple of {max(shares, 1)}."
        )
    return args


def _missing(folder: RunFolder, record: RunRecord, planned: Plan) -> set[str]:
    """The checkpoints that are to be made; RunError where the folder holds another run."""
    folder.check(record)
    return {name for name in planned.checkpoints.values() if not _is_made(folder, name)}


def _is_made(folder: RunFolder, checkpoint: str) -> bool:
    try:
        return folder.checkpoint(checkpoint) is not None
    except DamagedError as error:
        folder.say(f"{error} Checkpoint {checkpoint} is made again.")
        return False


def _record(
    settings: Settings, planned: Plan, corpus: Corpus, config: PreTrainedConfig, args: TrainingArguments, bf16: bool
) -> RunRecord:
    identifying = resolved(settings)
    return RunRecord(
        hash=identity(identifying, corpus.hash),
        settings=identifying,
        corpus=TrainedOn(path=str(corpus.path), hash=corpus.hash, vocabulary=corpus.vocabulary, block=corpus.block),
        plan=PlannedRun(
            batch=planned.batch,
            blocks=planned.blocks,
            steps=planned.steps,
            warmup=planned.warmup,
            tokens=planned.tokens,
            checkpoints={name: step for step, name in planned.checkpoints.items()},
        ),
        model=BuiltModel(parameters=architecture(config).parameters, config=config.to_diff_dict()),
        provenance=Provenance(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={name: version(name) for name in ("collapselab", "torch", "transformers", "accelerate")},
            python=platform.python_version(),
            commit=_commit(),
            machine=platform.platform(),
            device=str(args.device),
            precision="bf16" if bf16 else "fp32",
            processes=args.world_size,
            threads=torch.get_num_threads(),
        ),
    )


def _commit() -> str | None:
    """The commit of collapselab's own code, where it runs from a clone."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


@contextmanager
def _lock_by_first_process(folder: RunFolder, args: TrainingArguments) -> Iterator[None]:
    """The lock on the folder, held by the first process for all."""
    if args.process_index:
        yield
    else:
        with folder.locked():
            yield


@contextmanager
def one_message_for_a_lost_process(folder: RunFolder, processes: int) -> Iterator[None]:
    """Turn what the backend raises when another process of a `torchrun` has ended into a RunError."""
    try:
        yield
    except RuntimeError as error:
        if processes == 1 or not re.search("gloo|nccl|by peer", str(error), re.IGNORECASE):
            raise
        raise RunError(
            f"{folder.name}: another process of this training has ended. The same command continues."
        ) from error


def _decide_by_first_process(decide: Callable[[], Decision], args: TrainingArguments) -> Decision:
    """What the first process decides, for all: later its files are there, and others would decide otherwise."""
    decided = [decide() if args.process_index == 0 else None]
    if args.world_size > 1:
        dist.broadcast_object_list(decided)
    return cast(Decision, decided[0])


@final
class TrackedTraining(TrainerCallback):
    """Passes what a Trainer logs on to a tracker, as train/<name>, at the step it is of; and the settings.

    The library has callbacks of its own for trackers. Ours has the same run as the measurements of its checkpoints, and
    the same steps: some of the library's count calls, so curves of training and of collapse would not lie over one
    another.
    """

    def __init__(self, tracker: Tracker, settings: Settings) -> None:
        self.tracker = tracker
        tracker.settings(settings.model_dump())

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, object] | None = None,
        **_: object,
    ) -> None:
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        finite = {f"train/{name}": float(value) for name, value in numbers.items() if math.isfinite(value)}
        if finite:
            self.tracker.scalars(finite, state.global_step)
