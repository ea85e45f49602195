"""collapselab: a laboratory for neural collapse in causal language models.

The public names are imported when they are first used: the command line, and the shell that completes it, would
otherwise wait for torch before every word.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this
if TYPE_CHECKING:
    from collapselab.analysis.analyze import analyze as analyze
    from collapselab.analysis.stored import Analysis as Analysis
    from collapselab.analysis.tokens import TokenTable as TokenTable
    from collapselab.analysis.tokens import token_table as token_table
    from collapselab.core.catalogue import METRICS as METRICS
    from collapselab.core.decisions import Decisions as Decisions
    from collapselab.core.decisions import NearestCentre as NearestCentre
    from collapselab.core.metrics import Measurement as Measurement
    from collapselab.core.metrics import collapse_metrics as collapse_metrics
    from collapselab.core.moments import ClassMoments as ClassMoments
    from collapselab.corpus.blocks import Corpus as Corpus
    from collapselab.corpus.build import Recipe as Recipe
    from collapselab.corpus.build import build_corpus as build_corpus
    from collapselab.corpus.sources import open_source as open_source
    from collapselab.demo import run_demo as run_demo
    from collapselab.measurement.compare_results import compare as compare
    from collapselab.measurement.measure import measure as measure
    from collapselab.measurement.similarity import similarity as similarity
    from collapselab.records.measurement import Result as Result
    from collapselab.records.measurement import Results as Results
    from collapselab.records.options import Options as Options
    from collapselab.records.options import Running as Running
    from collapselab.records.published import import_published as import_published
    from collapselab.records.result_folder import load_results as load_results
    from collapselab.records.tables import Row as Row
    from collapselab.report.cards import model_card as model_card
    from collapselab.report.publish import publish as publish
    from collapselab.report.report import report as report
    from collapselab.suite.collect import collect_suite as collect_suite
    from collapselab.suite.collect_models import collect_models as collect_models
    from collapselab.suite.recipe import Suite as Suite
    from collapselab.suite.recipe import load_suite as load_suite
    from collapselab.suite.recipe import shipped_recipes as shipped_recipes
    from collapselab.suite.run import cancel_suite as cancel_suite
    from collapselab.suite.run import run_suite as run_suite
    from collapselab.suite.run import suite_plan as suite_plan
    from collapselab.suite.run import suite_script as suite_script
    from collapselab.suite.run import suite_status as suite_status
    from collapselab.suite.sections import recipe_schema as recipe_schema
    from collapselab.training.callback import CollapseCallback as CollapseCallback
    from collapselab.training.generate import sample as sample
    from collapselab.training.heads import HEADS as HEADS
    from collapselab.training.interventions import INTERVENTIONS as INTERVENTIONS
    from collapselab.training.lightning import CollapseMonitor as CollapseMonitor
    from collapselab.training.metric import CollapseMetric as CollapseMetric
    from collapselab.training.optimizers import OPTIMIZERS as OPTIMIZERS
    from collapselab.training.settings import Settings as Settings
    from collapselab.training.train import train as train

__version__ = "0.1.0"
_HOMES = {
    "HEADS": "training.heads",
    "INTERVENTIONS": "training.interventions",
    "METRICS": "core.catalogue",
    "OPTIMIZERS": "training.optimizers",
    "Analysis": "analysis.stored",
    "ClassMoments": "core.moments",
    "CollapseCallback": "training.callback",
    "CollapseMetric": "training.metric",
    "CollapseMonitor": "training.lightning",
    "Corpus": "corpus.blocks",
    "NearestCentre": "core.decisions",
    "Decisions": "core.decisions",
    "Measurement": "core.metrics",
    "Options": "records.options",
    "Recipe": "records.options",
    "Result": "records.measurement",
    "Results": "records.measurement",
    "Row": "records.tables",
    "Running": "records.options",
    "Settings": "training.settings",
    "Suite": "suite.recipe",
    "TokenTable": "analysis.tokens",
    "analyze": "analysis.analyze",
    "build_corpus": "corpus.build",
    "cancel_suite": "suite.run",
    "collapse_metrics": "core.metrics",
    "collect_models": "suite.collect_models",
    "collect_suite": "suite.collect",
    "compare": "measurement.compare_results",
    "import_published": "records.published",
    "load_results": "records.result_folder",
    "load_suite": "suite.recipe",
    "measure": "measurement.measure",
    "model_card": "report.cards",
    "open_source": "corpus.sources",
    "publish": "report.publish",
    "recipe_schema": "suite.sections",
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
__all__ = ["__version__", "report", *_HOMES]


def __getattr__(name: str) -> object:
    if name == "report":  # a package of that name is here too, which can be called like the function
        return import_module("collapselab.report")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"collapselab.{_HOMES[name]}")
    value: object = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
