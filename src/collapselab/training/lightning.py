"""Watch collapse while it happens, in a Trainer of Lightning.

trainer = Trainer(callbacks=[CollapseMonitor(corpus="corpora/mine", every=500, model=lambda module: module.model)])
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.model_corpus import Text, model_corpus, opened_texts
from collapselab.measurement.report_to import PREFIX, logged
from collapselab.records.measurement import Result
from collapselab.records.options import Options, Running
from collapselab.records.profile import HEADLINE_METRICS
from collapselab.training.callback import WATCHED_TOKENS, check_not_sharded, measure_in_training

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ConfigError("CollapseMonitor needs the package lightning. Install collapselab[lightning].") from error


class CollapseMonitor(Callback):
    """Measure collapse on a fixed sample every `every` steps, and log seven headline metrics as collapse/<metric>.

    `model` finds the causal language model inside the LightningModule; without it the module itself is taken. The
    first process measures; the training itself stays as it was: random state, mode and gradients are restored.
    """

    def __init__(
        self,
        corpus: str | Path | Corpus | None = None,
        every: int = 500,
        *,
        data: Text | None = None,
        tokenizer: object = None,
        model: Callable[[Any], nn.Module] = lambda module: module,
        metrics: Literal["headlines", "all"] = "headlines",
        **options: Any,
    ) -> None:
        if every < 1:
            raise ConfigError(f"every must be ≥ 1, got {every}.")
        self.every, self.model = every, model
        self.options = Options(**{"tokens": WATCHED_TOKENS, "null": False, **options})
        self.text = opened_texts(corpus, data, self.options, Running(quiet=True), tokenizer=tokenizer)[0]
        self.only = HEADLINE_METRICS if metrics == "headlines" else None
        self.results: dict[int, Result] = {}
        """What was measured, by step."""
        self.seconds = 0.0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        check_not_sharded(self.model(pl_module), what="CollapseMonitor")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._measure(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object, **__: object) -> None:
        if trainer.global_step % self.every == 0:
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._measure(trainer, pl_module)

    def _measure(self, trainer: Any, module: Any) -> None:
        step = trainer.global_step
        if step in self.results or not trainer.is_global_zero:
            return
        start = time.perf_counter()
        model = self.model(module)
        self.text = model_corpus(model, self.text, Running(quiet=True))  # built once
        self.results[step] = result = measure_in_training(model, self.text, self.options)
        self.seconds += time.perf_counter() - start
        for logger in trainer.loggers:
            logger.log_metrics({**logged(result, self.only), f"{PREFIX}/seconds": self.seconds}, step=step)
