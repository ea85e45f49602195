"""The stories read well, are new, stay in their split and never change."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from hashlib import sha256
from itertools import product
from random import Random
from statistics import median

import pytest

from collapselab.corpus import storyworld
from collapselab.corpus.storyworld import StoryPlan, planned_story, split_of, stories, story

MANY = 20_000
HEROES = {name for folk in ("girl", "boy", "creature") for name in storyworld.world().words[folk].words}
GOLDEN_SHA256 = {  # of stories joined by empty lines, by (seed, split, first index, number of stories)
    (0, "train", 0, 3000): "9bd129ffa905937b56081aeeced10e24b6688c647d8215b1ee70b949e982cc8e",
    (0, "validation", 0, 1000): "6c589bf7db8f4dcc4601461efdcb379bed1a5061d744c4b8b998fdea5eeeb31c",
    (1, "train", 0, 500): "319089647a2793f41dbcb03db0328db95fa94b88c3bef7eced5f698987cd9e29",
    (1, "validation", 500, 500): "9b2d1635177f4f3d19cd4ec71b879dc0e6f111ab731a799fb67a1f004917cd66",
    (7, "train", 10**6, 500): "42dffba762770d308d5fca3a269c4b862e9a4913efa656de84fab022b3ab513d",
    (123456789012345678, "train", 3, 100): "090ca5ae72d479b894d74342f4bc89255409e9675b1149f6969299ab0f16c6df",
    (2**40, "validation", 10**12, 100): "1a0a89bd6b8e74b7784e6b9a206786c20042810c9dae3846e6444615616dd5f9",
}
GOLDEN_STORY = (
    "Sam had a best friend, Ben. They often played hide-and-seek.\nOne windy day, they found a white "
    'ball next to the seesaw. "It is mine!" yelled Sam. "No, it is mine!" growled Ben. "Let go!" "No, you'
    ' let go!" They stamped their feet. They tugged this way and that. There was a loud pop, and the air '
    'hissed out of it.\n"I never want to play with you again!" roared Ben, and he went away quickly. '
    'Sam was angry too. At home he tried to read about a snow queen alone, but it was no fun. "What is '
    'the matter?" asked Mom. Sam told her everything. "Friends are harder to find than kites," declared '
    "Mom.\nSo Sam ran to Ben's door. At the same moment the door opened, and there stood Ben. \"I am "
    'sorry," they both said, and then they both giggled. Side by side they put a patch on it and pumped '
    "it up. It was not perfect, but it was theirs. They played until the stars came out, and Sam thought "
    "that sharing makes a thing twice as big."
)


@pytest.fixture(scope="module")
def planned() -> list[tuple[StoryPlan, str]]:
    return [planned_story(index) for index in range(MANY)]


@pytest.fixture(scope="module")
def texts(planned: list[tuple[StoryPlan, str]]) -> list[str]:
    return [text for _, text in planned]


@pytest.fixture(scope="module")
def validation() -> list[tuple[StoryPlan, str]]:
    return [planned_story(index, split="validation") for index in range(MANY // 8)]


# Always the same


@pytest.mark.parametrize("key", GOLDEN_SHA256)
def test_stories_are_the_same_on_every_machine_and_version(key: tuple[int, str, int, int]) -> None:
    seed, split, start, count = key
    texts = list(stories(count, seed=seed, split=split, start=start))
    assert len(texts) == count
    assert sha256("\n\n".join(texts).encode()).hexdigest() == GOLDEN_SHA256[key]


def test_one_golden_story_is_readable_here() -> None:
    assert story(33) == GOLDEN_STORY


@pytest.mark.parametrize(("split", "count"), [("train", 3000), ("validation", 1000)])
def test_golden_stories_use_every_plot(split: str, count: int) -> None:
    """The golden hashes protect a plot only if a golden story has it."""
    assert (0, split, 0, count) in GOLDEN_SHA256
    plots = Counter(planned_story(index, split=split)[0].plot for index in range(count))
    assert plots.keys() == set(storyworld.world().plots)
    assert len(plots) == 22
    assert min(plots.values()) >= 20


def test_a_range_can_be_told_alone_and_in_any_order(texts: list[str]) -> None:
    assert list(stories(5, start=100)) == texts[100:105]
    assert [story(index) for index in (104, 7, 100)] == [texts[104], texts[7], texts[100]]


def test_seeds_and_splits_tell_different_stories() -> None:
    told = [set(stories(50, seed=seed, split=split)) for seed in (0, 1) for split in ("train", "validation")]
    assert len(set.union(*told)) == 200


def test_an_unknown_split_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'test'"):
        story(0, split="test")


@pytest.mark.slow
def test_the_data_file_is_read_once_and_only_for_the_first_story() -> None:
    code = """
