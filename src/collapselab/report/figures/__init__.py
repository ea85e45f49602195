"""What is drawn: a file for each figure, or for a few that are drawn alike, and one entry in `FIGURES` each.

A figure is a function from a `View` (the story, its models as a table, the legend) to a `Figure` (panels and the tables
that they draw, or the reason why there are none). Its entry says in which section of the page it is, in which order;
`topics` are the topics of the summary whose sentences follow it. The page and `write_figures` loop over the entries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from collapselab.report.charts.panels import Figure
from collapselab.report.data import View
from collapselab.report.figures.atlas import atlas_layers, atlas_models, atlas_training
from collapselab.report.figures.attribution import attribution
from collapselab.report.figures.classes import classes
from collapselab.report.figures.deciders import deciders
from collapselab.report.figures.development import training
from collapselab.report.figures.dose_response import dose_response
from collapselab.report.figures.effects import effects, shams
from collapselab.report.figures.forest import forest
from collapselab.report.figures.how_far_back import how_far_back
from collapselab.report.figures.inside import bins, layers
from collapselab.report.figures.manipulation import manipulation
from collapselab.report.figures.push import push
from collapselab.report.figures.regularisation import regularisation
from collapselab.report.figures.relations import collapse, further
from collapselab.report.figures.scale import loss_and_scale, scale, width_lines
from collapselab.report.figures.seeds import seeds
from collapselab.report.figures.token_lists import first_names, token_ends, token_moves
from collapselab.report.figures.tokens import token_frequency, token_kinds


@final
@dataclass(frozen=True)
class Section:
    """A section of the page: its heading, its name in the bar, and whether it needs an analysis. One that is
    `optional` is left out where none of its figures has anything to draw."""

    title: str
    short: str
    needs_analysis: bool = True
    optional: bool = False


SECTIONS = {
    "atlas": Section("Atlas of models", "Atlas", optional=True),
    "relations": Section("Collapse and the outcome", "Relations"),
    "development": Section("Development", "Development"),
    "fixed": Section("At fixed scale", "At fixed scale"),
    "cause": Section("As a cause", "As a cause", optional=True),
    "inside": Section("Inside the model", "Inside", needs_analysis=False),
    "tokens": Section("Tokens", "Tokens", needs_analysis=False, optional=True),
}


@final
@dataclass(frozen=True)
class FigureEntry:
    """Where a figure is on the page, and how it is drawn. `folded` is shown after a click, under this name."""

    section: str
    order: int
    draw: Callable[[View], Figure]
    topics: tuple[str, ...] = ()
    topics_open: bool = False
    folded: str = ""


FIGURES = {
    "atlas_models": FigureEntry("atlas", 1, atlas_models),
    "atlas_training": FigureEntry("atlas", 2, atlas_training),
    "atlas_layers": FigureEntry("atlas", 3, atlas_layers),
    "collapse": FigureEntry("relations", 1, collapse, topics=("across models",)),
    "further": FigureEntry("relations", 2, further, folded="further metrics"),
    "training": FigureEntry("development", 1, training, topics=("phases",)),
    "scale": FigureEntry("development", 2, scale),
    "width_lines": FigureEntry("development", 3, width_lines),
    "loss_and_scale": FigureEntry("development", 4, loss_and_scale),
    "regularisation": FigureEntry("development", 5, regularisation, topics=("trends",)),
    "forest": FigureEntry("fixed", 1, forest, topics=("controls",)),
    "seeds": FigureEntry("fixed", 2, seeds, topics=("scale held fixed",), topics_open=True),
    "manipulation": FigureEntry("cause", 1, manipulation),
    "effects": FigureEntry("cause", 2, effects, topics=("as a cause",), topics_open=True),
    "dose_response": FigureEntry("cause", 3, dose_response),
    "attribution": FigureEntry("cause", 4, attribution),
    "shams": FigureEntry("cause", 5, shams),
    "layers": FigureEntry("inside", 1, layers),
    "bins": FigureEntry("inside", 2, bins),
    "push": FigureEntry("inside", 3, push),
    "deciders": FigureEntry("inside", 4, deciders),
    "classes": FigureEntry("inside", 5, classes),
    "how_far_back": FigureEntry("inside", 6, how_far_back),
    "token_frequency": FigureEntry("tokens", 1, token_frequency),
    "token_ends": FigureEntry("tokens", 2, token_ends),
    "token_kinds": FigureEntry("tokens", 3, token_kinds),
    "first_names": FigureEntry("tokens", 4, first_names),
    "token_moves": FigureEntry("tokens", 5, token_moves),
}
