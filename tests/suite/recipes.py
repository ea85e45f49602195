"""Recipes as files, for tests that start from one."""

from pathlib import Path
from typing import Any

import yaml

from collapselab.suite.folder import SuiteFolder
from collapselab.suite.recipe import Suite, load_suite


def written(path: Path, recipe: dict[str, Any], **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(recipe | changes))
    return path


def opened(place: Path, recipe: dict[str, Any], **changes: Any) -> tuple[Suite, SuiteFolder]:
    """The suite of a recipe, and a folder for it beside the recipe."""
    return load_suite(written(place / "tiny.yaml", recipe, **changes)), SuiteFolder(place / "suite")
