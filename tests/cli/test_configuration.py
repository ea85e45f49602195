"""Options from a file and from the environment, and how much a command says."""

from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from collapselab import cli
from collapselab.cli.options import take_from_environment
from collapselab.errors import ConfigError
from collapselab.measurement import measure as measuring
from collapselab.measurement.plan import parsed_settings
from collapselab.messages import is_quiet, set_verbosity
from collapselab.records.measurement import Results
from collapselab.records.options import Options


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


def written(folder: Path, text: str) -> str:
    (folder / "measure.yaml").write_text(text)
    return str(folder / "measure.yaml")


def test_a_file_gives_options_and_the_model(tmp_path: Path, called: dict[str, Any]) -> None:
    text = "model: [a, b]\ncorpus: c\ntokens: 2e6\nlayers: all\nskip_positions: 2\nclasses: true\non: [d, e]\n"
    assert run("--config", written(tmp_path, text)).exit_code == 0
    assert called["model"] == ["a", "b"]
    assert called["corpus"] == [Path("c")]
    expected = {"layers": "all", "skip_positions": 2, "classes": True, "on": ["d", "e"]}
    assert {name: called[name] for name in expected} == expected
    assert parsed_settings(None, {"tokens": called["tokens"]})[0] == Options(tokens=2_000_000)


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, called: dict[str, Any]
) -> None:
    file = written(tmp_path, "corpus: c\nbins: 1\nseed: 1\nmin-count: 2\n")
    environment = {"COLLAPSELAB_MEASURE_BINS": "2", "COLLAPSELAB_MEASURE_SEED": "2"}
    assert run("m", "--config", file, "--bins", "3", **environment).exit_code == 0
    assert (called["bins"], called["seed"], called["min_count"]) == (3, 2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("corpus: c\nbin: 4\n", "line 2: bin: is not an option of measure. Did you mean bins?"),
        ("bins: [1, 2]\n", "line 1: bins: it takes one value, not a list."),
        ("bins: {a: 1}\n", "line 1: bins: a value is needed"),
        ("- a\n", "settings with their values are needed"),
        ("bins: [\n", "not YAML"),
        ("config: other.yaml\n", "is not an option"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_its_line(
    text: str, words: str, tmp_path: Path, called: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as refused:
        run("m", "--config", written(tmp_path, text))
    assert words in str(refused.value)
    assert not called


def test_a_wrong_value_of_a_file_is_refused_as_on_the_command_line(tmp_path: Path, called: dict[str, Any]) -> None:
    assert run("m", "--config", written(tmp_path, "corpus: c\nbins: many\n")).exit_code == 2
    with pytest.raises(ConfigError, match="none.yaml: no such file"):
        run("m", "--config", str(tmp_path / "none.yaml"), "--corpus", "c")
    assert not called


def commands(group: Any, prefix: str) -> list[tuple[str, Any]]:
    found = []
    for name in group.commands:
        command, own = group.get_command(None, name), f"{prefix}_{name.upper()}"
        found += commands(command, own) if hasattr(command, "commands") else [(own, command)]
    return found


def test_every_option_of_every_command_has_a_variable_of_its_own_name() -> None:
    every = commands(typer.main.get_command(cli.app), "COLLAPSELAB")
    assert len(every) > 15
    for prefix, command in every:
        for option in command.params:
            if option.param_type_name == "option":
                written_name = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
                assert option.envvar == f"{prefix}_{written_name}"
                assert not option.show_envvar


def test_a_variable_that_is_no_option_is_refused_by_its_command_alone(called: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        run("m", "--corpus", "c", COLLAPSELAB_MEASURE_LAYRES="all")
    assert "COLLAPSELAB_MEASURE_LAYRES: is in the environment, and not an option of measure" in str(refused.value)
    assert "Did you mean COLLAPSELAB_MEASURE_LAYERS?" in str(refused.value)
    assert not called
    assert run("m", "--corpus", "c", COLLAPSELAB_TRAIN_LAYRES="all", COLLAPSELAB_MEASURE_LAYERS="all").exit_code == 0
    assert called["layers"] == "all"
    ran = CliRunner().invoke(cli.app, ["suite", "list"], env={"COLLAPSELAB_SUITE_LIST_JSONN": "1"})
    assert "COLLAPSELAB_SUITE_LIST_JSONN: is in the environment, and not an option of list" in str(ran.exception)


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


def test_an_option_without_a_long_name_would_have_its_short_one() -> None:
    group: Any = typer.main.get_command(cli.app)
    take_from_environment(group, "X")
    assert {option.envvar for option in group.params if option.envvar} >= {"X_QUIET", "X_VERBOSE"}
