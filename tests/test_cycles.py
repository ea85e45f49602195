"""Inside a package, too, imports go one way: no module imports one that imports it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = sorted(path.parent for path in (SOURCE / "collapselab").glob("*/__init__.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(text: str, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names & modules


def reachable(module: str, edges: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = list(edges[module])
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += edges[name]
    return reached


def in_cycles(edges: dict[str, set[str]]) -> list[str]:
    return [module for module in edges if module in reachable(module, edges)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_imports_one_that_imports_it(package: Path) -> None:
    texts = {module_name(path): path.read_text() for path in package.rglob("*.py")}
    edges = {module: imports(text, set(texts)) - {module} for module, text in texts.items()}
    assert any(edges.values()), "there is something to look at"
    assert in_cycles(edges) == []


def test_a_cycle_is_found() -> None:
    texts = {
        "collapselab.a.one": "def f():\n    from collapselab.a import two",
        "collapselab.a.two": "from collapselab.a.three import x",
        "collapselab.a.three": "import collapselab.a.one",
        "collapselab.a.four": "import collapselab.a.one",
    }
    edges = {module: imports(text, set(texts)) for module, text in texts.items()}
    assert in_cycles(edges) == ["collapselab.a.one", "collapselab.a.two", "collapselab.a.three"]
