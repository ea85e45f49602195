"""What one package hands to another is typed: no `dict[str, Any]` crosses a border between packages."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "collapselab"
LOOSE = re.compile(r"\b([Dd]ict|Mapping)\[str, Any\]")
LIBRARY = {"Spec": "a specification of Vega-Lite, whose types are the library's"}
"""Names that are loose because what they hold is another library's."""


def loose_names(text: str) -> dict[str, str]:
    """Public names of a module with an annotation, or an alias, that is loose: what it is of each."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            annotations = [ast.unparse(part) for part in _annotations(node)]
            if loose := [part for part in annotations if LOOSE.search(part)]:
                found[node.name] = loose[0]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and LOOSE.search(ast.unparse(node)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: ast.unparse(node) for target in targets if isinstance(target, ast.Name)}
    return {name: part for name, part in found.items() if not name.startswith("_")}


def _annotations(node: ast.FunctionDef | ast.ClassDef) -> list[ast.expr]:
    """Of a function its arguments and its result; of a class its fields, and those of its public methods."""
    if isinstance(node, ast.ClassDef):
        fields = [one.annotation for one in node.body if isinstance(one, ast.AnnAssign)]
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
        return [*fields, *(part for method in methods for part in _annotations(method))]
    arguments = [*node.args.args, *node.args.kwonlyargs]
    return [part for part in (*(one.annotation for one in arguments), node.returns) if part is not None]


def crossings(texts: dict[str, str]) -> list[str]:
    """Loose names of modules (package.module → text) that a module of another package imports."""
    loose = {module: loose_names(text) for module, text in texts.items()}
    found = []
    for module, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            home = node.module.removeprefix("collapselab.")
            if home.split(".")[0] == module.split(".")[0]:
                continue
            names = loose.get(home, {})
            found += [
                f"{module} imports {one.name} of {home}: {names[one.name]}" for one in node.names if one.name in names
            ]
    return [line for line in found if line.split(" imports ")[1].split(" of ")[0] not in LIBRARY]


def test_no_loose_dict_crosses_a_border_between_packages() -> None:
    modules = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path.read_text() for path in SOURCE.rglob("*.py")
    }
    assert len(modules) > 100, "there is something to look at"
    assert crossings(modules) == []


def test_a_crossing_is_found() -> None:
    home = "def facts(path: str) -> dict[str, Any]: ...\nclass Row:\n    cells: Mapping[str, Any]\ndef _own() -> dict[str, Any]: ..."
    user = "def f() -> None:\n    from collapselab.a.one import Row, facts"
    assert [line.split(":")[0] for line in crossings({"a.one": home, "b.two": user})] == [
        "b.two imports Row of a.one",
        "b.two imports facts of a.one",
    ]
    assert crossings({"a.one": home, "a.two": user}) == []
