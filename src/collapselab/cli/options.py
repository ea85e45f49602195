"""Options that several commands share, what the shell offers for them, and `--config FILE`: options from a YAML file.

What the command line or the environment says comes before what the file says.
"""

import os
import re
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import MISSING
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from collapselab.declared import DeclaredOption, options_of
from collapselab.trackers import TRACKERS

SUITES = Path(__file__).parents[1] / "suite" / "recipes"
LAUNCHER_FILES = Path(__file__).parents[1] / "suite" / "launchers"

JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of a table.", rich_help_panel="Output")
]


Command = TypeVar("Command", bound=Callable[..., Any])
VAR_KEYWORD = Parameter.VAR_KEYWORD

PREFIX = "COLLAPSELAB"
VERBOSITY = ("quiet", "verbose")


class EnvironmentGroup(TyperGroup):
    """Takes every option from the environment too: `suite run --jobs` from COLLAPSELAB_SUITE_RUN_JOBS.

    The names are not in the help texts, where they would take more room than the options themselves.
    """

    prefix = PREFIX

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            prefix = f"{self.prefix}_{cmd_name.upper().replace('-', '_')}"
            if isinstance(command, EnvironmentGroup):
                command.prefix = prefix
            else:
                _take_verbosity(command, self if ctx is None else ctx.find_root().command)
            take_from_environment(command, prefix)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called; a variable that begins with its name and is no option of it is refused."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not hasattr(command, "commands"):
            _refuse_unknown_variables(command, f"{self.prefix}_{str(name).upper().replace('-', '_')}_")
        return name, command, rest


def _refuse_unknown_variables(command: Any, prefix: str) -> None:
    known = {parameter.envvar for parameter in command.params if parameter.param_type_name == "option"}
    for name in sorted(name for name in os.environ if name.startswith(prefix) and name not in known):
        from collapselab.errors import ConfigError, did_you_mean

        hint = did_you_mean(name, known)
        raise ConfigError(f"{name}: is in the environment, and not an option of {command.name}. {hint}".rstrip())


def take_from_environment(command: Any, prefix: str) -> None:
    """Name the environment variable of each option of a command."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.name not in ("help", "version"):
            parameter.envvar = f"{prefix}_{long_name(parameter).upper().replace('-', '_')}"
            parameter.show_envvar = False


def _take_verbosity(command: Any, root: Any) -> None:
    """Let `--quiet` and `--verbose` be written after the command too, where most people write them."""
    known = {name for parameter in command.params for name in parameter.opts}
    for parameter in root.params:
        if parameter.name in VERBOSITY and not known.intersection(parameter.opts):
            option = copy(parameter)
            option.expose_value, option.hidden, option.callback = False, True, _set_verbosity
            command.params.append(option)


def _set_verbosity(_: typer.Context, option: Any, value: bool) -> None:
    if value:
        from collapselab.messages import set_verbosity

        set_verbosity(quiet=option.name == "quiet", verbose=option.name == "verbose")


def long_name(option: Any) -> str:
    """The name of an option as it is written, without the dashes."""
    return str(max(option.opts, key=len)).lstrip("-")


def generated(*classes: type, leave_out: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for every field of these classes, which it gets as keyword arguments.

    Those without a panel come first, with the command's own: the help shows them as the ones that matter most.
    """

    def decorate(command: Command) -> Command:
        own = [
            entry for entry in signature(command, eval_str=True).parameters.values() if entry.kind is not VAR_KEYWORD
        ]
        options = [option for cls in classes for option in options_of(cls)]
        named = {entry.name for entry in own}.union(leave_out)
        made = [_parameter(option) for option in options if not option.shown.hidden and option.name not in named]
        by_panel = [*(entry for entry in own if not _panel(entry)), *made, *(entry for entry in own if _panel(entry))]
        keywords = (entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in by_panel)
        entries = sorted(keywords, key=lambda entry: bool(_panel(entry)))
        command.__signature__ = Signature(entries)  # type: ignore[attr-defined]
        command.__annotations__ = {entry.name: entry.annotation for entry in entries}
        return command

    return decorate


def _panel(entry: Parameter) -> str:
    infos = get_args(entry.annotation)[1:] if get_origin(entry.annotation) is Annotated else ()
    return next((str(info.rich_help_panel) for info in infos if getattr(info, "rich_help_panel", None)), "")


