"""The source with known answers: what it says about itself is true of the text that it writes."""

import json
import math
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from collapselab import cli
from collapselab.core.storage import save_tensors
from collapselab.corpus import markov
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.describe import description, draw
from collapselab.corpus.markov import KIND, Chain, Settings, read_chain
from collapselab.corpus.sources import open_source
from collapselab.errors import CorpusError
from collapselab.records.corpus import MARKOV

SMALL = Settings(order=2, types=6, support=3, zipf=1, sharing=0.5, tokens=60_000, validation=4_000)


def text_of(chain: Chain, split: str = "train") -> list[int]:
    return np.concatenate(list(chain.tokens(split))).tolist()


def chances_by_loop(chain: Chain) -> dict[tuple[int, ...], dict[int, float]]:
    """Next-token distributions as a dictionary, from the definition."""
    types, order = chain.settings.types, chain.settings.order
    weights = [1 / k for k in range(1, chain.settings.support + 1)]
    found = {}
    for context in product(range(types), repeat=order):
        number = 0
        for token in context:
            number = number * types + token
        following = chain.successors[chain.classes[number]].tolist()
        found[context] = {token: weights[k] / sum(weights) for k, token in enumerate(following)}
    return found


def stationary_by_loop(chances: dict[tuple[int, ...], dict[int, float]]) -> dict[tuple[int, ...], float]:
    now = dict.fromkeys(chances, 1 / len(chances))
    for _ in range(3000):
        following = dict.fromkeys(chances, 0.0)
        for context, share in now.items():
            following[context] += share / 2
            for token, chance in chances[context].items():
                following[(*context[1:], token)] += share * chance / 2
        now = following
    return now


def test_stationary_distribution_and_entropies_are_those_of_the_definition_in_loops() -> None:
    chain = Chain.drawn(SMALL)
    chances = chances_by_loop(chain)
    often = stationary_by_loop(chances)
    assert len(often) == 36
    for number, context in enumerate(product(range(6), repeat=2)):
        assert chain.stationary[number] == pytest.approx(often[context], abs=1e-12)
    assert chain.stationary.sum() == pytest.approx(1, abs=1e-12)
    for n in range(3):
        joint: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for context, share in often.items():
            for token, chance in chances[context].items():
                joint[(*context[2 - n :], token)] += share * chance
        before: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for key, share in joint.items():
            before[key[:-1]] += share
        entropy = -sum(share * math.log(share / before[key[:-1]]) for key, share in joint.items() if share)
        assert chain.entropies[n] == pytest.approx(entropy, abs=1e-10), n
    assert chain.entropies[0] > chain.entropies[1] > chain.entropies[2] == chain.entropy_rate


def test_a_long_sample_has_the_stated_chances_and_entropy_rate() -> None:
    chain = Chain.drawn(SMALL)
    tokens, chances = text_of(chain), chances_by_loop(chain)
    assert len(tokens) == SMALL.tokens
    surprise, contexts = 0.0, Counter(pairwise(tokens))
    for context, token in zip(pairwise(tokens), tokens[2:], strict=False):
        surprise -= math.log(chances[context][token])  # KeyError if it is no successor
    # Standard error of the mean of 60,000 surprises of at most log 5.5: below 0.004.
    assert surprise / (len(tokens) - 2) == pytest.approx(chain.entropy_rate, abs=0.015)
    for (first, second), count in contexts.items():
        share = chain.stationary[first * 6 + second]
        assert count / (len(tokens) - 1) == pytest.approx(share, abs=0.02), "a context is as frequent as stated"


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("support", [2, 5])
def test_zipf_makes_types_unequal_and_support_makes_contexts_ambiguous_each_alone(zipf: float, support: int) -> None:
    def facts(zipf: float, support: int) -> tuple[float, float]:
        chain = Chain.drawn(Settings(order=1, types=60, support=support, zipf=zipf, sharing=0, tokens=9, validation=9))
        return chain.entropies[0], chain.entropy_rate

    imbalance, ambiguity = facts(zipf, support)
    weights = [1 / k for k in range(1, support + 1)]
    expected = -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
    assert ambiguity == pytest.approx(expected, abs=1e-12), "whatever zipf is"
    assert imbalance < facts(0.0, support)[0] or zipf == 0, "the entropy of single types falls with zipf"
    if zipf == 2:
        assert imbalance < facts(1.0, support)[0] - 0.3


