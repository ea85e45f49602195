"""The text of a recipe or of a configuration file: YAML with the line of every value, so that an error can name it.

Plain words are read as YAML 1.2 does: 5e-4 is a number, `yes` and `on` are words, 010 is ten. PyYAML by itself takes
5e-4 for text and `no` for false, and recipes are full of learning rates.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn, TypeVar, final

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, JsonValue, ValidationError

from collapselab.errors import ConfigError, did_you_mean

Section = dict[str, JsonValue]
Place = tuple[str | int, ...]
"""The place of a value in a recipe: ("grid", "width", 2)."""

LineNumbers = dict[Place, int]
T = TypeVar("T", bound=BaseModel)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # thirty times faster, and there with every wheel of PyYAML
_WORDS: dict[str, bool | None] = {"": None, "null": None, "~": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.I)


def read_yaml(text: str, name: str) -> tuple[JsonValue, LineNumbers]:
    """Return the values in the text, and the line of each; ConfigError names the line of what is not YAML."""
    lines: LineNumbers = {}
    try:
        root = yaml.compose(text, Loader=_Loader)
        return (None if root is None else _value(root, (), lines, name)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {min(mark.line, text.count(chr(10))) + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{name}{where}: not YAML: {problem}.") from error


def _value(node: yaml.Node, path: Place, lines: LineNumbers, name: str) -> JsonValue:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), lines, name) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        values: Section = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, key_node.value
            if not isinstance(key, str):
                raise ConfigError(f"{name}, line {line}: a key must be a word, not a list or a mapping.")
            if key in values:
                raise ConfigError(f"{name}, line {line}: {dotted((*path, key))} is there twice.")
            lines[(*path, key)] = line
            values[key] = _value(value_node, (*path, key), lines, name)
        return values
    if node.style:  # quoted, or a block of text
        return str(node.value)
    return _scalar(node.value)


def _scalar(text: str) -> bool | int | float | str | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text


def dotted(path: Place) -> str:
    """A place as people write it: grid.width[2]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


@final
@dataclass
class Written:
    """The name of a file and the lines of its values: an error in a value names its line."""

    name: str
    lines: LineNumbers

    def fail(self, path: Place, message: str) -> NoReturn:
        place = dotted(path)
        raise ConfigError(f"{self.at(path)}: {f'{place}: {message}' if place else message}")

    def at(self, path: Place) -> str:
        """The file, and the line of the value or of the nearest thing around it."""
        lines = (self.lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in self.lines)
        return next((f"{self.name}, line {line}" for line in lines), self.name)

    def mapping(self, path: Place, values: JsonValue, known: Collection[str] = (), what: str = "") -> Section:
        """Return the values if they are names with values, and the names are among the known ones."""
        if not isinstance(values, dict):
            problem = "it is empty" if values is None and not path else f"{short(values)} is not valid"
            self.fail(path, f"{problem}: settings with their values are needed.")
        for name in values if known else ():
            if name not in known:
                self.fail_unknown((*path, name), known, what)
        return dict(values)

    def fail_unknown(self, path: Place, known: Collection[str], what: str) -> NoReturn:
        """Refuse a name, with the nearest one that is known."""
        hint = did_you_mean(str(path[-1]), known, otherwise=f"Choose from {', '.join(known)}.")
        self.fail(path, f"is not {what}. {hint}")

    def model(self, kind: type[T], values: JsonValue, nested: dict[str, tuple[type[BaseModel], str]], what: str) -> T:
        """Return the values as a pydantic model; `nested` are the models of its fields, and what their names are."""
        known = self.mapping((), values)
        try:
            return kind(**known)
        except ValidationError as error:
            found = max(error.errors(), key=lambda one: len(one["loc"]))  # of a union, the most specific complaint
            path: Place = ()
            for part in found["loc"]:  # without the names of a union's members
                path = (*path, part) if (*path, part) in self.lines or found["type"] == "missing" else path
            if found["type"] == "extra_forbidden":
                model, noun = nested[str(path[0])] if len(path) > 1 else (kind, what)
                self.fail_unknown(path, tuple(model.model_fields), noun)
            reason = found["msg"].removeprefix("Value error, ").rstrip(".")
            value = "" if found["type"] == "missing" else f"{short(found['input'])} is not valid: "
            self.fail(path, f"{value}{reason[0].lower()}{reason[1:]}.")
