"""One model, trained from scratch on a corpus.

    settings.py        what decides the weights of a run, checked; `plan` turns it into steps on a corpus
    train.py           `train`: starts a run, continues it, or finds it finished
    trainer.py         the library's Trainer with our data and our loss; all randomness follows from (seed, step)
    loss.py            next-token cross-entropy that never holds tokens × vocabulary
    objective.py       the loss of a step: cross-entropy, and the gradients that interventions add
    interventions/     INTERVENTIONS: penalties by name, their doses, and the factor that holds a dose
    heads/             HEADS: how the output layer is replaced or frozen
    optimizers.py      OPTIMIZERS: how weights are updated
    checkpointing.py   what happens around the steps: restore, log, check, checkpoint, save, stop
    monitor.py         `CollapseMonitor`: metrics and alerts in any loop;  callback.py: in a Trainer of the library;
                       lightning.py: in one of Lightning;  metric.py: a metric of torchmetrics
    generate.py        `sample`: a trained model writes

Blocks of token ids go from the corpus to the trainer; features and next tokens from the model to the objective; its
gradient back through the model to the optimiser; weights, log and state by checkpointing to the run's folder.
"""

import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

Function = Callable[..., Any]


class Choice(NamedTuple):
    """A head or an optimiser: the function that makes it, and what `collapselab interventions` prints."""

    make: Function
    words: str
    """What it does, in one sentence."""
    formula: str
    source: str
    cost: str = "–"
    """Multiplications beside those of a learned head or of adamw; K classes, D dimensions, N tokens."""
    must_move: str = "–"
    """What it must move against a learned head that is not tied, or against adamw; – for a baseline."""


def choices(table: str) -> Iterator[tuple[str, Function, dict[str, Any]]]:
    """The name, the function and the further fields of each entry of a table in `choices.toml`.

    The module of a function is imported when it is called: names are checked where settings are read, without torch.
    """
    text = files(__name__).joinpath("choices.toml").read_text(encoding="utf-8")
    for name, entry in tomllib.loads(text)[table].items():
        yield name, _lazily(*entry.pop("function").split(":")), entry


def _lazily(module: str, name: str) -> Function:
    return lambda *values: getattr(import_module(f"{__name__}.{module}"), name)(*values)
