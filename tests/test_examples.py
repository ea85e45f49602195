"""The examples of the public names run, in the order in which the reference shows them, in one folder."""

import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from reference import CONSTANTS, PUBLIC, examples, public_object
from typer.main import get_command

import collapselab
from collapselab.cli import app

WITHOUT = {
    "CollapseCallback": "needs a Trainer: tests/training/test_callback.py",
    "CollapseMetric": "needs the extra torchmetrics: tests/training/test_metric.py",
    "CollapseLightningCallback": "needs the extra lightning: tests/training/test_callback.py",
    "Running": "options that decide no number; measure takes them by keyword",
    "import_published": "needs the published table",
    "run_demo": "takes minutes",
}
"""Public names without an example that runs, and why."""


def test_every_public_name_is_in_the_reference() -> None:
    named = [name for names in PUBLIC.values() for name in names]
    assert sorted(named) == sorted(set(collapselab.__all__) - {"__version__"})


COMMANDS = {
    "demo": ["run_demo"],
    "metrics": ["METRICS"],
    "corpus build": ["build_corpus", "open_source", "Recipe"],
    "corpus show": ["Corpus"],
    "train": ["train", "Settings"],
    "interventions": ["INTERVENTIONS", "HEADS", "OPTIMIZERS"],
    "sample": ["sample"],
    "measure": ["measure", "Options"],
    "tokens": ["token_table", "TokenTable", "load_results"],
    "suite list": ["shipped_recipes", "load_suite"],
    "suite plan": ["suite_plan"],
    "suite run": ["run_suite"],
    "suite status": ["suite_status"],
    "suite collect": ["collect_suite"],
    "suite cancel": ["cancel_suite"],
    "collect": ["collect_models"],
    "import": ["import_published"],
    "analyze": ["analyze"],
    "report": ["report"],
    "publish": ["publish"],
    "compare": ["compare"],
    "similarity": ["similarity"],
}
"""What each command is in Python."""


def test_every_command_has_its_public_names() -> None:
    assert sorted(commands(get_command(app))) == sorted(COMMANDS)
    assert {name for names in COMMANDS.values() for name in names} <= set(collapselab.__all__)


def commands(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_public_name_has_an_example_or_a_reason() -> None:
    lacking = {name for names in PUBLIC.values() for name in names if name not in CONSTANTS and not examples(name)}
    assert lacking == WITHOUT.keys()


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)
    runner, failed, tried = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL), [], 0
    for names in PUBLIC.values():
        for name in names:
            said: list[str] = []
            test = doctest.DocTest(examples(name), {"__name__": "example"}, name, None, None, None)
            outcome = runner.run(test, out=said.append)
            tried += outcome.attempted
            failed += ["".join(said)] if outcome.failed else []
    assert not failed, "\n".join(failed)
    assert tried > 40


def test_a_wrong_example_fails() -> None:
    parsed = doctest.DocTestParser().get_examples(">>> 1 + 1\n3\n")
    test = doctest.DocTest(parsed, {}, "wrong", None, None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


def test_methods_that_notebooks_call_are_there() -> None:
    for name in ("Result", "Results", "Analysis", "Corpus"):
        kind = public_object(name)
        for method in ("_repr_html_", "__repr__", "frames", *(["plot"] if name != "Analysis" else [])):
            assert method in vars(kind), f"{name}.{method}"


def test_the_function_of_the_demo_is_not_its_module() -> None:
    import_module("collapselab.demo")
    assert callable(collapselab.run_demo)