def _parameter(option: DeclaredOption) -> Parameter:
    """The option as typer knows it; None as the default where the help says what it means."""
    kind, shown = _cli_type(option), option.shown
    flags = [option.flag] if kind is bool and option.default is False else []
    several = get_origin(kind) is list
    default = Parameter.empty if option.default is MISSING else None if several else option.default
    info = typer.Option(
        *flags,
        help=option.help,
        metavar=shown.metavar,
        rich_help_panel=shown.panel,
        show_default=default is not None,
        autocompletion=_names_in(option.help) if option.name in COMPLETED else None,
    )
    kind = kind | None if default is None else kind
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


COMPLETED = ("head", "optimizer")
"""Options whose help lists their values in backticks, which the shell is offered."""


def _names_in(help: str) -> Callable[[str], list[str]]:
    def names(incomplete: str) -> list[str]:
        return [name for name in re.findall(r"`([a-z-]+)`", help) if name.startswith(incomplete)]

    return names


def _cli_type(option: DeclaredOption) -> Any:
    """The type that typer reads: text where pydantic tells numbers from words."""
    is_union = get_origin(option.type) in (Union, UnionType)
    kinds = [part for part in get_args(option.type) if part is not NoneType] if is_union else [option.type]
    kind = get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]
    if get_origin(kind) is tuple:
        return list[str]
    is_plain = kind in (int, float, bool) or get_origin(kind) is Literal
    return kind if is_plain and len(kinds) == 1 and not (option.is_parsed and kind is int) else str


TRACKER_HELP = f"Where to follow it: {', '.join(f'`{name}`' for name in TRACKERS)}."


def tracker_names(incomplete: str) -> list[str]:
    """The trackers that begin so."""
    return [name for name in TRACKERS if name.startswith(incomplete)]


def panel(title: str) -> Callable[..., OptionInfo]:
    """`typer.Option` for the options that the help shows in one panel."""
    return partial(typer.Option, rich_help_panel=title)


def suite_names(incomplete: str) -> list[str]:
    """The recipes that begin so, by the names of their files: reading them would take the shell too long.

    Where none does, the shell offers files and folders, which a suite can be too.
    """
    return sorted(recipe.stem for recipe in SUITES.glob("*.yaml") if recipe.stem.startswith(incomplete))


def launcher_names(incomplete: str) -> list[str]:
    """The launchers that begin so, by the names of their files too."""
    names = (path.stem for path in LAUNCHER_FILES.glob("*.py") if path.stem != "__init__")
    return sorted(name for name in names if name.startswith(incomplete))


def read_config(context: typer.Context, file: Path | None) -> Path | None:
    """The callback of `--config`: the file's values become the defaults of the command's options."""
    if file is not None and not context.resilient_parsing:
        context.default_map = {**(context.default_map or {}), **_values(context, file)}
    return file


def _values(context: typer.Context, file: Path) -> dict[str, Any]:
    """The values of a file by the name of the parameter; ConfigError with the line of what is not an option."""
    from collapselab.errors import ConfigError
    from collapselab.suite.recipe_text import Written, read_yaml

    command: Any = context.command
    names = {_option_name(parameter): parameter for parameter in command.params if parameter.name != "config"}
    if not file.is_file():
        raise ConfigError(f"{file}: no such file. A file with options is needed, as in `tokens: 2e6`.")
    try:
        document, lines = read_yaml(file.read_text("utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not text ({error}).") from error
    written = Written(str(file), lines)
    given = written.mapping((), document)
    given = {name.replace("_", "-"): value for name, value in given.items()}
    written.lines = {(str(path[0]).replace("_", "-"), *path[1:]): line for path, line in lines.items() if path}
    written.mapping((), given, tuple(names), f"an option of {context.info_name}")
    return {
        names[name].name: _texts(
            written, name, value, several=names[name].multiple if _is_option(names[name]) else True
        )
        for name, value in given.items()
        if value is not None
    }


def _texts(written: Any, name: str, value: Any, *, several: bool) -> str | list[str]:
    """The value as the command line would have it: text, or several where the option can be repeated."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(value, str | int | float) for value in values):
        written.fail((name,), "a value is needed, or a list of values.")
    if isinstance(value, list) and not several:
        written.fail((name,), "it takes one value, not a list.")
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return texts if several else texts[0]


def _option_name(parameter: Any) -> str:
    return long_name(parameter) if _is_option(parameter) else str(parameter.name).replace("_", "-")


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")
