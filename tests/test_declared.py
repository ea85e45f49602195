"""One declaration per option: the checks, the command line and what Python takes come from the same fields."""

from typing import Annotated, Any

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from collapselab.cli.options import generated
from collapselab.declared import Shown, declared, options_of
from collapselab.errors import ConfigError
from collapselab.measurement.plan import parsed_settings
from collapselab.records.options import Options, Reading, Recipe, Running
from collapselab.training.settings import Settings


@declared
class Toy:
    bins: Annotated[int, Field(ge=0, le=9), Shown("More")] = 3
    """How many bins."""
    null: bool = True
    """Whether there is a null."""
    names: tuple[str, ...] = ()
    """Several names."""


def test_a_field_becomes_an_option_of_a_command() -> None:
    given: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @generated(Toy)
    def toy(model: str, **settings: Any) -> None:
        given.update(settings, model=model)

    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output
    assert "How many bins." in shown
    assert "More" in shown
    done = CliRunner().invoke(app, ["m", "--bins", "5", "--no-null", "--names", "a", "--names", "b"])
    assert done.exit_code == 0, done.output
    assert given == {"model": "m", "bins": 5, "null": False, "names": ["a", "b"]}


@pytest.mark.parametrize("values", [{"bins": 10}, {"bins": -1}, {"bins": "x"}, {"bin": 1}, {"null": 7}])
def test_a_value_out_of_bounds_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        Toy(**values)


@pytest.mark.parametrize("cls", [Options, Running, Recipe, Reading, Settings])
def test_every_option_says_what_it_is(cls: type) -> None:
    options = list(options_of(cls))
    assert len(options) > 4
    assert [option.name for option in options if not option.help.endswith((".", "]"))] == []


def test_measure_takes_every_option_by_name() -> None:
    options, running, by_default = parsed_settings(None, {"layers": "all", "tokens": "2e6", "device": "cpu"})
    assert (options.layers, options.tokens, running.device, by_default) == ("all", 2_000_000, "cpu", False)
    assert parsed_settings(None, {"tokens": "all"})[0].tokens is None
    with pytest.raises(ConfigError, match="layer .* layers"):
        parsed_settings(None, {"layer": "all"})
    with pytest.raises(ConfigError, match="layers"):
        parsed_settings(Options(), {"layers": "all"})