def test_sharing_gives_contexts_the_same_distribution_and_distributions_the_same_support() -> None:
    alone = Chain.drawn(Settings(order=2, types=30, support=5, zipf=0, sharing=0, tokens=9, validation=9))
    shared = Chain.drawn(Settings(order=2, types=30, support=5, zipf=0, sharing=0.5, tokens=9, validation=9))
    assert len(alone.successors) > 890, "of 900 contexts; a few may be drawn alike"
    assert 440 <= len(shared.successors) <= 450
    assert 215 <= shared.supports.max() + 1 <= 225
    sizes = Counter(shared.classes.tolist())
    assert set(sizes.values()) <= {2, 4}, "every distribution has its share of contexts; two that were drawn alike, 4"
    for number, row in enumerate(shared.successors):
        others = shared.supports == shared.supports[number]
        assert others.sum() >= 1
        assert {frozenset(other.tolist()) for other in shared.successors[others]} == {frozenset(row.tolist())}


def test_a_chain_that_could_end_in_two_places_runs_in_the_larger() -> None:
    settings = Settings(order=1, types=5, support=2, zipf=0, sharing=0, tokens=5000, validation=100)
    successors = np.array([[0, 1], [1, 0], [3, 4], [4, 2], [2, 3]])
    chain = Chain(settings, np.arange(5), successors)
    assert chain.stationary[:2].tolist() == [0, 0]
    assert chain.stationary.sum() == pytest.approx(1)
    assert set(text_of(chain)) == {2, 3, 4}


def test_a_chain_with_a_period_comes_to_rest() -> None:
    settings = Settings(order=1, types=4, support=2, zipf=0, sharing=0, tokens=100, validation=100)
    chain = Chain(settings, np.arange(4), np.array([[2, 3], [2, 3], [0, 1], [1, 0]]))
    both = chain.stationary.reshape(2, 2).sum(1)
    assert both.tolist() == pytest.approx([0.5, 0.5], abs=1e-12)


def test_the_text_is_the_same_each_time_and_another_with_another_seed_or_split() -> None:
    chain = Chain.drawn(SMALL)
    first = text_of(chain)
    assert text_of(Chain.drawn(SMALL)) == first
    assert text_of(chain, "validation") != first[: SMALL.validation]
    other = Chain.drawn(Settings(**{**SMALL.__dict__, "seed": 1}))
    assert (other.successors.shape != chain.successors.shape) or (other.successors != chain.successors).any()
    # Golden: a corpus that was built with this source can be built again.
    assert first[:12] == GOLDEN
    assert next(chain.documents("train")).split()[:2] == [f"t{token}" for token in GOLDEN[:2]]


GOLDEN = [2, 4, 1, 0, 1, 0, 1, 0, 1, 0, 3, 1]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    source = open_source(["markov:order=2,types=6,support=3,tokens=5000,validation=1500"])
    return build_corpus(source, tmp_path_factory.mktemp("markov") / "corpus", Recipe(tokenizer="words", block=50))


def test_a_corpus_is_the_chain_cut_into_blocks_without_marks(corpus: Corpus) -> None:
    chain = read_chain(corpus.path)
    tokens = text_of(chain)
    assert corpus.vocabulary == 7, "the types and the end of text"
    assert corpus.train.ids.reshape(-1).tolist() == tokens[:5000]
    assert corpus.record.boundary == "none"
    assert len(corpus.validation) == 30
    assert corpus.tokenizer().decode(corpus.train[0][:3]) == " ".join(f"t{token}" for token in tokens[:3])


def test_what_is_known_of_the_chain_is_kept_with_the_corpus_and_part_of_its_hash(
    corpus: Corpus, tmp_path: Path
) -> None:
    drawn, stored = Chain.drawn(read_chain(corpus.path).settings), read_chain(corpus.path)
    assert (stored.successors == drawn.successors).all()
    assert (stored.classes == drawn.classes).all()
    assert stored.entropies == drawn.entropies
    without = {name: file for name, file in corpus.record.files.items() if name != "markov.safetensors"}
    assert corpus.record.model_copy(update={"files": without}).contents_hash() != corpus.hash
    again = build_corpus(
        open_source(["markov:order=2,types=6,support=3,tokens=5000,validation=1500"]),
        tmp_path / "again",
        Recipe(tokenizer="words", block=50),
    )
    assert again.hash == corpus.hash
    file = tmp_path / "again" / "markov.safetensors"
    contents = bytearray(file.read_bytes())
    contents[-3] ^= 1
    file.write_bytes(contents)
    with pytest.raises(CorpusError, match=r"markov.safetensors: damaged"):
        Corpus(tmp_path / "again")
    with pytest.raises(CorpusError, match=r"markov.safetensors: damaged"):
        read_chain(tmp_path / "again")


def test_show_says_and_draws_what_is_known(corpus: Corpus, tmp_path: Path) -> None:
    chain = read_chain(corpus.path)
    known = description(corpus)["chain"]
    assert known["entropy_rate"] == chain.entropy_rate
    assert known["least_loss"] == pytest.approx((chain.entropies[1] + 48 * chain.entropy_rate) / 49)
    assert known["contexts"] == 36
    json.dumps(known)
    draw(corpus, tmp_path / "figure.svg")


