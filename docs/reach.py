"""The tables of interventions.md that show what each arm moved, from those of suites that have run.

    collapselab suite run docs/reach.yaml --out suites/reach
    python docs/reach.py suites/reach

and the same for heads.yaml and frame.yaml.

Every cell is the mean over seeds, ± their standard deviation; – where it was not measured. An arm *reaches* its
property if its primary metric moved the way it must, in every pair of arm and control with the same seed, and on
average by more than the range of that metric over the seeds of the control; `floor` must also end above the value
that it is to keep. Beside a sham is how much of its arm's movement it has.
"""

import sys
from collections.abc import Hashable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from collapselab.records.tables import read_tables
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS, Dose, parse_doses
from collapselab.training.interventions.features import FLOOR_TARGET

PAGE = Path(__file__).parent / "interventions.md"
BEGIN, END = "<!-- {}: made by docs/reach.py -->", "<!-- end of {} -->"
COLUMNS = {
    "reach": {
        "cdnv_log": 2, "within_share": 3, "logdist_std": 3, "head_logdist_std": 3, "duality_cos_mean": 3,
        "duality_cos_std": 3, "participation": 1, "dispersion": 3, "curvature_relative": 3, "agreement": 3,
    },
    "heads": {
        "head_norm_cv": 3, "norm_cv": 3, "head_logdist_std": 3, "duality_cos_mean": 3, "head_sum": 2, "agreement": 3,
    },
    "frame": {
        "head_cosine_std": 3, "head_etf_error": 3, "norm_cv": 3, "cosine_std": 3, "etf_error": 3, "cdnv_log": 2,
        "duality_cos_mean": 3, "agreement": 3,
    },
}  # fmt: skip
"""Of each table, after the validation loss, with their digits."""
SETTINGS = {"head": "learned", "optimizer": "adamw", "coupling": "0"}
"""Those that make an arm of a head or optimiser, with their defaults."""
MUST_MOVE = {
    "--head sphere": ("head_norm_cv", -1),
    "--head class-means": ("duality_cos_mean", 1),
    "--head frozen-code": ("head_logdist_std", -1),
    "--head frozen-etf": ("head_cosine_std", -1),
    "--coupling 0.5": ("head_sum", -1),
    "--coupling 1": ("head_sum", -1),
}
"""The metric that an arm of a head or optimiser must move, and which way."""


def values_of_runs(folder: Path) -> pd.DataFrame:
    """A row a finished run: arm, seed, validation loss and the metrics of its last checkpoint."""
    stored = read_tables(folder)
    runs, results = pd.DataFrame(stored.runs), pd.DataFrame([asdict(row) for row in stored.rows])
    last = runs[runs["tokens"] == runs.groupby("run")["tokens"].transform("max")]
    last = last[(last["tokens"] > 0) & last["why"].isna()]
    chosen = results[(results["split"] == "train") & (results["layer"] == "last") & (results["bin"] == "all")]
    validation = results[(results["split"] == "validation") & (results["metric"] == "agreement")]
    wide = pd.concat([chosen, validation]).pivot_table(index=["run", "checkpoint"], columns="metric", values="value")
    arms = last.assign(arm=[_arm(run) for run in last.to_dict("records")])
    return arms[["run", "checkpoint", "arm", "seed", "val_loss"]].merge(wide, on=["run", "checkpoint"])


def table(values: pd.DataFrame) -> str:
    """The table in Markdown."""
    shown = {name: digits for name, digits in COLUMNS[table_name(values)].items() if name in values}
    names = ["arm", "seeds", "validation loss", *(f"`{name}`" for name in shown), "reaches its property"]
    rows = [f"|{'|'.join(names)}|", "|---" * len(names) + "|"]
    control = values[values["arm"] == "none"].set_index("seed")
    for arm in sorted(values["arm"].unique(), key=_order):
        runs, (primary, _) = values[values["arm"] == arm].set_index("seed"), _must_move(arm)
        cells = [_cell(runs["val_loss"], 3)]
        cells += [
            f"**{_cell(runs[name], d)}**" if name == primary else _cell(runs[name], d) for name, d in shown.items()
        ]
        named = arm if arm == "none" else f"`{arm}`"
        rows.append(f"|{'|'.join([named, str(len(runs)), *cells, reached(arm, values, control)])}|")
    return "\n".join(rows)


