"""Small English children's stories, generated when they are read: a corpus that needs no download.

A story is a pure function of (seed, split, index), so any range of stories can be made alone, resumed or shared out.
It is written in three steps. The *plan* says what it is about: a plot, a hero and a topic. The plot is then expanded,
with its alternatives chosen, to one text full of open slots. Last, the slots are filled from the *cast*, which
remembers every word it has drawn: that is what keeps names, pronouns and things the same from the first sentence to
the last.

Validation shares no story with training, by construction: the hash of a plan alone says which split it belongs to, and
each split redraws its plans until one is its own. Nothing in a plan is hidden; its hero and topic can be read in the
text. So validation has heroes, plots and topics that training knows, in combinations that training never saw.

Stories are the same on every machine and version of Python: chance comes from `random.Random(n).random()` alone, the
one sequence that Python promises to keep.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from random import Random
from typing import NamedTuple, final

from collapselab.corpus.storyworld import plots, things, words
from collapselab.corpus.storyworld.notation import (
    Beat,
    Draw,
    WordRow,
    WordTable,
    beats,
    capitalised,
    expand,
    rows,
    with_article,
    word_list,
)

SPLITS = ("train", "validation")
VALIDATION_SHARE = 1 / 8  # of the plans
WORDS_MIN, WORDS_MAX = 60, 250


def stories(count: int, *, seed: int = 0, split: str = "train", start: int = 0) -> Iterator[str]:
    """The stories with index start, start + 1, ..., start + count - 1."""
    return (story(index, seed=seed, split=split) for index in range(start, start + count))


def story(index: int, *, seed: int = 0, split: str = "train") -> str:
    """One story of one to five paragraphs, separated by a newline; always the same for the same arguments."""
    return planned_story(index, seed=seed, split=split)[1]


class StoryPlan(NamedTuple):
    """What a story is about. Each part is named in the text, the hero before anybody else."""

    plot: str
    folk: str  # the hero is a girl, a boy or a creature
    hero: str
    topic: str


def planned_story(index: int, *, seed: int = 0, split: str = "train") -> tuple[StoryPlan, str]:
    """The plan of a story, and the story."""
    if split not in SPLITS:
        raise ValueError(f"split: {split!r} is not a split. Use {' or '.join(map(repr, SPLITS))}.")
    draw = Random(stable_hash(f"{seed}/{split}/{index}")).random
    while True:
        plan = drawn_plan(draw, split)
        text = written(plan, draw)
        if WORDS_MIN <= text.count(" ") + text.count("\n") + 1 <= WORDS_MAX:
            return plan, text


def drawn_plan(draw: Draw, split: str) -> StoryPlan:
    while True:
        plot = PLOTS[PLOT_NAMES[int(draw() * len(PLOT_NAMES))]]
        folk = "creature" if plot.creatures and draw() < 0.4 else "girl" if draw() < 0.5 else "boy"
        plan = StoryPlan(plot.name, folk, TABLES[folk].pick(draw), plot.topics.pick(draw))
        if split_of(plan) == split:
            return plan


def split_of(plan: StoryPlan) -> str:
    """The one split that this plan belongs to."""
    return SPLITS[stable_hash("/".join(plan)) < VALIDATION_SHARE * 2**64]


def stable_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def written(plan: StoryPlan, draw: Draw) -> str:
    out: list[str] = []
    gap = ""
    patience = 0.5 + 0.6 * draw()  # some stories leave out more than others
    for chance, parts in PLOTS[plan.plot].beats:
        if not parts:
            gap = "\n" if draw() < chance else gap
        elif chance == 1 or draw() < chance * patience:
            out.append(gap)
            expand(parts, draw, out)
            gap = " "
    return "".join(out) % Cast(plan, draw)


@final
class Cast(dict[str, str]):
    """Who and what a story is about: slot -> word, drawn when it is first needed and kept from then on."""

    def __init__(self, plan: StoryPlan, draw: Draw) -> None:
        self.draw = draw
        self.tables: dict[str, WordTable] = {}
        child = plan.folk != "creature"
        plot = PLOTS[plan.plot]
        topic = plot.rows[plan.topic]
        self.know(topic if "thing" in topic.fixed else pick_row(THINGS, draw))
        self.know(topic)
        self.know(pick_row(WILD_PLACES if plot.wild or not child else PLACES, draw))
        self.know(CHILD if child else CREATURE)
        self.taken: tuple[str, ...] = (plan.topic, self["thing"])
        self.introduce(plan, child)

    def know(self, row: WordRow) -> None:
        self.update(row.fixed)
        self.tables.update(row.drawn)

    def introduce(self, plan: StoryPlan, child: bool) -> None:
        """Gives every person a name of their own and the pronouns that go with it."""
        hero, friend, kin, elder, guest_of = ("girl" if self.draw() < 0.5 else "boy" for _ in range(5))
        hero = plan.folk if child else hero
        for prefix, gender in zip(PREFIXES, (hero, friend, kin, elder, guest_of), strict=True):
            self.update(PRONOUNS[prefix, gender])
        self["hero"] = plan.hero
        self["friend"] = self["pal"] = self.other_name(friend if child else "creature")
        self["kin"] = TABLES[f"kin_{kin}"].pick(self.draw)
        self["uncle"] = f"{'Aunt' if guest_of == 'girl' else 'Uncle'} {self.other_name(guest_of)}"
        title = TABLES[f"title_{elder}"].pick(self.draw)
        if child:
            self["kind"], self["fkind"] = hero, friend
            self["elder"] = f"{title} {self['surname']}"
        else:
            self["kind"] = self["species"]
            self.taken += (self["kind"],)
            self["pal"] += f" the {self['species2']}"
            self["elder"] = f"{title} {self['species3'].capitalize()}"

    def other_name(self, folk: str) -> str:
        while (name := TABLES[folk].pick(self.draw)) in self.values():
            pass
        return name

    def __missing__(self, slot: str) -> str:
        if slot[0].isupper():
            word = capitalised(self[slot[0].lower() + slot[1:]])
        elif slot.startswith("a_"):
            word = with_article(self[slot[2:]])
        elif slot[-1].isdigit():
            word = self.other(slot[:-1], int(slot[-1]))
        else:
            word = self.drawn(slot)
        self[slot] = word
        return word

    def other(self, slot: str, count: int) -> str:
        """`{bird2}`: a bird that is not `{bird}`; `{bird3}`: nor `{bird2}`."""
        earlier = [self[slot], *(self[f"{slot}{number}"] for number in range(2, count))]
        while (word := self.drawn(slot)) in earlier:
            pass
        return word

    def drawn(self, slot: str) -> str:
        table = self.tables.get(slot) or TABLES[slot]
        while (word := table.pick(self.draw)) in self.taken:
            pass  # a story about a drum has no other drum
        return word % self if "%" in word else word


def pick_row(table: list[WordRow], draw: Draw) -> WordRow:
    return table[int(draw() * len(table))]


class Plot(NamedTuple):
    """A kind of story. `topics` are drawn as words; `rows` say what belongs to each."""

    name: str
    creatures: bool  # the hero may be a talking animal
    wild: bool  # it happens out of town
    topics: WordTable
    rows: Mapping[str, WordRow]
    beats: list[Beat]


def read_plot(name: str, folk: str, topics: str, text: str) -> Plot:
    if topics in TABLES:
        drawn = TABLES[topics]
        topic_rows = {word: WordRow({topics: word}, {}) for word in drawn.words}
    else:
        topic_rows = rows(getattr(things, topics.upper()), TABLES)
        drawn = WordTable(topic_rows, "gentle")
    plot_beats = list(beats(text, plots.SCENES, TABLES))
    return Plot(name, folk == "any", folk == "rambler", drawn, topic_rows, plot_beats)


TABLES = {name: word_list(text) for name, text in (words.NAMES | words.WORDS).items()}
PLOTS = {name: read_plot(name, *plot) for name, plot in plots.PLOTS.items()}
PLOT_NAMES = list(PLOTS)
THINGS = list(rows(things.THINGS, TABLES).values())
WILD_PLACES = list(rows(things.WILD_PLACES, TABLES).values())
PLACES = WILD_PLACES + list(rows(things.TOWN_PLACES, TABLES).values())

LIFE = ("trait", "home", "household")
CHILD = WordRow({"hand": "hand", "hands": "hands"}, {slot: TABLES[f"{slot}_child"] for slot in LIFE})
CREATURE = WordRow({"hand": "paw", "hands": "paws"}, {slot: TABLES[f"{slot}_creature"] for slot in LIFE})

PREFIXES = ("", "f", "k", "e", "u")  # hero, friend, kin, elder, uncle
HE, SHE = ("he", "him", "his", "himself"), ("she", "her", "her", "herself")
PRONOUNS = {
    (prefix, gender): {f"{prefix}{slot}": word for slot, word in zip(HE, pronouns, strict=True)}
    for prefix in PREFIXES
    for gender, pronouns in (("girl", SHE), ("boy", HE))
}
