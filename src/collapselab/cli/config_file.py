"""`--config FILE`: options of a command from a YAML file. What the command line or the environment says comes first."""

from pathlib import Path
from typing import Any

import typer

from collapselab.cli.options import long_name

CONFIG_BYTES = 1_000_000


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
    if not file.is_file() or file.stat().st_size > CONFIG_BYTES:
        size = f"{file.stat().st_size:,} bytes are too many" if file.is_file() else "no such file"
        raise ConfigError(f"{file}: {size}. A file with options is needed, as in `tokens: 2e6`.")
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
    if not all(isinstance(one, str | int | float) for one in values):
        written.fail((name,), "a value is needed, or a list of values.")
    if isinstance(value, list) and not several:
        written.fail((name,), "it takes one value, not a list.")
    texts = [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
    return texts if several else texts[0]


def _option_name(parameter: Any) -> str:
    return long_name(parameter) if _is_option(parameter) else str(parameter.name).replace("_", "-")


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")
