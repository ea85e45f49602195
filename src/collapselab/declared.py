"""Options declared once in a dataclass, from which the command line, validation and docs tables are generated.

    @declared
    class Options:
        bins: Annotated[int, Field(ge=0), Shown("Further numbers")] = 0
        \"""Also measure within this many bins of the classes' counts.\"""

Pydantic checks types and bounds. The docstring of a field is its text in `--help` and in the docs.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from collapselab.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_SHOWN = 200
"""Maximum number of characters of a value in a message."""

T = TypeVar("T")


@dataclass(frozen=True)
class Shown:
    """How an option appears on the command line: its help panel and the placeholder of its value."""

    panel: str | None = None
    metavar: str | None = None
    hidden: bool = False
    """Whether the option can be set from Python only."""


@dataclass(frozen=True)
class DeclaredOption:
    """A field of a class of options."""

    name: str
    type: Any
    default: Any
    """`dataclasses.MISSING` for a required option."""
    help: str
    shown: Shown
    is_parsed: bool
    """Whether the class parses the value from text."""

    @property
    def flag(self) -> str:
        """The option on the command line."""
        flag = self.name.replace("_", "-")
        return f"--no-{flag}" if self.type is bool and self.default is True else f"--{flag}"


@dataclass_transform(frozen_default=True, field_specifiers=(Field, dataclasses.field))
def declared(cls: type[T]) -> type[T]:
    """Make a frozen dataclass validated by pydantic; an invalid value raises ConfigError."""
    config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    made: Any = pydantic_dataclass(frozen=True, config=config)(cls)
    checked = made.__init__

    @functools.wraps(checked)
    def init(self: Any, *values: Any, **named: Any) -> None:
        try:
            checked(self, *values, **named)
        except ValidationError as error:
            raise config_error(error, made.__pydantic_fields__) from error

    made.__init__ = init
    return made  # type: ignore[no-any-return]


def config_error(error: ValidationError, known: Iterable[str]) -> ConfigError:
    """Convert a validation error into one message that names each option, or the most similar one if it is unknown."""
    messages = dict.fromkeys(_message(problem, list(known)) for problem in error.errors())
    return ConfigError("; ".join(messages))


def options_of(cls: type) -> Iterator[DeclaredOption]:
    """Yield the options of a pydantic model or a declared dataclass in order."""
    for name, field in cls.__pydantic_fields__.items():  # type: ignore[attr-defined]
        shown = next((item for item in field.metadata if isinstance(item, Shown)), Shown())
        default = dataclasses.MISSING if field.is_required() else field.get_default(call_default_factory=True)
        help = " ".join((field.description or "").split())
        is_parsed = any(isinstance(item, BeforeValidator) for item in field.metadata)
        yield DeclaredOption(name, field.annotation, default, help, shown, is_parsed)


BOUNDS = {
    "greater_than_equal": "≥ {ge:g}",
    "greater_than": "> {gt:g}",
    "less_than_equal": "≤ {le:g}",
    "less_than": "< {lt:g}",
}
"""Messages for pydantic's errors about bounds."""


def _message(problem: "ErrorDetails", known: list[str]) -> str:
    name = str(problem["loc"][0])[:MAX_SHOWN] if problem["loc"] else ""
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{name} is not a setting. {did_you_mean(name, known)}".rstrip()
    if problem["type"] == "missing":
        return f"{name} is missing; it has no default."
    reason, value = problem["msg"].removeprefix("Value error, "), repr(problem["input"])
    value = value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]} … ({len(value):,} characters)"
    if problem["type"] in BOUNDS:
        return f"{name} must be {BOUNDS[problem['type']].format(**problem['ctx'])}, got {value}."
    return f"{name}: {value} is not valid: {reason[0].lower()}{reason[1:]}." if name else reason
