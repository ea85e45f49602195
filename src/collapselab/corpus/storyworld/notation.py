"""The notation that `storyworld` is written in, read once at import into tables from which stories are written quickly.

Choosing wordings and filling slots are kept apart: a sentence becomes literals, with slots left open as `%(slot)s`,
between places of choice. Telling a story is then joining literals and one `%` over the whole text, both of which run
in C. The notation is described where it is used, in `plots.py` and `things.py`.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, final

Draw = Callable[[], float]  # the next number of [0, 1)

# Weights by rank: quotients of integers, which IEEE 754 rounds alike on every machine.
WEIGHTS: dict[str, Callable[[int], float]] = {
    "flat": lambda rank: 1.0,
    "gentle": lambda rank: 1 / (rank + 12),
    "zipf": lambda rank: 1 / (rank + 2),
    "steep": lambda rank: 1 / (rank + 20) ** 4,
}
LONG = 35  # entries; from here on a word list is steep, so that its last words are seldom seen

PARAGRAPH_CHANCE = 0.7


@final
class WordTable:
    """Words with weights, of which one can be drawn quickly."""

    def __init__(self, words: Iterable[str], weights: str) -> None:
        self.words = tuple(words)
        self.weights = weights
        sums = list(accumulate(map(WEIGHTS[weights], range(len(self.words)))))
        self.bounds = [part / sums[-1] for part in sums[:-1]]

    def pick(self, draw: Draw) -> str:
        return self.words[bisect_right(self.bounds, draw())]

    def respelled(self, spell: Callable[[str], str]) -> "WordTable":
        return WordTable(map(spell, self.words), self.weights)


@final
class Choice:
    """A place in a sentence where one of several wordings is chosen."""

    def __init__(self, options: Iterable["Parts"]) -> None:
        self.options = tuple(options)


Parts = tuple[str | WordTable | Choice, ...]


class Beat(NamedTuple):
    """A step of a plot: how likely it is, and its wordings. Without parts: a paragraph may end here."""

    chance: float
    parts: Parts


class WordRow(NamedTuple):
    """What belongs to one thing: slots whose word is known, and slots with a table to draw it from."""

    fixed: Mapping[str, str]
    drawn: Mapping[str, WordTable]


def expand(parts: Parts, draw: Draw, out: list[str]) -> None:
    """Appends one wording of `parts` to `out`, its slots still open."""
    for part in parts:
        if type(part) is str:
            out.append(part)
        elif type(part) is Choice:
            options = part.options
            expand(options[int(draw() * len(options))], draw, out)
        elif type(part) is WordTable:
            out.append(part.pick(draw))


def with_article(noun: str) -> str:
    vowel = noun.startswith(("a", "e", "i", "o", "u", "hour", "honest"))
    return f"an {noun}" if vowel and not noun.startswith(("uni", "uku", "eu")) else f"a {noun}"


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def open_slots(text: str) -> str:
    return text.replace("{", "%(").replace("}", ")s")


def word_list(text: str) -> WordTable:
    """The entries of a text, the most usual first: between semicolons if there are any, else between commas."""
    words = text.split(";" if ";" in text else ",")
    return WordTable(map(entry, words), "steep" if len(words) >= LONG else "zipf")


def entry(text: str) -> str:
    return open_slots(" ".join(text.split()))


def rows(text: str, tables: Mapping[str, WordTable]) -> dict[str, WordRow]:
    """First column -> row."""
    header, *lines = joined_lines(text)
    names = [name.strip() for name in header.split("|")]
    return {line.split("|")[0].strip(): row(names, line, tables) for line in lines}


def row(names: list[str], line: str, tables: Mapping[str, WordTable]) -> WordRow:
    cells = [cell.strip() for cell in line.split("|")]
    columns = dict(zip(names, cells, strict=False))
    columns |= {name: cell for name, _, cell in (own.partition("=") for own in cells[len(names) :])}
    fixed = {name: cell for name, cell in columns.items() if not {*cell} & {*"<{;"}}
    return WordRow(fixed, {name: column(cell, tables) for name, cell in columns.items() if name not in fixed})


def column(cell: str, tables: Mapping[str, WordTable]) -> WordTable:
    return tables[cell[1:-1]] if cell.startswith("<") else WordTable(map(entry, cell.split(";")), "flat")


def joined_lines(text: str) -> list[str]:
    """The lines of a text, each with the indented lines that continue it."""
    return re.sub(r"\n +", " ", text.strip()).split("\n")


def beats(text: str, scenes: Mapping[str, str], tables: Mapping[str, WordTable]) -> Iterator[Beat]:
    for block in text.strip().split("\n\n"):
        lines = joined_lines(block)
        chance = int(lines.pop(0)[1:]) / 100 if lines[0].startswith("?") else 1
        yield Beat(PARAGRAPH_CHANCE, ()) if lines == ["/"] else Beat(chance, (choice(lines, scenes, tables),))


def choice(lines: list[str], scenes: Mapping[str, str], tables: Mapping[str, WordTable]) -> Choice:
    return Choice(alternative(line, scenes, tables) for line in lines)


def alternative(line: str, scenes: Mapping[str, str], tables: Mapping[str, WordTable]) -> Parts:
    if line.startswith("@"):
        return (choice(joined_lines(scenes[line[1:]]), scenes, tables),)
    return sentence(line.removeprefix("- "), tables)


def sentence(text: str, tables: Mapping[str, WordTable]) -> Parts:
    """The parts of a text with `[a|b]` choices and `<list>` draws."""
    return options(iter(re.split(r"([][|]|<\w+>)", open_slots(text))), tables)[0]


def options(tokens: Iterator[str], tables: Mapping[str, WordTable]) -> list[Parts]:
    """What is between `|`, up to the closing bracket or the end."""
    alternatives: list[list[str | WordTable | Choice]] = [[]]
    for token in tokens:
        if token == "]":
            break
        if token == "[":
            alternatives[-1].append(Choice(options(tokens, tables)))
        elif token == "|":
            alternatives.append([])
        elif token.startswith("<"):
            alternatives[-1].append(fresh(token[1:-1], tables))
        elif token:
            alternatives[-1].append(token)
    return [tuple(parts) for parts in alternatives]


def fresh(name: str, tables: Mapping[str, WordTable]) -> WordTable:
    if name[0].isupper():
        return fresh(name[0].lower() + name[1:], tables).respelled(capitalised)
    return tables[name[2:]].respelled(with_article) if name.startswith("a_") else tables[name]
