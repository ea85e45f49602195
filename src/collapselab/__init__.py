"""collapselab: a laboratory for neural collapse in causal language models.

The public names are imported when they are first used: the command line, and the shell that completes it, would
otherwise wait for torch before every word.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this
if TYPE_CHECKING:
    from collapselab.analysis.analyze import analyze
    from collapselab.analysis.stored import Analysis
    from collapselab.analysis.tokens import TokenTable, token_table
    from collapselab.core.decisions import Decider, Decisions
    from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
    from collapselab.core.moments import ClassMoments
    from collapselab.corpus.blocks import Corpus
    from collapselab.corpus.build import Recipe, build_corpus
    from collapselab.corpus.sources import open_source
    from collapselab.demo import demo as run_demo
    from collapselab.measurement.compare_results import compare
    from collapselab.measurement.estimate import measure_plan
    from collapselab.measurement.measure import measure
    from collapselab.measurement.similarity import similarity
    from collapselab.records.measurement import Result, Results
    from collapselab.records.options import Options
    from collapselab.records.published import import_published
    from collapselab.records.result_folder import load_results
    from collapselab.records.tables import Row
    from collapselab.report.cards import model_card
    from collapselab.report.publish import publish
    from collapselab.report.report import report
    from collapselab.suite.collect_models import collect_models
    from collapselab.suite.recipe import Suite, load_suite, shipped_recipes
    from collapselab.suite.run import (
        cancel_suite,
        collect_suite,
        run_suite,
        suite_plan,
        suite_script,
        suite_status,
    )
    from collapselab.suite.schema import recipe_schema
    from collapselab.training.callback import CollapseCallback
    from collapselab.training.generate import sample
    from collapselab.training.heads import HEADS
    from collapselab.training.interventions import INTERVENTIONS
    from collapselab.training.optimizers import OPTIMIZERS
    from collapselab.training.settings import Settings
    from collapselab.training.train import train

__version__ = "0.1.0"
__all__ = [
    "HEADS",
    "INTERVENTIONS",
    "METRICS",
    "OPTIMIZERS",
    "Analysis",
    "ClassMoments",
    "CollapseCallback",
    "Corpus",
    "Decider",
    "Decisions",
    "Measurement",
    "Options",
    "Recipe",
    "Result",
    "Results",
    "Row",
    "Settings",
    "Suite",
    "TokenTable",
    "__version__",
    "analyze",
    "build_corpus",
    "cancel_suite",
    "collapse_metrics",
    "collect_models",
    "collect_suite",
    "compare",
    "import_published",
    "load_results",
    "load_suite",
    "measure",
    "measure_plan",
    "model_card",
    "open_source",
    "publish",
    "recipe_schema",
    "report",
    "run_demo",
    "run_suite",
    "sample",
    "shipped_recipes",
    "similarity",
    "suite_plan",
    "suite_script",
    "suite_status",
    "token_table",
    "train",
]
_HOMES = {
    "HEADS": "training.heads",
    "INTERVENTIONS": "training.interventions",
    "METRICS": "core.metrics",
    "OPTIMIZERS": "training.optimizers",
    "Analysis": "analysis.stored",
    "ClassMoments": "core.moments",
    "CollapseCallback": "training.callback",
    "Corpus": "corpus.blocks",
    "Decider": "core.decisions",
    "Decisions": "core.decisions",
    "Measurement": "core.metrics",
    "Options": "records.options",
    "Recipe": "corpus.build",
    "Result": "records.measurement",
    "Results": "records.measurement",
    "Row": "records.tables",
    "Settings": "training.settings",
    "Suite": "suite.recipe",
    "TokenTable": "analysis.tokens",
    "analyze": "analysis.analyze",
    "build_corpus": "corpus.build",
    "cancel_suite": "suite.run",
    "collapse_metrics": "core.metrics",
    "collect_models": "suite.collect_models",
    "collect_suite": "suite.run",
    "compare": "measurement.compare_results",
    "import_published": "records.published",
    "load_results": "records.result_folder",
    "load_suite": "suite.recipe",
    "measure": "measurement.measure",
    "measure_plan": "measurement.estimate",
    "model_card": "report.cards",
    "open_source": "corpus.sources",
    "publish": "report.publish",
    "recipe_schema": "suite.schema",
    "run_demo": "demo",
    "run_suite": "suite.run",
    "sample": "training.generate",
    "shipped_recipes": "suite.recipe",
    "similarity": "measurement.similarity",
    "suite_plan": "suite.run",
    "suite_script": "suite.run",
    "suite_status": "suite.run",
    "token_table": "analysis.tokens",
    "train": "training.train",
}
_NAMES = {"run_demo": "demo"}
"""Where the module has another name for it: `collapselab.demo` is the module itself."""


def __getattr__(name: str) -> object:
    if name == "report":  # a package of that name is here too, which can be called like the function
        return import_module("collapselab.report")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"collapselab.{_HOMES[name]}")
    value: object = getattr(module, _NAMES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
