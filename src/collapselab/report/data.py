"""Data of a page: the tables of a folder, or of results, and their analysis.

The analysis is read from `DIR/analysis`. Where it is missing, or was not made from these tables by this program, it is
made again with the same outcome, permutations and seed. A suite that cannot be analysed yet, because nothing ran or all
failed, has a page too, with the reason in place of the answer. Damaged tables are refused. Results that were not
collected are collected into a temporary folder first.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from collapselab.analysis.analyze import Analysis, current_analysis, stored_scores
from collapselab.analysis.models import NOT_TESTED, RELATED, Models, NothingToRelate, Regime, combine, default_outcome
from collapselab.analysis.relate import Relation
from collapselab.analysis.subsets import ALL
from collapselab.analysis.trends import Trend
from collapselab.errors import RunError
from collapselab.records.profile import HEADLINES
from collapselab.records.scores import with_scores
from collapselab.records.tables import HASHES, REQUIRED, Row, Run, StoredTables, read_tables
from collapselab.report.words import setting_name
from collapselab.suite.collect_models import collect_models

Latest = dict[tuple[str, str], Run]
"""Rows of the table of runs, by run and checkpoint."""
CHECKPOINT = ("epoch", "step")


class Kind(StrEnum):
    """What a page is about, which decides its contents."""

    MODEL = "model"
    MODELS = "models"
    SUITE = "suite"


@dataclass(frozen=True)
class ReportData:
    """The tables of one folder, or of results. `models` is None exactly if `problem` is set.

    There is no `analysis` without `models`, nor for a single model.
    """

    directory: Path
    tables: StoredTables
    models: Models | None
    analysis: Analysis | None
    problem: str | None
    kind: Kind = Kind.SUITE

    def latest(self, measured: set[tuple[str, str]]) -> Latest:
        """Return the last checkpoint of each run among these, with its row of the table of runs."""
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
        if self.kind is Kind.MODEL:
            return self.labels[self.runs[0]["run"]]
        return self.directory.resolve().name

    @property
    def outcome(self) -> str:
        return self.models.outcome if self.models else "val_loss"

    @cached_property
    def labels(self) -> dict[str, str]:
        """Return a short readable name for every run, e.g. `2×64, within +0.1, seed 3`; collected models keep their
        own.
        """
        runs = {run["run"]: run["run"] for run in self.runs}
        if self.models is None or is_collected(self.runs):
            return _unique({run: run.rstrip("/").split("/")[-1] for run in runs}) if is_collected(self.runs) else runs
        frame = self.models.frame
        families, seeds = frame["family"].nunique() > 1, frame["seed"].nunique() > 1
        for line, regime in zip(frame.to_dict("records"), self.models.regimes, strict=True):
            size = "" if np.isnan(line["width"]) else f"{line['depth']:g}×{line['width']:g}"
            words = [str(line["family"]) if families else "", size, *_setting_words(regime)]
            words.append(f"seed {line['seed']:g}" if seeds and pd.notna(line["seed"]) else "")
            runs[line["run"]] = ", ".join(filter(None, words)) or str(line["run"])
        return _unique(runs)

    @cached_property
    def main(self) -> list[str]:
        """Return the paper's metrics that were measured, or all metrics if none was; of one model, its profile."""
        if self.kind is Kind.MODEL:
            return [headline.metric for headline in HEADLINES if headline.metric in self._measured]
        known = [metric for metric in self._measured if metric not in NOT_TESTED]
        return [metric for metric in known if RELATED[metric].in_paper] or known

    @cached_property
    def further(self) -> list[str]:
        """Return all other metrics that were measured."""
        return [metric for metric in self._measured if metric not in self.main]

    @cached_property
    def _measured(self) -> list[str]:
        if self.models is None:
            return []
        return [metric for metric in self.models.metrics if self.models.frame[metric].notna().any()]

    @cached_property
    def logarithmic(self) -> set[str]:
        """Return the metrics that are judged on their logarithm and have one; their axes are logarithmic."""
        if self.models is None:
            return set()
        on_log = [variable for variable in self.models.variables if variable.transform == "log"]
        return {variable.metric for variable in on_log if (~np.isnan(variable.values)).any()}

    def relation(self, metric: str, subset: str = ALL) -> Relation | None:
        """Return the row of `relate.csv` on the metric's own scale, or None."""
        wanted = (metric, subset, RELATED[metric].transform)
        relations = self.analysis.tables["relate"] if self.analysis else []
        return next((row for row in relations if (row.metric, row.subset, row.transform) == wanted), None)

    def trends(self, axis: str, metric: str) -> list[Trend]:
        """Return the rows of `trends.csv` about one metric along one axis that have groups to compare."""
        rows = self.analysis.tables["trends"] if self.analysis else []
        return [row for row in rows if (row.axis, row.metric) == (axis, metric) and row.groups]


