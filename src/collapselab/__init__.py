"""collapselab: a laboratory for neural collapse in causal language models."""

from typing import TYPE_CHECKING, Any

from collapselab.core.decisions import Decider, Decisions
from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.measure import measure

if TYPE_CHECKING:
    from collapselab.training.callback import CollapseCallback

__version__ = "0.1.0"
__all__ = [
    "METRICS",
    "ClassMoments",
    "CollapseCallback",
    "Decider",
    "Decisions",
    "Measurement",
    "__version__",
    "collapse_metrics",
    "measure",
]


def __getattr__(name: str) -> Any:
    """The callback, when it is asked for: it brings the whole of the library with it."""
    if name == "CollapseCallback":
        from collapselab.training.callback import CollapseCallback

        return CollapseCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
