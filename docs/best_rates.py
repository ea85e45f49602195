"""Print, for each setting of a pilot suite, the learning rate with the lowest validation loss, averaged over seeds.

    python docs/best_rates.py suites/results/optimiser-pilot

Rates at the end of their list are marked, because the best rate may lie beyond it.
"""

import sys
from pathlib import Path

import pandas as pd

from collapselab.records.tables import read_tables

SETTINGS = ("width", "depth", "optimizer", "weight_decay", "coupling", "head", "intervene")


def best_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each combination of the SETTINGS that vary: best rate, its loss, seeds, and `at_end`."""
    at_end = runs["tokens"] == runs.groupby("run")["tokens"].transform("max")
    last = runs[at_end & runs["val_loss"].notna()]
    named = [name for name in SETTINGS if name in last and last[name].nunique(dropna=False) > 1]
    grouped = last.groupby([*named, "lr"], dropna=False)["val_loss"]
    means = pd.DataFrame({"val_loss": grouped.mean(), "seeds": grouped.count()}).reset_index()
    rows = []
    for _, rates in means.groupby(named or (lambda _: 0), dropna=False):
        best = rates.sort_values("val_loss").iloc[:1]
        rows.append(best.assign(at_end=best["lr"].isin([rates["lr"].min(), rates["lr"].max()])))
    return pd.concat(rows)


if __name__ == "__main__":
    print(best_rates(pd.DataFrame(read_tables(Path(sys.argv[1])).runs)).to_string(index=False))
