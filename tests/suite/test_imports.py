"""Inside the package too, imports go one way."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = SOURCE / "collapselab" / "suite"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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


def test_no_module_of_a_suite_imports_one_that_imports_it() -> None:
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    edges = {module: imports(path, set(paths)) for module, path in paths.items()}
    assert edges["collapselab.suite.run"] >= {"collapselab.suite.launchers"}, "there is something to look at"
    assert [module for module in edges if module in reachable(module, edges)] == []
