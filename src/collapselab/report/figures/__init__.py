"""The figures: similar ones share a file, and each has one entry in `FIGURES`.

A figure is a function from a `View` (the data, its models as a table, the legend) to a `Figure` (panels and their
tables), or to the reason why there is none. Its entry names its section of the page and what a reader should look for;
`topics` are the topics of the summary whose sentences follow it. Within a section, entries are in page order: the first
figure that can be drawn is open, the others are folded. The page and `write_figures` loop over the entries.
"""

from collections.abc import Callable
from dataclasses import dataclass

from collapselab.report.charts.panels import Figure
from collapselab.report.data import Kind
from collapselab.report.figures.cause import attribution, effects, manipulation, shams
from collapselab.report.figures.contexts import how_far_back
from collapselab.report.figures.fixed_scale import forest, seeds
from collapselab.report.figures.inside import bins, deciders, layers, push
from collapselab.report.figures.relations import collapse, explore
from collapselab.report.figures.scale import width_lines
from collapselab.report.figures.tokens import token_ends, token_frequency
from collapselab.report.figures.training import regularisation, training
from collapselab.report.view import View


@dataclass(frozen=True)
class FigureEntry:
    """A figure's section, function, title, and what to look for, in one sentence.

    `{outcome}` in the title is replaced by the outcome's name.
    """

    section: str
    title: str
    look: str
    draw: Callable[[View], Figure | str]
    topics: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = tuple(Kind)
    """Kinds of pages that show it."""


SECTIONS = {
    "models": "Models",
    "relations": "Relations",
    "training": "Training",
    "causes": "Causes",
    "inside": "Inside",
    "tokens": "Tokens",
}
"""Tabs of the page; a tab without figures is left out. `models` is for several collected models."""

FIGURES = {
    "explore": FigureEntry(
        "models", "Any two numbers of the models", "Choose the axes; do models that collapse more have a better loss?",
        explore, kinds=(Kind.MODELS, Kind.SUITE),
    ),
    "forest": FigureEntry(
        "relations", "Correlation with {outcome}, across models and at fixed scale",
        "Is a metric’s round mark (seeds of one size) clear of 0, and on the same side as its square?",
        forest, ("controls",),
    ),
    "collapse": FigureEntry(
        "relations", "Each metric against {outcome}",
        "Do points lie along a line, and does collapse, in the direction of the heading, come with a better outcome?",
        collapse, ("across models",),
    ),
    "seeds": FigureEntry(
        "relations", "Seeds alone", "Is there a slope left among models of one size and one training?",
        seeds, ("scale held fixed",),
    ),
    "width_lines": FigureEntry(
        "relations", "Each metric against width", "Does a line keep its direction from narrow models to wide ones?",
        width_lines,
    ),
    "training": FigureEntry(
        "training", "Along training", "When does a metric leave the level of shuffled labels, and where does it end?",
        training, ("phases",),
    ),
    "regularisation": FigureEntry(
        "training", "Under regularisation", "Are the dots of every width on the same side of the grey line?",
        regularisation, ("trends",),
    ),
    "effects": FigureEntry(
        "causes", "Effects on the outcome",
        "Is an interval clear of 0 (an effect), or inside the shaded band (no effect of interest)?",
        effects, ("as a cause",),
    ),
    "manipulation": FigureEntry(
        "causes", "Did the interventions reach their property?",
        "Did each arm move its own metric, and more than its sham? If not, its effect says nothing.", manipulation,
    ),
    "attribution": FigureEntry(
        "causes", "Do the effects follow the property?",
        "Do all arms, whatever the intervention, lie on one line through 0?", attribution,
    ),
    "shams": FigureEntry(
        "causes", "Shams beside treatments", "Does a treatment do more than its sham (square)?", shams
    ),
    "layers": FigureEntry(
        "inside", "From layer to layer", "At which layer does a metric turn toward collapse?", layers
    ),
    "bins": FigureEntry(
        "inside", "From rare classes to frequent ones", "Are frequent classes closer to collapse than rare ones?", bins
    ),
    "push": FigureEntry(
        "inside", "Features moved toward their class means",
        "Is the loss lowest at α = 0, or would more (α > 0) or less collapse be better?", push,
    ),
    "deciders": FigureEntry(
        "inside", "Which deciders agree", "From which layer on does the nearest mean decide as the output layer does?",
        deciders,
    ),
    "how_far_back": FigureEntry(
        "inside", "How far back", "From which n on is hardly any variance left? The model looks back that far.",
        how_far_back,
    ),
    "token_ends": FigureEntry(
        "tokens", "Most and least collapsed tokens",
        "Which tokens’ contexts does the model treat alike (left), and which does it keep apart (right)? Beside each "
        "token: the CDNV of its class, and how often it occurs.", token_ends,
    ),
    "token_frequency": FigureEntry(
        "tokens", "How often a token occurs, and how far it has collapsed",
        "Does the line rise or fall? Then frequency alone explains part of a token’s collapse.", token_frequency,
    ),
}  # fmt: skip