def table_name(values: pd.DataFrame) -> str:
    """Which of the tables these runs make."""
    arms = values["arm"]
    return "frame" if (arms == "--head frozen-etf").any() else "heads" if arms.str.startswith("--").any() else "reach"


def reached(arm: str, values: pd.DataFrame, control: pd.DataFrame) -> str:
    """Whether an arm moved its primary metric, with the mean difference and the control's range."""
    dose, (metric, way) = _dose(arm), _must_move(arm)
    if metric is None or metric not in values or not way:
        return "–"
    differences = _differences(arm, metric, values, control)
    spread = control[metric].max() - control[metric].min()
    moved = f"{differences.mean():+.3g}".replace("-", "−")
    if dose is not None and dose.sham:
        real = _differences(str(replace(dose, sham=False)), metric, values, control)
        return f"sham: {moved}, {differences.mean() / real.mean():.0%} of its arm".replace("-", "−")
    yes = way * differences.mean() > spread and (way * differences > 0).all()
    if dose is not None and dose.name == "floor":
        yes = yes and values[values["arm"] == arm][metric].min() >= FLOOR_TARGET
    return f"{'yes' if yes else '**no**'}: {moved}, range of the control {spread:.2g}"


def _differences(arm: str, metric: str, values: pd.DataFrame, control: pd.DataFrame) -> "pd.Series[float]":
    """Arm less control, seed by seed."""
    return (values[values["arm"] == arm].set_index("seed")[metric] - control[metric]).dropna()


def _arm(run: Mapping[Hashable, object]) -> str:
    """The dose of a run, or how its head or optimiser is asked for on the command line."""
    if isinstance(dose := run.get("intervene"), str) and dose:
        return dose
    given = {name: str(run[name]) for name in SETTINGS if isinstance(run.get(name), str) and run[name]}
    words = [f"--{name} {value.removesuffix('.0')}" for name, value in given.items()]
    words = [word for word in words if word not in {f"--{name} {value}" for name, value in SETTINGS.items()}]
    return " ".join(words) or "none"


def _dose(arm: str) -> Dose | None:
    return None if arm == "none" or arm.startswith("--") else parse_doses([arm])[0]


def _must_move(arm: str) -> tuple[str | None, int]:
    """The metric that an arm must move, and which way: 1 up, -1 down, 0 where it has a dose of 0 or no metric."""
    dose = _dose(arm)
    if dose is None:
        return MUST_MOVE.get(arm, (None, 0))
    entry = INTERVENTIONS[dose.name]
    sign = 0 if not dose.dose or entry.primary is None else 1 if dose.dose > 0 else -1
    return entry.primary, sign * (1 if entry.plus == "rises" else -1)


def _order(arm: str) -> tuple[float, ...]:
    dose = _dose(arm)
    if dose is None:
        named = arm.split()
        return (-1.0,) if arm == "none" else (0.0, list(SETTINGS).index(named[0].removeprefix("--")), *_place(named[1]))
    return (list(INTERVENTIONS).index(dose.name), abs(dose.dose), dose.sham, -dose.dose)


def _place(value: str) -> tuple[float, ...]:
    """Of heads in their order, of other values as numbers."""
    return (float(list(HEADS).index(value)),) if value in HEADS else (float(value),) if value[0].isdigit() else (0.0,)


def _cell(values: "pd.Series[float]", digits: int) -> str:
    if not values.count():
        return "–"
    spread = f"±{values.std():.{digits}f}" if values.count() > 1 else ""
    return f"{values.mean():.{digits}f}{spread}".replace("-", "−")


if __name__ == "__main__":
    text, values = PAGE.read_text(encoding="utf-8"), values_of_runs(Path(sys.argv[1]))
    name = table_name(values)
    begin, end = BEGIN.format(name), END.format(name)
    before, after = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n{table(values)}\n{end}{after}", encoding="utf-8")
