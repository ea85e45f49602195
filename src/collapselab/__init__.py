"""collapselab: a laboratory for neural collapse in causal language models.

The public names are imported when they are first used: the command line, and the shell that completes it, would
otherwise wait for torch before every word.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this
if TYPE_CHECKING:
    from collapselab.core.decisions import Decider, Decisions
    from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
    from collapselab.core.moments import ClassMoments
    from collapselab.measurement.measure import measure
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
_HOMES = {
    "METRICS": "core.metrics",
    "ClassMoments": "core.moments",
    "CollapseCallback": "training.callback",
    "Decider": "core.decisions",
    "Decisions": "core.decisions",
    "Measurement": "core.metrics",
    "collapse_metrics": "core.metrics",
    "measure": "measurement.measure",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"collapselab.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
