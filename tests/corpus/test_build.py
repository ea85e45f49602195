import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from collapselab.core.batch import IGNORED
from collapselab.corpus import build as module
from collapselab.corpus import tokenizer as tokenizer_module
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import Documents, Source, open_source
from collapselab.disk import write_document
from collapselab.errors import CorpusError, DamagedError, DiskError, UserError
from collapselab.records.corpus import HASHED

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the real TinyStories are not beside this checkout")


def source_of(train: list[str], validation: list[str] | None = None) -> Source:
    def documents(texts: list[str]) -> Documents:
        return Documents(lambda: iter(texts), len(texts), "documents")

    return Source(documents(train), documents(validation) if validation else None, {"kind": "test", "n": len(train)})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpora") / "small"
    return build_corpus(
        open_source(["storyworld:stories=300,validation=60"]), path, Recipe(tokenizer="bpe:600", block=64)
    )


@pytest.fixture(scope="module")
def tokenizer(small: Corpus) -> str:
    return str(small.path / "tokenizer")


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("packing", "blocks"), [("paper", 2383), ("stream", 2407)])
def test_the_real_tinystories_have_the_known_numbers(packing: str, blocks: int, tmp_path: Path) -> None:
    source = open_source(
        [str(SHARED / "tinystories" / "train.txt")], validation=[str(SHARED / "tinystories" / "validation.txt")]
    )
    recipe = Recipe(tokenizer=str(SHARED / "gpt2"), block=2048, packing=packing)  # type: ignore[arg-type]
    corpus = build_corpus(source, tmp_path / "c", recipe)
    facts = corpus.facts["splits"]["train"]
    found = tuple(facts[key] for key in ("documents", "tokens", "types", "types_seen_once", "blocks"))
    assert found == (24332, 4907173, 11990, 2433, blocks)
    assert corpus.facts["splits"]["validation"]["documents"] == 817


TEXTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=60), min_size=8, max_size=30
)


