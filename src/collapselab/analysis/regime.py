"""Regime: how a model was trained, as the settings that vary within an architecture.

In a table it is text, `epochs=10 epoch=6`: `str` writes it and `Regime.read` reads it. Nothing else takes it apart.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, final
from urllib.parse import unquote

from collapselab.records.table import Cell

NUMBERS = ("epochs", "epoch", "weight_decay", "lr", "step")
"""Settings that are numbers in every table of runs; all others are text."""
UNKNOWN = "?"
ONLY = "the only one"
"""How a regime is written where no setting varies."""


@final
class Setting(NamedTuple):
    """One setting and its value: a number for `NUMBERS`, text for all others, None where it is not known."""

    name: str
    value: float | str | None


@final
class Regime(NamedTuple):
    """The settings of a regime, in the order of the table's columns."""

    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Cell]) -> "Regime":
        """The regime of these columns of one model; numbers keep six digits, as many as are written."""
        return cls(tuple(Setting(name, _value(name, value)) for name, value in zip(names, values, strict=True)))

    @classmethod
    def read(cls, text: str) -> "Regime":
        """The regime that `str` wrote."""
        if text in ("", ONLY):
            return cls()
        pairs = (part.partition("=")[::2] for part in text.split(" "))
        return cls.of(*zip(*((unquote(name), unquote(value)) for name, value in pairs), strict=True))

    def __str__(self) -> str:
        return " ".join(f"{_quoted(name)}={_text(value)}" for name, value in self.settings) or ONLY

    def number(self, name: str) -> float | None:
        """The value of a setting that is a number; None where it is not known, or does not vary."""
        value = dict(self.settings).get(name)
        return value if isinstance(value, float) else None

    def with_number(self, name: str, value: float) -> "Regime":
        """The same with another value of one setting."""
        return Regime(tuple(Setting(name, value) if setting.name == name else setting for setting in self.settings))

    def without(self, name: str) -> "Regime":
        """All but this setting."""
        return Regime(tuple(setting for setting in self.settings if setting.name != name))


def _value(name: str, value: Cell) -> float | str | None:
    if value is None or value == UNKNOWN or (isinstance(value, float) and math.isnan(value)):
        return None
    if name in NUMBERS:
        return float(f"{float(value):g}")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(value: float | str | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:g}" if isinstance(value, float) else _quoted(value)


def _quoted(text: str) -> str:
    """Text in which no space and no equals sign is left, so that it can be read again."""
    for character in "% =":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
