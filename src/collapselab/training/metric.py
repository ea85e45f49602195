"""`CollapseMetric`: the catalogue in the protocol of torchmetrics, for loops that are not ours.

    metric = CollapseMetric(classes=50257, dim=768)
    metric.update(features, next_tokens)
    metric.compute()["cdnv"]

Class counts, sums and scatter are its states. Processes and other instances are joined by the formula for merging
moments, so that any cut of the stream gives the same numbers but for rounding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.errors import ConfigError

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ConfigError("CollapseMetric needs the package torchmetrics. Install collapselab[torchmetrics].") from error

STATES = ("counts", "sums", "scatter", "directions")


class CollapseMetric(Metric):
    """Every metric of the catalogue that needs no decisions, of features and their next tokens, each by its id.

    `head` (classes × dim) adds the metrics of the output layer. A metric that has no value yet is nan. `only` are the
    ids that are computed, as in ("cdnv", "logdist_std").
    """

    full_state_update = True
    is_differentiable = False
    higher_is_better = None
    counts: Tensor
    sums: Tensor
    scatter: Tensor
    directions: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        head: Tensor | None = None,
        bias: Tensor | None = None,
        only: Sequence[str] | None = None,
        min_count: int = 1,
        **settings: Any,
    ) -> None:
        """`settings` are those of every metric of torchmetrics, such as `dist_sync_on_step`."""
        super().__init__(**settings)
        self.head, self.bias, self.min_count = head, bias, min_count
        self.only = None if only is None else frozenset(only)
        for name, shape in zip(STATES, ((classes,), (classes, dim), (classes,), (dim,)), strict=True):
            dtype = torch.int64 if name == "counts" else torch.float64
            self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx=None)

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add features (…, dim) and the class of each (…); -100 is skipped."""
        classes, dim = self.sums.shape
        moments = ClassMoments.empty(classes, dim, self.sums.device)
        moments.update(features.detach().reshape(-1, features.shape[-1]), labels.reshape(-1))
        self._add(moments)

    def compute(self) -> dict[str, Tensor]:
        """The value of each metric; nan where it has none."""
        moments = self.moments()
        measured = collapse_metrics(moments, weight=self.head, bias=self.bias, min_count=self.min_count, only=self.only)
        return {
            name: torch.tensor(float("nan") if measurement.value is None else measurement.value, dtype=torch.float64)
            for name, measurement in measured.items()
        }

    def moments(self) -> ClassMoments:
        """The moments of all samples so far; after a synchronisation those of all processes."""
        states = [getattr(self, name) for name in STATES]
        if self.counts.ndim == 1:
            return _moments(*states)
        first, *others = (_moments(*parts) for parts in zip(*states, strict=True))
        for other in others:
            first.merge(other)
        return first

    def merge_state(self, incoming_state: "dict[str, Any] | Metric") -> None:
        """Add what another instance, or its states, has seen."""
        states: Any = incoming_state
        is_metric = isinstance(incoming_state, CollapseMetric)
        self._add(states.moments() if is_metric else _moments(*(states[name] for name in STATES)))
        self._computed = None  # a value of before is not given again
        self._update_count += 1

    def _add(self, added: ClassMoments) -> None:
        moments = self.moments().merge(added)
        for name in STATES:
            setattr(self, name, getattr(moments, name))

    def set_dtype(self, dst_type: Any) -> "CollapseMetric":
        """States stay in float64, whatever the model's precision is."""
        return self


def _moments(counts: Tensor, sums: Tensor, scatter: Tensor, directions: Tensor) -> ClassMoments:
    """Moments of their own: what is merged into them leaves the states alone."""
    return ClassMoments(counts.clone(), sums.clone(), scatter.clone(), directions=directions.clone())
