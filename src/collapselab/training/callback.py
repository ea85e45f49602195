"""Watch collapse while it happens, in any Trainer of the library.

    CollapseCallback(corpus="corpora/mine", every=500).attach(trainer)

The library passes everything to a callback but the Trainer, which is needed to log: `attach` hands it over. A callback
that was added with trainer.add_callback alone finds its Trainer among its callers.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.measure import measure
from collapselab.measurement.model_corpus import Data, Text, model_corpus, opened_texts, saved_tokenizer
from collapselab.measurement.report_to import PREFIX, logged
from collapselab.messages import logger
from collapselab.records.measurement import Result
from collapselab.records.options import Options, Running
from collapselab.records.profile import HEADLINE_METRICS

log = logger(__name__)

WATCHED_TOKENS = 50_000
"""Tokens of each split that are measured every time."""


@final
class CollapseCallback(TrainerCallback):
    """Measure collapse on a fixed sample every `every` steps, and log seven headline metrics as collapse/<metric>.

    50,000 tokens of each split are measured, or `tokens`, the same ones every time: first when training begins, then
    every `every` steps, then at the end. The training itself stays bit-identical: random state, mode and gradients are
    left as they were. `seconds` is what all of it cost so far; it is logged too, as collapse/seconds.
    """

    def __init__(
        self,
        corpus: str | Path | Corpus | None = None,
        every: int = 500,
        *,
        data: Text | None = None,
        tokenizer: object = None,
        metrics: Literal["headlines", "all"] = "headlines",
        **options: Any,
    ) -> None:
        """`data` are texts (or what `measure` takes) in place of a corpus, for the Trainer's tokenizer or `tokenizer`.

        `metrics="all"` logs the whole catalogue. `options` are those of `Options`.
        """
        if every < 1:
            raise ConfigError(f"every must be ≥ 1, got {every}.")
        self.options = Options(**{"tokens": WATCHED_TOKENS, "null": False, **options})
        self.text = opened_texts(corpus, data, self.options, Running(quiet=True), tokenizer=tokenizer)[0]
        self.every, self.only = every, HEADLINE_METRICS if metrics == "headlines" else None
        self.results: dict[int, Result] = {}
        """What was measured, by step."""
        self.seconds = 0.0
        self._began = 0.0
        self._trainer: Trainer | None = None

    def attach(self, trainer: Trainer) -> "CollapseCallback":
        """Add the callback to a Trainer, and log through it."""
        self._trainer = trainer
        trainer.add_callback(self)
        return self

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module | None = None,
        processing_class: object = None,
        **_: object,
    ) -> None:
        self._began = time.perf_counter()
        assert model is not None, "the library passes it"
        check_not_sharded(model, what="CollapseCallback")
        if isinstance(self.text, Data) and self.text.tokenizer is None and processing_class is not None:
            self.text = replace(self.text, tokenizer=saved_tokenizer(processing_class))
        self._measure(state, control, model)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module | None = None,
        **_: object,
    ) -> None:
        if state.global_step % self.every == 0:
            self._measure(state, control, model)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module | None = None,
        **_: object,
    ) -> None:
        self._measure(state, control, model)
        if state.is_world_process_zero:
            share = self.seconds / max(time.perf_counter() - self._began, 1e-9)
            times = f"{len(self.results)} times, {self.seconds:.1f} s, {share:.0%} of the training"
            log.info("collapse: measured %s.", times)

    def _measure(self, state: TrainerState, control: TrainerControl, model: nn.Module | None) -> None:
        assert model is not None, "the library passes it"
        step = state.global_step
        if step in self.results or not state.is_world_process_zero:
            return
        start = time.perf_counter()
        self.text = model_corpus(model, self.text, Running(quiet=True))  # built once
        self.results[step] = result = measure_in_training(model, self.text, self.options)
        self.seconds += time.perf_counter() - start
        due = control.should_log  # logging would take it that the Trainer's own log of this step is done
        (self._trainer or _trainer_on_the_stack()).log({**logged(result, self.only), f"{PREFIX}/seconds": self.seconds})
        control.should_log = due


def _trainer_on_the_stack() -> Trainer:
    frame = sys._getframe(1)
    while frame is not None:
        if isinstance(trainer := frame.f_locals.get("self"), Trainer):
            return trainer
        frame = frame.f_back  # type: ignore[assignment]
    raise ConfigError("CollapseCallback: no Trainer called it. Hand it to trainer.add_callback.")


def measure_in_training(model: nn.Module, corpus: Corpus, options: Options) -> Result:
    """The result of a model that is being trained; the random state stays as it was."""
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        result = measure(model, corpus, quiet=True, options=options)
    assert isinstance(result, Result)
    return result


def check_not_sharded(model: nn.Module, *, what: str) -> None:
    """ConfigError that names how the weights are spread over processes; nothing where each process has all of them.

    The first process would never get the parts of the others, which do not take part in a measurement.
    """
    name = _sharding(model)
    if name is not None:
        raise ConfigError(
            f"{what}: the model is trained with {name}, which spreads its weights over processes; measuring needs all "
            "of them in one. Save checkpoints and measure these, or train with DistributedDataParallel or ZeRO-2."
        )


def _sharding(model: nn.Module) -> str | None:
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            return "FSDP"
    for parameter in model.parameters():
        if type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor":
            return "FSDP2 or tensor parallelism (DTensor)"
        if hasattr(parameter, "ds_id"):
            return "DeepSpeed ZeRO-3"
    return None
