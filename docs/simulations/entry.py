"""What an entry of the error rates is: a verdict or an interval, and how one table of it is made and judged."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from collapselab.analysis.controls import Control
from collapselab.analysis.relate import Relation
from collapselab.analysis.resampling import LEVEL


@final
@dataclass(frozen=True)
class Claim:
    """One verdict: what it says, the tables without an effect, those with one, and how to make and judge a table."""

    says: str
    null: str
    """Tables in which the verdict is false."""
    planted: str
    """Tables in which it is true; empty where another entry has them."""
    claims: Callable[[np.random.Generator, bool], bool]
    """Whether the verdict is given on one new table; the flag says if it is true of it."""
    gives: frozenset[str]
    """The answers of the analysis that this entry counts, as `table: answer`."""
    tables: int = 1000
    """At full size; of those with an effect a quarter."""
    needs: Path | None = None
    """A file that is not part of this repository: where it is missing, the counts that are there stay."""


@final
@dataclass(frozen=True)
class Interval:
    """One interval: of what, in which tables, and how to make a table and look."""

    of: str
    tables_are: str
    covers: Callable[[np.random.Generator], bool]
    """Whether the interval of one new table holds the truth."""
    tables: int = 2000


def answers(table: str, *names: str) -> frozenset[str]:
    """Answers of one table of the analysis."""
    return frozenset(f"{table}: {name}" for name in names)


def is_shown(row: Relation | Control) -> bool:
    """Whether the corrected test of a row is significant, with a verdict or without."""
    return row.p_holm is not None and row.p_holm < LEVEL


SHOWN = ("as predicted", "opposite direction", "no direction predicted")
