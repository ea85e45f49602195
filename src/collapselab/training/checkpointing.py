"""What happens around the steps of a training: restore, log, check, checkpoint, save, stop."""

import math
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapselab.corpus.blocks import Corpus, Split
from collapselab.errors import Interrupted, RunError, StopRequest
from collapselab.messages import Advance, logger
from collapselab.models.scores import Scores, split_scores
from collapselab.records.run import CheckpointRecord, RunFolder, StateFacts, StepEntry
from collapselab.trackers import Tracker
from collapselab.training.interventions import sham_notes
from collapselab.training.settings import Plan, TrainOptions
from collapselab.training.trainer import LanguageTrainer, seed_step

log = logger(__name__)

LOG_LINES = 2000
"""Most lines of a log where nobody says how often to log."""

RECENT = 100
"""Steps whose mean loss is `train_loss_running`."""

SAMPLE_SEED = 2**32
"""Orders the training blocks for `train_loss`. A run's data seed is smaller, so no run trains on them in this order."""
SAMPLE_SHARE = 0.08
"""Tokens that all checkpoints together evaluate for `train_loss`, as a share of the tokens trained on. A forward pass
costs a third of a training step, so this is at most 3 % of the training."""
MIN_SAMPLE, MAX_SAMPLE = 4_096, 65_536
"""Fewest and most tokens of the sample at each checkpoint; a training split that has fewer is evaluated whole."""


class Around(NamedTuple):
    """What a training needs beside its steps: the identity of its run, and the checkpoints that are to be made.

    Once a signal is noted in `request`, the training ends after its step.
    """

    run: str
    missing: set[str]
    advance: Advance
    request: StopRequest
    tracker: Tracker | None = None


