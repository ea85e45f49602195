"""The tables of trained models that Wu and Papyan published with Linguistic Collapse, as our two tables.

A model's name is `LLxDDDD_EEw[seed]@i`: depth, width, epochs the run was trained for, weight decay (`d` or `L`), an
optional seed, and the 0-based index of the epoch whose checkpoint it is. The epoch, counted from 1, is our checkpoint.

There are two such tables of the same models (`FIRST`, `SECOND`); which of them a file is, its header says. The second
has variances in place of standard deviations, norms that are not squared, distances of the *centred* means, and errors
against a simplex frame. Read together they are one: what the first lacks comes from the second.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from collapselab.core.metrics import METRICS
from collapselab.disk import read_bytes, sha256
from collapselab.errors import RunError
from collapselab.records.table import LARGEST, parse_table, require_columns, shown
from collapselab.records.tables import Row, Run, write_tables

NAME = re.compile(
    r"(?P<run>(?P<depth>[0-9]{1,9})x(?P<width>[0-9]{1,9})_(?P<epochs>[0-9]{1,9})(?P<decay>[dL])(?P<seed>[0-9]{0,9}))"
    r"@(?P<index>[0-9]{1,9})"
)
DECAYS = {"d": 5e-4, "L": 0.1}
LEARNING_RATE = 5e-5
"""Of every model, by the paper; the table does not say."""
SAME = 1e-4
"""Relative: an outcome that differs by less in two tables is the same; the published ones agree in every digit."""
OUTCOMES = {"val_loss": "val_loss", "val_accuracy": "val_acc", "perplexity": "perplex"}


@final
@dataclass(frozen=True)
class FromColumns:
    """A metric of the catalogue as a function of published columns."""

    columns: tuple[str, ...]
    value: Callable[..., float]


@final
@dataclass(frozen=True)
class PublishedTable:
    """One of the tables: its columns by the metric they make, and what is left out of it."""

    name: str
    sources: Mapping[str, FromColumns]
    note: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        used = dict.fromkeys(column for source in self.sources.values() for column in source.columns)
        return ("model", "n_params", *OUTCOMES.values(), *used)


@final
@dataclass(frozen=True)
class PublishedModels:
    """What was read of one published table."""

    path: Path
    table: PublishedTable
    runs: dict[tuple[str, str], Run]
    rows: list[Row]


def import_published(*csvs: str | Path, out: str | Path | None = None) -> tuple[list[Run], list[Row]]:
    """The published models as rows of `runs.csv` and `results.csv`, which are written into the folder `out`.

        import_published("lc-2024_05_18.csv", out="published")
        analyze("published")

    A cell that is empty or not finite leaves a reason and no number. A column that is missing, a name that does not
    parse and a model that is there twice are errors. Of several tables, a metric comes from the first that has it; they
    have to be about the same models.
    """
    runs, rows = merge([read_published(csv) for csv in csvs])
    if out is not None:
        made_from = [(Path(csv).name, sha256(csv)) for csv in csvs]
        write_tables(out, {"runs": runs, "results": rows}, made_from=made_from)
    return runs, rows


def read_published(csv: str | Path) -> PublishedModels:
    """One of the published tables; which of them it is, its header says."""
    path = Path(csv)
    header, lines = parse_table(read_bytes(path), path)
    table = recognise(header)
    require_columns(path, header, table.columns)
    runs: dict[tuple[str, str], Run] = {}
    rows: list[Row] = []
    for number, line in lines:
        cells = dict(zip(header, line, strict=True))
        run = _run(f"{path}, line {number}", cells)
        key = (run["run"], run["checkpoint"])
        if key in runs:
            raise RunError(f"{path}, line {number}: {cells['model']} is there twice. Each model may be there once.")
        runs[key] = run
        rows += [_row(f"{path}, line {number}", run, metric, source, cells) for metric, source in table.sources.items()]
    return PublishedModels(path, table, runs, rows)


def merge(tables: Sequence[PublishedModels]) -> tuple[list[Run], list[Row]]:
    """The models of several published tables with the metrics of all, in the order of the first."""
    if not tables:
        raise RunError("no published table was given. Name one, or both.")
    first, *others = tables
    rows = {(row.run, row.checkpoint, row.metric): row for row in first.rows}
    for other in others:
        _check_same_models(first, other)
        for row in other.rows:
            key = (row.run, row.checkpoint, row.metric)
            if key not in rows or rows[key].value is None:
                rows[key] = row
    place = {key: number for number, key in enumerate(first.runs)}
    return list(first.runs.values()), sorted(rows.values(), key=lambda row: place[row.run, row.checkpoint])


def _check_same_models(first: PublishedModels, other: PublishedModels) -> None:
    if strangers := first.runs.keys() ^ other.runs.keys():
        run, checkpoint = min(strangers)
        has, lacks = (first, other) if (run, checkpoint) in first.runs else (other, first)
        raise RunError(
            f"{lacks.path}: no model {run} at epoch {checkpoint}, which {has.path} has. Import tables of other models "
            "into folders of their own."
        )
    for key, model in first.runs.items():
        actual, expected = _outcomes(other.runs[key]), _outcomes(model)
        for column, a in expected.items():
            b = actual[column]
            if (a is None) != (b is None) or (a is not None and b is not None and not math.isclose(a, b, rel_tol=SAME)):
                raise RunError(
                    f"{other.path}: {column} of {key[0]} at epoch {key[1]} is {b}, but {a} in {first.path}. Import "
                    "tables of other models into folders of their own."
                )


def _outcomes(run: Run) -> dict[str, float | None]:
    return {
        "parameters": run["parameters"],
        "val_loss": run["val_loss"],
        "val_accuracy": run["val_accuracy"],
        "perplexity": run["perplexity"],
    }


def _run(where: str, cells: Mapping[str, str]) -> Run:
    name = NAME.fullmatch(cells["model"])
    if name is None:
        raise RunError(f"{where}: {shown(cells['model'])} is not a model's name, such as 02x0768_01d07@0.")
    epoch = int(name["index"]) + 1
    numbers = {ours: _number(where, cells, theirs) for ours, theirs in OUTCOMES.items()}
    outcomes = {ours: number if math.isfinite(number) else None for ours, number in numbers.items()}
    bad = [theirs for ours, theirs in OUTCOMES.items() if outcomes[ours] is None]
    return {
        "run": name["run"],
        "checkpoint": str(epoch),
        "family": "gpt-neo",
        "width": int(name["width"]),
        "depth": int(name["depth"]),
        "epochs": float(name["epochs"]),
        "epoch": float(epoch),
        "weight_decay": DECAYS[name["decay"]],
        "lr": LEARNING_RATE,
        "seed": int(name["seed"]) if name["seed"] else None,
        "parameters": _count(where, cells, "n_params"),
        "tokens": None,
        "train_loss": None,
        "train_loss_running": None,
        "val_loss": outcomes["val_loss"],
        "val_accuracy": outcomes["val_accuracy"],
        "perplexity": outcomes["perplexity"],
        "seconds": None,
        "clipped": None,
        "why": _reason(cells, bad) if bad else None,
    }


def _row(where: str, run: Run, metric: str, source: FromColumns, cells: Mapping[str, str]) -> Row:
    inputs = [_number(where, cells, column) for column in source.columns]
    bad = [column for column, number in zip(source.columns, inputs, strict=True) if not math.isfinite(number)]
    value, why = (None, _reason(cells, bad)) if bad else _value(source, inputs)
    decisions = int(sum(inputs)) if metric == "agreement" and not bad else None
    try:
        return Row(
            run=run["run"],
            checkpoint=run["checkpoint"],
            metric=metric,
            value=value,
            classes=_classes(where, cells),
            tokens=decisions,
            version=METRICS[metric].version,
            why=why,
        )
    except ValueError as error:
        raise RunError(f"{where}: {metric}, from {' and '.join(source.columns)}: {error}") from error


def _value(source: FromColumns, inputs: list[float]) -> tuple[float | None, str | None]:
    """The metric, or the reason why there is none."""
    try:
        value = source.value(*inputs)
    except ValueError:
        return None, f"{source.columns[0]} is {inputs[0]:g}: no variance is negative."
    except ZeroDivisionError:
        return None, f"{' and '.join(source.columns)} have no ratio: division by zero."
    if not math.isfinite(value):
        return None, f"{' and '.join(source.columns)} have no ratio: it is {value}."
    return value, None


def _classes(where: str, cells: Mapping[str, str]) -> int | None:
    """Classes that the decisions are averaged over, where the table has both their sum and their mean."""
    if not cells.get("matches_mean"):
        return None
    mean, matches = _number(where, cells, "matches_mean"), _number(where, cells, "matches")
    return round(matches / mean) if mean > 0 and math.isfinite(matches / mean) else None


def _reason(cells: Mapping[str, str], bad: list[str]) -> str:
    return ", ".join(f"{column} is {cells[column] or 'empty'} in the published table" for column in bad) + "."


def _number(where: str, cells: Mapping[str, str], column: str) -> float:
    """The number in a cell; NaN where it is empty."""
    try:
        return float(cells[column]) if cells[column] else math.nan
    except ValueError as error:
        raise RunError(f"{where}: {column} is {shown(cells[column])}, not a number.") from error


def _count(where: str, cells: Mapping[str, str], column: str) -> int:
    text = cells[column]
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(LARGEST)) or int(text) > LARGEST:
        raise RunError(f"{where}: {column} is {shown(text)}, not a count up to {LARGEST:,}.")
    return int(text)


def recognise(header: Sequence[str]) -> PublishedTable:
    """The table that has most of its own columns in this header; the first if neither has any."""
    return max(TABLES, key=lambda table: len(_own(table) & set(header)) / len(_own(table)))


def _own(table: PublishedTable) -> set[str]:
    return set(table.columns) - {column for other in TABLES if other is not table for column in other.columns}


def _column(name: str) -> FromColumns:
    return FromColumns((name,), lambda value: value)


def _ratio(above: str, below: str) -> FromColumns:
    return FromColumns((above, below), lambda a, b: a / b)


def _share(part: str, rest: str) -> FromColumns:
    return FromColumns((part, rest), lambda a, b: a / (a + b))


def _root(variance: str) -> FromColumns:
    return FromColumns((variance,), math.sqrt)


def _variation(variance: str, mean: str) -> FromColumns:
    return FromColumns((variance, mean), lambda a, b: math.sqrt(a) / b)


FIRST = PublishedTable(
    "lc-2024_05_18.csv",
    {
        "cdnv_k2": _column("cdnv_mean"),
        "lognorm_cv": _ratio("norms_log_std", "norms_log_mean"),
        "cosine_mean": _column("interfere_mean"),
        "cosine_std": _column("interfere_std"),
        "cosine_cv": _ratio("interfere_std", "interfere_mean"),
        "logdist_uncentred_mean": _column("log_dist_mean"),
        "logdist_uncentred_std": _column("log_dist_std"),
        "logdist_uncentred_cv": _ratio("log_dist_std", "log_dist_mean"),
        "duality_cos_mean": _column("sims_mean"),
        "duality_cos_std": _column("sims_std"),
        "duality_cos_cv": _ratio("sims_std", "sims_mean"),
        "agreement": _share("matches", "misses"),
    },
    "dists_mean and dists_std are left out: they are not distances (many of the means are negative).",
)
SECOND = PublishedTable(
    "lc-2024_10_24.csv",
    {
        "cdnv_k2": _column("cdnv"),
        "norm_cv": _variation("norms_var", "norms_mean"),
        "lognorm_mean": _column("norms_log_mean"),
        "lognorm_cv": _variation("norms_log_var", "norms_log_mean"),
        "etf_error": _column("etf_error"),
        "logdist_mean": _column("log_kern_mean"),
        "logdist_std": _root("log_kern_var"),
        "logdist_cv": _variation("log_kern_var", "log_kern_mean"),
        "duality_cos_mean": _column("simcos_mean"),
        "duality_cos_std": _root("simcos_var"),
        "duality_cos_cv": _variation("simcos_var", "simcos_mean"),
        "duality_error": _column("dual_error"),
        "agreement": _share("hits", "misses"),
    },
    "interfere_mean and interfere_var are left out: they are inner products there, not cosines.",
)
TABLES = (FIRST, SECOND)
