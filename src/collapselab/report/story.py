"""Story: a folder's tables and what the analysis made of them; all that a page is about.

The analysis is read from `DIR/analysis`. Where it is missing, or older than the tables, it is made anew with the same
outcome, permutations and seed. A folder that cannot be analysed, because nothing ran or all failed, is a story too: the
reason stands in place of the answer.
"""

import csv
import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, final, get_type_hints

from collapselab.analysis.analyze import Analysis, analyze
from collapselab.analysis.controls import Control
from collapselab.analysis.diagnosis import Finding
from collapselab.analysis.models import NOT_TESTED, Models, combine
from collapselab.analysis.prediction import Prediction
from collapselab.analysis.relate import ALL, WITHIN, Relation
from collapselab.analysis.summary import Sentence
from collapselab.analysis.trends import Trend
from collapselab.core.metrics import METRICS
from collapselab.errors import RunError
from collapselab.records.tables import Row, Run, read_results, read_runs

SOURCES = ("runs.csv", "results.csv")
TABLES: dict[str, type] = {
    "relate": Relation,
    "controls": Control,
    "trends": Trend,
    "prediction": Prediction,
    "diagnosis": Finding,
}
Line = TypeVar("Line")


@final
@dataclass(frozen=True)
class Story:
    """The tables of one folder. `models` and `analysis` are None exactly where `problem` says why."""

    directory: Path
    runs: list[Run]
    rows: list[Row]
    models: Models | None
    analysis: Analysis | None
    problem: str | None

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    @property
    def outcome(self) -> str:
        return self.analysis.outcome if self.analysis else "val_loss"

    @cached_property
    def main(self) -> list[str]:
        """The paper's metrics as far as they were measured; where none was, all that were."""
        known = [metric for metric in self._measured if metric not in NOT_TESTED]
        return [metric for metric in known if METRICS[metric].in_paper] or known

    @cached_property
    def further(self) -> list[str]:
        """The metrics that were measured beside those."""
        return [metric for metric in self._measured if metric not in self.main]

    @cached_property
    def _measured(self) -> list[str]:
        if self.models is None:
            return []
        return [metric for metric in self.models.metrics if self.models.frame[metric].notna().any()]

    @cached_property
    def logarithmic(self) -> set[str]:
        """Metrics whose values span a decade; they are drawn on a logarithmic axis."""
        return {one.metric for one in self.models.variables if one.transform == "log"} if self.models else set()

    def relation(self, metric: str, subset: str = ALL, transform: str = "raw") -> Relation | None:
        """The row of `relate.csv`, None where the analysis has none."""
        wanted = (metric, subset, transform)
        found = (row for row in self._relations if (row.metric, row.subset, row.transform) == wanted)
        return next(found, None)

    def at_fixed_scale(self, metric: str) -> Relation | None:
        return self.relation(metric, WITHIN)

    @property
    def _relations(self) -> list[Relation]:
        return self.analysis.relations if self.analysis else []


def load_story(directory: str | Path) -> Story:
    """The story of a suite that has run, is running or has failed, or of a folder that `collapselab import` made."""
    directory = Path(directory)
    if not directory.is_dir():
        raise RunError(f"{directory}: no such folder. Report a suite, or a folder that `collapselab import` made.")
    runs_file, results_file = (directory / name for name in SOURCES)
    runs = read_runs(runs_file) if runs_file.is_file() else []
    rows = read_results(results_file) if results_file.is_file() else []
    problem = _problem(directory, runs, rows)
    if problem is None:
        try:
            analysis = _analysis(directory)
            return Story(directory, runs, rows, combine(runs, rows, outcome=analysis.outcome), analysis, None)
        except RunError as error:
            problem = str(error)
    return Story(directory, runs, rows, None, None, problem)


def _problem(directory: Path, runs: list[Run], rows: list[Row]) -> str | None:
    if not runs:
        return f"{directory.resolve().name}: no runs yet. Their results appear here as soon as runs.csv lists them."
    failed = [run for run in runs if run["val_loss"] is None]
    if len(failed) == len(runs):
        return f"None of the {len(runs):,} models has a validation loss; the reasons stand below with the runs."
    if not any(row.value is not None for row in rows):
        return f"{len(runs):,} models, and no metric was measured of any yet."
    return None


def _analysis(directory: Path) -> Analysis:
    summary_file = directory / "analysis" / "summary.json"
    files = [summary_file, *(directory / "analysis" / f"{name}.csv" for name in TABLES)]
    if not all(file.is_file() for file in files):
        return analyze(directory)
    summary = _summary(summary_file)
    newest = max((directory / name).stat().st_mtime_ns for name in SOURCES)
    if min(file.stat().st_mtime_ns for file in files) < newest:
        asked = {name: summary[name] for name in ("outcome", "permutations", "seed")}
        return analyze(directory, **asked)
    tables: dict[str, list[Any]] = {
        name: _read(directory / "analysis" / f"{name}.csv", kind) for name, kind in TABLES.items()
    }
    return Analysis(
        directory, summary["outcome"], summary["permutations"], summary["seed"], summary["models"],
        tables["relate"], tables["controls"], tables["trends"], tables["prediction"], tables["diagnosis"],
        [Sentence(**sentence) for sentence in summary["sentences"]],
    )  # fmt: skip


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in ("outcome", "permutations", "seed", "models", "sentences") if name not in summary]
    except (ValueError, TypeError) as error:
        raise RunError(f"{path}: damaged ({error}). Run `collapselab analyze` again.") from error
    if missing:
        raise RunError(f"{path}: no {missing[0]} in it. Run `collapselab analyze` again.")
    return summary


def _read(path: Path, kind: type[Line]) -> list[Line]:
    """The lines of one of the analysis' tables, as what they were before they were written."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if next(reader, None) != names:
            raise RunError(f"{path}: not the columns of this version. Run `collapselab analyze` again.")
        try:
            return [
                kind(**{name: _cell(text, hints[name]) for name, text in zip(names, line, strict=True)})
                for line in reader
            ]
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error}). Run `collapselab analyze` again.") from error


def _cell(text: str, hint: Any) -> Any:
    if hint in (str, int, float):
        return hint(text)
    kinds = [kind for kind in hint.__args__ if kind is not type(None)]
    return kinds[0](text) if text else None
