"""Every rule of `structure.py` finds a planted violation and accepts clean sources."""

from collections.abc import Callable, Iterator

import pytest

import structure


@pytest.mark.parametrize(
    ("rule", "texts", "count"),
    [
        (structure.imports_from_below, {"collapselab.core.a": "def f():\n    import collapselab.report.b"}, 1),
        (structure.imports_from_below, {"collapselab.stray.a": ""}, 1),
        (structure.imports_from_below, {"collapselab.cli.a": "from collapselab.core import b"}, 0),
        (
            structure.cycles,
            {
                "collapselab.core.a": "from collapselab.core.b import x",
                "collapselab.core.b": "def f():\n    from collapselab.core import a",
                "collapselab.core.c": "import collapselab.core.a",
            },
            2,
        ),
        (structure.package_docstrings, {"collapselab.core.__init__": ""}, 1),
        (structure.package_docstrings, {"collapselab.core.__init__": '"""One.\n\ngone.py: an idea."""'}, 1),
        (
            structure.package_docstrings,
            {"collapselab.core.__init__": '"""a.py: an idea."""', "collapselab.core.a": ""},
            0,
        ),
        (structure.utility_modules, {"collapselab.core.text_utils": ""}, 1),
    ],
)
def test_a_violation_is_found(
    rule: Callable[[structure.Texts], Iterator[str]], texts: dict[str, str], count: int
) -> None:
    assert len(list(rule(texts))) == count
