"""Every module can be imported on Linux, macOS and Windows: what only some systems have is used inside functions."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "collapselab"
MODULES = {"fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "msvcrt", "winreg", "posix", "syslog"}
"""Modules of Python that not every system has."""
NAMES = {
    "os": {"fork", "setsid", "killpg", "getuid", "geteuid", "sched_getaffinity", "statvfs", "getpgid", "uname"},
    "signal": {"SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGCONT", "pthread_sigmask"},
}
"""Parts of modules that not every system has."""


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported: all but the bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from at_import(node)


def not_everywhere(text: str) -> list[str]:
    found = []
    for node in at_import(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES.get(getattr(node.value, "id", ""), ()):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_needs_nothing_that_only_some_systems_have(path: Path) -> None:
    assert not_everywhere(path.read_text(encoding="utf-8")) == []


def test_what_only_some_systems_have_is_found() -> None:
    assert not_everywhere("import fcntl\nfrom resource import getrusage") == ["fcntl", "resource"]
    assert not_everywhere("import os\nclass A:\n    user = os.getuid()") == ["os.getuid"]
    assert not_everywhere("def f():\n    import fcntl\n    os.fork()") == []


IMPORT_ALL = """
import builtins, pkgutil, sys
from importlib import import_module

import collapselab

missing, real = set(sys.argv[1].split()), builtins.__import__

def blocked(name, globals=None, *rest, **more):
    if (globals or {}).get("__name__", "").startswith("collapselab") and name.split(".")[0] in missing:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, *rest, **more)

builtins.__import__ = blocked
of_extras, done = {"collapselab.training.metric", "collapselab.training.lightning"}, 0
for module in pkgutil.walk_packages(collapselab.__path__, "collapselab."):
    if module.name != "collapselab.__main__" and module.name not in of_extras:
        import_module(module.name)
        done += 1
print(done)
"""


def imported(*missing: str) -> subprocess.CompletedProcess[str]:
    """Import every module of the package in a process where the package itself cannot have these modules."""
    command = [sys.executable, "-c", IMPORT_ALL, " ".join(missing)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_module_is_imported_where_those_of_some_systems_are_missing() -> None:
    done = imported(*sorted(MODULES))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 150


def test_a_module_that_is_missing_ends_the_import() -> None:
    done = imported("hashlib")
    assert done.returncode != 0
    assert "No module named 'hashlib'" in done.stderr