@pytest.mark.slow
@given(texts=TEXTS, block=st.integers(2, 20))
def test_decoding_the_blocks_of_a_stream_gives_the_documents_back(
    texts: list[str], block: int, tokenizer: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = [text.replace("<|endoftext|>", "") + "." for text in texts]
    corpus = build_corpus(
        source_of(texts, texts), tmp_path_factory.mktemp("round") / "c", Recipe(tokenizer=tokenizer, block=block)
    )
    ids = corpus.train.ids.reshape(-1).tolist()
    text = corpus.tokenizer().decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    whole = "".join(f"{document}<|endoftext|>" for document in texts)
    # The dropped remainder may end inside a character.
    assert whole.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    assert corpus.facts["splits"]["train"]["tokens_dropped"] < block


def test_paper_packing_drops_the_remainder_of_each_group(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP", 3)
    texts = [f"Story number {n} is here." for n in range(10)]
    corpus = build_corpus(
        source_of(texts, texts), tmp_path / "c", Recipe(tokenizer=tokenizer, block=8, packing="paper")
    )
    backend = corpus.tokenizer().backend_tokenizer
    blocks: list[list[int]] = []
    for start in range(0, 10, 3):
        ids = [i for text in texts[start : start + 3] for i in backend.encode(text).ids]
        blocks += [ids[at : at + 8] for at in range(0, len(ids) - 7, 8)]
    assert corpus.train.ids.tolist() == blocks
    assert corpus.facts["end_of_text"] not in corpus.train.ids


@pytest.mark.parametrize("packing", ["stream", "paper"])
def test_the_bytes_do_not_depend_on_batches_or_threads(
    packing: str, tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(["storyworld:stories=120,validation=30"])
    recipe = Recipe(tokenizer=tokenizer, block=32, packing=packing)  # type: ignore[arg-type]
    first = build_corpus(source, tmp_path / "a", recipe)
    monkeypatch.setattr(module, "BATCH_DOCUMENTS", 7)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    second = build_corpus(source, tmp_path / "b", recipe)
    assert first.facts == second.facts
    assert (tmp_path / "a" / "train.bin").read_bytes() == (tmp_path / "b" / "train.bin").read_bytes()


def test_a_trained_tokenizer_is_the_same_each_time(tmp_path: Path) -> None:
    source = open_source(["storyworld:stories=200,validation=20"])
    first, second = (build_corpus(source, tmp_path / name, Recipe(tokenizer="bpe:500", block=32)) for name in "ab")
    assert first.hash == second.hash
    assert first.vocabulary == 500


def test_a_trained_tokenizer_knows_training_text_only(tmp_path: Path) -> None:
    seen: list[str] = []
    texts = [f"Text {n} about things." for n in range(400)]

    def documents() -> Iterator[str]:
        for text in texts:
            seen.append(text)
            yield text

    source = Source(Documents(documents, None, "documents"), None, {})
    recipe = Recipe(tokenizer="bpe:300", block=8, validation_share=0.25)
    training = list(module._training_documents(source, recipe).open())
    corpus = build_corpus(source, tmp_path / "c", recipe)
    assert corpus.facts["splits"]["train"]["documents"] == len(training)
    assert 60 < corpus.facts["splits"]["validation"]["documents"] < 140
    held_out = set(texts) - set(training)
    text = corpus.tokenizer().decode(corpus.validation.ids.reshape(-1).tolist())
    assert sum(document in text for document in held_out) > 0.9 * len(held_out)


def test_class_counts_are_those_of_the_labels_in_the_blocks(small: Corpus) -> None:
    for split in (small.train, small.validation):
        expected = np.bincount(split.ids[:, 1:].reshape(-1), minlength=small.vocabulary)
        assert torch.equal(split.counts, torch.from_numpy(expected))
    assert int(small.train.token_counts.sum()) == small.facts["splits"]["train"]["tokens"]


def test_blocks_are_tensors_by_index(small: Corpus) -> None:
    assert small.train[0].dtype == torch.int64
    assert torch.equal(small.train[-1], torch.from_numpy(small.train.ids[len(small.train) - 1].astype(np.int64)))
    with pytest.raises(IndexError, match=str(len(small.train))):
        small.train[len(small.train)]
    again = pickle.loads(pickle.dumps(small.train))
    assert torch.equal(again[3], small.train[3])


def test_batches_cover_every_block_once_in_a_seeded_order(small: Corpus) -> None:
    split = small.train
    batches = list(split.batches(7, seed=5, epoch=2))
    rows = sorted(map(tuple, torch.cat(batches).tolist()))
    assert rows == sorted(map(tuple, split.ids.tolist()))
    assert torch.equal(torch.cat(batches), torch.cat(list(split.batches(7, seed=5, epoch=2))))
    assert not torch.equal(batches[0], next(split.batches(7, seed=6, epoch=2)))
    assert not torch.equal(batches[0], next(split.batches(7, seed=5, epoch=3)))
    assert torch.equal(next(split.batches(4)), torch.from_numpy(split.ids[:4].astype(np.int64)))


def test_the_order_is_the_same_on_every_machine(small: Corpus) -> None:
    assert small.train.order(seed=0)[:6].tolist() == [1526, 286, 1504, 1076, 1127, 250]
    assert abs(np.corrcoef(small.train.order(seed=1), np.arange(len(small.train)))[0, 1]) < 0.2


def test_batches_can_be_resumed_and_split_over_processes(small: Corpus) -> None:
    whole = list(small.train.batches(10, seed=1))
    assert all(torch.equal(a, b) for a, b in zip(small.train.batches(10, seed=1, start=3), whole[3:], strict=True))
    for number, parts in enumerate(
        zip(*(small.train.batches(10, seed=1, rank=r, world=3) for r in range(3)), strict=True)
    ):
        rows = sorted(map(tuple, torch.cat(parts).tolist()))
        assert rows == sorted(map(tuple, whole[number].tolist()))


def test_a_repeated_build_opens_what_is_there_and_another_is_refused(small: Corpus) -> None:
    before = (small.path / "train.bin").stat().st_mtime_ns
    source = open_source(["storyworld:stories=300,validation=60"])
    assert build_corpus(source, small.path, Recipe(tokenizer="bpe:600", block=64)).hash == small.hash
    assert (small.path / "train.bin").stat().st_mtime_ns == before
    with pytest.raises(CorpusError, match=r"block was 64, now 32"):
        build_corpus(source, small.path, Recipe(tokenizer="bpe:600", block=32))


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(CorpusError, match="not a corpus"):
        build_corpus(open_source(["storyworld"]), tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_an_empty_folder_is_used(tokenizer: str, tmp_path: Path) -> None:
    build_corpus(
        source_of(["Some words here."] * 9, ["Other words here."] * 9), tmp_path, Recipe(tokenizer=tokenizer, block=4)
    )
    assert Corpus(tmp_path).train.blocks > 0


BAD_RECIPES = {
    "block longer than the split": (Recipe(block=5000), "train: .* 5,000.*--block"),
    "tokenizer too large": (Recipe(id_type="uint16"), "uint16.* 70,001 .*--id-type auto"),
    "no such tokenizer": (Recipe(tokenizer="./nowhere"), "the tokenizer cannot be loaded .* --tokenizer bpe:4096"),
    "small bpe": (Recipe(tokenizer="bpe:9"), "bpe:9: .*bpe:SIZE .* 257"),
    "no size": (Recipe(tokenizer="bpe:"), "bpe:SIZE"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_RECIPES)
def test_a_bad_recipe_is_named_and_leaves_nothing_behind(case: str, tokenizer: str, tmp_path: Path) -> None:
    recipe, message = BAD_RECIPES[case]
    name = recipe.tokenizer if recipe.tokenizer != "bpe:4096" else tokenizer
    if case == "tokenizer too large":
        words = {f"w{n}": n for n in range(70000)} | {"<|endoftext|>": 70000}
        large = Tokenizer(models.WordLevel(words, unk_token="w0"))
        PreTrainedTokenizerFast(tokenizer_object=large, eos_token="<|endoftext|>").save_pretrained(tmp_path / "large")
        name = str(tmp_path / "large")
    recipe = Recipe(tokenizer=name, block=recipe.block, id_type=recipe.id_type)
    with pytest.raises(CorpusError, match=message):
        build_corpus(source_of(["Some words here."] * 9, ["Other words."] * 9), tmp_path / "deep" / "c", recipe)
    assert not (tmp_path / "deep").exists() or os.listdir(tmp_path / "deep") == []


def test_a_tokenizer_that_encodes_nothing_is_refused(tmp_path: Path) -> None:
    empty = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<|endoftext|>")
    empty.save_pretrained(tmp_path / "t")
    with pytest.raises(CorpusError, match="0 tokens.*incomplete"):
        tokenizer_module.tokenizer_for(str(tmp_path / "t"), source_of(["x"]).train)


def test_a_tokenizer_whose_regular_expression_backtracks_without_end_is_refused(tokenizer: str, tmp_path: Path) -> None:
    folder = tmp_path / "backtracking"
    shutil.copytree(tokenizer, folder)
    record = json.loads((folder / "tokenizer.json").read_text())
    record["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(record))
    texts = ["a" * 60 + "b"] * 20
    with pytest.raises(CorpusError, match="failed on this text"):
        build_corpus(source_of(texts, texts), tmp_path / "c", Recipe(tokenizer=str(folder), block=8))
    assert not (tmp_path / "c").exists()


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no tokenizer.json"):
        tokenizer_module.tokenizer_for(str(tmp_path), source_of(["x"]).train)


def test_no_documents_is_an_error(tokenizer: str, tmp_path: Path) -> None:
    recipe = Recipe(tokenizer=tokenizer, block=4, validation_share=0.0)
    with pytest.raises(CorpusError, match="validation: no documents"):
        build_corpus(source_of(["Some words here."] * 9), tmp_path / "c", recipe)


@pytest.mark.parametrize(("code", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot be written")])
def test_a_disk_that_refuses_leaves_nothing_behind(
    code: int, message: str, tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module.np, "save", fail)
    with pytest.raises(DiskError, match=message):
        build_corpus(
            source_of(["Some words here."] * 9, ["Other."] * 9), tmp_path / "c", Recipe(tokenizer=tokenizer, block=4)
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_killed_and_repeated_the_same_bytes_come_out(small: Corpus, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collapselab", "corpus", "build", "storyworld:stories=300,validation=60", "--tokenizer", "bpe:600", "--block", "64", "--out", str(tmp_path / "c")]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".c.*.partial")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(tmp_path.glob(".c.*.partial"))
    assert not (tmp_path / "c").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert os.listdir(tmp_path) == ["c"]
    assert Corpus(tmp_path / "c").hash == small.hash


def test_what_a_running_build_has_made_so_far_is_left_alone(tokenizer: str, tmp_path: Path) -> None:
    running = tmp_path / f".c.{os.getppid()}.partial"
    running.mkdir()
    build_corpus(
        source_of(["Some words here."] * 9, ["Other words here."] * 9),
        tmp_path / "c",
        Recipe(tokenizer=tokenizer, block=4),
    )
    assert running.is_dir()


# Opening -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(small: Corpus, tmp_path: Path) -> Path:
    for file in small.path.rglob("*"):
        if file.is_file():
            target = tmp_path / "c" / file.relative_to(small.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return tmp_path / "c"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_damage_is_named(copy: Path) -> None:
    flip(copy / "train.bin")
    with pytest.raises(CorpusError, match=r"train\.bin: damaged.*checksum"):
        Corpus(copy)
    (copy / "train.bin").write_bytes(b"\0" * 10)
    with pytest.raises(CorpusError, match=r"train\.bin: damaged.* 10 bytes"):
        Corpus(copy, verify=False)
    (copy / "train.bin").unlink()
    with pytest.raises(CorpusError, match=r"train\.bin is missing"):
        Corpus(copy)


@pytest.mark.parametrize(
    "name", ["validation.bin", "counts.npy", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
)
def test_damage_to_any_file_is_found(name: str, copy: Path) -> None:
    flip(copy / name)
    with pytest.raises(CorpusError, match="damaged"):
        Corpus(copy)


def test_foreign_folders_are_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="nowhere"):
        Corpus(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match="corpus.json"):
        Corpus(tmp_path)
    (copy / "corpus.json").write_text("{")
    with pytest.raises(DamagedError, match="corpus.json"):
        Corpus(copy)
    (copy / "corpus.json").write_text("[1]")
    with pytest.raises(DamagedError, match="corpus.json"):
        Corpus(copy)
    (copy / "corpus.json").write_text("{}")
    with pytest.raises(DamagedError, match="corpus.json"):
        Corpus(copy)
    write_document(copy / "corpus.json", {"format": 99})
    with pytest.raises(DamagedError, match="format"):
        Corpus(copy)


def earlier(copy: Path) -> dict[str, Any]:
    """Make the copy one of an earlier version: format 1, without a checksum and without what came later."""
    document = json.loads((copy / "corpus.json").read_text())
    for later in ("checksum", "begin", "tokenizer_hash", "folder"):
        del document[later]
    del document["request"]["begin"]
    for split in document["splits"].values():
        del split["samples"], split["documents_cut"]
    document["files"] = {name: file for name, file in document["files"].items() if name in HASHED}
    document["format"] = 1
    document["versions"]["collapselab"] = "0.1.0"
    (copy / "corpus.json").write_text(json.dumps(document))
    return document


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


def put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(document))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def test_no_value_of_corpus_json_can_be_edited(copy: Path) -> None:
    file = copy / "corpus.json"
    document = json.loads(file.read_text())
    paths = list(leaves(document))
    assert ("splits", "train", "blocks") in paths
    assert "tokenizer/tokenizer_config.json" in document["files"]
    for path in paths:
        file.write_text(json.dumps(put(document, path, 1346)))
        with pytest.raises(UserError, match="damaged or edited|format 1346"):
            Corpus(copy)
    del document["checksum"]
    file.write_text(json.dumps(document))
    with pytest.raises(DamagedError, match="checksum"):
        Corpus(copy)


def test_a_corpus_of_an_earlier_version_opens_and_is_found_by_its_recipe(copy: Path, small: Corpus) -> None:
    earlier(copy)
    opened = Corpus(copy)
    assert (opened.record.format, opened.hash) == (1, small.hash)
    assert torch.equal(opened.train.counts, small.train.counts)
    source = open_source(["storyworld:stories=300,validation=60"])
    assert build_corpus(source, copy, Recipe(tokenizer="bpe:600", block=64)).hash == small.hash


def test_without_a_checksum_every_number_that_files_are_read_by_is_compared_with_them(copy: Path) -> None:
    document = earlier(copy)
    paths = [("splits", split, "blocks") for split in ("train", "validation")]
    for path in [*paths, ("block",), ("vocabulary",), ("hash",), ("files", "train.bin", "bytes")]:
        (copy / "corpus.json").write_text(json.dumps(put(document, path, "1346" if path == ("hash",) else 1346)))
        with pytest.raises(CorpusError, match="damaged or edited|not of 1,346 tokens"):
            Corpus(copy)


def test_a_key_that_is_missing_or_of_another_type_is_one_message(copy: Path) -> None:
    document = earlier(copy)
    optional = {("format",), ("versions",), ("boundary",), ("end_of_text",)}  # a record without a format has 1
    for path in [
        *((key,) for key in document),
        ("splits", "train"),
        ("splits", "validation", "blocks"),
        ("request", "packing"),
    ]:
        changed = put(document, path, [None])
        (copy / "corpus.json").write_text(json.dumps(changed))
        with pytest.raises(DamagedError, match=r"corpus\.json: .* Build the corpus again"):
            Corpus(copy)
        if path not in optional:
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            del inner[path[-1]]
            (copy / "corpus.json").write_text(json.dumps(changed))
            with pytest.raises(DamagedError, match=r"corpus\.json: .* Build the corpus again"):
                Corpus(copy)


# Begin tokens and documents ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begins(tokenizer: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer that writes a begin token before a text, and nothing after it."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(tokenizer)
    found.add_special_tokens({"bos_token": "<s>"})
    template = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", found.bos_token_id)])
    found.backend_tokenizer.post_processor = template
    path = tmp_path_factory.mktemp("tokenizers") / "begins"
    found.save_pretrained(path)
    loaded = AutoTokenizer.from_pretrained(path)
    assert loaded("Once")["input_ids"][0] == loaded.bos_token_id
    return loaded


TALES = [
    "One little story.",
    "Another story, longer.",
    "No.",
    "A third story that is quite a bit longer than that.",
] * 6


def built(begins: Any, path: Path, **recipe: Any) -> Corpus:
    return build_corpus(source_of(TALES, TALES), path, Recipe(tokenizer=begins.name_or_path, **recipe))


def test_documents_are_marked_as_the_tokenizer_or_the_user_says(begins: Any, tmp_path: Path) -> None:
    plain = [begins.encode(text, add_special_tokens=False) for text in TALES]
    begun = [id for ids in plain for id in (begins.bos_token_id, *ids)]
    ended = [id for ids in plain for id in (*ids, begins.eos_token_id)]
    for boundary, expected, name in (("auto", begun, "begin"), ("begin", begun, "begin"), ("end", ended, "end")):
        corpus = built(begins, tmp_path / boundary, block=4, boundary=boundary, begin="document")
        found = corpus.train.ids.reshape(-1).tolist()
        assert found == expected[: len(found)]
        assert len(expected) - len(found) < 4
        assert corpus.record.boundary == name
        assert corpus.record.splits.train.tokens == sum(map(len, plain))
        counted = np.bincount([id for ids in plain for id in ids], minlength=corpus.vocabulary)
        assert corpus.train.token_counts.tolist() == counted.tolist()


def test_every_block_begins_with_the_begin_token_that_the_tokenizer_writes(begins: Any, tmp_path: Path) -> None:
    corpus = built(begins, tmp_path / "c", block=8)
    split, begin = corpus.train, begins.bos_token_id
    assert corpus.record.begin == "block"
    assert (split.ids[:, 0] == begin).all()
    assert not (split.ids[:, :2] == begin).all(1).any()  # never twice
    plain = [id for text in TALES for id in (begin, *begins.encode(text, add_special_tokens=False))]
    stream = [id for id in plain if id != begin]
    found = [id for id in split.ids.reshape(-1).tolist() if id != begin]
    assert found == stream[: len(found)]
    assert len(stream) - len(found) < 8
    assert corpus.hash != built(begins, tmp_path / "d", block=8, begin="document").hash


def test_the_position_of_a_blocks_begin_token_is_no_sample(begins: Any, tmp_path: Path) -> None:
    corpus = built(begins, tmp_path / "c", block=8)
    split = corpus.train
    labels = split.read(np.arange(len(split))).labels
    assert (labels[:, 0] == IGNORED).all()
    assert torch.equal(labels[:, 1:], torch.from_numpy(split.ids[:, 2:].astype(np.int64)))
    assert torch.equal(split.counts, torch.bincount(labels[:, 1:].reshape(-1), minlength=corpus.vocabulary))
    assert corpus.record.samples("train") == int(split.counts.sum()) == len(split) * 6 == split.samples().sum()


def test_a_tokenizer_that_writes_no_begin_token_has_none_in_its_blocks_unless_asked(
    tokenizer: str, tmp_path: Path
) -> None:
    source, recipe = source_of(TALES, TALES), Recipe(tokenizer=tokenizer, block=8)
    assert build_corpus(source, tmp_path / "c", recipe).record.begin == "none"
    corpus = build_corpus(source, tmp_path / "d", Recipe(tokenizer=tokenizer, block=8, begin="block"))
    assert (corpus.train.ids[:, 0] == corpus.tokenizer().bos_token_id).all()
    assert corpus.train.first == 1


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"block": 2}, "block .* got 2"),
        ({"packing": "paper", "begin": "block"}, "begin.* paper packing"),
    ],
)
def test_begin_tokens_that_cannot_be_are_refused(
    begins: Any, tmp_path: Path, recipe: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        built(begins, tmp_path / "c", **recipe)


def test_with_document_packing_every_block_is_one_document(begins: Any, tmp_path: Path) -> None:
    corpus = built(begins, tmp_path / "c", packing="document", block=12)
    whole = [begins(text)["input_ids"] for text in TALES]  # as the tokenizer writes them
    split = corpus.train
    for number, ids in enumerate(whole):
        length = min(len(ids), 12)
        assert split.ids[number, :length].tolist() == ids[:12]
        blocks = split.read(np.array([number]))
        assert blocks.labels[0, : length - 1].tolist() == ids[1:12]
        assert (blocks.labels[0, length - 1 :] == IGNORED).all()
        assert blocks.attention is not None
        assert blocks.attention[0].tolist() == [1] * length + [0] * (12 - length)
    numbers = corpus.record.splits.train
    assert numbers.documents_cut == sum(len(ids) > 12 for ids in whole) == 6
    assert numbers.tokens_dropped == sum(max(0, len(ids) - 12) for ids in whole)
    labels = np.array([id for ids in whole for id in ids[1:12]])
    assert split.counts.tolist() == np.bincount(labels, minlength=corpus.vocabulary).tolist()
    assert corpus.record.samples("train") == len(labels) == split.samples().sum()
    flip(tmp_path / "c" / "lengths.npy")
    with pytest.raises(CorpusError, match=r"lengths\.npy: damaged"):
        Corpus(tmp_path / "c")


def test_a_tokenizer_that_writes_no_marks_ends_documents_with_the_end_of_text(tokenizer: str, tmp_path: Path) -> None:
    corpus = build_corpus(
        source_of(["A little story.", "a", "Another one."], ["A little story."]),
        tmp_path / "c",
        Recipe(tokenizer=tokenizer, block=8, packing="document"),
    )
    assert corpus.record.boundary == "end"  # the tokenizer writes nothing: the end is marked, as in a stream
    assert len(corpus.train) == 3
    assert corpus.train.lengths is not None
    assert corpus.train.ids[1, :2].tolist() == [*corpus.tokenizer().encode("a"), corpus.record.end_of_text]


@pytest.mark.slow
def test_builds_of_one_corpus_at_once_wait_for_the_first(tmp_path: Path) -> None:
    code = (
        "import sys; from collapselab import Recipe, build_corpus\n"
        "corpus = build_corpus('storyworld:stories=200,validation=40', sys.argv[1], Recipe('bpe:300', block=64))\n"
        "print(corpus.hash)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "c")]
    builds = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ends = [(*build.communicate(timeout=300), build.returncode) for build in builds]
    assert [status for _, _, status in ends] == [0, 0, 0], ends
    assert len({shown for shown, _, _ in ends}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_long_document_has_the_same_tokens_in_parts(
    small: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(["Once upon a time, Lily had 12 balls and it's fun!  She  ran.\n"] * 200)
    backend = small.tokenizer().backend_tokenizer
    whole = backend.encode(text, add_special_tokens=False).ids
    for place in (module, tokenizer_module):
        monkeypatch.setattr(place, "LONG_DOCUMENT", 100)
    assert len(list(tokenizer_module.parts_of(text))) > 100
    [(_, ids)] = module._encoded(source_of([text]).train, backend, lambda size: None)
    assert [token for part in ids for token in part] == whole
    assert "".join(tokenizer_module.parts_of("a" * 1001)) == "a" * 1001


def test_a_tokenizer_is_trained_on_text_without_spaces_in_seconds(tmp_path: Path) -> None:
    text = "".join("abcdefghij"[i * i * 7 // 5 % 10] for i in range(2_000_000))
    start = time.perf_counter()
    tokenizer_module.tokenizer_for("bpe:300", source_of([text]).train)
    assert time.perf_counter() - start < 60


def test_a_text_is_called_by_its_folder_wherever_that_is(tmp_path: Path) -> None:
    folder = tmp_path / "TinyStories-part"
    folder.mkdir()
    for split in ("train", "validation"):
        (folder / f"{split}.txt").write_text(f"{split}: once upon a time\n\n" * 20)
    recipe = Recipe(tokenizer="characters", block=8)
    corpus = build_corpus(open_source([str(folder)]), tmp_path / "corpus", recipe)
    assert corpus.record.text_name == "TinyStories-part"
    moved = folder.rename(tmp_path / "moved")
    assert build_corpus(open_source([str(moved)]), tmp_path / "corpus", recipe).hash == corpus.hash
    by_files = open_source([str(moved / "train.txt")], validation=[str(moved / "validation.txt")])
    assert build_corpus(by_files, tmp_path / "corpus", recipe).record.text_hash == corpus.record.text_hash


@pytest.mark.slow
def test_a_line_of_20_mb_without_spaces_takes_less_than_1_gb(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    (tmp_path / "line.txt").write_bytes(chance.integers(ord("a"), ord("z") + 1, 20_000_000, dtype=np.uint8).tobytes())
    code = (
        "import re, sys; from collapselab import Recipe, build_corpus\n"
        "build_corpus(sys.argv[1], sys.argv[2], Recipe('bpe:300', block=64))\n"
        # Not ru_maxrss: it includes the memory of the process that this one was started from.
        "print(re.search('VmHWM:\\\\s+([0-9]+)', open('/proc/self/status').read())[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "line.txt"), str(tmp_path / "c")]
    kilobytes = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert int(kilobytes) < 1_000_000