from collapselab.corpus import sources
from collapselab.corpus.storyworld import stories, world
assert world.cache_info().currsize == 0
assert len([*stories(3), *stories(3)]) == 6
assert world.cache_info().misses == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Train and validation


def test_no_plan_is_in_both_splits(
    planned: list[tuple[StoryPlan, str]], validation: list[tuple[StoryPlan, str]]
) -> None:
    assert {split_of(plan) for plan, _ in planned} == {"train"}
    assert {split_of(plan) for plan, _ in validation} == {"validation"}
    assert {plan for plan, _ in planned}.isdisjoint(plan for plan, _ in validation)
    assert {text for _, text in planned}.isdisjoint(text for _, text in validation)


def test_about_an_eighth_of_the_plans_belongs_to_validation() -> None:
    plans = [
        StoryPlan("lost", "girl", hero, topic)
        for hero in HEROES
        for topic in storyworld.world().plots["lost"].topics.words
    ]
    share = sum(split_of(plan) == "validation" for plan in plans) / len(plans)
    assert abs(share - 1 / 8) < 0.01  # four standard deviations of about 20,000 coin tosses


def test_a_story_tells_every_part_of_its_plan(planned: list[tuple[StoryPlan, str]]) -> None:
    """What decides the split can be read: the hero is the first to be named, and the name says the folk."""
    for plan, text in planned:
        assert next(name for name in re.findall("[A-Z][a-z]+", text) if name in HEROES) == plan.hero
        assert plan.topic.lower() in text.lower()


def test_a_name_belongs_to_one_folk() -> None:
    assert len(HEROES) == sum(len(storyworld.world().words[folk].words) for folk in ("girl", "boy", "creature"))


# New, and of many words


def test_no_story_is_told_twice(texts: list[str]) -> None:
    assert len(set(texts)) == len(texts)


@pytest.mark.slow
def test_few_stories_resemble_another(texts: list[str]) -> None:
    assert share_with_a_near_duplicate(texts[:4000]) < 0.01


def test_the_search_for_near_duplicates_finds_a_planted_one(texts: list[str]) -> None:
    changed = " ".join(texts[0].split()[:-20])
    assert share_with_a_near_duplicate([*texts[:99], changed]) == 2 / 100


def share_with_a_near_duplicate(texts: list[str]) -> float:
    """Share of the texts that have another with a Jaccard similarity of at least 1/2 between their 5-grams.

    Such a pair shares at least half of the 5-grams of either text, so also one of the rarer half, by which it is found.
    """
    grams = [five_grams(text) for text in texts]
    frequency = Counter(gram for own in grams for gram in own)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    found: set[int] = set()
    for index, own in enumerate(grams):
        rare = sorted(own, key=lambda gram: (frequency[gram], gram))[: len(own) // 2 + 1]
        for other in {other for gram in rare for other in seen[gram]}:
            if 2 * len(own & grams[other]) >= len(own | grams[other]):
                found |= {index, other}
        for gram in rare:
            seen[gram].append(index)
    return len(found) / len(texts)


def five_grams(text: str) -> set[str]:
    words = text.lower().split()
    return {" ".join(words[start : start + 5]) for start in range(len(words) - 4)}


def test_words_have_a_head_and_a_long_tail(texts: list[str]) -> None:
    counts = Counter(word for text in texts for word in re.findall("[a-z']+", text.lower()))
    ranked = sorted(counts.values(), reverse=True)
    assert 3000 <= len(counts) <= 5500
    assert 200 <= sum(count == 1 for count in ranked) <= 900
    assert sum(ranked[:100]) > 0.5 * sum(ranked)


def test_every_plot_is_told_about_equally_often(planned: list[tuple[StoryPlan, str]]) -> None:
    counts = Counter(plan.plot for plan, _ in planned)
    assert len(counts) >= 10
    assert min(counts.values()) > 0.5 * MANY / len(counts)


# Well formed


def test_stories_have_60_to_250_words_in_one_to_five_paragraphs(texts: list[str]) -> None:
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) >= 60
    assert max(lengths) <= 250
    assert 120 <= median(lengths) <= 160
    assert {text.count("\n") + 1 for text in texts} == {1, 2, 3, 4, 5}


