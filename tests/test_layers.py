"""A module imports only from what stands above it."""

import ast
import re
from pathlib import Path

import pytest

ORDER = [
    "errors",
    "declared",
    "messages",
    "progress",
    "disk",
    "record",
    "signals",
    "hub",
    "trackers",
    "core",
    "records",
    "corpus",
    "models",
    "measurement",
    "training",
    "suite",
    "analysis",
    "report",
    "demo",
    "cli",
]
SOURCE = Path(__file__).parents[1] / "src" / "collapselab"


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(text: str) -> set[str]:
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return {module.split(".")[1] for module in modules if module.startswith("collapselab.")} - {"__version__"}


def violations(layer: str, text: str) -> set[str]:
    return {found for found in imported_layers(text) if ORDER.index(found) > ORDER.index(layer)}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_the_layers_above_it(path: Path) -> None:
    layer = layer_of(path)
    if layer in ("__init__", "__main__"):
        return
    assert layer in ORDER, f"{layer} has no place in the order"
    assert violations(layer, path.read_text()) == set()


def test_core_imports_nothing_of_ours_but_the_disk() -> None:
    for path in (SOURCE / "core").glob("*.py"):
        assert imported_layers(path.read_text()) <= {"core", "disk"}, path


def test_an_import_from_below_is_found() -> None:
    assert violations("core", "from collapselab.cli import main") == {"cli"}
    assert violations("core", "def f():\n    import collapselab.report.report") == {"report"}
    assert violations("cli", "from collapselab.core import moments") == set()


def test_there_is_no_utils_module() -> None:
    assert not [path for path in SOURCE.rglob("*.py") if "util" in path.stem]


PACKAGES = sorted(path for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
MAP_LINES = 20


def wrong_in_map(folder: Path, text: str) -> list[str]:
    """What is wrong with a package's docstring: it is too long, or names a file that is nowhere in the package."""
    lines = len(text.splitlines())
    named = re.findall(r"(?<![/\w])([a-z_]+(?:/[a-z_]+)*\.py)\b", text)
    missing = [name for name in named if not any((root / name).is_file() for root in (folder, folder.parent, SOURCE))]
    return ([f"{lines} lines"] if lines > MAP_LINES else []) + missing


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent.relative_to(SOURCE)))
def test_the_map_of_a_package_is_short_and_names_files_that_exist(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text, "it has none"
    assert wrong_in_map(path.parent, text) == []


def test_a_wrong_map_is_found(tmp_path: Path) -> None:
    (tmp_path / "here.py").touch()
    assert wrong_in_map(tmp_path, "here.py and records/run.py, as well as a.b.py") == ["b.py"]
    assert wrong_in_map(tmp_path, "gone.py: an idea\n" * 21) == ["21 lines", *["gone.py"] * 21]
    assert len(PACKAGES) > 12
