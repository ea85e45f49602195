"""Check the structure of `src`: the order of packages, import cycles, package docstrings.

    python tests/structure.py    print what is wrong, and exit with 1 if anything is

`make check` runs it. Every rule is a function from the source texts (module → text) to lines about what is wrong.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"

ORDER = (
    "errors", "declared", "messages", "disk", "hub", "trackers", "core", "records", "corpus", "models",
    "measurement", "training", "suite", "analysis", "report", "demo", "cli",
)  # fmt: skip
"""Packages and top-level modules: each imports only from those before it."""

MAX_DOCSTRING_LINES = 20
Texts = Mapping[str, str]


def sources() -> dict[str, str]:
    """Return the text of every module, by its dotted name; packages end in `.__init__`."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def layer(module: str) -> str:
    """Return the part of the name that `ORDER` lists."""
    return module.split(".")[1]


def imported(text: str) -> set[str]:
    """Return the names of our modules, and of what is taken from them, that a text imports when it runs."""
    names = set()
    tree = ast.parse(text)
    for_types = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for part in ast.walk(statement)
    }
    for node in (node for node in ast.walk(tree) if id(node) not in for_types):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return {name for name in names if name.startswith("collapselab.")}


def imports_from_below(texts: Texts) -> Iterator[str]:
    """Yield imports against the order of packages."""
    for module, text in texts.items():
        if layer(module) in ("__init__", "__main__"):
            continue
        if layer(module) not in ORDER:
            yield f"{module}: {layer(module)} has no place in ORDER"
            continue
        for name in sorted(imported(text)):
            if layer(name) in ORDER and ORDER.index(layer(name)) > ORDER.index(layer(module)):
                yield f"{module} imports {name}, which comes later in ORDER"


def cycles(texts: Texts) -> Iterator[str]:
    """Yield modules that import themselves through others of their package."""
    edges = {
        module: {name for name in imported(text) if name in texts and layer(name) == layer(module)} - {module}
        for module, text in texts.items()
    }
    for module in edges:
        reached, ahead = set(), list(edges[module])
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += edges[name]
        if module in reached:
            yield f"{module} is in an import cycle"


def package_docstrings(texts: Texts) -> Iterator[str]:
    """Yield packages whose docstring is missing, too long, or names a file that does not exist."""
    files = {module.split(".")[-1] + ".py" for module in texts}
    for module, text in texts.items():
        if not module.endswith(".__init__") or module.count(".") < 2:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        if not 0 < len(docstring.splitlines()) <= MAX_DOCSTRING_LINES:
            yield f"{module}: a docstring of 1 to {MAX_DOCSTRING_LINES} lines is needed"
        for name in re.findall(r"\b([a-z_]+\.py)\b", docstring):
            if name not in files:
                yield f"{module}: its docstring names {name}, which does not exist"


BASES = {
    "AnyTable", "BootstrapFacts", "CollapseMonitor", "Collector", "HeadUpdates", "Identity", "Launcher", "Metric", "ModelFacts",
    "OutcomesFacts", "Part", "PassFacts", "Record", "RunError", "StepEntry", "UserError",
}  # fmt: skip
"""The classes of ours that others may inherit from; all others are final."""


def inherited_classes(texts: Texts) -> Iterator[str]:
    """Yield classes that inherit from a class of ours that is not meant as a base."""
    classes = [(module, node) for module, text in texts.items() for node in ast.walk(ast.parse(text))
               if isinstance(node, ast.ClassDef)]  # fmt: skip
    ours = {node.name for _, node in classes}
    for module, node in classes:
        for base in (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases):
            if base in ours and base.lstrip("_") not in BASES:
                yield f"{module}: {node.name} inherits from {base}, which is final (BASES in structure.py)"


def utility_modules(texts: Texts) -> Iterator[str]:
    """Yield modules that are named for no subject."""
    yield from (f"{module}: name it for what it does" for module in texts if "util" in module.split(".")[-1])


RULES: tuple[Callable[[Texts], Iterator[str]], ...] = (
    imports_from_below, cycles, package_docstrings, inherited_classes, utility_modules,
)  # fmt: skip


def main() -> int:
    """Print every violation and return the exit code."""
    texts = sources()
    assert len(texts) > 50, f"no sources below {SOURCE}"
    wrong = [line for rule in RULES for line in rule(texts)]
    print("\n".join(wrong) or f"structure of {len(texts)} modules: nothing wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
