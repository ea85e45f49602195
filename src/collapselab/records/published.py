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
from typing import cast, final

from collapselab.core.catalogue import METRICS
from collapselab.disk import first_error, read_bytes, sha256
from collapselab.errors import RunError
from collapselab.records.table import parse_table, require_columns, shown
from collapselab.records.tables import RUNS, Row, Run, write_tables

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

Formula = tuple[Callable[..., float], tuple[str, ...]]
"""A metric of the catalogue as a function of published columns."""


@final
@dataclass(frozen=True)
class PublishedTable:
    """One of the tables: the formula of each metric, and what is left out of it."""

    name: str
    formulas: Mapping[str, Formula]
    note: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        used = (column for _, columns in self.formulas.values() for column in columns)
        return tuple(dict.fromkeys(("model", "n_params", *OUTCOMES.values(), *used)))


@final
@dataclass(frozen=True)
class PublishedModels:
    """What was read of one published table."""

    path: Path
    table: PublishedTable
    runs: dict[tuple[str, str], Run]
    rows: list[Row]


def import_published(*csvs: str | Path, out: str | Path | None = None) -> tuple[list[Run], list[Row]]:
    """Return the published models as rows of `runs.csv` and `results.csv`, and write them into the folder `out`.

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
    """Read one of the published tables; which of them it is, its header says."""
    path = Path(csv)
    header, lines = parse_table(read_bytes(path), path)
    table = _table_of(header)
    require_columns(path, header, table.columns)
    runs: dict[tuple[str, str], Run] = {}
    rows: list[Row] = []
    for number, line in lines:
        cells = dict(zip(header, line, strict=True))
        try:
            run = _run(cells)
            if runs.setdefault((run["run"], run["checkpoint"]), run) is not run:
                raise ValueError(f"{cells['model']} is there twice")
            rows += [_row(run, metric, formula, cells) for metric, formula in table.formulas.items()]
        except ValueError as error:
            raise RunError(f"{path}, line {number}: {first_error(error)}.") from error
    return PublishedModels(path, table, runs, rows)


def merge(tables: Sequence[PublishedModels]) -> tuple[list[Run], list[Row]]:
    """Return the models of several published tables with the metrics of all, in the order of the first."""
    if not tables:
        raise RunError("no published table was given. Name one, or both.")
    first = tables[0]
    rows: dict[tuple[str, str, str], Row] = {}
    for table in tables:
        _check_same_models(first, table)
        for row in table.rows:
            key = (row.run, row.checkpoint, row.metric)
            if key not in rows or rows[key].value is None:
                rows[key] = row
    order = list(first.runs)
    return list(first.runs.values()), sorted(rows.values(), key=lambda row: order.index((row.run, row.checkpoint)))


def _check_same_models(first: PublishedModels, other: PublishedModels) -> None:
    remedy = "Import tables of other models into folders of their own."
    if differing := first.runs.keys() ^ other.runs.keys():
        run, checkpoint = min(differing)
        has, lacks = (first, other) if (run, checkpoint) in first.runs else (other, first)
        raise RunError(f"{lacks.path}: no model {run} at epoch {checkpoint}, which {has.path} has. {remedy}")
    for (run, checkpoint), cells in first.runs.items():
        for column in ("parameters", *OUTCOMES):
            a, b = (cast(dict[str, float | None], row)[column] for row in (cells, other.runs[run, checkpoint]))
            if a != b and (a is None or b is None or not math.isclose(a, b, rel_tol=SAME)):
                differs = f"{column} of {run} at epoch {checkpoint} is {b}, but {a} in {first.path}"
                raise RunError(f"{other.path}: {differs}. {remedy}")


def _run(cells: Mapping[str, str]) -> Run:
    name = NAME.fullmatch(cells["model"])
    if name is None:
        raise ValueError(f"{shown(cells['model'])} is not a model's name, such as 02x0768_01d07@0")
    if not re.fullmatch("[0-9]{1,18}", cells["n_params"]):
        raise ValueError(f"n_params is {shown(cells['n_params'])}, not a count")
    numbers = {ours: _number(cells, theirs) for ours, theirs in OUTCOMES.items()}
    absent = [OUTCOMES[ours] for ours, number in numbers.items() if not math.isfinite(number)]
    known = {
        "run": name["run"],
        "checkpoint": str(int(name["index"]) + 1),
        "family": "gpt-neo",
        "width": int(name["width"]),
        "depth": int(name["depth"]),
        "epochs": float(name["epochs"]),
        "epoch": int(name["index"]) + 1.0,
        "weight_decay": DECAYS[name["decay"]],
        "lr": LEARNING_RATE,
        "seed": int(name["seed"]) if name["seed"] else None,
        "parameters": int(cells["n_params"]),
        **{ours: number if math.isfinite(number) else None for ours, number in numbers.items()},
        "why": _absence(cells, absent),
    }
    return cast(Run, {**dict.fromkeys(RUNS.columns), **known})


def _row(run: Run, metric: str, formula: Formula, cells: Mapping[str, str]) -> Row:
    function, columns = formula
    numbers = [_number(cells, column) for column in columns]
    value, why = None, _absence(cells, [name for name, x in zip(columns, numbers, strict=True) if not math.isfinite(x)])
    if why is None:
        value, why = _value(function, columns, numbers)
    return Row(
        run=run["run"],
        checkpoint=run["checkpoint"],
        metric=metric,
        value=value,
        classes=_classes(cells),
        tokens=int(sum(numbers)) if metric == "agreement" and value is not None else None,
        version=METRICS[metric].version,
        why=why,
    )


def _value(
    function: Callable[..., float], columns: Sequence[str], numbers: Sequence[float]
) -> tuple[float | None, str | None]:
    """Return the metric, or the reason why there is none."""
    try:
        value = function(*numbers)
    except ValueError:
        return None, f"{columns[0]} is {numbers[0]:g}: no variance is negative."
    except ZeroDivisionError:
        return None, f"{' and '.join(columns)} have no ratio: division by zero."
    if not math.isfinite(value):
        return None, f"{' and '.join(columns)} have no ratio: it is {value}."
    return value, None


def _classes(cells: Mapping[str, str]) -> int | None:
    """Return the classes that decisions are averaged over, where the table has both their sum and their mean."""
    if not cells.get("matches_mean"):
        return None
    mean, matches = _number(cells, "matches_mean"), _number(cells, "matches")
    return round(matches / mean) if mean > 0 and math.isfinite(matches / mean) else None


def _absence(cells: Mapping[str, str], columns: Sequence[str]) -> str | None:
    """Return why these columns have no number; None if there are no such columns."""
    words = ", ".join(f"{name} is {cells[name] or 'empty'} in the published table" for name in columns)
    return f"{words}." if columns else None


def _number(cells: Mapping[str, str], column: str) -> float:
    """Return the number in a cell, or NaN if the cell is empty."""
    try:
        return float(cells[column] or "nan")
    except ValueError as error:
        raise ValueError(f"{column} is {shown(cells[column])}, not a number") from error


def _table_of(header: Sequence[str]) -> PublishedTable:
    """Return the table that has most of its own columns in this header; the first if neither has any."""
    both = set(FIRST.columns) & set(SECOND.columns)

    def share(table: PublishedTable) -> float:
        own = set(table.columns) - both
        return len(own & set(header)) / len(own)

    return max(TABLES, key=share)


def _column(name: str) -> Formula:
    return float, (name,)


def _ratio(above: str, below: str) -> Formula:
    return lambda a, b: a / b, (above, below)


def _share(part: str, rest: str) -> Formula:
    return lambda a, b: a / (a + b), (part, rest)


def _root(variance: str) -> Formula:
    return math.sqrt, (variance,)


def _variation(variance: str, mean: str) -> Formula:
    return lambda a, b: math.sqrt(a) / b, (variance, mean)


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
