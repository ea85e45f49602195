"""The script behind the table of interventions: what counts as having reached a property."""

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import dose
import reach


def runs(**arms: list[float]) -> pd.DataFrame:
    """cdnv_log of each arm, seed by seed; `_plus` and `_minus` for the doses of within."""
    names = {"none": "none", "plus": "within:+0.1", "minus": "within:-0.1", "sham": "within:+0.1:sham"}
    return pd.DataFrame(
        [
            {"arm": names[arm], "seed": seed, "val_loss": 3.0 + seed, "cdnv_log": value}
            for arm, values in arms.items()
            for seed, value in enumerate(values)
        ]
    )


NONE = [-0.40, -0.44, -0.42]


@pytest.mark.parametrize(
    ("arm", "values", "verdict"),
    [
        ("plus", [-0.6, -0.6, -0.6], "yes: −0.18, range of the control 0.04"),
        ("plus", [-0.43, -0.45, -0.44], "**no**: −0.02"),
        ("plus", [-0.2, -0.2, -0.2], "**no**: +0.22"),
        ("plus", [-1.0, -0.3, -1.0], "**no**: −0.347"),
        ("minus", [-0.2, -0.2, -0.2], "yes: +0.22"),
        ("minus", [-0.6, -0.6, -0.6], "**no**: −0.18"),
    ],
)
def test_an_arm_reaches_its_property_in_every_pair_and_by_more_than_the_seeds(
    arm: str, values: list[float], verdict: str
) -> None:
    table = reach.table(runs(none=NONE, **{arm: values}))
    (row,) = [line for line in table.splitlines() if "`within" in line]
    assert verdict in row
    assert f"**{sum(values) / 3:.2f}".replace("-", "−") in row, "its primary metric is bold"


def test_a_sham_is_shown_with_its_share_of_the_arm() -> None:
    table = reach.table(runs(none=NONE, plus=[-0.8, -0.84, -0.82], sham=[-0.44, -0.48, -0.46]))
    assert "sham: −0.04, 10% of its arm" in table.splitlines()[-1]
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == [
        "none",
        "`within:+0.1`",
        "`within:+0.1:sham`",
    ]


def test_a_dose_response_is_of_pairs_with_the_same_seed() -> None:
    points = dose.differences(runs(none=NONE, plus=[-0.5, -0.54], sham=[-0.4]))
    assert set(points["arm"]) == {"within", "sham: permuted labels"}
    of_metric = points[points["shown"] == dose.SHOWN["cdnv_log"]]
    assert of_metric["value"].round(9).tolist() == [-0.1, -0.1, 0.0]
    assert (points[points["shown"] == dose.SHOWN["val_loss"]]["value"] == 0).all()
    assert dose.chart(points).to_dict()["hconcat"]


def test_the_frame_has_a_table_of_its_own() -> None:
    values = pd.DataFrame(
        [
            {"arm": arm, "seed": seed, "val_loss": 2.0, "head_cosine_std": value + seed / 100, "etf_error": 1.2}
            for arm, value in (("none", 0.4), ("--head frozen-etf", 0.0))
            for seed in range(2)
        ]
    )
    assert reach.table_name(values) == "frame"
    assert reach.table_name(values[values["arm"] == "none"]) == "reach"
    row = reach.table(values).splitlines()[-1]
    assert "`--head frozen-etf`" in row
    assert "yes: −0.4, range of the control 0.01" in row
