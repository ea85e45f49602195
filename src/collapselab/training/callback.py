"""Watch collapse while it happens, in any Trainer of the library.

trainer.add_callback(CollapseCallback(corpus="corpora/mine", every=500))
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
from collapselab.measurement.result import PREFIX, logged
from collapselab.models.taps import bare_model, sharded_by
from collapselab.records.measurement import Result
from collapselab.records.options import Options, Running
from collapselab.records.profile import HEADLINE_METRICS

WATCHED_TOKENS = 50_000
"""Tokens of each split that are measured every time."""


class Watch:
    """Measures a model that is being trained, on the same sample every time.

    The training stays bit-identical: random state, mode and gradients are left as they were.
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
        """`data` are texts (or what `measure` takes) in place of a corpus, for the model's tokenizer or `tokenizer`.

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
        """What all measurements cost so far."""

    def values(self, model: nn.Module, step: int) -> dict[str, float]:
        """Measure the model at this step; return what is logged."""
        start = time.perf_counter()
        if isinstance(self.text, Data):
            self.text = model_corpus(bare_model(model), self.text, Running(quiet=True))
        devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        with torch.random.fork_rng(devices=devices):
            result = measure(model, self.text, quiet=True, options=self.options)
        assert isinstance(result, Result)
        self.results[step] = result
        self.seconds += time.perf_counter() - start
        return {**logged(result, self.only), f"{PREFIX}/seconds": self.seconds}


@final
class CollapseCallback(Watch, TrainerCallback):
    """Measure collapse on a fixed sample every `every` steps, and log seven headline metrics as collapse/<metric>.

    50,000 tokens of each split are measured, or `tokens`, the same ones every time: first when training begins, then
    every `every` steps, then at the end. The training itself stays bit-identical: random state, mode and gradients are
    left as they were. `seconds` is what all of it cost so far; it is logged too, as collapse/seconds.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        check_not_sharded(given["model"], what="CollapseCallback")
        tokenizer = given.get("processing_class")
        if isinstance(self.text, Data) and self.text.tokenizer is None and tokenizer is not None:
            self.text = replace(self.text, tokenizer=saved_tokenizer(tokenizer))
        self._measure(state, control, given["model"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        if state.global_step % self.every == 0:
            self._measure(state, control, given["model"])

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        self._measure(state, control, given["model"])

    def _measure(self, state: TrainerState, control: TrainerControl, model: nn.Module) -> None:
        if state.global_step in self.results or not state.is_world_process_zero:
            return
        values = self.values(model, state.global_step)
        due = control.should_log  # logging would take it that the Trainer's own log of this step is done
        _trainer_on_the_stack().log(values)
        control.should_log = due


def _trainer_on_the_stack() -> Trainer:
    """The Trainer that called: the library passes everything to a callback but the Trainer, which logs."""
    frame = sys._getframe(1)
    while frame is not None:
        if isinstance(trainer := frame.f_locals.get("self"), Trainer):
            return trainer
        frame = frame.f_back  # type: ignore[assignment]
    raise ConfigError("CollapseCallback: no Trainer called it. Hand it to trainer.add_callback.")


def check_not_sharded(model: nn.Module, *, what: str) -> None:
    """ConfigError that names how the weights are spread over processes; nothing where each process has all of them.

    The first process would never get the parts of the others, which do not take part in a measurement.
    """
    if (kind := sharded_by(model)) is not None:
        raise ConfigError(
            f"{what}: the model is trained with {kind}, which spreads its weights over processes; measuring needs "
            "all of them in one. Save checkpoints and measure these, or train with DistributedDataParallel or ZeRO-2."
        )
