"""Figures: panels side by side, each of one metric, drawn from named tables with one look.

A panel knows nothing of where it will stand. The page draws each into its own frame, which lets them follow the width
of the screen; a file gets them side by side, with the legend that the page writes itself.
"""

from dataclasses import dataclass, field
from typing import Any, final

import altair as alt

from collapselab.report.axes import drawn_values, logarithmic_values, null_level, null_of, value_axis
from collapselab.report.data import Keys
from collapselab.report.names import metric_name, outcome_name, property_code, property_name
from collapselab.report.story import Story
from collapselab.report.style import SHAPES, WHERE_CHOSEN, WHERE_SHOWN

ARROWS = {-1: "falls toward collapse", 1: "rises toward collapse", 0: ""}
BRUSH = "brush"
WITH_A_MOUSE = "[pointerdown[event.pointerType != 'touch'], window:pointerup] > window:pointermove!"
"""A finger scrolls; there the form above the panels marks models."""


@final
@dataclass(frozen=True)
class Panel:
    """One chart: `table` names what it draws, `numbers` says in words what it shows."""

    key: str
    chart: Any
    table: str
    numbers: str
    metric: str = ""
    note: str = ""
    fit: str = ""
    """R² of what is drawn before any filter; the page keeps it current."""
    height: int = 190

    @property
    def code(self) -> str:
        return property_code(self.metric)

    @property
    def heading(self) -> str:
        return metric_name(self.metric) if self.metric else ""

    @property
    def property(self) -> str:
        return property_name(self.metric)


@final
@dataclass(frozen=True)
class Figure:
    """Panels that belong together. Without panels `missing` says why there are none."""

    key: str
    title: str
    caption: str = ""
    panels: list[Panel] = field(default_factory=list)
    legend: tuple[str, ...] = ()
    missing: str = ""

    @property
    def cards(self) -> list[list[Panel]]:
        """The panels by the metric they are about: one without a metric goes with the one before it."""
        cards: list[list[Panel]] = []
        for panel in self.panels:
            if panel.metric or not cards:
                cards.append([panel])
            else:
                cards[-1].append(panel)
        return cards


def collapse(story: Story, keys: Keys, metrics: list[str], *, key: str, beside: bool = False) -> Figure:
    """Each metric against the outcome: the paper's panels."""
    outcome = outcome_name(story.outcome)
    caption = (
        "Each point is a trained model. The line is a least-squares fit; R² is of the models that are shown. A dashed "
        "line is the median level with shuffled labels, where it was measured; one far off is named at the edge. On a "
        "logarithmic axis, which metrics get that span a decade, line and second R² are of the logarithm. Across "
        "models size differs too: this describes them, and says nothing of collapse apart from scale."
    )
    panels = [_against_outcome(story, keys, metric, key=key, beside=beside) for metric in metrics]
    title = f"Each metric against {outcome}"
    missing = "" if panels else "No metric was measured here."
    return Figure(key, title, caption, panels, ("width", "depth", "training"), missing)


def _against_outcome(story: Story, keys: Keys, metric: str, *, key: str, beside: bool) -> Panel:
    outcome, log = story.outcome, metric in story.logarithmic
    mine = _known(metric, outcome).transform_filter("datum.trained && datum.source === 0")
    x = alt.X(f"{outcome}:Q", title=outcome_name(outcome), scale=alt.Scale(zero=False))
    y = value_axis(metric, logarithmic_values(story, metric))
    points = mine.mark_point(filled=True, stroke=None).encode(
        x=x, y=y, color=width_colour(keys), size=depth_size(keys), shape=training_shape(keys),
        opacity=alt.condition(WHERE_CHOSEN, alt.value(0.85), alt.value(0.07)), tooltip=tooltip(outcome, [metric]),
    )  # fmt: skip
    layers: list[Any] = [*null_level(story, metric, drawn_values(story, metric), log=log, side="left")]
    if beside:
        others = _known(metric, outcome).transform_filter("datum.trained && datum.source !== 0")
        ghosts = others.mark_point(filled=False, color="var(--other)", opacity=0.55, size=22, strokeWidth=1)
        layers.append(ghosts.encode(x=x, y=y, tooltip=tooltip(outcome, [metric])))
    layers += [
        _fit(mine, metric, outcome, log=log),
        points.add_params(alt.selection_interval(name=BRUSH, on=WITH_A_MOUSE)),
    ]
    return Panel(
        f"{key}-{metric}", with_links(alt.layer(*layers)), "models", _numbers(story, metric), metric,
        note=direction(story, metric), fit=_fit_words(story, metric),
    )  # fmt: skip


