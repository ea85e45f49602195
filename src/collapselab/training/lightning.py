"""`CollapseMonitor` in a Trainer of Lightning.

trainer = Trainer(callbacks=[CollapseLightningCallback(corpus="corpora/mine", model=lambda module: module.model)])
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from collapselab.errors import ConfigError
from collapselab.training.monitor import CollapseMonitor, check_not_sharded

try:
    from lightning.pytorch import Callback
except ImportError as error:
    why = "CollapseLightningCallback needs the package lightning. Install collapselab[lightning]."
    raise ConfigError(why) from error


class CollapseLightningCallback(CollapseMonitor, Callback):
    """Measure collapse on a fixed sample every `every` steps, and log it as collapse/<metric>.

    `model` finds the causal language model inside the LightningModule; without it the module itself is taken. The other
    arguments are those of `CollapseMonitor`. The first process measures.
    """

    def __init__(
        self, *values: Any, model: Callable[[Any], nn.Module] = lambda module: module, **settings: Any
    ) -> None:
        super().__init__(*values, **settings)
        self.model = model

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        check_not_sharded(self.model(pl_module), what="CollapseLightningCallback")

    def on_train_start(self, trainer: Any, pl_module: Any, *, last: bool = False) -> None:
        if trainer.is_global_zero:
            values = self.step(self.model(pl_module), trainer.global_step, last=last)
            for logger in trainer.loggers if values else ():
                logger.log_metrics(values, step=trainer.global_step)
        if not last and trainer.global_step % self.every == 0:
            trainer.should_stop |= self.share_stop()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object, **__: object) -> None:
        self.on_train_start(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.on_train_start(trainer, pl_module, last=True)
