"""The classes that the page's section *Tokens* is about: of one model, the one with the best outcome that has them.

The texts of tokens are other people's: whatever is not printable in them is escaped here (`quoted`), and the page sets
what is left as text, never as HTML.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import pandas as pd

from collapselab.analysis.tokens import LEAST_COUNT, TokenTable, tokens_of_frame
from collapselab.records.table import ColumnTable
from collapselab.records.tables import CLASSES, Run
from collapselab.report.story import Story

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 40
"""Signs of a token that are shown."""


@final
@dataclass(frozen=True)
class ModelTokens:
    """The classes of a model at its last measured checkpoint, and at its initialisation where that was measured."""

    run: str
    last: TokenTable
    initial: TokenTable | None

    @property
    def name(self) -> str:
        return quoted(self.last.name)


def model_tokens(story: Story) -> ModelTokens | None:
    """The classes of the model with the lowest validation loss; None where none were measured."""
    chunks = story.tables.tables.get("classes", [])
    if not chunks:
        return None
    whole = CLASSES.whole(chunks)
    measured = _checkpoints(whole)
    latest = story.latest(measured)
    best = min(latest, key=lambda key: _loss(latest[key]), default=None)
    if best is None:
        return None
    run, checkpoint = best
    initial = _table(whole, run, "0") if checkpoint != "0" and (run, "0") in measured else None
    return ModelTokens(run, _table(whole, run, checkpoint), initial)


def quoted(text: object) -> str:
    """A token as it can be read: in quotes, so that spaces are seen; what is not printable is escaped, the long cut."""
    whole = repr(str(text))
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def _checkpoints(whole: "pa.Table") -> set[tuple[str, str]]:
    groups = whole.group_by(["run", "checkpoint"]).aggregate([])
    return set(zip(groups["run"].to_pylist(), groups["checkpoint"].to_pylist(), strict=True))


def _loss(run: Run) -> tuple[bool, float]:
    loss = run["val_loss"]
    return loss is None, 0.0 if loss is None else float(loss)


def _table(whole: "pa.Table", run: str, checkpoint: str) -> TokenTable:
    import pyarrow.compute as pc

    wanted = {"run": run, "checkpoint": checkpoint, "split": "train", "layer": "last"}
    mask = None
    for column, value in wanted.items():
        same = pc.equal(whole[column], value)
        mask = same if mask is None else pc.and_(mask, same)
    assert isinstance(CLASSES, ColumnTable)
    frame: pd.DataFrame = CLASSES.frame([whole.filter(mask)])
    return tokens_of_frame(f"{run} {checkpoint}", frame, min_count=LEAST_COUNT)
