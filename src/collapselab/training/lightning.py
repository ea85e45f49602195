"""Watch collapse while it happens, in a Trainer of Lightning.

trainer = Trainer(callbacks=[CollapseMonitor(corpus="corpora/mine", every=500, model=lambda module: module.model)])
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.training.callback import Watch, check_not_sharded

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ConfigError("CollapseMonitor needs the package lightning. Install collapselab[lightning].") from error


class CollapseMonitor(Watch, Callback):
    """Measure collapse on a fixed sample every `every` steps, and log seven headline metrics as collapse/<metric>.

    `model` finds the causal language model inside the LightningModule; without it the module itself is taken. The
    first process measures; the training itself stays as it was: random state, mode and gradients are restored.
    `options` are those of `CollapseCallback`.
    """

    def __init__(
        self,
        corpus: str | Path | Corpus | None = None,
        every: int = 500,
        *,
        model: Callable[[Any], nn.Module] = lambda module: module,
        **options: Any,
    ) -> None:
        super().__init__(corpus, every, **options)
        self.model = model

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
        if trainer.global_step in self.results or not trainer.is_global_zero:
            return
        values = self.values(self.model(module), trainer.global_step)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
