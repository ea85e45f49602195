"""The complete configuration of one training, strictly checked; the paper's where nothing is said.

`Settings` holds what decides the numbers and nothing else: where to run, how often to save and whom to report to are
arguments of `train`. What depends on the corpus (steps, batch, checkpoints) is worked out once, in `Plan`.
"""

import difflib
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from collapselab.errors import ConfigError
from collapselab.training.interventions.dose import parse_doses

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from transformers import PreTrainedConfig

MOST_WIDTH, MOST_DEPTH, MOST_COUNT = 10**6, 10**4, 10**12
"""Far beyond what can be trained, and small enough for every calculation of a plan."""

MOST_CHECKPOINTS = 10_000

MOST_SHOWN = 200
"""Characters of a value in a message."""


class Settings(BaseModel):
    """What decides the weights of a run, given its corpus: the options of `collapselab train`.

    >>> from collapselab import Settings
    >>> Settings(width=64, depth=2).optimizer
    'adamw'
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    family: str = "gpt-neo"
    """A name of `FAMILIES`."""
    width: int = Field(ge=2, le=MOST_WIDTH)
    """Dimension of the features."""
    depth: int = Field(ge=1, le=MOST_DEPTH)
    """Number of blocks."""
    head_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
    """Numbers in a head of attention; None for 16 heads, as in the paper."""
    tied: bool = True
    """Whether input and output share a matrix."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of features that are set to 0 in training."""
    context: int | None = Field(None, ge=2, le=MOST_COUNT)
    """Positions of the model; None for the corpus's block."""

    epochs: float | None = Field(None, gt=0, le=MOST_COUNT)
    """Passes over the training split, fractions allowed; 1 where no steps are given either."""
    steps: int | None = Field(None, ge=1, le=MOST_COUNT)
    """The length of training where it is given in steps."""
    batch: int | None = Field(None, ge=1, le=MOST_COUNT)
    """Sequences in a step; None for the paper's number at this width and depth."""
    batch_tokens: int | None = Field(None, ge=2, le=MOST_COUNT)
    """The same in tokens: as many whole blocks as fit."""

    optimizer: str = "adamw"
    """A name of `OPTIMIZERS`; adam couples the decay with the gradient (L2); sgd has momentum 0.9."""
    coupling: float = Field(0.0, ge=0, le=1)
    """Share of the weight decay that acts through the gradient, as in adam; the rest is decoupled, as in adamw."""
    lr: float = Field(5e-5, gt=0, allow_inf_nan=False)
    """Learning rate at its highest."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Of the learning rate after the warm-up."""
    warmup: float = Field(0.0, ge=0, le=MOST_COUNT)
    """Steps, or below 1 a share of all steps."""
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    """Of all weights but norms and biases."""
    clip: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Largest norm of the gradient; 0 for no limit."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the target that is spread over all tokens, in training."""
    head: str = "learned"
    """How the output layer is replaced or frozen after the model is built: a name of `HEADS`."""
    donor: str | None = None
    """The run, or the checkpoint, whose output layer the heads of donors take; it is known by its weights' contents."""
    intervene: tuple[str, ...] = ()
    """Penalties beside the cross-entropy, each a name of `INTERVENTIONS` and a dose, as in within:-0.1:sham@0.7-1.0."""

    checkpoints: str = "0"
    """Epochs with a comma between, or `log:N` for N log-spaced steps and initialisation; the end is always one."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Decides the initial weights, and dropout."""
    data_seed: int | None = Field(None, ge=0, lt=2**32)
    """Decides the order of the data; None for the seed."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 where the GPU has it, else fp32."""

    @field_validator("optimizer")
    @classmethod
    def _known_optimizer(cls, name: str) -> str:
        from collapselab.training.optimizers import OPTIMIZERS

        return _known(name, OPTIMIZERS)

    @field_validator("head")
    @classmethod
    def _known_head(cls, name: str) -> str:
        from collapselab.training.heads import HEADS

        return _known(name, HEADS)

    @field_validator("intervene", mode="before")
    @classmethod
    def _known_doses(cls, texts: object) -> tuple[str, ...]:
        listed = [texts] if isinstance(texts, str) else texts
        if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
            raise ValueError("A list of texts as in within:+0.1 is needed")
        return tuple(str(dose) for dose in parse_doses(listed))

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps are both given. Choose one.")
        if self.batch is not None and self.batch_tokens is not None:
            raise ValueError("batch and batch_tokens are both given. Choose one.")
        return self

    @model_validator(mode="after")
    def _coupling_is_of_use(self) -> Self:
        from collapselab.training.optimizers import DECOUPLED

        if self.coupling and self.optimizer not in DECOUPLED:
            raise ValueError(
                f"coupling: {self.coupling:g} is a share of the decay of {' or '.join(DECOUPLED)}; {self.optimizer} "
                "has all of it in the gradient. Leave coupling out, or choose one of those."
            )
        return self


def _known(name: str, table: Mapping[str, object]) -> str:
    if name in table:
        return name
    *others, last = (repr(name) for name in table)
    near = difflib.get_close_matches(name.lower(), table, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"{hint}It is {', '.join(others)}{' or ' if others else ''}{last}")


