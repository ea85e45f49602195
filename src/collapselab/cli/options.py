"""Options that several commands share, and what the shell offers for them."""

from pathlib import Path
from typing import Annotated

import typer

SUITES = Path(__file__).parents[1] / "suite" / "recipes"

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


def suite_names(incomplete: str) -> list[str]:
    """The recipes that begin so, by the names of their files: reading them would take the shell too long.

    Where none does, the shell offers files and folders, which a suite can be too.
    """
    return sorted(recipe.stem for recipe in SUITES.glob("*.yaml") if recipe.stem.startswith(incomplete))
