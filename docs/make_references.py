"""Write the reference values that the package ships (src/collapselab/records/references.csv).

    python docs/make_references.py RESULT.json…

Its models are the final checkpoints of the untreated runs of the suites in docs/results/tables, the published table
of 230 models (where ../shared/reference has it; else its rows stay as they are), and every RESULT.json, a measured
pretrained model.
"""

import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from result_tables import unpack

from collapselab import load_results
from collapselab.records.published import import_published
from collapselab.records.references import COLUMNS, is_headline, reference_row
from collapselab.records.tables import read_tables

HERE = Path(__file__).parent
TABLE = HERE.parent / "src/collapselab/records/references.csv"
PAPER = HERE.parent / "../shared/reference/lc-2024_05_18.csv"
PAPER_SOURCE = "arXiv:2405.17767"
SUITES = {
    "scale": "TinyStories",
    "families": "TinyStories",
    "training": "TinyStories",
    "imdb": "IMDB",
    "code": "Python code",
}
CONFIGURATION = ["family", "width", "depth", "weight_decay", "dropout", "label_smoothing"]
MAX_SEEDS = 2
"""Of one configuration: a percentile among seeds of one model would say little."""


def of_suite(name: str, text: str) -> list[dict[str, Any]]:
    """The last checkpoint of every run of a suite that has no intervention."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(name, Path(folder))
        tables = read_tables(folder)
    runs = pd.DataFrame(tables.runs)
    if "intervene" in runs:
        runs = runs[runs["intervene"].isna()]
    last = runs.sort_values("checkpoint", key=pd.to_numeric).groupby("run").tail(1)
    last = last.sort_values([*CONFIGURATION, "seed"]).groupby(CONFIGURATION).head(MAX_SEEDS)
    return [
        _row(
            tables.rows,
            {str(key): value for key, value in run.items()},
            f"{run['family']} {run['width']}×{run['depth']} seed {run['seed']}",
            name,
            text,
        )
        for run in last.to_dict("records")
    ]


def of_paper() -> list[dict[str, Any]]:
    """The published models."""
    if not PAPER.is_file():
        with TABLE.open(encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["source"] == PAPER_SOURCE]
    runs, rows = import_published(PAPER)
    return [
        _row(rows, dict(run), f"{run['run']}@{run['checkpoint']}", PAPER_SOURCE, "TinyStories", *PAPER_SIZES)
        for run in runs
    ]


PAPER_SIZES = 29_233, 500_000_000
"""Classes and tokens, the latter roughly: the paper measures on the whole training split."""


def _row(rows: Any, run: dict[str, Any], model: str, source: str, text: str, *sizes: int) -> dict[str, Any]:
    place = run["run"], str(run["checkpoint"])
    own = [row for row in rows if (row.run, str(row.checkpoint)) == place and is_headline(row)]
    values = {row.metric: row.value for row in own if row.value is not None}
    return {
        "model": model, "source": source, "text": text, "text_hash": "", "parameters": run["parameters"],
        **dict(zip(("classes", "tokens"), sizes or (own[0].classes, own[0].tokens), strict=True)),
        **{metric: f"{value:.4g}" for metric, value in values.items()},
    }  # fmt: skip


def of_result(path: str) -> dict[str, Any]:
    """A pretrained model that was measured."""
    (result,) = load_results(path)
    row = reference_row(result)
    text = "TinyStories" if "train.txt" in str(row["text"]) else str(row["text"]).partition(":")[0]
    return row | {"text": text}


def main() -> None:
    rows = [of_result(path) for path in sys.argv[1:]]
    for name, text in SUITES.items():
        rows += of_suite(name, text)
    rows += of_paper()
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} models, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