def test_most_last_paragraphs_name_the_hero(planned: list[tuple[StoryPlan, str]]) -> None:
    assert sum(plan.hero in text.split("\n")[-1] for plan, text in planned) > 0.8 * MANY


# What must not be found, as a pattern in a paragraph.
FAULTS = {
    "a doubled word": r"\b(?i:(\w+) \1)\b",
    "a for an": r"\b[Aa] (?!uni|uku|eu)[aeiouAEIOU]",
    "an for a": r"\b[Aa]n (?!hour|honest)[^aeiouAEIOU]",
    "a sentence without a capital": r'[.!?] (?!"?[A-Z])|^(?!"?[A-Z])|\." (?!"?[A-Z])',
    "a paragraph without an end": r'(?<![.!?])(?<![.!?]")$',
    "stray punctuation": r' [.,!?;:]|[.,!?;:][.,;:]|,"$|[^ ,]" ?[.,]',
    "a slot or bracket": r"[][{}<>|%_]",
    "a space too many": r"  |^ | $|\t",
    "a character that is not plain": r"[^ -~]",
    "a mark of the tokenizer": r"endoftext",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_no_paragraph_has(fault: str, texts: list[str]) -> None:
    pattern = re.compile(FAULTS[fault])
    faults = [paragraph for text in texts for paragraph in text.split("\n") if pattern.search(paragraph)]
    assert not faults, f"{len(faults)} paragraphs, first: {faults[0]}"


@pytest.mark.parametrize(
    ("fault", "paragraph"),
    [
        ("a doubled word", "She was so so glad."),
        ("a for an", "It was a owl."),
        ("an for a", "It was an kite."),
        ("a sentence without a capital", "It rained. he ran."),
        ("a sentence without a capital", '"I am here." he said.'),
        ("a paragraph without an end", "It rained"),
        ("stray punctuation", "It rained , and"),
    ],
)
def test_the_search_for_faults_finds_a_planted_one(fault: str, paragraph: str) -> None:
    assert re.search(FAULTS[fault], paragraph)


def test_quotation_marks_are_balanced_in_every_paragraph(texts: list[str]) -> None:
    assert all(paragraph.count('"') % 2 == 0 for text in texts for paragraph in text.split("\n"))


def test_numbered_slots_hold_different_words() -> None:
    for seed in range(200):
        cast = storyworld.Cast(StoryPlan("lost", "girl", "Lily", "kite"), Random(seed).random)
        assert len({cast[slot] for slot in ("season", "season2", "season3")}) == 3


@pytest.mark.parametrize("name", storyworld.world().plots)
def test_every_slot_of_a_plot_can_be_filled(name: str) -> None:
    """Also those in wordings so rare that no test happens to tell them."""
    plot = storyworld.world().plots[name]
    folks = ("girl", "boy", "creature") if plot.creatures else ("girl", "boy")
    for topic, folk in product(plot.topics.words, folks):
        cast = storyworld.Cast(StoryPlan(name, folk, "Nobody", topic), Random(0).random)
        for slot in sorted(slots([plot.beats, plot.rows[topic]])):
            assert cast[slot], slot


def slots(node: object) -> set[str]:
    """The slots below a node of the parsed notation."""
    if isinstance(node, str):
        return set(re.findall(r"%\((\w+)\)s", node))
    if isinstance(node, dict):
        return slots(list(node.values()))
    if isinstance(node, (tuple, list)):
        return set().union(*map(slots, node))
    return slots(getattr(node, "options", None) or getattr(node, "words", ()))
