"""The table of trained models that Wu and Papyan published with Linguistic Collapse, as our two tables.

A model's name is `LLxDDDD_EEw[seed]@i`: depth, width, epochs the run was trained for, weight decay (`d` or `L`), an
optional seed, and the 0-based index of the epoch whose checkpoint it is. The epoch, counted from 1, is our checkpoint.

`dists_*` are left out: named distances, their mean is negative for many models. The published norms are squared, so
`norm_cv` cannot be had; the variation of their logarithm is the same as that of the norm's.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collapselab.core.metrics import METRICS
from collapselab.errors import RunError
from collapselab.records.csv_file import parse_table, read_bytes, require_columns, shown
from collapselab.records.table import LARGEST
from collapselab.records.tables import Row, Run

NAME = re.compile(
    r"(?P<run>(?P<depth>[0-9]{1,9})x(?P<width>[0-9]{1,9})_(?P<epochs>[0-9]{1,9})(?P<decay>[dL])(?P<seed>[0-9]{0,9}))"
    r"@(?P<index>[0-9]{1,9})"
)
DECAYS = {"d": 5e-4, "L": 0.1}
LEARNING_RATE = 5e-5
"""Of every model, by the paper; the table does not say."""
LEFT_OUT = "dists_mean and dists_std are left out: they are not distances (many of the means are negative)."
OUTCOMES = {"val_loss": "val_loss", "val_accuracy": "val_acc", "perplexity": "perplex"}


@dataclass(frozen=True)
class _Source:
    """A metric of the catalogue as a function of published columns."""

    columns: tuple[str, ...]
    value: Callable[..., float]


def _column(name: str) -> _Source:
    return _Source((name,), lambda value: value)


def _ratio(above: str, below: str) -> _Source:
    return _Source((above, below), lambda a, b: a / b)


SOURCES: Mapping[str, _Source] = {
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
    "agreement": _Source(("matches", "misses"), lambda matches, misses: matches / (matches + misses)),
}
COLUMNS = ("model", "n_params", *OUTCOMES.values(), *dict.fromkeys(c for s in SOURCES.values() for c in s.columns))


def import_published(csv: str | Path) -> tuple[list[Run], list[Row]]:
    """The published models as rows of `runs.csv` and `results.csv`.

    A cell that is empty or not finite leaves a reason and no number. A column that is missing, a name that does not
    parse and a model that is there twice are errors.
    """
    path = Path(csv)
    header, lines = parse_table(read_bytes(path), path)
    require_columns(path, header, COLUMNS)
    runs: dict[tuple[str, str], Run] = {}
    rows: list[Row] = []
    for number, line in lines:
        cells = dict(zip(header, line, strict=True))
        run = _run(f"{path}, line {number}", cells)
        key = (run["run"], run["checkpoint"])
        if key in runs:
            raise RunError(f"{path}, line {number}: {cells['model']} is there twice. Each model may be there once.")
        runs[key] = run
        rows += [_row(f"{path}, line {number}", run, metric, source, cells) for metric, source in SOURCES.items()]
    return list(runs.values()), rows


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
        "val_loss": outcomes["val_loss"],
        "val_accuracy": outcomes["val_accuracy"],
        "perplexity": outcomes["perplexity"],
        "seconds": None,
        "why": _reason(cells, bad) if bad else None,
    }


def _row(where: str, run: Run, metric: str, source: _Source, cells: Mapping[str, str]) -> Row:
    inputs = [_number(where, cells, column) for column in source.columns]
    bad = [column for column, number in zip(source.columns, inputs, strict=True) if not math.isfinite(number)]
    value, why = (None, _reason(cells, bad)) if bad else _value(source, inputs)
    decisions = int(sum(inputs)) if metric == "agreement" and not bad else None
    try:
        return Row(
            run["run"], run["checkpoint"], "train", "last", "all", metric, value,
            null=None, low=None, high=None, classes=_classes(where, cells), tokens=decisions, min_count=None,
            left_out=None, version=METRICS[metric].version, why=why,
        )  # fmt: skip
    except ValueError as error:
        raise RunError(f"{where}: {metric}, from {' and '.join(source.columns)}: {error}") from error


def _value(source: _Source, inputs: list[float]) -> tuple[float | None, str | None]:
    """The metric, or the reason why there is none."""
    try:
        value = source.value(*inputs)
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