def settings_from(values: Mapping[str, object]) -> Settings:
    """Settings from a mapping; ConfigError that names the setting, and the nearest one where it does not exist."""
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError("; ".join(_message(problem) for problem in error.errors())) from error


def _message(error: "ErrorDetails") -> str:
    name = ".".join(str(part)[:MOST_SHOWN] for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, n=1)
        return f"{name} is not a setting.{f' Did you mean {near[0]}?' if near else ''}"
    if error["type"] == "missing":
        return f"{name} is missing; it has no default."
    reason = error["msg"].removeprefix("Value error, ")
    return f"{name}: {_short(error['input'])} is not valid: {reason[0].lower()}{reason[1:]}." if name else reason


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} … ({len(text):,} characters)"


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

    @property
    def step_positions(self) -> int:
        """Positions of a step that the model runs on for a label, padding among them."""
        return self.batch * (self.block - 1)

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
        width=settings.width,
        depth=settings.depth,
        vocabulary=vocabulary,
        positions=settings.context or block,
        tied=settings.tied,
        dropout=settings.dropout,
        end_of_text=end_of_text,
        head_size=settings.head_size,
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

MEANING = 1
"""Rises when a default comes to mean something else: runs of before are then other runs."""


def resolved(settings: Settings) -> dict[str, JsonValue]:
    """The settings that identify a run: by name, what follows from others filled in, files by their contents."""
    later = (name for name in type(settings).model_fields if name not in FIRST)
    changed = [name for name in later if getattr(settings, name) != type(settings).model_fields[name].default]
    values: dict[str, JsonValue] = settings.model_dump(mode="json", include={*FIRST, *changed})
    if MEANING > 1:
        values["meaning"] = MEANING
    if settings.epochs is None and settings.steps is None:
        values["epochs"] = 1.0
    if settings.batch is None and settings.batch_tokens is None:
        values["batch"] = paper_batch(settings.width, settings.depth)
    if settings.data_seed is None:
        values["data_seed"] = settings.seed
    path = Path(settings.family)
    if path.is_file():
        values["family"] = f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    if settings.donor is not None:
        from collapselab.training.heads.donor import donor_hash

        values["donor"] = donor_hash(settings.donor)
    return values


def _batch(settings: Settings, block: int) -> int:
    if settings.batch_tokens is None:
        return settings.batch or paper_batch(settings.width, settings.depth)
    if settings.batch_tokens < block:
        raise ConfigError(f"batch_tokens: {settings.batch_tokens:,} is less than one block of {block:,} tokens.")
    return settings.batch_tokens // block


def _checkpoints(settings: Settings, steps: int, steps_per_epoch: float) -> dict[int, str]:
    text = settings.checkpoints.strip()
    if text.startswith("log:"):
        chosen = {step: _epoch_name(step / steps_per_epoch) for step in _log_spaced(text, steps)}
    else:
        chosen = _named_epochs(text, steps, steps_per_epoch)
    if steps not in chosen:
        epochs = settings.epochs or (None if settings.steps else 1.0)
        chosen[steps] = _epoch_name(epochs or steps / steps_per_epoch)
    for name, count in Counter(chosen.values()).items():
        if count > 1:
            raise ConfigError(f"checkpoints: {text} gives {count} checkpoints of the name {name}.")
    return dict(sorted(chosen.items()))


def _log_spaced(text: str, steps: int) -> list[int]:
    count = text.removeprefix("log:")
    if not re.fullmatch("[0-9]{1,9}", count) or not 2 <= int(count) <= MOST_CHECKPOINTS:
        needed = f"Write log: and a number from 2 to {MOST_CHECKPOINTS:,}, as in log:20."
        raise ConfigError(f"checkpoints: {text[:80]} is not valid. {needed}")
    last = int(count) - 1
    return sorted({0, *(round(math.exp(math.log(steps) * i / last)) for i in range(last + 1))})


def _named_epochs(text: str, steps: int, steps_per_epoch: float) -> dict[int, str]:
    chosen: dict[int, str] = {}
    for part in text.split(",") if text else []:
        try:
            epoch = float(part)
        except ValueError:
            epoch = math.nan
        if not 0 <= epoch <= MOST_COUNT:
            raise ConfigError(
                f"checkpoints: {part.strip()[:80]!r} is not an epoch. Write them as in 0,1,3 or as log:20."
            )
        step, name = max(round(epoch * steps_per_epoch), epoch > 0), _epoch_name(epoch)
        if step > steps:
            end = _epoch_name(steps / steps_per_epoch)
            raise ConfigError(f"checkpoints: epoch {name} is after the end of the training, at epoch {end}.")
        if step in chosen and chosen[step] != name:
            raise ConfigError(f"checkpoints: epochs {chosen[step]} and {name} are both step {step:,}. Leave one out.")
        chosen[step] = name
    return chosen


def _epoch_name(epoch: float) -> str:
    return f"{epoch:.6f}".rstrip("0").rstrip(".")
