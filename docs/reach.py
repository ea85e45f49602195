"""The table of interventions.md that shows what each intervention moved, from the tables of the suite reach.yaml.

    collapselab suite run docs/reach.yaml --out suites/reach
    python docs/reach.py suites/reach

Every cell is the mean over seeds, ± their standard deviation; – where it was not measured. An arm *reaches* its
property if its primary metric moved the way it must, in every pair of arm and control with the same seed, and on
average by more than the range of that metric over the seeds of the control; `floor` must also end above the value
that it is to keep. Beside a sham is how much of its arm's movement it has.
"""

import sys
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from collapselab.records.tables import read_tables
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.interventions.dose import Dose, parse_doses
from collapselab.training.interventions.floor import TARGET

PAGE = Path(__file__).parent / "interventions.md"
BEGIN, END = "<!-- reach: made by docs/reach.py -->", "<!-- end of reach -->"
METRICS = {
    "cdnv_log": 2, "within_share": 3, "logdist_std": 3, "head_logdist_std": 3, "duality_cos_mean": 3,
    "duality_cos_std": 3, "participation": 1, "dispersion": 3, "flatness_relative": 3, "agreement": 3,
}  # fmt: skip
"""Columns after the validation loss, with their digits."""


def values_of_runs(folder: Path) -> pd.DataFrame:
    """A row a finished run: arm, seed, validation loss and the metrics of its last checkpoint."""
    stored = read_tables(folder)
    runs, results = pd.DataFrame(stored.runs), pd.DataFrame([asdict(row) for row in stored.rows])
    last = runs[runs["tokens"] == runs.groupby("run")["tokens"].transform("max")]
    last = last[(last["tokens"] > 0) & last["why"].isna()]
    chosen = results[(results["split"] == "train") & (results["layer"] == "last") & (results["bin"] == "all")]
    validation = results[(results["split"] == "validation") & (results["metric"] == "agreement")]
    wide = pd.concat([chosen, validation]).pivot_table(index=["run", "checkpoint"], columns="metric", values="value")
    arms = last.assign(arm=last["intervene"].fillna("none").replace("", "none"))
    return arms[["run", "checkpoint", "arm", "seed", "val_loss"]].merge(wide, on=["run", "checkpoint"])


def table(values: pd.DataFrame) -> str:
    """The table in Markdown."""
    shown = {name: digits for name, digits in METRICS.items() if name in values}
    names = ["arm", "seeds", "validation loss", *(f"`{name}`" for name in shown), "reaches its property"]
    rows = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    control = values[values["arm"] == "none"].set_index("seed")
    for arm in sorted(values["arm"].unique(), key=_order):
        runs, dose = values[values["arm"] == arm].set_index("seed"), _dose(arm)
        primary = dose and INTERVENTIONS[dose.name].primary
        cells = [_cell(runs["val_loss"], 3)]
        cells += [
            f"**{_cell(runs[name], d)}**" if name == primary else _cell(runs[name], d) for name, d in shown.items()
        ]
        named = arm if dose is None else f"`{arm}`"
        rows.append(f"| {' | '.join([named, str(len(runs)), *cells, reached(dose, values, control)])} |")
    return "\n".join(rows)


def reached(dose: Dose | None, values: pd.DataFrame, control: pd.DataFrame) -> str:
    """Whether an arm moved its primary metric, with the mean difference and the control's range."""
    entry = dose and INTERVENTIONS[dose.name]
    metric = entry and entry.primary
    if not dose or not entry or not metric or metric not in values or not dose.dose:
        return "–"
    differences = _differences(str(dose), metric, values, control)
    spread = control[metric].max() - control[metric].min()
    moved = f"{differences.mean():+.3g}".replace("-", "−")
    if dose.sham:
        real = _differences(str(replace(dose, sham=False)), metric, values, control)
        return f"sham: {moved}, {differences.mean() / real.mean():.0%} of its arm".replace("-", "−")
    way = (1 if entry.plus == "rises" else -1) * (1 if dose.dose > 0 else -1)
    yes = way * differences.mean() > spread and (way * differences > 0).all()
    if dose.name == "floor":
        yes = yes and values[values["arm"] == str(dose)][metric].min() >= TARGET
    return f"{'yes' if yes else '**no**'}: {moved}, range of the control {spread:.2g}"


def _differences(arm: str, metric: str, values: pd.DataFrame, control: pd.DataFrame) -> "pd.Series[float]":
    """Arm less control, seed by seed."""
    return (values[values["arm"] == arm].set_index("seed")[metric] - control[metric]).dropna()


def _dose(arm: str) -> Dose | None:
    return None if arm == "none" else parse_doses([arm])[0]


def _order(arm: str) -> tuple[float, ...]:
    dose = _dose(arm)
    return (-1,) if dose is None else (list(INTERVENTIONS).index(dose.name), abs(dose.dose), dose.sham, -dose.dose)


def _cell(values: "pd.Series[float]", digits: int) -> str:
    if not values.count():
        return "–"
    spread = f" ± {values.std():.{digits}f}" if values.count() > 1 else ""
    return f"{values.mean():.{digits}f}{spread}".replace("-", "−")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    made = table(values_of_runs(Path(sys.argv[1])))
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")
