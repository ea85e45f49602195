"""`measure(model, data=…)`: the corpus that a model's own tokenizer makes of a text, built once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab import measure
from collapselab.corpus import build as building
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source, source_of_texts
from collapselab.errors import ConfigError, CorpusError
from collapselab.measurement.model_corpus import Data, model_corpus
from collapselab.models.build import build_config, build_model
from collapselab.models.find import find_models
from collapselab.records.measurement import Result

STORIES = "storyworld:stories=12,validation=4"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "collapselab" / "corpora"


def saved(path: Path, corpus: Corpus, *, positions: int = 32, seed: int = 0) -> Path:
    """A model on disk with the tokenizer of a corpus beside its weights."""
    config = build_config("gpt-neo", width=12, depth=1, vocabulary=320, positions=positions)
    build_model(config, seed=seed).save_pretrained(path)  # type: ignore[operator]
    corpus.tokenizer().save_pretrained(path)
    return path


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("*") if path.is_dir())


def test_the_numbers_are_those_of_a_corpus_built_by_hand(corpus: Corpus, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", corpus)
    by_hand = build_corpus(open_source([STORIES]), tmp_path / "hand", Recipe(tokenizer=str(model), block=32))
    expected, result = measure(str(model), by_hand), measure(str(model), data=STORIES)
    assert isinstance(result, Result)
    assert isinstance(expected, Result)
    assert result.rows == expected.rows
    assert len(result.rows) > 30
    assert result.facts["corpus_hash"] == by_hand.hash


def test_it_is_built_once_for_all_models_of_one_tokenizer(
    corpus: Corpus, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [str(saved(tmp_path / name, corpus, seed=seed)) for seed, name in enumerate(("one", "two"))]
    built = []
    build = building._write
    monkeypatch.setattr(building, "_write", lambda *args, **named: built.append(args) or build(*args, **named))
    results = measure(models, data=STORIES, tokens=200)
    assert len(list(results)) == 2  # type: ignore[arg-type]
    measure(models[0], data=STORIES, tokens=200)
    assert len(built) == len(folders(cache)) == 1


def test_quiet_is_quiet_about_the_corpus_too(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = saved(tmp_path / "model", corpus), ["A bird sang a song to a friend."] * 200
    capsys.readouterr()
    measure(model, data=text, tokens=500, quiet=True)
    assert capsys.readouterr().err == ""
    measure(model, data=[*text, "The end."], tokens=500)
    assert "tokenising" in capsys.readouterr().err


def test_reading_goes_on_until_something_is_held_out(corpus: Corpus, tmp_path: Path) -> None:
    """The first seven documents of a source are all training; a small `tokens` ended there, without validation."""
    (model,) = find_models([str(saved(tmp_path / "model", corpus))])
    texts = [f"Story {number} is about a fox and a hen in a wood. " * 9 for number in range(60)]
    splits = model_corpus(model, Data(source_of_texts(texts), max_tokens=500)).record.splits
    assert 500 <= splits.train.tokens < 1000, "no more than were asked for"
    assert 500 / 8 <= splits.validation.tokens < 500
    short = model_corpus(model, Data(source_of_texts([f"Story {n}." for n in range(90)]), max_tokens=40))
    assert short.record.splits.validation.tokens >= short.block == 32


def test_a_fifth_of_a_list_of_texts_is_held_out(corpus: Corpus, tmp_path: Path) -> None:
    """Of sixty texts a share of 2 % was often none at all, and nothing in the call could change it."""
    (model,) = find_models([str(saved(tmp_path / "model", corpus))])
    texts = [f"Story {number} is about a fox and a hen in a wood." for number in range(60)]
    built = model_corpus(model, Data(source_of_texts(texts)))
    splits = built.record.splits
    assert splits.train.documents + splits.validation.documents == 60
    assert 6 <= splits.validation.documents <= 20


def test_each_tokenizer_gets_a_corpus_of_its_own(corpus: Corpus, tmp_path: Path, cache: Path) -> None:
    other = build_corpus(open_source([STORIES]), tmp_path / "other", Recipe(tokenizer="bpe:290", block=32))
    models = [str(saved(tmp_path / "one", corpus)), str(saved(tmp_path / "two", other))]
    first, second = measure(models, data=STORIES)  # type: ignore[misc]
    assert len(folders(cache)) == 2
    assert first.facts["corpus_hash"] != second.facts["corpus_hash"]
    assert first.facts["tokenizer"]["same"]
    assert second.facts["tokenizer"]["same"]


def test_a_corpus_of_another_text_in_the_cache_is_refused(corpus: Corpus, tmp_path: Path, cache: Path) -> None:
    (source,) = find_models([str(saved(tmp_path / "model", corpus))])
    texts = [Data(source_of_texts([f"A {animal} sang a song, number {i}." for i in range(60)])) for animal in "bd"]
    hashes = [model_corpus(source, text).hash for text in texts]
    one, other = folders(cache)
    one.rename(tmp_path / "moved")
    other.rename(one)
    (tmp_path / "moved").rename(other)
    for text in texts:
        with pytest.raises(CorpusError, match=one.parent.name):
            model_corpus(source, text)
    other.rename(tmp_path / "moved")
    one.rename(other)
    (tmp_path / "moved").rename(one)
    assert [model_corpus(source, text).hash for text in texts] == hashes


def test_blocks_are_as_long_as_the_model_can_read(corpus: Corpus, tmp_path: Path, cache: Path) -> None:
    for name, positions, block in (("short", 16, None), ("long", 1024, None), ("asked", 1024, 20)):
        (source,) = find_models([str(saved(tmp_path / name, corpus, positions=positions))])
        data = Data(open_source(["storyworld:stories=60,validation=20"]), block)
        assert model_corpus(source, data).block == {"short": 16, "long": 512, "asked": 20}[name]


def test_reading_stops_where_it_is_asked_to(corpus: Corpus, tmp_path: Path, cache: Path) -> None:
    (source,) = find_models([str(saved(tmp_path / "model", corpus))])
    read: list[int] = []
    texts = 40 * list(open_source(["storyworld:stories=40,validation=1"]).train.open())

    def counted() -> Iterator[str]:
        for number, text in enumerate(texts):
            read.append(number)
            yield text

    whole = source_of_texts(texts)
    stream = type(whole)(type(whole.train)(counted, None, "documents"), whole.train, whole.provenance)
    short = model_corpus(source, Data(stream, max_tokens=1000))
    assert 1000 <= short.record.splits.train.tokens < 1000 + 400
    assert 1000 <= short.record.splits.validation.tokens < 1000 + 400
    assert len(folders(cache)) == 1
    assert max(read) < 600, "documents are tokenised 512 at a time"
    part = model_corpus(source, Data(whole, max_tokens=4000)).record.splits
    assert part.validation.tokens > part.train.tokens / 20, "a fifth of what is read is held out"
    assert model_corpus(source, Data(whole)).record.splits.train.tokens > 5000


def test_texts_and_rows_of_a_data_set_are_data_too(corpus: Corpus, tmp_path: Path) -> None:
    import datasets

    model, texts = saved(tmp_path / "model", corpus), list(open_source(["storyworld:stories=80"]).train.open())[:80]
    rows: Any = datasets.Dataset.from_dict({"text": texts})
    first, second = measure(str(model), data=texts), measure(str(model), data=rows)
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert first.rows == second.rows


def test_a_loaded_model_says_where_its_tokenizer_is_or_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    path = saved(tmp_path / "model", corpus)
    loaded: torch.nn.Module = AutoModelForCausalLM.from_pretrained(path)
    assert isinstance(measure(loaded, data=STORIES), Result)
    nowhere = build_model(build_config("gpt-neo", width=12, depth=1, vocabulary=320, positions=32), seed=0)
    with pytest.raises(ConfigError, match="has no tokenizer"):
        measure(nowhere, data=STORIES)
    result = measure(nowhere, tokenizer=corpus.tokenizer(), data=STORIES)
    assert isinstance(result, Result)
    by_name = measure(nowhere, tokenizer=corpus.path / "tokenizer", data=STORIES)
    assert isinstance(by_name, Result)
    assert result.facts["corpus_hash"] == by_name.facts["corpus_hash"]


def test_a_model_without_a_tokenizer_is_refused_before_anything_is_built(
    corpus: Corpus, folder: Path, cache: Path
) -> None:
    with pytest.raises(CorpusError, match="has no tokenizer beside its weights"):
        measure(str(folder), data=STORIES)
    assert not folders(cache)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "got neither"),
        ({"corpus": "somewhere", "data": STORIES}, "got both"),
        ({"data": []}, "an empty list"),
        ({"data": ["a text", 3]}, "text 1 is int"),
        ({"data": [{"story": "x"}]}, "row 0 has no text in a column 'text'"),
        ({"data": "nowhere.txt"}, "no such file"),
        ({"data": STORIES, "max_tokens": -1}, "max_tokens must be"),
        ({"data": STORIES, "block": 1}, "block must be"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, CorpusError), match=message):
        measure(str(saved(tmp_path / "model", corpus)), **given)


def test_a_split_of_what_has_none_is_refused() -> None:
    from collapselab.corpus.readers import Reading

    with pytest.raises(CorpusError, match="split or revision"):
        open_source([STORIES], reading=Reading(split="test"))


TEMPLATE = "{{ bos_token or '' }}{% for m in messages %}[{{ m.role }}] {{ m.content }} [/]{% endfor %}"


def test_a_chat_is_written_in_the_models_own_template(corpus: Corpus, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", corpus)
    with pytest.raises(CorpusError, match="its tokenizer has no chat template. Leave out --chat"):
        measure(str(model), data=STORIES, chat=True)
    tokenizer = corpus.tokenizer()
    tokenizer.chat_template = TEMPLATE  # type: ignore[attr-defined]
    tokenizer.save_pretrained(model)
    result, plain = measure(str(model), data=STORIES, chat=True), measure(str(model), data=STORIES)
    assert isinstance(result, Result)
    assert isinstance(plain, Result)
    written = Corpus(result.facts["corpus"])
    text = tokenizer.decode(written.train.ids.reshape(-1).tolist())
    first = next(iter(open_source([STORIES]).train.open()))
    assert text.startswith(f"[user] {first[:40]}")
    assert "[/]" in text
    codes = [[warning["code"] for warning in one.facts["warnings"]] for one in (result, plain)]
    assert ("chat-template" in codes[0], "chat" in codes[0]) == (True, False)
    assert ("chat-template" in codes[1], "chat" in codes[1]) == (False, True)
    assert result.facts["text_hash"] != plain.facts["text_hash"], "not the same text"
    with pytest.raises(ConfigError, match="chat needs --data"):
        measure(str(model), corpus, chat=True)


def test_whose_turn_a_text_is_can_be_chosen_and_is_said(corpus: Corpus, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", corpus)
    tokenizer = corpus.tokenizer()
    tokenizer.chat_template = TEMPLATE  # type: ignore[attr-defined]
    tokenizer.save_pretrained(model)
    result = measure(str(model), data=STORIES, chat="assistant")
    assert isinstance(result, Result)
    text = tokenizer.decode(Corpus(result.facts["corpus"]).train.ids.reshape(-1).tolist())
    assert text.startswith("[assistant] ")
    (said,) = [warning["text"] for warning in result.facts["warnings"] if warning["code"] == "chat-template"]
    assert "a turn of the assistant" in said
    assert "all count" in said
    with pytest.raises(ConfigError, match="chat: 'system' is not valid"):
        measure(str(model), data=STORIES, chat="system")  # type: ignore[arg-type]


@pytest.mark.parametrize("template", ["{{ raise_exception('users come first') }}", "{% for %}", "{{ 1 / 0 }}"])
def test_a_template_that_refuses_the_turn_is_a_message(template: str, corpus: Corpus, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", corpus)
    tokenizer = corpus.tokenizer()
    tokenizer.chat_template = template  # type: ignore[attr-defined]
    tokenizer.save_pretrained(model)
    with pytest.raises(CorpusError, match="its chat template does not take a single turn of the assistant"):
        measure(str(model), data=STORIES, chat="assistant")