class Checkpointing(TrainerCallback):
    """Saves a run while it is trained: the trainer takes the steps, this class restores, logs, checkpoints and stops.

    All processes make the same calls, since losses and validation scores are summed over them; only the first writes.
    """

    def __init__(
        self, trainer: LanguageTrainer, folder: RunFolder, corpus: Corpus, options: TrainOptions, around: Around
    ) -> None:
        self.trainer, self.folder, self.corpus, self.options, self.around = trainer, folder, corpus, options, around
        self.plan, self.missing, self.writes = trainer.plan, around.missing, trainer.args.process_index == 0
        self.log_every = options.log_every or max(1, trainer.plan.steps // LOG_LINES)
        self.train_sample = training_sample(corpus.train, trainer.plan)
        self.facts: StateFacts = {"recent": [], "unlogged": [], "unlogged_clipped": 0, "clipped_steps": 0, "seconds": 0}
        self.started = self.last_save = self.last_log = time.monotonic()
        self.stop = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        earliest = min((step for step, name in self.plan.checkpoints.items() if name in self.missing), default=0)
        step, tensors, facts = self.folder.load_state(up_to=earliest)
        if step:
            restore(self.trainer, tensors, step)
            self.facts |= {"clipped_steps": None, **facts}
            self.around.advance(self.trainer.tokens_after(step))
            state.global_step = self.trainer.start = step
        if self.writes:
            self.folder.rewind_log(step, self.missing)
            if step:
                log.info("%s: continuing at step %s of %s.", self.folder.name, f"{step:,}", f"{self.plan.steps:,}")
            else:
                for note in sham_notes(self.trainer.settings.intervene):
                    self.folder.say(note)
                if self.around.tracker is not None:
                    self.around.tracker.settings(self.trainer.settings.model_dump())
        self.started = self.last_save = self.last_log = time.monotonic()
        self._checkpoint(step)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.trainer.step_loss = None
        self.trainer.step_objective.begin_step(state.global_step)
        seed_step(self.trainer.settings.seed, state.global_step, args.process_index)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """The last moment before the update: a loss or gradient that is not finite goes no further."""
        assert self.trainer.step_loss is not None
        norms = [] if self.trainer.grad_norm is None else [torch.as_tensor(self.trainer.grad_norm)]
        compared, (loss, *read_norms) = self.trainer.step_objective.end_step(self.trainer.step_loss, *norms)
        norm = self.trainer.grad_norm = read_norms[0] if read_norms else None
        loss, stopped = _summed([loss, self.around.request.number is not None], args)
        loss, self.stop = loss / args.world_size, stopped > 0
        values: dict[str, float | None] = {"loss": loss}
        for penalty in compared:
            values[f"the penalty {penalty.name}"] = penalty.value
            values[f"the gradient of the penalty {penalty.name}"] = penalty.of_penalty
        self._check_finite(values | {"the gradient's norm": norm}, state.global_step)
        for name in [penalty.name for penalty in compared if penalty.first_idle and self.writes]:
            what = f"{name} had no penalty with a gradient in step {state.global_step + 1:,}"
            self.folder.say(f"{what}. The log counts such steps as {name}/idle_steps.")
        clipped = 0 < args.max_grad_norm < (norm or 0.0)
        self.facts["recent"] = [*self.facts["recent"][1 - RECENT :], loss]
        self.facts["unlogged"].append(loss)
        self.facts["unlogged_clipped"] += clipped
        if self.facts["clipped_steps"] is not None:
            self.facts["clipped_steps"] += clipped

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        step = state.global_step
        taken = self.trainer.tokens_after(step) - self.trainer.tokens_after(step - 1)
        self.around.advance(taken, note=f"step {step:,}/{self.plan.steps:,}  loss {self.facts['recent'][-1]:.3f}")
        if step % self.log_every == 0 or step == self.plan.steps:
            self._log(step)
        self._checkpoint(step)
        if self.stop:
            self._stop(step)
        if time.monotonic() - self.last_save >= 60 * self.options.save_minutes and step < self.plan.steps:
            self._save(step)

    def _stop(self, step: int) -> NoReturn:
        when = "before its first step"
        if step:
            self._save(step)
            when = f"after step {step:,} of {self.plan.steps:,}. Everything is saved"
        message = f"{self.folder.name}: stopped {when}; the same command continues."
        raise Interrupted(message, self.around.request.number or signal.SIGTERM)

    def _check_finite(self, values: Mapping[str, float | None], step: int) -> None:
        done = [name for at, name in self.plan.checkpoints.items() if at <= step and name not in self.missing]
        good = f"the last checkpoint is epoch {done[-1]}" if done else "there is no checkpoint yet"
        for what, value in values.items():
            if value is not None and not math.isfinite(value):
                raise RunError(
                    f"{self.folder.name}: {what} is {value} at step {step + 1:,}. Stopped before the update; {good}. "
                    "A lower lr or a warm-up may help."
                )

    def _log(self, step: int) -> None:
        now, losses, tokens = time.monotonic(), self.facts["unlogged"], self.trainer.tokens_after(step)
        taken = tokens - self.trainer.tokens_after(step - len(losses))
        scheduler: Any = self.trainer.lr_scheduler
        of_step = StepEntry(
            step=step,
            epoch=self.plan.epoch(step),
            tokens=tokens,
            loss=math.fsum(losses) / len(losses),
            lr=float(scheduler.base_lrs[0] * scheduler.lr_lambdas[0](step - 1)),
            grad_norm=None if self.trainer.grad_norm is None else float(self.trainer.grad_norm),
            clipped=self.facts["unlogged_clipped"] / len(losses),
            tokens_per_second=round(taken / (now - self.last_log), 1),
            seconds=round(self._seconds(), 3),
        )
        entry: dict[str, Any] = {**of_step, **self.trainer.step_objective.log_values()}
        self.facts["unlogged"], self.facts["unlogged_clipped"], self.last_log = [], 0, now
        if self.writes:
            self.folder.log(entry)
        self._track(step, {name: value for name, value in entry.items() if name not in ("step", "epoch")})

    def _track(self, step: int, values: Mapping[str, float | None]) -> None:
        finite = ((name, value) for name, value in values.items() if value is not None and math.isfinite(value))
        if self.around.tracker is not None:
            self.around.tracker.scalars({f"train/{name}": value for name, value in finite}, step)

    def _checkpoint(self, step: int) -> None:
        name = self.plan.checkpoints.get(step)
        if name not in self.missing:
            return
        with self.trainer.checkpoint_head() if step else nullcontext():
            scores = self._scores(self.corpus.validation)
            train = scores if self.stop else self._scores(self.corpus.train, self.train_sample)
            if not self.stop:
                self._write_checkpoint(name, step, scores, train)
        if self.stop:
            self._stop(step)
        self.missing.discard(name)

    def _write_checkpoint(self, name: str, step: int, scores: Scores, train: Scores) -> None:
        recent, clipped = self.facts["recent"], self.facts["clipped_steps"]
        known = CheckpointRecord(
            run=self.around.run,
            checkpoint=name,
            step=step,
            epoch=self.plan.epoch(step),
            tokens=self.trainer.tokens_after(step),
            train_loss=train.loss if train.tokens else None,
            train_tokens=train.tokens,
            train_loss_running=math.fsum(recent) / len(recent) if recent else None,
            val_loss=scores.loss if scores.tokens else None,
            val_accuracy=scores.accuracy if scores.tokens else None,
            perplexity=scores.perplexity if scores.tokens else None,
            seconds=round(self._seconds(), 3),
            clipped=clipped / step if step and clipped is not None else None,
        )
        if self.writes:
            self.folder.write_checkpoint(self.trainer.bare, self.corpus.path / "tokenizer", known)
            self.folder.log(known.model_dump(exclude={"format", "run", "files", "clipped"}))
        if step:
            self._track(step, known.model_dump(include={"train_loss", "val_loss", "val_accuracy", "perplexity"}))

    def _scores(self, split: Split, blocks: NDArray[np.int64] | None = None) -> Scores:
        """Return the scores of a split, or of these blocks of it. A signal ends the evaluation early."""
        args, trainer = self.trainer.args, self.trainer
        mine = split_scores(
            trainer.bare,
            split,
            head=trainer.head,
            blocks=blocks,
            device=args.device,
            rank=args.process_index,
            world=args.world_size,
            stop=lambda: self.around.request.number is not None,
        )
        loss, correct, tokens, stopped = _summed(
            [mine.total_loss, mine.correct, mine.tokens, self.around.request.number is not None], args
        )
        self.stop = stopped > 0
        return Scores(loss, int(correct), int(tokens))

    def _save(self, step: int) -> None:
        if self.writes:
            facts: StateFacts = {**self.facts, "seconds": self._seconds()}
            self.folder.save_state(step, state_tensors(self.trainer), facts)
        self.last_save = time.monotonic()

    def _seconds(self) -> float:
        return self.facts["seconds"] + time.monotonic() - self.started


def training_sample(split: Split, plan: Plan) -> NDArray[np.int64]:
    """Return the numbers of the training blocks that `train_loss` is evaluated on.

    The blocks come first in one fixed order, so runs on one corpus share them whatever their seed, and the samples of
    runs of different length are nested. See SAMPLE_SHARE for their number.
    """
    tokens = min(max(SAMPLE_SHARE * plan.tokens / len(plan.checkpoints), MIN_SAMPLE), MAX_SAMPLE)
    order = split.order(seed=SAMPLE_SEED)
    return order[: int(np.searchsorted(np.cumsum(split.samples()[order]), tokens)) + 1]


def state_tensors(trainer: LanguageTrainer) -> dict[str, torch.Tensor]:
    """Weights, trained and frozen, and the state of the optimiser, the interventions and the head, by name."""
    assert trainer.optimizer is not None
    tensors: dict[str, Any] = {f"model.{name}": weight for name, weight in trainer.bare.named_parameters()}
    tensors |= {f"objective.{name}": tensor for name, tensor in trainer.step_objective.state_tensors().items()}
    if trainer.head_updates is not None:
        tensors |= {f"head.{name}": tensor for name, tensor in trainer.head_updates.state_tensors().items()}
    for index, entries in trainer.optimizer.state_dict()["state"].items():
        kept = {key: value for key, value in entries.items() if isinstance(value, torch.Tensor)}
        tensors |= {f"optimizer.{index}.{key}": value for key, value in kept.items()}
    return tensors


@torch.no_grad()
def restore(trainer: LanguageTrainer, tensors: Mapping[str, torch.Tensor], step: int) -> None:
    """Put weights, optimiser, schedule and interventions back to where they were after a step."""
    own = {name.removeprefix("objective."): tensors[name] for name in tensors if name.startswith("objective.")}
    trainer.step_objective.load_state_tensors(own)
    if trainer.head_updates is not None:
        head = {name.removeprefix("head."): tensors[name] for name in tensors if name.startswith("head.")}
        trainer.head_updates.load_state_tensors(head)
    for name, parameter in trainer.bare.named_parameters():
        parameter.copy_(tensors[f"model.{name}"])
    optimizer, scheduler = trainer.optimizer, trainer.lr_scheduler
    assert optimizer is not None
    assert isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR)
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        kind, *rest = name.split(".")
        if kind == "optimizer":
            state.setdefault(int(rest[0]), {})[rest[1]] = tensor.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    rates = [base * rate(step) for base, rate in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)]
    for group, value in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = value
    scheduler.last_epoch, scheduler._step_count, scheduler._last_lr = step, step + 1, rates


def _summed(numbers: Sequence[float], args: TrainingArguments) -> list[float]:
    """Return the sums of numbers over all processes."""
    if args.world_size == 1:
        return list(numbers)
    values = torch.tensor(numbers, dtype=torch.float64, device=args.device)
    dist.all_reduce(values)
    return [float(value) for value in values]
