"""collapselab: a laboratory for neural collapse in causal language models.

The public names are imported when they are first used: the command line, and the shell that completes it, would
otherwise wait for torch before every word.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this
if TYPE_CHECKING:
    from collapselab.analysis.analyze import analyze
    from collapselab.core.decisions import Decider, Decisions
    from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
    from collapselab.core.moments import ClassMoments
    from collapselab.corpus.blocks import Corpus
    from collapselab.corpus.build import build_corpus
    from collapselab.measurement.measure import measure
    from collapselab.records.find_results import load_results
    from collapselab.records.measurement import Result
    from collapselab.report.report import report
    from collapselab.training.callback import CollapseCallback
    from collapselab.training.train import train

__version__ = "0.1.0"
__all__ = [
    "METRICS",
    "ClassMoments",
    "CollapseCallback",
    "Corpus",
    "Decider",
    "Decisions",
    "Measurement",
    "Result",
    "__version__",
    "analyze",
    "build_corpus",
    "collapse_metrics",
    "load_results",
    "measure",
    "report",
    "train",
]
_HOMES = {
    "METRICS": "core.metrics",
    "ClassMoments": "core.moments",
    "CollapseCallback": "training.callback",
    "Corpus": "corpus.blocks",
    "Decider": "core.decisions",
    "Decisions": "core.decisions",
    "Measurement": "core.metrics",
    "Result": "records.measurement",
    "analyze": "analysis.analyze",
    "build_corpus": "corpus.build",
    "collapse_metrics": "core.metrics",
    "load_results": "records.find_results",
    "measure": "measurement.measure",
    "train": "training.train",
}


def __getattr__(name: str) -> object:
    if name == "report":  # a package of that name is here too, which can be called like the function
        return import_module("collapselab.report")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"collapselab.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
