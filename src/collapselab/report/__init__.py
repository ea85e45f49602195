"""HTML pages of one model, of several models or of a suite, and their figures as files.

data.py reads tables and their analysis, or results; view.py makes the tables that figures draw, and `View`, all that a
figure is given. charts/ is how we draw, figures/ what we draw: each figure is one entry of `FIGURES`. answer.py has the
verdicts on a suite, provenance.py where the runs come from, words.py the words of all. report.py is the call, and puts
them into web/ as one HTML file; export.py writes the figures as SVG and PDF.
publish.py makes a folder for the hub of a suite's results, with its card, and the parts of a model's card.
"""

import sys
from importlib import import_module
from types import ModuleType


class _Callable(ModuleType):
    """`collapselab.report` names both this package and the public function; calling the package calls the function."""

    def __call__(self, *args: object, **options: object) -> object:
        written: object = import_module("collapselab.report.report").report(*args, **options)
        return written


sys.modules[__name__].__class__ = _Callable
