"""Plain words: what people read in the source and in the documentation has none of the words of one small circle."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
PRIVATE = re.compile(
    r"\b(so\s+many|in\s+hand|anew|dear|dearer|told|foretold|foretells?|foresees?|foreseen|stands|(goes|go)\s+with|"
    r"shown\s+the\s+wrong\s+way|seen\s+from\s+one\s+another|will\s+not\s+do|becomes?\s+of|hangs?\s+together)\b",
    re.IGNORECASE,
)
KEPT = "more collapse goes with"
"""Words of a column that scripts read since the first version."""


def prose(text: str, suffix: str) -> list[tuple[int, str]]:
    """What people read, each with its line: strings and comments of Python, all of a page."""
    if suffix != ".py":
        return [(1, text)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string) for token in tokens if token.type in PROSE]


def private_words(text: str, suffix: str) -> list[tuple[int, str]]:
    return [
        (line + part[: match.start()].count("\n"), match[0])
        for line, part in prose(text.replace(KEPT, ""), suffix)
        for match in PRIVATE.finditer(part)
    ]


@pytest.mark.parametrize("path", [*PYTHON, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_has_plain_words_only(path: Path) -> None:
    assert private_words(path.read_text(encoding="utf-8"), path.suffix) == []


def test_a_private_word_is_found_with_its_line() -> None:
    source = '"""One idea.\n\nWhich is dear, with so\nmany of them."""\ntold = stands = 1  # read anew\nname = f"{stood} in hand"\n'
    assert private_words(source, ".py") == [(3, "dear"), (3, "so\nmany"), (5, "anew"), (6, "in hand")]
    assert private_words("Metrics go\nwith the loss.\n", ".md") == [(1, "go\nwith")]
    assert private_words("It is understood, and withstands all; handy, dearth, goes without.", ".md") == []


VAGUE = {"found", "one", "its", "held", "both"}
"""Names of variables that do not say what they hold. Fields of records on disk keep theirs."""


def vague_names(text: str) -> list[tuple[int, str]]:
    """Arguments and variables of functions with such a name."""
    names = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            for node in ast.walk(function):
                name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
                is_bound = isinstance(node, ast.arg) or isinstance(getattr(node, "ctx", None), ast.Store)
                if is_bound and name in VAGUE:
                    names.add((node.lineno, name))
    return sorted(names)


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_variables_are_named_by_what_they_hold(path: Path) -> None:
    assert vague_names(path.read_text(encoding="utf-8")) == []


def test_a_vague_name_is_found_with_its_line() -> None:
    source = "def f(one):\n    both = [found for found in one]\n    return both, lambda its: its\n\nclass C:\n    found: int\n"
    assert vague_names(source) == [(1, "one"), (2, "both"), (2, "found"), (3, "its")]


def test_there_is_prose_to_look_at() -> None:
    assert len(PYTHON) > 100
    assert len(PAGES) > 10
    assert sum(len(prose(path.read_text(encoding="utf-8"), ".py")) for path in PYTHON) > 5_000
