"""Options that several commands share, those that are made from declared ones, and what the shell offers for them."""

import re
from collections.abc import Callable
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

JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of a table.", rich_help_panel="Output")
]
DEVICE_HELP = "`auto`, `cpu`, `cuda`, `cuda:1`, `xpu` or `mps`."

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
    """Hide the names of environment variables in the help: they would take more room than the options themselves."""
    for parameter in parameters:
        parameter.show_envvar = False
    return parameters


def _set_verbosity(_: typer.Context, option: Any, value: bool) -> None:
    if value:
        from collapselab.messages import set_verbosity

        set_verbosity(quiet=option.name == "quiet", verbose=option.name == "verbose")


def generated(*classes: type) -> Callable[[Command], Command]:
    """Give a command an option for every field of these classes, which it gets as keyword arguments.

    Those without a panel come first, with the command's own: the help shows them as the ones that matter most.
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
        autocompletion=names_in(option.help) if option.name in COMPLETED else None,
    )
    kind = kind | None if default is None else kind
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


COMPLETED = ("head", "optimizer", "report_to")
"""Options whose help lists their values in backticks, which the shell is offered."""


def names_in(help: str) -> Callable[[str], list[str]]:
    """Offer the shell the names that a help text has in backticks."""
    return lambda incomplete: [name for name in re.findall(r"`([a-z-]+)`", help) if name.startswith(incomplete)]


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


def panel(title: str) -> Callable[..., OptionInfo]:
    """`typer.Option` for the options that the help shows in one panel."""
    return partial(typer.Option, rich_help_panel=title)


def suite_names(incomplete: str) -> list[str]:
    """The recipes that begin so, by the names of their files: reading them would take the shell too long.

    Where none does, the shell offers files and folders, which a suite can be too.
    """
    return sorted(recipe.stem for recipe in SUITES.glob("*.yaml") if recipe.stem.startswith(incomplete))
