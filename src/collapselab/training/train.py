"""`train`: one model from scratch on a corpus. The same call starts it, continues it, or finds it finished."""

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedConfig, TrainingArguments

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
from collapselab.trackers import NONE, TrackedRun, check_tracker, tracked
from collapselab.training.checkpointing import Around, Checkpointing
from collapselab.training.heads import check_head, make_head
from collapselab.training.heads.frozen import start_from
from collapselab.training.settings import Plan, Settings, TrainOptions, model_config, plan, resolved, settings_from
from collapselab.training.trainer import LanguageTrainer, training_arguments


def train(
    settings: Settings | Mapping[str, object], corpus: str | Path, out: str | Path, **options: Any
) -> list[CheckpointRecord]:
    """Train the model of the settings into the folder `out`; its checkpoints, in order.

    >>> from collapselab import Settings, train
    >>> settings = Settings(width=16, depth=1, head_size=8, epochs=1, batch=16, lr=2e-3)
    >>> [checkpoint.step for checkpoint in train(settings, "corpora/stories", "runs/small")]
    [0, 11]

    Killed at any moment and called again, it ends with the same weights, bit for bit, on the same machine. Every
    process of a `torchrun` calls it alike. `options` are `device`, `accumulation`, `save_minutes`, `log_every` and
    `report_to`, as on the command line.
    """
    if not isinstance(settings, Settings):
        settings = settings_from(settings)
    running, opened, folder = TrainOptions(**options), Corpus(corpus), RunFolder(out)
    samples = opened.record.samples("train")
    planned = plan(settings, blocks=len(opened.train), block=opened.block, samples=samples)
    config, device = _model_config(settings, opened), find_device(running.device)
    check_head(settings, vocabulary=opened.vocabulary, tokenizer=opened.path / "tokenizer" / "tokenizer.json")
    check_tracker(running.report_to)
    args = _arguments(settings, planned, folder, device, running.accumulation)
    record, first = _record(settings, planned, opened, config, args), args.process_index == 0
    with folder.locked() if first else nullcontext(), disk_errors(folder.path):
        # The first process decides for all: later its files are there, and others would decide otherwise.
        decided = [_missing(folder, record, planned) if first else set()]
        if args.world_size > 1:
            dist.broadcast_object_list(decided)
        if missing := decided[0]:
            model = build_model(config, seed=settings.seed)
            if settings.init_from is not None:
                start_from(model, settings.init_from)
            head_updates = make_head(model, settings, counts=opened.train.counts)
            trainer = LanguageTrainer(model, opened.train, settings, planned, args, head_updates)
            if first:  # after all that can be refused
                folder.begin(record)
            with (
                tracked(running.report_to if first else NONE, TrackedRun(folder.name, folder.path)) as tracker,
                progress("training", total=planned.tokens, unit="tokens", quiet=not first) as advance,
                stop_requests() as request,
            ):
                around = Around(record.hash, missing, advance, request, tracker)
                trainer.add_callback(Checkpointing(trainer, folder, opened, running, around))
                with _one_message_for_a_lost_process(folder, args.world_size):
                    trainer.train()
            if first:
                folder.drop_states()
        elif first:
            folder.begin(record)  # all checkpoints are there, and run.json may have been lost
        if args.world_size > 1:
            dist.barrier()
        made = [folder.checkpoint(name) for name in planned.checkpoints.values()]
    return [checkpoint for checkpoint in made if checkpoint is not None]


@contextmanager
def _one_message_for_a_lost_process(folder: RunFolder, processes: int) -> Iterator[None]:
    """Turn what the backend raises when another process of a `torchrun` has ended into a RunError."""
    try:
        yield
    except RuntimeError as error:
        if processes == 1 or not re.search("gloo|nccl|by peer", str(error), re.IGNORECASE):
            raise
        text = f"{folder.name}: another process of this training has ended. The same command continues."
        raise RunError(text) from error


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


def _arguments(
    settings: Settings, planned: Plan, folder: RunFolder, device: torch.device, accumulation: int
) -> TrainingArguments:
    on_cuda = device.type == "cuda"
    if on_cuda:  # before anything runs there: equal configurations, equal bits
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.cuda.set_device(device)
    bf16 = settings.precision == "bf16"
    bf16 |= settings.precision == "auto" and on_cuda and torch.cuda.is_bf16_supported()
    args = training_arguments(settings, planned, folder=str(folder.path), device=device, bf16=bf16, parts=accumulation)
    if planned.batch % (args.world_size * accumulation):
        raise ConfigError(
            f"batch: {planned.batch} sequences cannot be shared by {args.world_size} process(es) × {accumulation} "
            f"accumulation step(s). Choose a multiple of {args.world_size * accumulation}."
        )
    return args


def _missing(folder: RunFolder, record: RunRecord, planned: Plan) -> set[str]:
    """The checkpoints that are to be made; RunError where the folder holds another run."""
    folder.check(record)
    missing = set()
    for name in planned.checkpoints.values():
        try:
            made = folder.checkpoint(name) is not None
        except DamagedError as error:
            folder.say(f"{error} Checkpoint {name} is made again.")
            made = False
        missing |= set() if made else {name}
    return missing


def _record(
    settings: Settings, planned: Plan, corpus: Corpus, config: PreTrainedConfig, args: TrainingArguments
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
            precision="bf16" if args.bf16 else "fp32",
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