def test_the_command_builds_it_with_its_own_tokens_and_prints_what_is_known(tmp_path: Path) -> None:
    folder = str(tmp_path / "chain")
    source = "markov:order=1,types=6,support=2,tokens=2000,validation=500"
    built = CliRunner().invoke(cli.app, ["corpus", "build", source, "--block", "32", "--out", folder])
    assert built.exit_code == 0, built.output
    shown = CliRunner().invoke(cli.app, ["corpus", "show", folder])
    assert shown.exit_code == 0, shown.output
    assert f"{read_chain(folder).entropy_rate:.6f}" in shown.output
    assert "contexts, of them visited" in shown.output


def test_a_corpus_of_stories_has_no_chain(tmp_path: Path) -> None:
    stories = open_source(["storyworld:stories=12,validation=4"])
    plain = build_corpus(stories, tmp_path / "stories", Recipe(tokenizer="bpe:300", block=32))
    assert "chain" not in description(plain)
    with pytest.raises(CorpusError, match="markov"):
        read_chain(plain.path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("markov:types=4,support=5", "support .*4.* got 5"),
        ("markov:support=1", "support .* got 1"),
        ("markov:order=3,types=200", "8,000,000 contexts"),
        ("markov:order=9,types=2,support=2", "order .* got 9"),
        ("markov:order=0", "order .* got 0"),
        ("markov:types=1,support=1", "1 types"),
        ("markov:sharing=1", "sharing .* got 1 and 1"),
        ("markov:zipf=-1", "'zipf=-1'"),
        ("markov:zipf=nan", "'zipf=nan'"),
        ("markov:order=2.5", "'order=2.5'"),
        ("markov:tipes=4", "'tipes=4'"),
        ("markov:tokens=2", "got 2 and 100,000"),
        ("markov:order=1,types=1000000,support=1000000", "1,000,000,000,000 successors"),
        ("markov:order=1,types=1000000,support=5", "250,000,000,000 draws"),
    ],
)
def test_what_is_impossible_is_refused_with_the_value(name: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        open_source([name])


def test_tables_that_are_not_of_one_chain_are_refused(tmp_path: Path) -> None:
    """Whoever makes a corpus for others can make its checksums too."""
    chain = Chain.drawn(Settings(order=1, types=6, support=2, tokens=50, validation=50))
    faults = {
        "shapes": (chain.settings, chain.classes[:-1], chain.successors, chain.stationary),
        "out of range": (chain.settings, chain.classes, chain.successors + 6, chain.stationary),
        "a class or": (chain.settings, chain.classes + 100, chain.successors, chain.stationary),
        "order .* got 0": (replace(chain.settings, order=0), chain.classes, chain.successors, chain.stationary),
    }
    for message, parts in faults.items():
        Chain(chain.settings, chain.classes, chain.successors, chain.stationary).write(tmp_path)
        read_chain(tmp_path)
        forged = {
            name: torch.from_numpy(part)
            for name, part in zip(("classes", "successors", "stationary"), parts[1:], strict=True)
        }
        facts = {"settings": asdict(parts[0]), "entropies": []}
        save_tensors(tmp_path / MARKOV, forged, kind=KIND, facts=facts)
        with pytest.raises(CorpusError, match=f"damaged.*{message}"):
            read_chain(tmp_path)


def test_tokens_of_its_own_need_the_tokenizer_words_and_no_other_source_has_them(tmp_path: Path) -> None:
    chain = open_source(["markov:types=5,support=2,tokens=500,validation=300"])
    with pytest.raises(CorpusError, match="Use --tokenizer words"):
        build_corpus(chain, tmp_path / "a", Recipe(tokenizer="bpe:300", block=16))
    with pytest.raises(CorpusError, match="tokenizer words: .*markov"):
        build_corpus(open_source(["storyworld:stories=12"]), tmp_path / "b", Recipe(tokenizer="words", block=16))
    with pytest.raises(CorpusError, match="--boundary"):
        build_corpus(chain, tmp_path / "c", Recipe(tokenizer="words", block=16, boundary="begin"))
    assert not list(tmp_path.iterdir())


def test_pieces_are_of_one_length_and_make_up_the_whole() -> None:
    chain = Chain.drawn(Settings(order=2, types=6, support=3, tokens=2 * markov.PIECE + 7, validation=50))
    assert [len(piece) for piece in chain.tokens("train")] == [markov.PIECE, markov.PIECE, 7]
    assert [len(piece) for piece in chain.tokens("validation")] == [50]
