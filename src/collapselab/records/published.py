"""Conversion of the tables that Wu and Papyan published with Linguistic Collapse into `runs.csv` and `results.csv`.

A model's name is `LLxDDDD_EEw[seed]@i`: depth, width, epochs the run was trained for, weight decay (`d` or `L`), an
optional seed, and the 0-based index of the epoch whose checkpoint it is. The epoch, counted from 1, is our checkpoint.

There are two tables of the same models (`FIRST`, `SECOND`), told apart by their header. The second has variances in
place of standard deviations, norms that are not squared, distances of the *centred* means, and errors against a simplex
frame. If both are given, metrics that the first lacks come from the second.
"""

import math
import re
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from collapselab.core.catalogue import METRICS
from collapselab.disk import read_bytes, sha256
from collapselab.errors import RunError
from collapselab.records.table import Amount, Count, Table, parse_table, row_type
from collapselab.records.tables import RUNS, Row, Run, write_tables

NAME = r"^(([0-9]{1,9})x([0-9]{1,9})_([0-9]{1,9})([dL])([0-9]{0,9}))@([0-9]{1,9})$"
TYPES: dict[str, Any] = {
    "model": Annotated[str, Field(pattern=NAME)], "n_params": Count, "matches": Amount | None, "hits": Amount | None,
    "misses": Amount | None,
}  # fmt: skip
"""Types of columns that are not plain numbers."""
DECAYS = {"d": 5e-4, "L": 0.1}
LEARNING_RATE = 5e-5
"""Of every model, according to the paper; not in the tables."""
SAME = 1e-4
"""Relative tolerance for outcomes in both tables; the published ones agree in every digit."""
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

    An empty or infinite cell becomes a reason instead of a value. A missing column, an invalid name and a repeated
    model are errors. With several tables, which must have the same models, a metric comes from the first that has it.
    """
    if not csvs:
        raise RunError("no published table was given. Name one or both.")
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
    """Return all columns that these formulas read."""
    used = (name for formula in formulas.values() for name in signature(formula).parameters)
    return list(dict.fromkeys(("model", "n_params", *OUTCOMES.values(), *used)))


def _read(path: Path) -> Models:
    content = read_bytes(path)
    header = set(parse_table(content, path)[0])
    # The kind of table that has more of its specific columns in this header.
    first, second = set(columns_of(FIRST)), set(columns_of(SECOND))
    is_second = len(second - first & header) / len(second - first) > len(first - second & header) / len(first - second)
    formulas = SECOND if is_second else FIRST
    columns = {name: TYPES.get(name, float | None) for name in columns_of(formulas)}
    table: Table[Any] = Table("published", row_type(columns), key=("model",), further="model")
    models: Models = {}
    for cells in table.parse(content, path):
        run = _run(cells)
        models[run["run"], run["checkpoint"]] = run, [_row(run, cells, *entry) for entry in formulas.items()]
    return models


def _check_same_models(first: str | Path, models: Models, other: str | Path, others: Models) -> None:
    remedy = "Import tables of different models into separate folders."
    if differing := models.keys() ^ others.keys():
        run, checkpoint = min(differing)
        has, lacks = (first, other) if (run, checkpoint) in models else (other, first)
        raise RunError(f"{lacks}: lacks model {run} at epoch {checkpoint}, which {has} has. {remedy}")
    for (run, checkpoint), (cells, _) in models.items():
        for column in ("parameters", *OUTCOMES):
            a, b = (cast(dict[str, Any], one)[column] for one in (cells, others[run, checkpoint][0]))
            if a != b and (a is None or b is None or not math.isclose(a, b, rel_tol=SAME)):
                differs = f"{column} of {run} at epoch {checkpoint} is {b}, but {a} in {first}"
                raise RunError(f"{other}: {differs}. {remedy}")


def _run(cells: Mapping[str, Any]) -> Run:
    run, depth, width, epochs, decay, seed, index = re.findall(NAME, cells["model"])[0]
    outcomes = {ours: _finite(cells[theirs]) for ours, theirs in OUTCOMES.items()}
    absent = [OUTCOMES[ours] for ours, value in outcomes.items() if value is None]
    return RUNS.row(
        **dict.fromkeys(RUNS.columns)
        | {
            "run": run,
            "checkpoint": str(int(index) + 1),
            "family": "gpt-neo",
            "width": int(width),
            "depth": int(depth),
            "epochs": float(epochs),
            "epoch": int(index) + 1.0,
            "weight_decay": DECAYS[decay],
            "lr": LEARNING_RATE,
            "seed": int(seed) if seed else None,
            "parameters": cells["n_params"],
            "why": _words(absent, cells) if absent else None,
        }
        | outcomes
    )


def _row(run: Run, cells: Mapping[str, Any], metric: str, formula: Callable[..., float]) -> Row:
    columns = list(signature(formula).parameters)
    try:
        value = _finite(formula(*(cells[column] for column in columns)))
    except (TypeError, ZeroDivisionError):  # an empty cell; a ratio to zero
        value = None
    # The number of classes is the sum of decisions over their mean, if the table has both.
    mean = float(cells.get("matches_mean") or 0)
    return Row(
        run=run["run"],
        checkpoint=run["checkpoint"],
        metric=metric,
        value=value,
        classes=round(cells["matches"] / mean) if mean > 0 and value is not None else None,
        tokens=int(sum(cells[column] for column in columns)) if metric == "agreement" and value is not None else None,
        version=METRICS[metric].version,
        why=_words(columns, cells) if value is None else None,
    )


def _finite(value: object) -> float | None:
    """Return a finite number; None for an empty cell, and for a complex root of a negative number."""
    return value if isinstance(value, float) and math.isfinite(value) else None


def _words(columns: list[str], cells: Mapping[str, Any]) -> str:
    """Return why these columns have no value."""
    words = (f"{name} is {'empty' if cells[name] is None else cells[name]}" for name in columns)
    return f"{', '.join(words)} in the published table."
