"""The complete configuration of one training, strictly checked; the paper's where nothing is said.

`Settings` holds what decides the numbers and nothing else: where to run, how often to save and whom to report to are
arguments of `train`. What depends on the corpus (steps, batch, checkpoints) is worked out once, in `Plan`.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from collapselab.declared import Shown, config_error, declared
from collapselab.errors import ConfigError, did_you_mean
from collapselab.training.heads import HEADS, OF_RUNS
from collapselab.training.interventions import parse_doses
from collapselab.training.optimizers import DECOUPLED, OPTIMIZERS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL, LENGTH, OPTIMISER, RUNNING = "Model", "Length and batch", "Optimiser", "Running"
DRAWING = "How tokens are drawn"
"""Panels of `collapselab train --help`."""


class Settings(BaseModel):
    """What decides the weights of a run, given its corpus: the options of `collapselab train`.

    >>> from collapselab import Settings
    >>> Settings(width=64, depth=2).optimizer
    'adamw'
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    width: int = Field(ge=2)
    """Dimension of the features."""
    depth: int = Field(ge=1)
    """Number of blocks."""
    lr: float = Field(5e-5, gt=0, allow_inf_nan=False)
    """Peak learning rate."""

    family: Annotated[str, Shown(MODEL)] = "gpt-neo"
    """Architecture: `gpt-neo`, `gpt2`, `llama`, `pythia`, `qwen3`, or a config.json to resize."""
    head_size: Annotated[int | None, Field(ge=1), Shown(MODEL)] = None
    """Dimensions of an attention head. [default: 16 heads, as in the paper]"""
    tied: Annotated[bool, Shown(MODEL)] = True
    """Use the input embeddings as the output layer."""
    dropout: Annotated[float, Field(ge=0, lt=1), Shown(MODEL)] = 0.0
    """Every dropout of the architecture."""
    head: Annotated[str, Shown(MODEL, "NAME")] = "learned"
    """Which output layer is trained: `learned`, `frozen-init`, `frozen-sphere`, `frozen-code`, `frozen-etf`,
    `frozen-donor`, `frozen-donor-permuted`, `class-means`, `sphere`, `centred`."""
    donor: Annotated[str | None, Shown(MODEL, "RUN")] = None
    """The finished run, or checkpoint, whose output layer `frozen-donor` takes; identified by its weights."""
    init_from: Annotated[str | None, Shown(MODEL, "RUN")] = None
    """The finished run, or checkpoint, whose weights the training starts from; identified by its weights."""
    context: Annotated[int | None, Field(ge=2), Shown(MODEL)] = None
    """Positions of the model. [default: the corpus's block]"""

    epochs: Annotated[float | None, Field(gt=0, allow_inf_nan=False), Shown(LENGTH)] = None
    """Passes over the training split, fractions allowed. [default: 1, unless --steps is given]"""
    steps: Annotated[int | None, Field(ge=1), Shown(LENGTH)] = None
    """The length of training in optimiser steps instead."""
    batch: Annotated[int | None, Field(ge=1), Shown(LENGTH)] = None
    """Sequences in a step. [default: the paper's for this width and depth, 4 to 16]"""
    batch_tokens: Annotated[int | None, Field(ge=2), Shown(LENGTH)] = None
    """Tokens in a step instead: as many whole blocks as fit."""
    checkpoints: Annotated[str, Shown(LENGTH)] = "0"
    """Epochs, as in `0,1,3,6,10`, or `log:20` for 20 log-spaced steps; `0` is the initialisation. The end is always
    one."""

    optimizer: Annotated[str, Shown(OPTIMISER)] = "adamw"
    """`adamw`, `adam` (decay coupled with the gradient, L2), `sgd` (momentum 0.9), or `coupled-adam` (one second moment
    for all rows of the embedding and of the output layer)."""
    coupling: Annotated[float, Field(ge=0, le=1), Shown(OPTIMISER)] = 0.0
    """Share of the weight decay that acts through the gradient: 0 is `adamw`, 1 `adam`."""
    schedule: Annotated[Literal["linear", "cosine", "constant"], Shown(OPTIMISER)] = "linear"
    """Learning-rate schedule after the warm-up."""
    warmup: Annotated[float, Field(ge=0, allow_inf_nan=False), Shown(OPTIMISER)] = 0.0
    """Steps, or below 1 a share of all steps."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False), Shown(OPTIMISER)] = 5e-4
    """Weight decay of all weights but norms and biases."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False), Shown(OPTIMISER)] = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1), Shown(OPTIMISER)] = 0.0
    """Share of the target that is spread over all tokens."""
    intervene: Annotated[tuple[str, ...], Shown(OPTIMISER, "NAME:DOSE[:sham]")] = ()
    """A penalty beside the cross-entropy, as in `within:+0.1` or `within:-0.1:sham@0.7-1.0`: the ratio of their
    gradients, the labels permuted, the share of training. Repeat it for several. Names: `collapselab interventions`."""
    seed: Annotated[int, Field(ge=0, lt=2**32), Shown(OPTIMISER)] = 0
    """Seed of the initial weights and of dropout."""
    data_seed: Annotated[int | None, Field(ge=0, lt=2**32), Shown(OPTIMISER)] = None
    """Seed of the order of the data. [default: the seed]"""
    precision: Annotated[Literal["auto", "fp32", "bf16"], Shown(RUNNING)] = "auto"
    """`auto`: bf16 on GPUs that have it, else fp32."""

    @field_validator("optimizer", "head")
    @classmethod
    def _is_known(cls, name: str, info: Any) -> str:
        table = HEADS if info.field_name == "head" else OPTIMIZERS
        if name in table:
            return name
        raise ValueError(f"{did_you_mean(name.lower(), table)} Choose from {', '.join(table)}".strip())

    @field_validator("intervene", mode="before")
    @classmethod
    def _known_doses(cls, texts: object) -> tuple[str, ...]:
        listed = [texts] if isinstance(texts, str) else texts
        if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
            raise ValueError("A list of texts as in within:+0.1 is needed")
        return tuple(str(dose) for dose in parse_doses(listed))

    @model_validator(mode="after")
    def _of_one_another(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps are both given. Choose one.")
        if self.batch is not None and self.batch_tokens is not None:
            raise ValueError("batch and batch_tokens are both given. Choose one.")
        if self.coupling and self.optimizer not in DECOUPLED:
            raise ValueError(
                f"coupling: {self.coupling:g} is a share of the decay of {' or '.join(DECOUPLED)}; {self.optimizer} "
                "has all of it in the gradient. Leave coupling out, or choose one of those."
            )
        return self


@declared
class TrainOptions:
    """Where and how a training runs: nothing that decides its weights."""

    device: Annotated[str, Shown(RUNNING)] = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `xpu` or `mps`."""
    accumulation: Annotated[int, Field(ge=1), Shown(RUNNING)] = 1
    """Parts of a step, one after the other, to save memory."""
    save_minutes: Annotated[float, Field(ge=0, allow_inf_nan=False), Shown(RUNNING)] = 10.0
    """How much work a crash may cost."""
    log_every: Annotated[int | None, Field(ge=1), Shown(RUNNING)] = None
    """Steps a log line. [default: at most 2,000 lines]"""
    report_to: Annotated[str, Shown(RUNNING, "TRACKER")] = "none"
    """Where to follow it: `tensorboard`, `wandb` or `trackio`."""


@declared
class Drawing:
    """How `sample` draws texts."""

    count: Annotated[int, Field(ge=1)] = 1
    """How many texts."""
    tokens: Annotated[int, Field(ge=1)] = 200
    """The longest a text may become."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False), Shown(DRAWING)] = 0.8
    """0: always the likeliest token."""
    top_k: Annotated[int, Field(ge=0), Shown(DRAWING)] = 40
    """Draw from the k likeliest tokens; 0: all."""
    seed: Annotated[int, Field(ge=0, lt=2**63), Shown(DRAWING)] = 0
    """Decides what is drawn."""


def settings_from(values: Mapping[str, object]) -> Settings:
    """Settings from a mapping; ConfigError that names the setting, and the nearest one where it does not exist."""
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise config_error(error, Settings.model_fields) from error


@dataclass(frozen=True)
class Plan:
    """What the settings mean on a corpus: numbers of blocks, sequences and steps."""

    block: int
    blocks: int
    batch: int
    steps: int
    warmup: int
    checkpoints: dict[int, str]
    """Step → name; names are epochs, as short as they can be and differ."""
    samples: int | None = None
    """Labels of all blocks; None where every block has one less than its tokens."""

    @property
    def tokens(self) -> int:
        """Labels of the whole training; where blocks differ, as many as steps have on average."""
        samples = self.blocks * (self.block - 1) if self.samples is None else self.samples
        return self.steps * self.batch * samples // self.blocks

    def epoch(self, step: int) -> float:
        return step * self.batch / self.blocks


def plan(settings: Settings, *, blocks: int, block: int, samples: int | None = None) -> Plan:
    """Steps, batch and checkpoints on a training split of `blocks` blocks with `samples` labels in all.

    Batches run on over the end of an epoch, so all are of one size; epoch e ends at the step nearest to
    e · blocks / batch.
    """
    if not blocks:
        raise ConfigError(f"the training split has no whole block of {block:,} tokens. Build it with smaller blocks.")
    batch = _batch(settings, block)
    steps = settings.steps or max(1, round((settings.epochs or 1) * blocks / batch))
    warmup = round(settings.warmup * steps) if settings.warmup < 1 else round(settings.warmup)
    if warmup > steps:
        raise ConfigError(f"warmup: {warmup:,} steps of a training of {steps:,}. Warm up for fewer, or train longer.")
    if settings.intervene:
        for dose in parse_doses(settings.intervene):
            dose.check(steps)
    return Plan(block, blocks, batch, steps, warmup, _checkpoints(settings, steps, blocks / batch), samples)


def model_config(
    settings: Settings, *, vocabulary: int, block: int, end_of_text: int | None = None
) -> "PreTrainedConfig":
    """The configuration of the model of these settings, on blocks of `block` tokens."""
    from collapselab.models.build import build_config

    return build_config(
        settings.family,
        **settings.model_dump(include={"width", "depth", "tied", "dropout", "head_size"}),
        vocabulary=vocabulary,
        positions=settings.context or block,
        end_of_text=end_of_text,
    )


def paper_batch(width: int, depth: int) -> int:
    """Sequences in a step of Linguistic Collapse (arXiv:2405.17767); other sizes get that of the next larger one."""
    if depth <= 1:
        return 16
    if depth <= 2:
        return 16 if width < 1024 else 8
    if depth <= 4:
        return 8
    return 8 if depth <= 8 and width <= 256 else 4


FIRST = (
    "family", "width", "depth", "tied", "dropout", "context", "epochs", "steps", "batch", "batch_tokens", "optimizer",
    "lr", "schedule", "warmup", "weight_decay", "clip", "label_smoothing", "checkpoints", "seed", "data_seed",
    "precision"
)  # fmt: skip
"""The settings of the first version, which all take part in a run's identity. A later one does only where it is not
the default, so that adding it renames no run."""


def resolved(settings: Settings) -> dict[str, JsonValue]:
    """The settings that identify a run: by name, what follows from others filled in, files by their contents."""
    later = (name for name in type(settings).model_fields if name not in FIRST)
    changed = [name for name in later if getattr(settings, name) != type(settings).model_fields[name].default]
    values: dict[str, JsonValue] = settings.model_dump(mode="json", include={*FIRST, *changed})
    if settings.epochs is None and settings.steps is None:
        values["epochs"] = 1.0
    if settings.batch is None and settings.batch_tokens is None:
        values["batch"] = paper_batch(settings.width, settings.depth)
    if settings.data_seed is None:
        values["data_seed"] = settings.seed
    path = Path(settings.family)
    if path.is_file():
        values["family"] = f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    for setting in OF_RUNS:
        if (run := getattr(settings, setting)) is not None:
            from collapselab.training.heads.frozen import weights_hash

            values[setting] = weights_hash(run, setting)
    return values


def _batch(settings: Settings, block: int) -> int:
    if settings.batch_tokens is None:
        return settings.batch or paper_batch(settings.width, settings.depth)
    if settings.batch_tokens < block:
        raise ConfigError(f"batch_tokens: {settings.batch_tokens:,} is less than one block of {block:,} tokens.")
    return settings.batch_tokens // block


def _checkpoints(settings: Settings, steps: int, steps_per_epoch: float) -> dict[int, str]:
    """Step → name of every checkpoint, in order; the last step is always one."""
    text, chosen = settings.checkpoints.strip(), dict[int, str]()
    try:
        if text.startswith("log:"):
            last = int(text.removeprefix("log:")) - 1
            if last > 10_000:
                raise ValueError("each of them is stored")
            spaced = {0, *(round(math.exp(math.log(steps) * i / last)) for i in range(last + 1))}
            epochs = [step / steps_per_epoch for step in sorted(spaced)]
        else:
            epochs = [float(part) for part in text.split(",") if text]
        planned = [(max(round(epoch * steps_per_epoch), epoch > 0), _epoch_name(epoch)) for epoch in epochs]
        if min(epochs, default=0) < 0:
            raise ValueError
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        message = f"checkpoints: {text[:80]!r} is not valid. Write epochs, as in 0,1,3, or log:20 for 20 steps."
        raise ConfigError(message) from error
    for step, name in planned:
        if step > steps:
            end = _epoch_name(steps / steps_per_epoch)
            raise ConfigError(f"checkpoints: epoch {name} is after the end of the training, at epoch {end}.")
        if chosen.setdefault(step, name) != name:
            raise ConfigError(f"checkpoints: epochs {chosen[step]} and {name} are both step {step:,}. Leave one out.")
    whole = settings.epochs or (None if settings.steps else 1.0) or steps / steps_per_epoch
    chosen.setdefault(steps, _epoch_name(whole))
    if len(set(chosen.values())) < len(chosen):
        raise ConfigError(f"checkpoints: {text} gives two checkpoints one name: {', '.join(chosen.values())}.")
    return dict(sorted(chosen.items()))


def _epoch_name(epoch: float) -> str:
    return f"{epoch:.6f}".rstrip("0").rstrip(".")
