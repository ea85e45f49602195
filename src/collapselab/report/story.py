"""Story: a folder's tables and what the analysis made of them; all that a page is about.

The analysis is read from `DIR/analysis`. Where it is missing, or was not made from these tables by this program, it is
made again with the same outcome, permutations and seed. A folder that cannot be analysed yet, because nothing ran or
all failed, is a story too: the reason is in place of the answer. Tables that are damaged are refused.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from collapselab.analysis.analyze import current_analysis
from collapselab.analysis.models import NOT_TESTED, Models, NothingToRelate, combine
from collapselab.analysis.relate import Relation
from collapselab.analysis.related import RELATED
from collapselab.analysis.stored import Analysis, stored_scores
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.trends import Trend
from collapselab.core.catalogue import Transform
from collapselab.errors import RunError
from collapselab.records.scores import with_scores
from collapselab.records.tables import HASHES, Row, Run, StoredTables, read_tables, required_files

Latest = dict[tuple[str, str], Run]
"""Lines of the table of runs, by run and checkpoint."""


@final
@dataclass(frozen=True)
class Story:
    """The tables of one folder. `models` and `analysis` are None exactly where `problem` says why."""

    directory: Path
    tables: StoredTables
    models: Models | None
    analysis: Analysis | None
    problem: str | None

    def latest(self, measured: set[tuple[str, str]]) -> Latest:
        """Of each run the last checkpoint among these runs and checkpoints, with its line of the table of runs."""
        last: dict[str, Run] = {}
        for run in self.runs:
            if (run["run"], run["checkpoint"]) in measured:
                before = last.get(run["run"])
                if before is None or (run["epoch"] or 0.0) >= (before["epoch"] or 0.0):
                    last[run["run"]] = run
        return {(run["run"], run["checkpoint"]): run for run in last.values()}

    @property
    def runs(self) -> list[Run]:
        return self.tables.runs

    @property
    def rows(self) -> list[Row]:
        return self.tables.rows

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
        return [metric for metric in known if RELATED[metric].in_paper] or known

    @cached_property
    def further(self) -> list[str]:
        """All other metrics that were measured."""
        return [metric for metric in self._measured if metric not in self.main]

    @cached_property
    def _measured(self) -> list[str]:
        if self.models is None:
            return []
        return [metric for metric in self.models.metrics if self.models.frame[metric].notna().any()]

    @cached_property
    def logarithmic(self) -> set[str]:
        """Metrics that are judged on their logarithm and have one; they are drawn on a logarithmic axis."""
        if self.models is None:
            return set()
        on_log = [variable for variable in self.models.variables if variable.transform == "log"]
        return {variable.metric for variable in on_log if (~np.isnan(variable.values)).any()}

    @staticmethod
    def transform(metric: str) -> Transform:
        """The scale on which the metric is judged and drawn, by the catalogue."""
        return RELATED[metric].transform

    def relation(self, metric: str, subset: str = ALL) -> Relation | None:
        """The row of `relate.csv` on the metric's own scale; None where the analysis has none."""
        wanted = (metric, subset, self.transform(metric))
        relations = self.analysis.relations if self.analysis else []
        return next((row for row in relations if (row.metric, row.subset, row.transform) == wanted), None)

    def at_fixed_scale(self, metric: str) -> Relation | None:
        return self.relation(metric, WITHIN)

    def trends(self, axis: str, metric: str) -> list[Trend]:
        """The rows of `trends.csv` about one metric along one axis that have groups to compare."""
        rows = self.analysis.trends if self.analysis else []
        return [row for row in rows if (row.axis, row.metric) == (axis, metric) and row.groups]


def load_story(directory: str | Path) -> Story:
    """The story of a suite that has run, is running or has failed, or of a folder that `collapselab import` made."""
    directory = Path(directory)
    if not directory.is_dir():
        raise RunError(f"{directory}: no such folder. Report a suite, or a folder that `collapselab import` made.")
    there = any((directory / name).exists() for name in (*required_files(), HASHES))
    tables = read_tables(directory) if there else StoredTables({}, {})
    problem = _problem(directory, tables.runs, tables.rows)
    if problem is None:
        try:
            analysis = current_analysis(directory, tables)
            runs = with_scores(tables.runs, stored_scores(directory))
            models = combine(runs, tables.rows, tables.contexts, outcome=analysis.outcome)
            return Story(directory, tables, models, analysis, None)
        except NothingToRelate as error:
            problem = str(error)
    return Story(directory, tables, None, None, problem)


def _problem(directory: Path, runs: list[Run], rows: list[Row]) -> str | None:
    if not runs:
        return f"{directory.resolve().name}: no runs yet. Their results appear here as soon as runs.csv lists them."
    failed = [run for run in runs if run["val_loss"] is None]
    if len(failed) == len(runs):
        return f"None of the {len(runs):,} models has a validation loss; the reasons are below with the runs."
    if not any(row.value is not None for row in rows):
        return f"{len(runs):,} models, and no metric was measured of any yet."
    return None
