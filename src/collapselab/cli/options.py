"""Options that several commands share, and those that are generated from declared ones."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup
from typer.models import OptionInfo

from collapselab.declared import DeclaredOption, options_of

SUITES = Path(__file__).parents[1] / "suite" / "recipes"

JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of a table.", rich_help_panel="Output")
]
DEVICE_HELP = "`auto`, `cpu`, `cuda`, `cuda:1`, `xpu` or `mps`."

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
VAR_KEYWORD = Parameter.VAR_KEYWORD


class Commands(TyperGroup):
    """Commands whose options can be set in the environment too, and that take `--quiet` and `--verbose` after them."""

    def get_params(self, ctx: Any) -> Any:
        return _without_variables(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None or isinstance(command, Commands):
            return command
        _without_variables(command.params)
        taken = {name for parameter in command.params for name in parameter.opts}
        for parameter in [] if ctx is None else ctx.find_root().command.params:
            if parameter.name in ("quiet", "verbose") and not taken.intersection(parameter.opts):
                option: Any = copy(parameter)
                option.expose_value, option.hidden, option.callback = False, True, _set_verbosity
                command.params.append(option)
        return command


def _without_variables(parameters: Any) -> Any:
    """Hide the names of environment variables in the help, where they would take more room than the options."""
    for parameter in parameters:
        parameter.show_envvar = False
    return parameters


def _set_verbosity(_: typer.Context, option: Any, value: bool) -> None:
    if value:
        from collapselab.messages import set_verbosity

        set_verbosity(quiet=option.name == "quiet", verbose=option.name == "verbose")


def generated(*classes: type) -> Callable[[Command], Command]:
    """Give a command an option for every field of these classes, passed to it as keyword arguments.

    Options without a panel come first, beside the command's own: the help lists them as the most important ones.
    """

    def decorate(command: Command) -> Command:
        own = [
            entry for entry in signature(command, eval_str=True).parameters.values() if entry.kind is not VAR_KEYWORD
        ]
        named = {entry.name for entry in own}
        options = [option for cls in classes for option in options_of(cls)]
        made = [_parameter(option) for option in options if not option.shown.hidden and option.name not in named]
        by_panel = [*(entry for entry in own if not _panel(entry)), *made, *(entry for entry in own if _panel(entry))]
        keywords = (entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in by_panel)
        entries = sorted(keywords, key=lambda entry: bool(_panel(entry)))
        command.__signature__ = Signature(entries)  # type: ignore[attr-defined]
        command.__annotations__ = {entry.name: entry.annotation for entry in entries}
        return command

    return decorate


def taken(cls: type[T], options: dict[str, Any]) -> T:
    """Remove the options that this class declares from those of a command, and return them as the class."""
    return cls(**{option.name: options.pop(option.name) for option in options_of(cls) if option.name in options})


def _panel(entry: Parameter) -> str:
    infos = get_args(entry.annotation)[1:] if get_origin(entry.annotation) is Annotated else ()
    return next((str(info.rich_help_panel) for info in infos if getattr(info, "rich_help_panel", None)), "")


def _parameter(option: DeclaredOption) -> Parameter:
    """Return the option as typer's parameter; a default of None is not shown, since the help explains it."""
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
    )
    kind = kind | None if default is None else kind
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _cli_type(option: DeclaredOption) -> Any:
    """Return the type that typer parses: text where pydantic accepts numbers and words."""
    is_union = get_origin(option.type) in (Union, UnionType)
    kinds = [part for part in get_args(option.type) if part is not NoneType] if is_union else [option.type]
    kind = get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]
    if get_origin(kind) is tuple:
        return list[str]
    is_plain = kind in (int, float, bool) or get_origin(kind) is Literal
    return kind if is_plain and len(kinds) == 1 and not (option.is_parsed and kind is int) else str


def panel(title: str) -> Callable[..., OptionInfo]:
    """Return `typer.Option` for one panel of the help."""
    return partial(typer.Option, rich_help_panel=title)


def explanation(title: str, parts: Mapping[str, str]) -> Table:
    """Return named texts under a title, one below the other, so that they fit any terminal; empty ones are left out."""
    table = Table(box=None, show_header=False, title=Text(title), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for part, text in parts.items():
        if text:
            table.add_row(part, Text(text))
    return table


def suite_names(incomplete: str) -> list[str]:
    """Return the recipes whose file names begin so; reading the files would make completion slow.

    Where there is none, the shell offers files and folders, since a suite can be one of these too.
    """
    return sorted(recipe.stem for recipe in SUITES.glob("*.yaml") if recipe.stem.startswith(incomplete))
