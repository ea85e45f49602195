"""The figure of interventions.md that shows one dose and what answers to it, from the suite `dose`.

collapselab suite run dose --scale small
python docs/dose.py suites/dose-small
"""

import sys
from pathlib import Path

import altair as alt
import pandas as pd
from reach import values_of_runs

from collapselab.report.charts.style import PLASMA
from collapselab.training.interventions import parse_doses

OUT = Path(__file__).parent / "images" / "dose.svg"
SHOWN = {"cdnv_log": "cdnv_log, less the control's", "val_loss": "validation loss in nats, less the control's"}


def differences(values: pd.DataFrame) -> pd.DataFrame:
    """A row a pair and quantity: signed dose, whether it is a sham, and arm less control of the same seed."""
    control = values[values["arm"] == "none"].set_index("seed")
    rows = []
    for _, run in values[values["arm"] != "none"].iterrows():
        (dose,) = parse_doses([run["arm"]])
        kind = "sham: permuted labels" if dose.sham else dose.name
        for name, title in SHOWN.items():
            value = run[name] - control[name].get(run["seed"])
            rows.append({"dose": dose.dose, "arm": kind, "seed": run["seed"], "shown": title, "value": value})
    return pd.DataFrame(rows).dropna()


def chart(points: pd.DataFrame) -> alt.HConcatChart:
    """Both quantities against the dose: a dot a pair, a line through the medians."""
    panels = []
    arms = list(dict.fromkeys(points["arm"]))
    for title in SHOWN.values():
        base = alt.Chart(points[points["shown"] == title]).encode(
            x=alt.X("dose:Q", title="dose of within: ρ"),
            color=alt.Color(
                "arm:N",
                title=None,
                scale=alt.Scale(domain=arms, range=[PLASMA[0], PLASMA[6]]),
                legend=alt.Legend(orient="top"),
            ),
        )
        zero = alt.Chart(pd.DataFrame({"y": [0.0]})).mark_rule(color="#999", strokeDash=[3, 3]).encode(y="y:Q")
        dots = base.mark_point(filled=True, size=28, opacity=0.7).encode(y=alt.Y("value:Q", title=title))
        lines = base.mark_line(strokeWidth=1.5).encode(y=alt.Y("median(value):Q", title=title))
        panels.append((zero + lines + dots).properties(width=270, height=200))
    return alt.hconcat(*panels)


if __name__ == "__main__":
    chart(differences(values_of_runs(Path(sys.argv[1])))).save(OUT)
