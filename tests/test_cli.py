import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import collapselab
from collapselab import METRICS, cli
from collapselab.errors import UserError
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS

KINDS: dict[str, Any] = {"penalty": INTERVENTIONS, "head": HEADS, "optimizer": OPTIMIZERS}


def test_metrics_lists_the_whole_catalogue() -> None:
    result = CliRunner().invoke(cli.app, ["metrics", "--json"])
    assert result.exit_code == 0
    assert [entry["id"] for entry in json.loads(result.stdout)] == list(METRICS)
    table = CliRunner().invoke(cli.app, ["metrics"], env={"COLUMNS": "200"}).stdout
    assert all(id in table for id in METRICS)


def test_interventions_lists_all_of_them_with_what_each_must_move() -> None:
    result = CliRunner().invoke(cli.app, ["interventions", "--json"])
    assert result.exit_code == 0
    entries = json.loads(result.stdout)
    named = {kind: [entry["name"] for entry in entries if entry["kind"] == kind] for kind in KINDS}
    assert named == {kind: list(table) for kind, table in KINDS.items()}
    assert all(entry["formula"] and entry["source"] and entry["cost"] for entry in entries)
    assert all(len(entry["formula"]) > 1 and entry["words"].endswith(".") and entry["must_move"] for entry in entries)
    table = CliRunner().invoke(cli.app, ["interventions"], env={"COLUMNS": "80"}).stdout
    assert all(name in table for names in named.values() for name in names)


def test_the_version_is_printed_by_the_module_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "collapselab", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == collapselab.__version__


def test_a_user_error_is_one_message_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UserError("corpus: no such folder.")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == "collapselab: corpus: no such folder.\n"


def test_a_panic_of_a_tokenizer_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def panics() -> None:
        raise type("PanicException", (BaseException,), {})("retry-limit-in-match over")

    monkeypatch.setattr(cli, "app", panics)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_name_that_is_not_text_is_printed_escaped() -> None:
    program = "from collapselab import cli; cli.app = lambda: print('a\\udc80b'); cli.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "a\\udc80b\n"


def commands(group: Any, *words: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)
        else:
            yield " ".join((*words, name)), command


@pytest.mark.parametrize(("name", "command"), list(commands(typer.main.get_command(cli.app))))
def test_every_command_says_what_it_does_shows_an_example_and_explains_its_options(name: str, command: Any) -> None:
    first, *further = command.help.split("\n\n")
    assert len(first.split()) >= 3
    assert first.endswith(".")
    assert any(f"collapselab {name}" in line for line in further)
    assert all(parameter.help for parameter in command.params)
    assert len(panels(command).get(None, [])) <= 9, "more options than the eye takes in want groups"


def panels(command: Any) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for parameter in command.params:
        found.setdefault(parameter.rich_help_panel, []).append(parameter.name)
    return found


def test_help_lists_every_command_in_the_order_of_the_work() -> None:
    group: Any = typer.main.get_command(cli.app)
    listed = group.list_commands(None)
    assert sorted(listed) == sorted(group.commands)
    assert listed.index("train") < listed.index("measure") < listed.index("analyze")
    assert listed[0] == "demo"


def asked(words: str) -> dict[str, str]:
    """What bash sets to have the last word completed."""
    return {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_COLLAPSELAB_COMPLETE": "complete_bash"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("collapselab suite plan de", ["demo"]),
        ("collapselab suite plan ./de", []),  # the shell's own: files and folders
        ("collapselab an", ["analyze"]),
        ("collapselab demo --no", ["--no-open"]),
        ("collapselab train --schedule cos", ["cosine"]),
    ],
)
def test_the_shell_is_offered_commands_options_and_suites(words: str, offered: list[str]) -> None:
    result = CliRunner().invoke(cli.app, prog_name="collapselab", env=asked(words))
    assert result.stdout.split() == offered


def test_the_names_of_suites_that_the_shell_is_offered_are_those_that_are_shipped() -> None:
    from collapselab.cli.options import suite_names
    from collapselab.suite.recipe import shipped_recipes

    assert suite_names("") == list(shipped_recipes())


COMPLETING = """
import atexit, sys
from collapselab.cli import main
atexit.register(lambda: print("torch" in sys.modules, file=sys.stderr))
sys.argv = ["collapselab"]
main()
"""


def test_the_shell_does_not_wait_for_torch() -> None:
    result = subprocess.run(
        [sys.executable, "-c", COMPLETING],
        env=os.environ | asked("collapselab suite plan de"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout.strip(), result.stderr.strip()) == ("demo", "False")


NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("asked", "waiting"),
    [
        ({}, ["passive", "1000"]),
        ({"OMP_WAIT_POLICY": "active"}, ["active", "None"]),
        ({"OMP_WAIT_POLICY": "passive"}, ["passive", "None"]),
        ({"GOMP_SPINCOUNT": "0"}, ["passive", "0"]),
    ],
)
def test_threads_hardly_spin_unless_the_user_says_otherwise(asked: dict[str, str], waiting: list[str]) -> None:
    code = (
        "import os, sys\n"
        "import collapselab.cli\n"
        "assert 'torch' not in sys.modules, 'OpenMP has read its settings'\n"
        "sys.argv = ['collapselab', '--version']\n"
        f"try:\n    collapselab.cli.main()\nexcept SystemExit:\n    print(*map(os.environ.get, {NAMES}))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | asked
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == waiting
