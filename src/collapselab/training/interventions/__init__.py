"""Interventions: penalties that a training adds to its cross-entropy, to move a property of its features.

A further one is a file of this package with its penalty, and an entry of `INTERVENTIONS`:

    def penalty(step: Step) -> Tensor:
        return step.features.square().mean()

    "norm": Intervention("norm", "Makes features shorter.", "mean of h²", "ours", "norm_cv", "both", penalty)

`dose.py` reads the text of a setting (`norm:+0.1:sham@0.7-1.0`); `term.py` is one intervention in a training, with the
factor that holds its dose; `training/objective.py` adds its gradient to that of the cross-entropy. A penalty's file
imports torch inside its functions: the names are checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from collapselab.models.taps import OutputLayer

Place = Literal["features", "head"]


@final
@dataclass(frozen=True)
class Step:
    """What a penalty is computed from: the tokens that one process runs on at once, in one step of the training.

    Features and output layer are separated from the model: the gradient of the penalty ends at them.
    """

    features: "Tensor"
    """(tokens, dim): what enters the output layer, float32 or float64; padding is left out."""
    labels: "Tensor"
    """(tokens,) next tokens; of a sham, permuted."""
    sequences: "Tensor"
    """(tokens,) the number of the sequence that each token is in."""
    head: "OutputLayer"
    number: int
    """Steps that were taken before this one."""
    generator: "Generator"
    """For all randomness, on the CPU; it follows from (seed, step, name)."""
    kept: "dict[str, Tensor]"
    """Tensors that the intervention keeps from step to step, empty at first. They are saved and restored with the
    training, by the first process: make them from `total`s alone, and they are the same in all processes."""
    total: "Callable[[Tensor], Tensor]"
    """The sum of a tensor over all processes. Every process must call it equally often: before a return of None."""


@final
@dataclass(frozen=True)
class Intervention:
    """A penalty, and what is known of it."""

    name: str
    words: str
    """What it does, in one sentence."""
    formula: str
    source: str
    primary: str
    """The metric that it must move: an id of the catalogue."""
    signs: Literal["+", "-", "both"]
    """Of the doses that make sense: + makes the penalty smaller, - makes it larger."""
    penalty: "Callable[[Step], Tensor | None]"
    """A number with a gradient in the features, the output layer's weight, or both; None where it cannot act."""
    dose_over: Place = "features"
    """Whose gradients the dose compares: `head` for a penalty of the output layer alone."""


INTERVENTIONS: dict[str, Intervention] = {}
