"""The tables of trained models that Wu and Papyan published with Linguistic Collapse, as our two tables.

A model's name is `LLxDDDD_EEw[seed]@i`: depth, width, epochs the run was trained for, weight decay (`d` or `L`), an
optional seed, and the 0-based index of the epoch whose checkpoint it is. The epoch, counted from 1, is our checkpoint.

There are two such tables of the same models (`FIRST`, `SECOND`); which of them a file is, its header says. The second
has variances in place of standard deviations, norms that are not squared, distances of the *centred* means, and errors
against a simplex frame. Read together they are one: what the first lacks comes from the second.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

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

Formulas = Mapping[str, Callable[..., float]]
"""Metrics of the catalogue by id; the names of the parameters are published columns."""

FIRST: Formulas = {
    "cdnv_k2": lambda cdnv_mean: cdnv_mean,
    "lognorm_cv": lambda norms_log_std, norms_log_mean: norms_log_std / norms_log_mean,
    "cosine_mean": lambda interfere_mean: interfere_mean,
    "cosine_std": lambda interfere_std: interfere_std,
    "cosine_cv": lambda interfere_std, interfere_mean: interfere_std / interfere_mean,
    "logdist_uncentred_mean": lambda log_dist_mean: log_dist_mean,
    "logdist_uncentred_std": lambda log_dist_std: log_dist_std,
    "logdist_uncentred_cv": lambda log_dist_std, log_dist_mean: log_dist_std / log_dist_mean,
    "duality_cos_mean": lambda sims_mean: sims_mean,
    "duality_cos_std": lambda sims_std: sims_std,
    "duality_cos_cv": lambda sims_std, sims_mean: sims_std / sims_mean,
    "agreement": lambda matches, misses: matches / (matches + misses),
}
"""Metrics as functions of the columns of `lc-2024_05_18.csv`."""
SECOND: Formulas = {
    "cdnv_k2": lambda cdnv: cdnv,
    "norm_cv": lambda norms_var, norms_mean: norms_var**0.5 / norms_mean,
    "lognorm_mean": lambda norms_log_mean: norms_log_mean,
    "lognorm_cv": lambda norms_log_var, norms_log_mean: norms_log_var**0.5 / norms_log_mean,
    "etf_error": lambda etf_error: etf_error,
    "logdist_mean": lambda log_kern_mean: log_kern_mean,
    "logdist_std": lambda log_kern_var: log_kern_var**0.5,
    "logdist_cv": lambda log_kern_var, log_kern_mean: log_kern_var**0.5 / log_kern_mean,
    "duality_cos_mean": lambda simcos_mean: simcos_mean,
    "duality_cos_std": lambda simcos_var: simcos_var**0.5,
    "duality_cos_cv": lambda simcos_var, simcos_mean: simcos_var**0.5 / simcos_mean,
    "duality_error": lambda dual_error: dual_error,
    "agreement": lambda hits, misses: hits / (hits + misses),
}
"""Metrics as functions of the columns of `lc-2024_10_24.csv`."""
LEFT_OUT = (
    "In lc-2024_05_18.csv, dists_mean and dists_std are left out: they are not distances (many are negative). In "
    "lc-2024_10_24.csv, interfere_mean and interfere_var are: they are inner products there, not cosines."
)

Models = dict[tuple[str, str], tuple[Run, list[Row]]]
"""The run and the rows of each model, by run and checkpoint."""


def import_published(*csvs: str | Path, out: str | Path | None = None) -> tuple[list[Run], list[Row]]:
    """Return the published models as rows of `runs.csv` and `results.csv`, and write them into the folder `out`.

        import_published("lc-2024_05_18.csv", out="published")
        analyze("published")

    A cell that is empty or not finite leaves a reason and no number. A column that is missing, a name that does not
    parse and a model that is there twice are errors. Of several tables, a metric comes from the first that has it; they
    have to be about the same models.
    """
    if not csvs:
        raise RunError("no published table was given. Name one, or both.")
    tables = [_read(Path(csv)) for csv in csvs]
    for csv, table in zip(csvs[1:], tables[1:], strict=True):
        _check_same_models(csvs[0], tables[0], csv, table)
    rows: dict[tuple[str, str, str], Row] = {}
    for model in tables[0]:
        for row in (row for table in tables for row in table[model][1]):
            if rows.setdefault((*model, row.metric), row).value is None:
                rows[*model, row.metric] = row
    runs = [run for run, _ in tables[0].values()]
    if out is not None:
        made_from = [(Path(csv).name, sha256(csv)) for csv in csvs]
        write_tables(out, {"runs": runs, "results": list(rows.values())}, made_from=made_from)
    return runs, list(rows.values())


def columns_of(formulas: Formulas) -> list[str]:
    """Return every column that is read of a table with these formulas."""
    used = (name for formula in formulas.values() for name in signature(formula).parameters)
    return list(dict.fromkeys(("model", "n_params", *OUTCOMES.values(), *used)))


def _read(path: Path) -> Models:
    header, lines = parse_table(read_bytes(path), path)
    # The table that has more of its own columns in this header.
    own = {1: set(columns_of(FIRST)) - set(columns_of(SECOND)), 2: set(columns_of(SECOND)) - set(columns_of(FIRST))}
    second = len(own[2] & set(header)) / len(own[2]) > len(own[1] & set(header)) / len(own[1])
    formulas = SECOND if second else FIRST
    require_columns(path, header, columns_of(formulas))
    models: Models = {}
    for number, line in lines:
        cells = dict(zip(header, line, strict=True))
        try:
            numbers = {column: _number(column, cells[column]) for column in columns_of(formulas)[2:]}
            run = _run(cells, numbers)
            if (run["run"], run["checkpoint"]) in models:
                raise ValueError(f"{cells['model']} is there twice")
            rows = [_row(run, metric, formula, cells, numbers) for metric, formula in formulas.items()]
        except ValueError as error:
            raise RunError(f"{path}, line {number}: {first_error(error)}.") from error
        models[run["run"], run["checkpoint"]] = run, rows
    return models


def _check_same_models(first: str | Path, models: Models, other: str | Path, others: Models) -> None:
    remedy = "Import tables of other models into folders of their own."
    if differing := models.keys() ^ others.keys():
        run, checkpoint = min(differing)
        has, lacks = (first, other) if (run, checkpoint) in models else (other, first)
        raise RunError(f"{lacks}: no model {run} at epoch {checkpoint}, which {has} has. {remedy}")
    for (run, checkpoint), (cells, _) in models.items():
        before, after = dict[str, Any](cells), dict[str, Any](others[run, checkpoint][0])
        for column in ("parameters", *OUTCOMES):
            a, b = before[column], after[column]
            if a != b and (a is None or b is None or not math.isclose(a, b, rel_tol=SAME)):
                differs = f"{column} of {run} at epoch {checkpoint} is {b}, but {a} in {first}"
                raise RunError(f"{other}: {differs}. {remedy}")


def _run(cells: Mapping[str, str], numbers: Mapping[str, float]) -> Run:
    name = NAME.fullmatch(cells["model"])
    if name is None:
        raise ValueError(f"{shown(cells['model'])} is not a model's name, such as 02x0768_01d07@0")
    if not re.fullmatch("[0-9]{1,18}", cells["n_params"]):
        raise ValueError(f"n_params is {shown(cells['n_params'])}, not a count")
    return RUNS.row(
        **dict.fromkeys(RUNS.columns)
        | {
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
            "why": _absence(OUTCOMES.values(), cells, numbers),
        }
        | {ours: numbers[theirs] if math.isfinite(numbers[theirs]) else None for ours, theirs in OUTCOMES.items()}
    )


def _row(
    run: Run, metric: str, formula: Callable[..., float], cells: Mapping[str, str], numbers: Mapping[str, float]
) -> Row:
    columns = list(signature(formula).parameters)
    why, value, classes = _absence(columns, cells, numbers), None, None
    if why is None:
        value, why = _value(formula, {column: numbers[column] for column in columns})
    # Decisions are averaged over classes, where the table has both their sum and their mean.
    if cells.get("matches_mean") and (mean := _number("matches_mean", cells["matches_mean"])) > 0:
        classes = round(numbers["matches"] / mean)
    return Row(
        run=run["run"],
        checkpoint=run["checkpoint"],
        metric=metric,
        value=value,
        classes=classes,
        tokens=int(sum(numbers[column] for column in columns)) if metric == "agreement" and value is not None else None,
        version=METRICS[metric].version,
        why=why,
    )


def _value(formula: Callable[..., float], numbers: dict[str, float]) -> tuple[float | None, str | None]:
    """Return the value of a formula, or the reason why there is none."""
    try:
        value = formula(**numbers)
    except ZeroDivisionError:
        return None, f"{' and '.join(numbers)} have no ratio: division by zero."
    if isinstance(value, complex):
        return None, f"{next(iter(numbers))} is {next(iter(numbers.values())):g}: no variance is negative."
    return (value, None) if math.isfinite(value) else (None, f"{' and '.join(numbers)} have no ratio: it is {value}.")


def _absence(columns: Iterable[str], cells: Mapping[str, str], numbers: Mapping[str, float]) -> str | None:
    """Return why these columns have no number; None if all have one."""
    absent: Sequence[str] = [column for column in dict.fromkeys(columns) if not math.isfinite(numbers[column])]
    words = ", ".join(f"{name} is {cells[name] or 'empty'} in the published table" for name in absent)
    return f"{words}." if absent else None


def _number(column: str, text: str) -> float:
    """Return the number in a cell, or NaN if the cell is empty."""
    try:
        return float(text or "nan")
    except ValueError as error:
        raise ValueError(f"{column} is {shown(text)}, not a number") from error
