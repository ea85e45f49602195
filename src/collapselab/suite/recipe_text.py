"""The text of a recipe: YAML, with the line of everything in it, so that an error can say where.

Plain words are read as YAML 1.2 does: 5e-4 is a number, `yes` and `on` are words, 010 is ten. PyYAML by itself takes
5e-4 for text and `no` for false, and recipes are full of learning rates.
"""

import re
from collections.abc import Collection
from typing import NoReturn, TypeVar, final

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, JsonValue, ValidationError

from collapselab.errors import ConfigError, did_you_mean

Place = tuple[str | int, ...]
"""The place of a value in a recipe: ("grid", "width", 2)."""

LineNumbers = dict[Place, int]
T = TypeVar("T", bound=BaseModel)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # thirty times faster, and there with every wheel of PyYAML
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WORDS: dict[str, bool | None] = {"": None, "null": None, "~": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.I)


def read_yaml(text: str, name: str) -> tuple[JsonValue, LineNumbers]:
    """The values in the text, and the line of each; ConfigError names the line of what is not YAML."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {min(mark.line, text.count(chr(10))) + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{name}{where}: not YAML: {problem}.") from error
    if root is None:
        return None, {}
    lines: LineNumbers = {}
    try:
        return _value(root, (), lines, name), lines
    except (RecursionError, ValueError) as error:  # an alias that holds itself, a number of 5,000 digits
        raise ConfigError(f"{name}: {error}.") from error


def has_control_characters(text: str) -> bool:
    """Whether there is a line break or another control character in the text."""
    return _CONTROL.search(text) is not None


def dotted(path: Place) -> str:
    """A place as people write it: grid.width[2]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def short(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


@final
class Written:
    """The lines of a recipe: an error in a value names its line."""

    def __init__(self, name: str, lines: LineNumbers) -> None:
        self.name, self.lines = name, lines

    def fail(self, path: Place, message: str) -> NoReturn:
        place = dotted(path)
        raise ConfigError(f"{self.at(path)}: {f'{place}: {message}' if place else message}")

    def at(self, path: Place) -> str:
        """The recipe, and the line of the value or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.name}, line {self.lines[path[:length]]}"
        return self.name

    def raise_lines(self, section: str) -> None:
        """The values of this section have replaced those at the top; so do their lines."""
        self.lines = self.lines | {path[1:]: line for path, line in self.lines.items() if path[:1] == (section,)}

    def mapping(
        self, path: Place, values: JsonValue, known: Collection[str] = (), what: str = ""
    ) -> dict[str, JsonValue]:
        """The values, if they are names with values, and the names are known ones where these are given."""
        if not isinstance(values, dict):
            said = "it is empty" if values is None and not path else f"{short(values)} is not valid"
            self.fail(path, f"{said}: settings with their values are needed.")
        for name in values if known else ():
            if name not in known:
                hint = did_you_mean(name, known, otherwise=f"There are {', '.join(known)}.")
                self.fail((*path, name), f"is not {what}. {hint}")
        return dict(values)

    def model(self, kind: type[T], path: Place, values: JsonValue, what: str) -> T:
        """The values as a pydantic model."""
        known = self.mapping(path, values, tuple(kind.model_fields), what)
        try:
            return kind(**known)
        except ValidationError as error:
            first = error.errors()[0]
            reason = first["msg"].removeprefix("Value error, ").rstrip(".")
            words = f"{short(first['input'])} is not valid: {reason[0].lower()}{reason[1:]}."
            self.fail(self._known(path, first["loc"]), words)

    def _known(self, path: Place, place: tuple[int | str, ...]) -> Place:
        """The value itself if its line is known, else the setting that holds it."""
        whole = (*path, *place)
        ends = range(len(whole), len(path) + 1, -1)
        return next((whole[:end] for end in ends if whole[:end] in self.lines), whole[: len(path) + 1])


def _value(node: yaml.Node, path: Place, lines: LineNumbers, name: str) -> JsonValue:
    line = node.start_mark.line + 1
    lines[path] = line
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, name)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), lines, name) for i, item in enumerate(node.value)]
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
        raise ConfigError(f"{name}, line {line}: {node.tag} is not a kind of value that a recipe holds.")
    if _SURROGATE.search(node.value):
        raise ConfigError(f"{name}, line {line}: {dotted(path)} holds half of a character (a lone surrogate).")
    if node.style:  # quoted, or a block of text
        return str(node.value)
    return _scalar(node.value)


def _mapping(node: yaml.MappingNode, path: Place, lines: LineNumbers, name: str) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = {}
    for key_node, value_node in node.value:
        line, key = key_node.start_mark.line + 1, key_node.value
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{name}, line {line}: a key is a word, not a list or a mapping.")
        if has_control_characters(key):
            raise ConfigError(f"{name}, line {line}: the key {key!r} has a line break or another control character.")
        if key in values:
            raise ConfigError(f"{name}, line {line}: {dotted((*path, key))} is there twice.")
        values[key] = _value(value_node, (*path, key), lines, name)
        lines[(*path, key)] = line
    return values


def _scalar(text: str) -> bool | int | float | str | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