def is_collected(runs: list[Run]) -> bool:
    """Return whether these are collected models, which record their vocabulary, rather than the runs of a suite."""
    return any(run.get("vocabulary") is not None for run in runs)


def _setting_words(regime: Regime) -> list[str]:
    """Return the settings that vary, e.g. `within +0.1` and `weight decay 0.1`, without those of the checkpoint."""
    words = []
    for name, value in regime.settings:
        if name == "intervene" and value is not None:
            words.append(str(value).replace(":", " "))
        elif name == "epochs" and isinstance(value, float):
            words.append(f"{value:.3g} epoch{'' if value == 1 else 's'}")
        elif name not in CHECKPOINT and value is not None:
            words.append(f"{setting_name(name)} {value:g}" if isinstance(value, float) else value)
    return words


def _unique(labels: dict[str, str]) -> dict[str, str]:
    """Append the run's name to labels that several runs share."""
    counts = Counter(labels.values())
    return {run: text if counts[text] == 1 else f"{text} ({run})" for run, text in labels.items()}


def load_report_data(source: str | Path) -> ReportData:
    """Load the tables of a suite, of a folder that `collect` or `import` made, or of results of `measure`.

    Raise RunError if there are none.
    """
    source = Path(source)
    if not source.exists():
        raise RunError(f"{source}: no such folder or file. Report a suite, a folder of results, or a result.")
    if any((source / name).exists() for name in (*REQUIRED, HASHES, "suite.json")):
        return _of_tables(source)
    with TemporaryDirectory() as folder:
        collected = Path(folder) / source.resolve().name
        try:
            collect_models([source], collected)
        except RunError as error:
            raise RunError(
                f"{source}: no results. Report a suite, a folder that `collapselab collect` or `import` made, a folder "
                "of results (`measure --out DIR/`), or a result in a file."
            ) from error
        return _of_tables(collected)


def _of_tables(directory: Path) -> ReportData:
    there = any((directory / name).exists() for name in (*REQUIRED, HASHES))
    tables = read_tables(directory) if there else StoredTables({}, {})
    kind = Kind.SUITE
    if is_collected(tables.runs):
        kind = Kind.MODEL if len(tables.runs) == 1 else Kind.MODELS
    problem = _problem(directory, tables.runs, tables.rows)
    if problem is None:
        try:
            analysis = None if kind is Kind.MODEL else current_analysis(directory, tables)
            outcome = analysis.outcome if analysis else default_outcome(tables.runs)
            runs = with_scores(tables.runs, stored_scores(directory))
            models = combine(runs, tables.rows, tables.contexts, outcome=outcome)
            return ReportData(directory, tables, models, analysis, None, kind)
        except NothingToRelate as error:
            problem = str(error)
    return ReportData(directory, tables, None, None, problem)


def _problem(directory: Path, runs: list[Run], rows: list[Row]) -> str | None:
    if not runs:
        return f"{directory.resolve().name}: no runs yet. Their results appear here as soon as runs.csv lists them."
    failed = [run for run in runs if run["val_loss"] is None]
    if len(failed) == len(runs):
        return f"None of the {len(runs):,} models has a validation loss; the reasons are below with the runs."
    if not any(row.value is not None for row in rows):
        return f"No metric was measured for any of the {len(runs):,} models."
    return None
