"""Options from the environment, and how much a command says."""

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from collapselab import cli
from collapselab.measurement import measure as measuring
from collapselab.messages import is_quiet, set_verbosity
from collapselab.records.measurement import Results


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that `measure` was called with."""
    arguments: dict[str, Any] = {}

    def measure(model: Any, corpus: Any, **options: Any) -> Results:
        arguments.update(options, model=model, corpus=corpus)
        return Results([])

    monkeypatch.setattr(measuring, "measure", measure)
    return arguments


def run(*words: str, **environment: str) -> Any:
    result = CliRunner().invoke(cli.app, ["measure", *words], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command_line_comes_before_the_environment(called: dict[str, Any]) -> None:
    environment = {"COLLAPSELAB_MEASURE_BINS": "2", "COLLAPSELAB_MEASURE_SEED": "2"}
    assert run("m", "--corpus", "c", "--bins", "3", **environment).exit_code == 0
    assert (called["bins"], called["seed"]) == (3, 2)


def commands(group: Any, prefix: str) -> list[tuple[str, Any]]:
    found = []
    for name in group.commands:
        command, own = group.get_command(None, name), f"{prefix}_{name.upper()}"
        found += commands(command, own) if hasattr(command, "commands") else [(own, command)]
    return found


def test_the_help_names_no_variables() -> None:
    every = commands(typer.main.get_command(cli.app), "COLLAPSELAB")
    assert len(every) > 15
    for _, command in every:
        assert not any(option.show_envvar for option in command.params)


def test_how_much_is_said_can_be_set_too(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        assert CliRunner().invoke(cli.app, ["--quiet", "metrics"]).exit_code == 0
        assert is_quiet()
        set_verbosity()
        assert CliRunner().invoke(cli.app, ["metrics"], env={"COLLAPSELAB_QUIET": "1"}).exit_code == 0
        assert is_quiet()
        for words in (["metrics", "--quiet"], ["metrics", "-q"], ["suite", "list", "--quiet"]):
            set_verbosity()
            assert CliRunner().invoke(cli.app, words).exit_code == 0
            assert is_quiet(), words
        assert CliRunner().invoke(cli.app, ["metrics", "-v"]).exit_code == 0
        assert not is_quiet()
    finally:
        set_verbosity()
