"""`CollapseMonitor` in a Trainer of the library.

trainer.add_callback(CollapseCallback(corpus="corpora/mine", every=500))
"""

import sys
from dataclasses import replace
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapselab.errors import ConfigError
from collapselab.measurement.model_corpus import Data, saved_tokenizer
from collapselab.training.monitor import CollapseMonitor, check_not_sharded


class CollapseCallback(CollapseMonitor, TrainerCallback):
    """Measure collapse on a fixed sample every `every` steps, and log it as collapse/<metric>.

    50,000 tokens of each split are measured, or `tokens`, the same ones every time: first when training begins, then
    every `every` steps, then at the end. The arguments are those of `CollapseMonitor`; an alert can stop the training.
    `collapse/seconds` is what all measurements cost so far, `collapse/share` the same as a share of the training time.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        check_not_sharded(given["model"], what="CollapseCallback")  # in every process, of which the first measures
        tokenizer = given.get("processing_class")
        if isinstance(self.text, Data) and self.text.tokenizer is None and tokenizer is not None:
            self.text = replace(self.text, tokenizer=saved_tokenizer(tokenizer))
        self.on_step_end(args, state, control, **given)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, last: bool = False, **given: Any
    ) -> None:
        if state.is_world_process_zero and (values := self.step(given["model"], state.global_step, last=last)):
            due = control.should_log  # logging would take it that the Trainer's own log of this step is done
            _trainer_on_the_stack().log(values)
            control.should_log = due
        if not last and state.global_step % self.every == 0:
            control.should_training_stop |= self.share_stop()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        self.on_step_end(args, state, control, last=True, **given)


def _trainer_on_the_stack() -> Trainer:
    """The Trainer that called: the library passes everything to a callback but the Trainer, which logs."""
    frame = sys._getframe(1)
    while frame is not None:
        if isinstance(trainer := frame.f_locals.get("self"), Trainer):
            return trainer
        frame = frame.f_back  # type: ignore[assignment]
    raise ConfigError("CollapseCallback: no Trainer called it. Hand it to trainer.add_callback.")
