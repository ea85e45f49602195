"""View: all that a figure may draw from: the story, its models as a table, and what the legend means."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.report.data import Columns, Keys
from collapselab.report.story import Story


@final
@dataclass(frozen=True)
class View:
    """What every figure is given. `corpus` is the one that the reader named, else None."""

    story: Story
    keys: Keys
    models: Columns
    """The table `models`: one line a model, of the story and of the one beside it."""
    beside: Story | None = None
    corpus: Path | None = None
