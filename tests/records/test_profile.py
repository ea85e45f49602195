"""The seven lines of a result: headline values between null and ideal."""

from collapselab.core.catalogue import METRICS
from collapselab.records.profile import HEADLINES, profile, verdict
from collapselab.records.tables import Row


def row(metric: str, value: float | None, null: float | None) -> Row:
    return Row(
        run="m", checkpoint="-", split="train", layer="last", bin="all", metric=metric, value=value, null=null,
        low=None, high=None, classes=9, tokens=99, min_count=1, left_out=0, version=1, why="none" if value is None else None,
    )  # fmt: skip


def test_a_value_lies_between_its_null_and_its_ideal() -> None:
    (bar,) = profile([row("agreement", 0.55, 0.05)])
    assert bar.headline.code == "NC4"
    assert abs((bar.share or 0) - 0.5 / 0.95) < 1e-12
    (bar,) = profile([row("norm_cv", 3.0, 2.0)])
    assert bar.share == 0, "farther from collapse than the null is the left end"
    (bar,) = profile([row("norm_cv", 0.0, 2.0)])
    assert bar.share == 1
    (bar,) = profile([row("norm_cv", 1.0, None)])
    assert bar.share is None


def test_a_range_is_shown_where_metrics_disagree() -> None:
    (bar,) = profile([row("within_share", 0.9, 1.0), row("vci", 0.5, 1.0)])
    assert (bar.low, bar.high) == (1.0 - 0.9, 0.5)
    (bar,) = profile([row("within_share", 0.5, 1.0), row("vci", 0.52, 1.0)])
    assert bar.low is None


def test_every_headline_is_a_metric_with_a_direction_and_no_value_is_left_out() -> None:
    assert [METRICS[headline.metric].direction for headline in HEADLINES] == ["falls"] * 4 + ["rises", "falls", "rises"]
    assert profile([row("agreement", None, 0.1)]) == []


def test_a_verdict_counts_the_properties_nearer_to_collapse_than_to_shuffled_labels() -> None:
    """One property alone is no collapse: a random model's norms can be half of the way, by the noise of rare classes."""
    near, far = row("norm_cv", 0.5, 1.15), row("agreement", 0.001, 0.0)
    angles, duality = row("cosine_error", 0.17, 0.13), row("duality_cos_mean", 0.6, 0.0)
    assert verdict(profile([near, far, angles])).startswith("Not collapsed: 1 of 3")
    assert verdict(profile([near, far, duality])).startswith("Partly collapsed: 2 of 3")
    assert verdict(profile([near, duality])).startswith("Collapsed: 2 of 2")
    assert verdict(profile([far])).startswith("Not collapsed: none of 1")
