"""The text of a recipe: YAML, with the line of everything in it, so that an error can say where.

Plain words are read as YAML 1.2 does: 5e-4 is a number, `yes` and `on` are words, 010 is ten. PyYAML by itself takes
5e-4 for text and `no` for false, which are the two surprises that a recipe of learning rates would meet first.
"""

import difflib
import re
from collections.abc import Collection
from typing import Any, NoReturn, TypeVar, final

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from collapselab.errors import ConfigError

Path = tuple[str | int, ...]
"""Where a value stands: ("grid", "width", 2)."""

Lines = dict[Path, int]
T = TypeVar("T", bound=BaseModel)

_WORDS: dict[str, Any] = {"": None, "null": None, "~": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.I)


def read_yaml(text: str, name: str) -> tuple[Any, Lines]:
    """What the text says, and the line of each value; ConfigError names the line of what is not YAML."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{name}{where}: not YAML: {problem}.") from error
    lines: Lines = {}
    return (None if root is None else _value(root, (), lines, name, ())), lines


def dotted(path: Path) -> str:
    """A place as people write it: grid.width[2]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


@final
class Written:
    """A recipe as it was written: what is wrong with a value in it is told with its line."""

    def __init__(self, name: str, lines: Lines) -> None:
        self.name, self.lines = name, lines

    def fail(self, path: Path, message: str) -> NoReturn:
        place = dotted(path)
        raise ConfigError(f"{self.at(path)}: {f'{place}: {message}' if place else message}")

    def at(self, path: Path) -> str:
        """The recipe, and the line of the value or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.name}, line {self.lines[path[:length]]}"
        return self.name

    def raise_lines(self, section: str) -> None:
        """What stands in the section has taken the place of what stood at the top."""
        self.lines = self.lines | {path[1:]: line for path, line in self.lines.items() if path[:1] == (section,)}

    def mapping(self, path: Path, values: Any, known: Collection[str] = (), what: str = "") -> dict[str, Any]:
        """The values, if they are names with values, and the names are known ones where these are given."""
        if not isinstance(values, dict):
            self.fail(path, f"{values!r} will not do: settings with their values are needed.")
        for name in values if known else ():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
                self.fail((*path, name), f"is not {what}. {hint}")
        return dict(values)

    def model(self, kind: type[T], path: Path, values: Any, what: str) -> T:
        """The values as a pydantic model."""
        self.mapping(path, values, tuple(kind.model_fields), what)
        try:
            return kind(**values)
        except ValidationError as error:
            first = error.errors()[0]
            reason = first["msg"][0].lower() + first["msg"][1:]
            self.fail((*path, first["loc"][0]), f"{first['input']!r} will not do: {reason}.")


def _value(node: Any, path: Path, lines: Lines, name: str, inside: tuple[Any, ...]) -> Any:
    line = node.start_mark.line + 1
    lines[path] = line
    if any(node is outer for outer in inside):
        raise ConfigError(f"{name}, line {line}: {dotted(path)} holds itself.")
    inside = (*inside, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, name, inside)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), lines, name, inside) for i, item in enumerate(node.value)]
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
        raise ConfigError(f"{name}, line {line}: {node.tag} is not a kind of value that a recipe holds.")
    return _scalar(node.value) if node.style is None else node.value


def _mapping(node: Any, path: Path, lines: Lines, name: str, inside: tuple[Any, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line, key = key_node.start_mark.line + 1, key_node.value
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{name}, line {line}: a key is a word, not a list or a mapping.")
        if key in values:
            raise ConfigError(f"{name}, line {line}: {dotted((*path, key))} is there twice.")
        values[key] = _value(value_node, (*path, key), lines, name, inside)
        lines[(*path, key)] = line
    return values


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