def _known(metric: str, outcome: str) -> Any:
    chart = alt.Chart(alt.NamedData("models")).transform_filter(f"isValid(datum['{metric}'])")
    return chart.transform_filter(f"isValid(datum['{outcome}'])").transform_filter(WHERE_SHOWN)


def _fit(models: Any, metric: str, outcome: str, *, log: bool) -> Any:
    """The line of least squares, of the logarithm where that is what is drawn."""
    if log:
        models = models.transform_calculate(drawn=f"log(datum['{metric}'])")
    else:
        models = models.transform_calculate(drawn=f"datum['{metric}']")
    line = models.transform_regression(outcome, "drawn").transform_filter("isFinite(datum.drawn)")
    line = line.transform_calculate(**{metric: "exp(datum.drawn)" if log else "datum.drawn"})
    return line.mark_line(color="var(--ink)", strokeWidth=1.4, opacity=0.75, clip=True).encode(
        x=f"{outcome}:Q", y=f"{metric}:Q"
    )


def width_colour(keys: Keys) -> Any:
    colours = [f"var(--w{i})" for i in range(len(keys.widths))]
    return alt.Color("wide:N", title="width", scale=alt.Scale(domain=keys.widths, range=colours))


def depth_size(keys: Keys) -> Any:
    return alt.Size(
        "deep:O",
        title="depth",
        sort=keys.depths,
        scale=alt.Scale(domain=keys.depths, range=depth_areas(len(keys.depths))),
    )


def depth_areas(count: int) -> list[float]:
    return [28 + 112 * i / max(count - 1, 1) if count > 1 else 60 for i in range(count)]


def training_shape(keys: Keys) -> Any:
    shapes = list(SHAPES[: len(keys.trainings)])
    return alt.Shape("training:N", title="training", scale=alt.Scale(domain=keys.trainings, range=shapes))


def tooltip(outcome: str, metrics: list[str]) -> list[Any]:
    """What hovering says of a model."""
    settings = [("run", "run", "N"), ("checkpoint", "checkpoint", "N"), ("family", "family", "N"),
                ("wide", "width", "N"), ("deep", "depth", "N"),
                ("regime", "training", "N"), ("seed", "seed", "N")]  # fmt: skip
    told = [alt.Tooltip(f"{name}:{kind}", title=title) for name, title, kind in settings]
    told.append(alt.Tooltip("parameters:Q", title="parameters", format=","))
    told.append(alt.Tooltip(f"{outcome}:Q", title=outcome_name(outcome), format=".4f"))
    return told + [alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g") for metric in metrics]


def with_links(chart: Any) -> Any:
    """The two signals by which the page filters and highlights models in every panel."""
    everything = {"all": True}
    return chart.add_params(alt.param(name="shown", value=everything), alt.param(name="chosen", value=everything))


def direction(story: Story, metric: str) -> str:
    return ARROWS[story.models.toward[metric].sign] if story.models else ""


def _numbers(story: Story, metric: str) -> str:
    relation = story.relation(metric)
    start = f"{metric_name(metric)} ({metric}) against {outcome_name(story.outcome)}"
    if relation is None or relation.r is None or relation.r2 is None:
        why = relation.why if relation and relation.why else "not related."
        return f"{start}: values {extent(story, metric)}; no R²: {why}"
    text = f"{start} for {relation.n:,} models: r {relation.r:+.2f}, R² {relation.r2:.2f}"
    logarithm = story.relation(metric, transform="log")
    if logarithm is not None and logarithm.r2 is not None:
        text += f", R² of the logarithm {logarithm.r2:.2f}"
    return f"{text}; values {extent(story, metric)}{_null_words(story, metric)}."


def extent(story: Story, metric: str) -> str:
    """From the smallest value to the largest, in words."""
    assert story.models is not None
    values = story.models.trained[metric].dropna()
    return f"{values.min():.3g} to {values.max():.3g}" if len(values) else "not known"


def _null_words(story: Story, metric: str) -> str:
    level = null_of(story, metric)
    return "" if level is None else f", with shuffled labels {level:.3g}"


def _fit_words(story: Story, metric: str) -> str:
    relation, logarithm = story.relation(metric), story.relation(metric, transform="log")
    if relation is None or relation.r2 is None:
        return "no R²"
    log = f", log {logarithm.r2:.2f}" if logarithm is not None and logarithm.r2 is not None else ""
    return f"R² {relation.r2:.2f}{log}, n {relation.n}"
