"""Small English children's stories, generated from a seed: a corpus that needs no download.

A story is a pure function of (seed, split, index), so any range of stories can be generated on its own, resumed or
distributed. Generation has three steps. The plan fixes the plot, the hero and the topic. The plot is then expanded to
one text with its alternatives chosen and its slots still open. Finally, the slots are filled from the cast, which
remembers every word it has drawn; this keeps names, pronouns and things consistent through the story.

Training and validation share no story by construction: the hash of a plan decides which split it belongs to, and each
split redraws plans until one belongs to it. The hero and the topic of a plan always occur in the text. Validation
therefore has the heroes, plots and topics of training, in combinations that training never contains.

Stories are identical on every machine and Python version: all randomness comes from `random.Random(n).random()`, the
only sequence that Python guarantees to keep.

The words and plots are in `storyworld.yaml`, which also describes their notation. `world()` reads that file once, when
the first story is generated. Expanding a plot only joins strings in which slots are open as `%(slot)s`, and one `%`
operation fills all of them; both run in C.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

SPLITS = ("train", "validation")
VALIDATION_SHARE = 1 / 8  # of the plans
MIN_WORDS, MAX_WORDS = 60, 250
PARAGRAPH_CHANCE = 0.7

Draw = Callable[[], float]  # returns the next random number in [0, 1)


def stories(count: int, *, seed: int = 0, split: str = "train", start: int = 0) -> Iterator[str]:
    """Generate the stories with index start, start + 1, ..., start + count - 1."""
    return (story(index, seed=seed, split=split) for index in range(start, start + count))


def story(index: int, *, seed: int = 0, split: str = "train") -> str:
    """Return one story of one to five paragraphs, which are separated by a newline."""
    return planned_story(index, seed=seed, split=split)[1]


class StoryPlan(NamedTuple):
    """What a story is about. Each part occurs in the text, and the hero is named before anybody else."""

    plot: str
    folk: str  # the hero is a girl, a boy or a creature
    hero: str
    topic: str


def planned_story(index: int, *, seed: int = 0, split: str = "train") -> tuple[StoryPlan, str]:
    """Return the plan of a story, and the story."""
    if split not in SPLITS:
        raise ValueError(f"split must be 'train' or 'validation', got {split!r}")
    draw = Random(_hash(f"{seed}/{split}/{index}")).random
    while True:
        plan = _draw_plan(draw, split)
        text = _write(plan, draw)
        if MIN_WORDS <= text.count(" ") + text.count("\n") + 1 <= MAX_WORDS:
            return plan, text


def _draw_plan(draw: Draw, split: str) -> StoryPlan:
    words, plots, names = world().words, world().plots, world().plot_names
    while True:
        name = names[int(draw() * len(names))]
        plot = plots[name]
        folk = "creature" if plot.creatures and draw() < 0.4 else "girl" if draw() < 0.5 else "boy"
        plan = StoryPlan(name, folk, words[folk].draw(draw), plot.topics.draw(draw))
        if split_of(plan) == split:
            return plan


def split_of(plan: StoryPlan) -> str:
    """Return the only split that this plan belongs to."""
    return SPLITS[_hash("/".join(plan)) < VALIDATION_SHARE * 2**64]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _write(plan: StoryPlan, draw: Draw) -> str:
    out: list[str] = []
    gap = ""
    verbosity = 0.5 + 0.6 * draw()  # some stories leave out more optional beats than others
    for chance, parts in world().plots[plan.plot].beats:
        if not parts:
            gap = "\n" if draw() < chance else gap
        elif chance == 1 or draw() < chance * verbosity:
            out.append(gap)
            _expand(parts, draw, out)
            gap = " "
    return "".join(out) % Cast(plan, draw)


def _expand(parts: "Parts", draw: Draw, out: list[str]) -> None:
    """Append one wording of `parts` to `out`, with its slots still open."""
    for part in parts:
        if type(part) is str:
            out.append(part)
        elif type(part) is Choice:
            options = part.options
            _expand(options[int(draw() * len(options))], draw, out)
        elif type(part) is WordList:
            out.append(part.draw(draw))


class Cast(dict[str, str]):
    """The words of one story by slot. A word is drawn when it is first needed and kept from then on."""

    def __init__(self, plan: StoryPlan, draw: Draw) -> None:
        everything, child = world(), plan.folk != "creature"
        self.draw, self.words = draw, everything.words
        self.lists: dict[str, WordList] = {}
        plot = everything.plots[plan.plot]
        topic = plot.rows[plan.topic]
        self.add(topic if "thing" in topic.fixed else self.draw_row(everything.things))
        self.add(topic)
        self.add(self.draw_row(everything.wild_places if plot.wild or not child else everything.places))
        self.add(everything.child if child else everything.creature)
        self.taken: tuple[str, ...] = (plan.topic, self["thing"])
        self.name_people(plan, child)

    def draw_row(self, rows: list["Row"]) -> "Row":
        return rows[int(self.draw() * len(rows))]

    def add(self, row: "Row") -> None:
        self.update(row.fixed)
        self.lists.update(row.drawn)

    def name_people(self, plan: StoryPlan, child: bool) -> None:
        """Give everybody a name that nobody else has, and the pronouns of its gender."""
        hero, friend, kin, elder, uncle = ("girl" if self.draw() < 0.5 else "boy" for _ in range(5))
        hero = plan.folk if child else hero
        for prefix, gender in zip(PREFIXES, (hero, friend, kin, elder, uncle), strict=True):
            self.update(PRONOUNS[prefix, gender])
        self["hero"] = plan.hero
        self["friend"] = self["pal"] = self.other_name(friend if child else "creature")
        self["kin"] = self.words[f"kin_{kin}"].draw(self.draw)
        self["uncle"] = f"{'Aunt' if uncle == 'girl' else 'Uncle'} {self.other_name(uncle)}"
        title = self.words[f"title_{elder}"].draw(self.draw)
        if child:
            self["kind"], self["fkind"] = hero, friend
            self["elder"] = f"{title} {self['surname']}"
        else:
            self["kind"] = self["species"]
            self.taken += (self["kind"],)
            self["pal"] += f" the {self['species2']}"
            self["elder"] = f"{title} {self['species3'].capitalize()}"

    def other_name(self, folk: str) -> str:
        while (name := self.words[folk].draw(self.draw)) in self.values():
            pass
        return name

    def __missing__(self, slot: str) -> str:
        if slot[0].isupper():
            word = _capitalised(self[slot[0].lower() + slot[1:]])
        elif slot.startswith("a_"):
            word = _with_article(self[slot[2:]])
        elif slot[-1].isdigit():
            word = self.draw_other(slot[:-1], int(slot[-1]))
        else:
            word = self.draw_word(slot)
        self[slot] = word
        return word

    def draw_other(self, slot: str, count: int) -> str:
        """Draw {bird2}, which differs from {bird}, or {bird3}, which differs from both."""
        earlier = [self[slot], *(self[f"{slot}{number}"] for number in range(2, count))]
        while (word := self.draw_word(slot)) in earlier:
            pass
        return word

    def draw_word(self, slot: str) -> str:
        words = self.lists.get(slot) or self.words[slot]
        while (word := words.draw(self.draw)) in self.taken:
            pass  # a story about a drum has no other drum
        return word % self if "%" in word else word


PREFIXES = ("", "f", "k", "e", "u")  # hero, friend, kin, elder, uncle
PRONOUNS = {
    (prefix, gender): {
        f"{prefix}{slot}": word for slot, word in zip(("he", "him", "his", "himself"), words, strict=True)
    }
    for prefix in PREFIXES
    for gender, words in (("girl", ("she", "her", "her", "herself")), ("boy", ("he", "him", "his", "himself")))
}


def _with_article(noun: str) -> str:
    vowel = noun.startswith(("a", "e", "i", "o", "u", "hour", "honest"))
    return f"an {noun}" if vowel and not noun.startswith(("uni", "uku", "eu")) else f"a {noun}"


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


# Reading storyworld.yaml


class WordList:
    """Words with weights, from which one can be drawn quickly."""

    # Weights by rank are quotients of integers, which IEEE 754 rounds identically on every machine.
    WEIGHTS: Mapping[str, Callable[[int], float]] = {
        "flat": lambda rank: 1.0,
        "gentle": lambda rank: 1 / (rank + 12),
        "zipf": lambda rank: 1 / (rank + 2),
        "steep": lambda rank: 1 / (rank + 20) ** 4,
    }

    def __init__(self, words: Iterable[str], weights: str) -> None:
        self.words, self.weights = tuple(words), weights
        sums = list(accumulate(map(self.WEIGHTS[weights], range(len(self.words)))))
        self.bounds = [part / sums[-1] for part in sums[:-1]]

    def draw(self, draw: Draw) -> str:
        return self.words[bisect_right(self.bounds, draw())]


class Choice:
    """A place in a sentence where one of several wordings is chosen."""

    def __init__(self, options: Iterable["Parts"]) -> None:
        self.options = tuple(options)


Parts = tuple[str | WordList | Choice, ...]


class Beat(NamedTuple):
    """A step of a plot: its chance and its wordings. A beat without parts is a place where a paragraph may end."""

    chance: float
    parts: Parts


class Row(NamedTuple):
    """A row of a table: slots with one word, and slots with a list to draw it from."""

    fixed: Mapping[str, str]
    drawn: Mapping[str, WordList]


class Plot(NamedTuple):
    """A kind of story. `topics` are drawn as words; `rows` has the row of each topic."""

    creatures: bool  # the hero may be a talking animal
    wild: bool  # the story happens out of town
    topics: WordList
    rows: Mapping[str, Row]
    beats: list[Beat]


@cache
def world() -> "World":
    """Return the parsed storyworld.yaml."""
    import yaml  # type: ignore[import-untyped]

    text = (files("collapselab.corpus") / "storyworld.yaml").read_text("utf-8")
    return World(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


class World:
    """All word lists, tables and plots."""

    def __init__(self, data: Any) -> None:
        self.words = {name: _word_list(text) for name, text in data["words"].items()}
        self.scenes: dict[str, str] = data["scenes"]
        tables = {name: [self.row(columns) for columns in rows] for name, rows in data["tables"].items()}
        self.things, self.wild_places = tables["things"], tables["wild_places"]
        self.places = self.wild_places + tables["town_places"]
        lives = ("trait", "home", "household")
        self.child, self.creature = (
            Row({"hand": hand, "hands": f"{hand}s"}, {slot: self.words[f"{slot}_{folk}"] for slot in lives})
            for folk, hand in (("child", "hand"), ("creature", "paw"))
        )
        self.plots: dict[str, Plot] = {}
        for name, plot in data["plots"].items():
            topics, hero = plot["topics"], plot["hero"]
            if topics in tables:  # the first column names the row
                rows = {next(iter(row.fixed.values())): row for row in tables[topics]}
                words = WordList(rows, "gentle")
            else:
                words = self.words[topics]
                rows = {word: Row({topics: word}, {}) for word in words.words}
            beats = [self.beat(block) for block in plot["beats"].split("\n\n")]
            self.plots[name] = Plot(hero == "any", hero == "rambler", words, rows, beats)
        self.plot_names = list(self.plots)

    def row(self, columns: dict[str, str]) -> Row:
        fixed = {name: cell for name, cell in columns.items() if not {*cell} & {*"<{;"}}
        drawn = {
            name: self.words[cell[1:-1]] if cell[0] == "<" else WordList(_entries(cell, ";"), "flat")
            for name, cell in columns.items()
            if name not in fixed
        }
        return Row(fixed, drawn)

    def beat(self, block: str) -> Beat:
        lines = _joined_lines(block)
        chance = int(lines.pop(0)[1:]) / 100 if lines[0].startswith("?") else 1
        return Beat(PARAGRAPH_CHANCE, ()) if lines == ["/"] else Beat(chance, (self.choice(lines),))

    def choice(self, lines: list[str]) -> Choice:
        """Parse alternatives: scenes, and sentences with `[a|b]` choices and `<list>` draws."""
        return Choice(
            (self.choice(_joined_lines(self.scenes[line[1:]])),)
            if line.startswith("@")
            else self.options(iter(re.split(r"([][|]|<\w+>)", _open_slots(line.removeprefix("- ")))))[0]
            for line in lines
        )

    def options(self, tokens: Iterator[str]) -> list[Parts]:
        """Parse what is between `|`, up to the closing bracket or the end."""
        alternatives: list[Parts] = [()]
        for token in tokens:
            if token == "]":
                break
            if token == "[":
                alternatives[-1] += (Choice(self.options(tokens)),)
            elif token == "|":
                alternatives.append(())
            elif token:
                alternatives[-1] += (self.spelled(token[1:-1]) if token[0] == "<" else token,)
        return alternatives

    def spelled(self, name: str) -> WordList:
        """Return the word list `name`; a_name has its words with an article, and Name with a capital."""
        if name[0].isupper():
            lower = self.spelled(name[0].lower() + name[1:])
            return WordList(map(_capitalised, lower.words), lower.weights)
        if name.startswith("a_"):
            bare = self.words[name[2:]]
            return WordList(map(_with_article, bare.words), bare.weights)
        return self.words[name]


def _word_list(text: str) -> WordList:
    words = _entries(text, ";" if ";" in text else ",")
    # The last words of a long list are to be rare.
    return WordList(words, "steep" if len(words) >= 35 else "zipf")


def _entries(text: str, separator: str) -> list[str]:
    return [_open_slots(entry.strip()) for entry in text.split(separator)]


def _open_slots(text: str) -> str:
    return text.replace("{", "%(").replace("}", ")s")


def _joined_lines(text: str) -> list[str]:
    """Return the lines of a text, each with the indented lines that continue it."""
    return re.sub(r"\n +", " ", text.strip()).split("\n")
