import codecs
import errno
import gzip
import io
import json
import os
import random
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.torch
import torch
import zstandard

from collapselab.corpus import sources
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.readers import read_documents
from collapselab.corpus.sources import Reading, open_source
from collapselab.errors import CorpusError, DiskError

STORIES = ["One day, a cat sat.\nIt was happy.", "Two dogs ran.", "Three birds — sang é."]


def read(*names: Path | str, **options: object) -> list[str]:
    """The documents as the files have them: with a share of 0, one text is not split."""
    source = open_source([str(name) for name in names], reading=Reading(**options), validation_share=0)  # type: ignore[arg-type]
    return list(source.train.open())


def text_file(path: Path, stories: list[str] = STORIES) -> Path:
    path.write_text("".join(f"{story}\n<|endoftext|>\n" for story in stories))
    return path


def write_plain(path: Path) -> Path:
    return text_file(path.with_suffix(".txt"))


def write_without_last_separator(path: Path) -> Path:
    path = path.with_suffix(".txt")
    path.write_text("\n<|endoftext|>\n".join(STORIES))
    return path


def write_windows(path: Path) -> Path:
    path = path.with_suffix(".txt")
    path.write_bytes("\r\n<|endoftext|>\r\n".join(STORIES).replace(".\nIt", ".\r\nIt").encode())
    return path


def write_gzip(path: Path) -> Path:
    path = path.with_suffix(".txt.gz")
    path.write_bytes(gzip.compress(text_file(path.with_suffix("")).read_bytes()))
    path.with_suffix("").unlink()
    return path


def write_zstd(path: Path) -> Path:
    path = path.with_suffix(".txt.zst")
    path.write_bytes(zstandard.compress(text_file(path.with_suffix("")).read_bytes()))
    path.with_suffix("").unlink()
    return path


def write_json(path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("\n".join(json.dumps({"text": story, "n": n}) for n, story in enumerate(STORIES)) + "\n\n")
    return path


def write_json_zstd(path: Path) -> Path:
    compressed = path.with_suffix(".jsonl.zst")
    compressed.write_bytes(zstandard.compress(write_json(path).read_bytes()))
    path.with_suffix(".jsonl").unlink()
    return compressed


def write_parquet(path: Path) -> Path:
    path = path.with_suffix(".parquet")
    pyarrow.parquet.write_table(pa.table({"id": [1, 2, 3], "text": STORIES}), path)
    return path


WRITERS: list[Callable[[Path], Path]] = [
    write_plain, write_without_last_separator, write_windows, write_gzip, write_zstd, write_json, write_json_zstd, write_parquet,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_kind_of_file_gives_the_same_documents(write: Callable[[Path], Path], tmp_path: Path) -> None:
    assert read(write(tmp_path / "stories")) == STORIES


def test_a_stream_can_be_opened_again(tmp_path: Path) -> None:
    source = open_source([str(write_gzip(tmp_path / "s"))])
    assert list(source.train.open()) == list(source.train.open()) == STORIES


def test_several_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    text_file(tmp_path / "more" / "b.txt", ["b"])
    text_file(tmp_path / "more" / "a.txt", ["a"])
    assert read(text_file(tmp_path / "z.txt", ["z"]), tmp_path / "more") == ["z", "a", "b"]


def test_other_separators(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text("one\n---\ntwo\n\nthree\n")
    assert read(path, separator="---") == ["one", "two\n\nthree"]
    assert read(path, separator="") == ["one\n---\ntwo", "three"]
    assert read(path, separator=None) == ["one\n---\ntwo\n\nthree"]
    assert read(path) == ["one\n---\ntwo\n\nthree"]


def test_documents_of_white_space_are_dropped(tmp_path: Path) -> None:
    assert read(text_file(tmp_path / "s.txt", ["a", "  ", "", "b"])) == ["a", "b"]


def test_another_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"story": "x"}\n')
    assert read(path, text_column="story") == ["x"]


def test_storyworld_takes_its_settings_from_its_name() -> None:
    source = open_source(["storyworld:stories=5,seed=3,validation=2"])
    assert source.validation is not None
    assert (len(list(source.train.open())), len(list(source.validation.open()))) == (5, 2)
    assert list(open_source(["storyworld:stories=5"]).train.open()) != list(source.train.open())


def test_validation_files_are_kept_apart(tmp_path: Path) -> None:
    train, other = text_file(tmp_path / "a.txt", ["a"]), text_file(tmp_path / "b.txt", ["b"])
    source = open_source([str(train)], validation=[str(other)])
    assert source.validation is not None
    assert (list(source.train.open()), list(source.validation.open())) == (["a"], ["b"])


@pytest.mark.parametrize("held_out", ["validation.txt", "valid-00.txt", "val_1.txt", "dev.txt"])
def test_a_folder_whose_files_name_their_splits_is_read_as_these(tmp_path: Path, held_out: str) -> None:
    text_file(tmp_path / "train.txt", ["a", "b"])
    text_file(tmp_path / held_out, ["c"])
    source = open_source([str(tmp_path)])
    assert source.validation is not None
    assert (list(source.train.open()), list(source.validation.open())) == (["a", "b"], ["c"])
    by_hand = open_source([str(tmp_path / "train.txt")], validation=[str(tmp_path / held_out)])
    assert source.provenance == by_hand.provenance, "one corpus, however it is named"


@pytest.mark.parametrize("other", ["more.txt", "test.txt", "training.txt", "values.txt"])
def test_a_folder_with_other_files_is_one_text(tmp_path: Path, other: str) -> None:
    for name in ("train.txt", "validation.txt", other):
        text_file(tmp_path / name, [name, "x"])
    source = open_source([str(tmp_path)])
    assert source.validation is None
    assert len(list(source.train.open())) == 6


def test_a_data_set_is_streamed_with_its_own_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    for split, stories in (("train", STORIES), ("validation", ["later"])):
        (folder / f"{split}.jsonl").write_text("\n".join(json.dumps({"text": story}) for story in stories))
    source = open_source([f"hf:{folder}"])
    assert source.validation is not None
    assert list(source.train.open()) == list(source.train.open()) == STORIES
    assert list(source.validation.open()) == ["later"]
    with pytest.raises(CorpusError, match="no column 'story'.* text; .*--text-column"):
        list(open_source([f"hf:{folder}"], reading=Reading(text_column="story")).train.open())


def test_a_data_set_that_is_not_there_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be loaded .* give files instead: collapselab corpus build"):
        open_source([f"hf:{tmp_path / 'nowhere'}"])


def spoiled(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def compressed(*parts: bytes) -> bytes:
    return b"".join(map(zstandard.ZstdCompressor(write_checksum=True).compress, parts))


def zip_of_text() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "text")
    return buffer.getvalue()


def parquet_of(array: pa.Array) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        pyarrow.parquet.write_table(pa.table({"text": array}), folder / "a.parquet")
        return folder / "a.parquet"

    return write


LONG = bytes(random.Random(0).choices(range(32, 127), k=400_000))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
NOT_UTF8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])

BAD = {
    "empty": (spoiled("a.txt", b""), {}, r"a\.txt: the file is empty\."),
    "binary": (spoiled("a.txt", b"text\nPK\x03\x00\x01"), {}, r"a\.txt: zero byte at position 8"),
    "not UTF-8": (spoiled("a.txt", b"good\ncaf\xe9 bad"), {}, r"byte 0xe9 at position 8 \(line 2\) is not UTF-8\. Use --errors replace to continue"),
    "not JSON": (spoiled("a.jsonl", b'{"text": "x"}\n{"text": '), {}, r"a\.jsonl, line 2: invalid JSON"),
    "JSON list": (spoiled("a.jsonl", b"[1, 2]\n"), {}, r"line 1: list, not an object with a column 'text'"),
    "JSON column": (spoiled("a.jsonl", b'{"story": "x", "n": 1}\n'), {}, r"line 1: no column 'text'.* story, n; .*--text-column"),
    "JSON number": (spoiled("a.jsonl", b'{"text": 3}\n'), {}, r"line 1: column 'text' .*int"),
    "Parquet column": (lambda folder: write_parquet(folder / "a"), {"text_column": "story"}, r"no column 'story'.* id, text; .*--text-column"),
    "not Parquet": (spoiled("a.parquet", b"nothing of the kind"), {}, r"not a complete Parquet file"),
    "cut gzip": (spoiled("a.txt.gz", gzip.compress(b"long text " * 1000)[:-20]), {}, r"compressed file is damaged"),
    "not gzip": (spoiled("a.txt.gz", b"plain"), {}, r"compressed file is damaged"),
    "not zstd": (spoiled("a.txt.zst", b"plain text here"), {}, r"compressed file is damaged"),
    "damaged gzip": (spoiled("a.txt.gz", gzip.compress(LONG)[:300] + b"\xff" * 50 + gzip.compress(LONG)[350:]), {}, r"compressed file is damaged"),
    "gzip and more": (spoiled("a.txt.gz", gzip.compress(b"text\n") + b"more"), {}, r"compressed file is damaged"),
    "cut zstd": (spoiled("a.txt.zst", compressed(LONG)[:-200]), {}, r"incomplete \(Truncated"),
    "cut second frame": (spoiled("a.txt.zst", compressed(b"a\n", b"b\n")[:-3]), {}, r"incomplete \(Truncated"),
    "zstd and more": (spoiled("a.txt.zst", compressed(b"text\n") + b"more than that"), {}, r"compressed file is damaged"),
    "damaged zstd": (spoiled("a.txt.zst", compressed(LONG)[:-4] + b"\0\0\0\0"), {}, r"compressed file is damaged"),
    "half a character": (spoiled("a.jsonl", b'{"text": "x\\ud800"}\n'), {}, r"line 1: column 'text' .*\\ud800.* --errors replace"),
    "deep JSON": (spoiled("a.jsonl", b'{"text": "x"}\n' + b"[" * 100_000), {}, r"line 2: (JSON that cannot be read|not JSON)"),
    "long number": (spoiled("a.jsonl", b'{"text": "x", "n": ' + b"9" * 5000 + b"}"), {}, r"line 1: JSON that cannot be read \(Exceeds the limit"),
    "Parquet of numbers": (parquet_of(pa.array([1, 2])), {}, r"column 'text' .*int64.*--text-column"),
    "Parquet of structures": (parquet_of(pa.array([{"a": "x"}])), {}, r"column 'text' .*struct<a: string>"),
    "Parquet without text": (parquet_of(pa.array(["x", None])), {}, r"row 1: column 'text' .*NoneType"),
    "Parquet not UTF-8": (parquet_of(NOT_UTF8), {}, r"row 0: the text is not UTF-8\. Use --errors replace to continue"),
    "cut Parquet": (lambda folder: spoiled("b.parquet", write_parquet(folder / "a").read_bytes()[:-9])(folder), {}, r"not a complete Parquet file"),
    "PNG": (spoiled("a.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), {}, r"a\.txt: a PNG image"),
    "ZIP": (spoiled("a.txt", zip_of_text()), {}, r"a ZIP archive .* Unpack"),
    "PDF": (spoiled("a", b"%PDF-1.7\n%\xe2\xe3"), {}, r"a PDF document.* Extract"),
    "safetensors": (spoiled("a.txt", safetensors.torch.save({"w": torch.zeros(3)})), {}, r"a safetensors file"),
    "gzip by another name": (spoiled("a.txt", gzip.compress(b"text")), {}, r"a gzip file.* \.gz"),
    "PNG in gzip": (spoiled("a.txt.gz", gzip.compress(b"\x89PNG\r\n\x1a\n\0")), {}, r"a PNG image"),
    "UTF-16": (spoiled("a.txt", "text\n".encode("utf-16")), {}, r"UTF-16.*iconv"),
    "UTF-32": (spoiled("a.txt", "text\n".encode("utf-32")), {}, r"UTF-32.*iconv"),
    "pointer to text": (spoiled("a.txt", POINTER), {}, r"git-LFS pointer.*git lfs pull"),
    "pointer to Parquet": (spoiled("a.parquet", POINTER), {}, r"a git-LFS pointer"),
    "pointer to gzip": (spoiled("a.txt.gz", POINTER), {}, r"a git-LFS pointer"),
    "a long line": (spoiled("a.txt", b"short\n" + b"x" * 2000), {"max_document": 1000}, r"a\.txt, line 2: .*0\.001 MB.*--max-document"),
    "many lines": (spoiled("a.txt", b"short\n" * 500), {"max_document": 1000}, r"a\.txt, line 167: .*0\.001 MB"),
    "a long JSON text": (spoiled("a.jsonl", b'{"text": "' + b"x" * 2000 + b'"}'), {"max_document": 1000}, r"line 1: .*0.001 MB"),
    "a long Parquet text": (parquet_of(pa.array(["x"] * 9 + ["y" * 2000])), {"max_document": 1000}, r"row 9: .*0.001 MB"),
    "a device": (lambda folder: Path("/dev/zero"), {}, r"/dev/zero: neither a file nor a folder"),
    "empty folder": (lambda folder: (folder / "d").mkdir() or folder / "d", {}, r"d: the folder is empty"),
    "missing": (lambda folder: folder / "nowhere.txt", {}, r"nowhere\.txt: no such file\. A source is a file, a folder, or one of storyworld"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str, tmp_path: Path) -> None:
    write, options, message = BAD[case]
    with pytest.raises(CorpusError, match=message):
        read(write(tmp_path), **options)


def test_broken_bytes_can_be_replaced(tmp_path: Path) -> None:
    path = spoiled("a.txt", b"caf\xe9 ok")(tmp_path)
    assert read(path, errors="replace") == ["caf\N{REPLACEMENT CHARACTER} ok"]


def test_half_characters_can_be_replaced(tmp_path: Path) -> None:
    path = spoiled("a.jsonl", b'{"text": "a\\ud800b \\ud83d\\ude00"}')(tmp_path)
    assert read(path, errors="replace") == ["a\N{REPLACEMENT CHARACTER}b 😀"]
    assert read(parquet_of(NOT_UTF8)(tmp_path), errors="replace") == ["\N{REPLACEMENT CHARACTER}"]


def test_every_frame_of_a_zst_file_is_read(tmp_path: Path) -> None:
    empty_frame = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    path = spoiled("a.txt.zst", compressed(b"a\n<|endoftext|>\n", b"b\n", LONG) + empty_frame + compressed(b"c\n"))
    assert read(path(tmp_path)) == ["a", f"b\n{LONG.decode()}c"]


def test_documents_up_to_the_limit_are_read(tmp_path: Path) -> None:
    path = spoiled("a.txt", b"x" * 999 + b"\n<|endoftext|>\n" + b"y" * 999 + b"\n")(tmp_path)
    assert [len(text) for text in read(path, max_document=1000)] == [999, 999]


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_long_line_of_a_compressed_file_is_never_held(name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.{ending}"
    with gzip.open(path, "wb", 1) if ending == "gz" else zstandard.open(path, "wb") as file:
        for _ in range(100):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    with pytest.raises(CorpusError, match="line 1: .* 1 MB"):
        read(path, max_document=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_text_that_parquet_repeats_is_held_once(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 1_000_000]))
    pyarrow.parquet.write_table(pa.table({"text": repeated}), tmp_path / "a.parquet", store_schema=False)
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        count = sum(1 for _ in open_source([str(tmp_path / "a.parquet")]).train.open())
    finally:
        pa.set_memory_pool(before)
    assert count == 1000
    most = pool.max_memory()
    assert most is not None
    assert 1_000_000 < most < 50_000_000


@pytest.mark.parametrize("place", ["sha256", "check_file"])
def test_a_file_that_may_not_be_read_is_named(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        with sources.disk_errors(path, reading=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    path = text_file(tmp_path / "a.txt")
    monkeypatch.setattr(sources, place, refuse)
    with pytest.raises(DiskError, match=r"a\.txt: cannot be read \(Permission denied\)\."):
        open_source([str(path)])


def test_a_folder_inside_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_file(tmp_path / "a.txt")
    (tmp_path / "secret").mkdir()
    scan = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DiskError, match=r"secret: cannot be read \(Permission denied\)"):
        open_source([str(tmp_path)])


# One text ------------------------------------------------------------------------------------------------------------


SPEECH = "First Citizen:\nBefore we proceed any further, hear me speak.\nAnd number {n} of them."


def one_text(path: Path, text: str, **options: float) -> sources.Source:
    path.write_text(text)
    return open_source([str(path)], **options)  # type: ignore[arg-type]


def test_the_paragraphs_of_one_text_are_its_documents(tmp_path: Path) -> None:
    speeches = [SPEECH.format(n=n) for n in range(600)]
    source = one_text(tmp_path / "play.txt", "\n\n".join(speeches) + "\n")
    assert source.validation is None
    assert list(source.train.open()) == list(source.train.open()) == speeches
    assert source.split == "one text; its 600 paragraphs, between empty lines, are the documents"
    corpus = build_corpus(source, tmp_path / "c", Recipe(tokenizer="bpe:300", block=32))
    held_out = corpus.facts["splits"]["validation"]["documents"]
    assert 0 < held_out < 40
    assert corpus.facts["splits"]["train"]["documents"] == 600 - held_out
    assert corpus.facts["request"]["source"]["split"] == source.split


TAILS = {
    "few paragraphs": ("\n\n".join(SPEECH.format(n=n) for n in range(100)), 0.02),
    "many lines": ("".join(f"line number {n}\n" for n in range(1000)), 0.02),
    "one long line": ("word " * 5000, 0.02),
    "no spaces": ("x" * 5000, 0.02),
    "another share": ("".join(f"line number {n}\n" for n in range(1000)), 0.3),
}


@pytest.mark.parametrize("case", TAILS)
def test_the_end_of_one_text_is_held_out(case: str, tmp_path: Path) -> None:
    text, share = TAILS[case]
    source = one_text(tmp_path / "a.txt", text, validation_share=share)
    assert source.validation is not None
    (begin,), (end,) = list(source.train.open()), list(source.validation.open())
    assert (begin + end).replace("\n", "") == text.replace("\n", "")
    assert len(end) / len(text) == pytest.approx(share, rel=0.6)
    lines = [line for line in (*begin.splitlines(), *end.splitlines()) if line]
    assert "\n" not in text or lines == [line for line in text.splitlines() if line]
    assert source.split is not None
    found = re.fullmatch(r"one text; its last ([0-9.]+)% are held out for validation", source.split)
    assert found
    assert float(found[1]) / 100 == pytest.approx(len(end) / len(text), abs=0.002)


def test_three_lines_are_split_at_the_end_of_one(tmp_path: Path) -> None:
    source = one_text(tmp_path / "a.txt", "The first line.\nThe second line.\nThe third line.\n")
    assert source.validation is not None
    assert list(source.train.open()) == ["The first line.\nThe second line."]
    assert list(source.validation.open()) == ["The third line."]


def test_documents_stay_as_they_are_where_there_are_more_than_one(tmp_path: Path) -> None:
    assert open_source([str(text_file(tmp_path / "a.txt"))]).split is None
    assert "split" not in open_source([str(text_file(tmp_path / "b.txt"))]).provenance
    one = text_file(tmp_path / "c.txt", ["a b\n\n" * 900])
    assert len(list(open_source([str(one)], validation=[str(tmp_path / "a.txt")]).train.open())) == 1
    assert len(list(open_source([str(one)], reading=Reading(separator=None)).train.open())) == 1


@pytest.mark.parametrize(
    "name",
    [
        "storyworld:story=5",
        "storyworld:stories=many",
        "storyworld:stories=0",
        "storyworld:stories=²",
        "storyworld:seed=99999999999999999999",
        "storyworld:seed=-1",
    ],
)
def test_wrong_settings_of_storyworld_are_refused(name: str) -> None:
    with pytest.raises(CorpusError, match="storyworld"):
        open_source([name])


def test_storyworld_stands_alone(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="storyworld: .*a.txt"):
        open_source(["storyworld", str(text_file(tmp_path / "a.txt"))])


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, name: str) -> None:
    content = {"a.txt": "Once.", "a.jsonl": '{"text": "Once."}', "a.csv": 'text\n"Once."\n'}[name]
    (tmp_path / name).write_bytes(codecs.BOM_UTF8 + content.encode())
    assert list(read_documents(tmp_path / name, Reading())) == ["Once."]


def test_tables_are_read_by_their_text_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"Once, upon\na time."\n2,Then.\n')
    (tmp_path / "a.tsv").write_text("id\tstory\n1\tOnce, upon\n")
    assert list(read_documents(tmp_path / "a.csv", Reading())) == ["Once, upon\na time.", "Then."]
    assert list(read_documents(tmp_path / "a.tsv", Reading(text_column="story"))) == ["Once, upon"]
    with pytest.raises(CorpusError, match="no column 'text'. .*--text-column"):
        list(read_documents(tmp_path / "a.tsv", Reading()))
    (tmp_path / "a.csv").write_text('id,text\n1,"a",b\n')
    with pytest.raises(CorpusError, match="line 2: 3 fields, but 2 columns"):
        list(read_documents(tmp_path / "a.csv", Reading()))


def test_validation_data_that_is_training_data_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("Once upon a time.")
    (tmp_path / "c.txt").write_text("Another.")
    open_source([str(tmp_path / "a.txt")], validation=[str(tmp_path / "c.txt")])
    assert not caplog.records
    open_source([str(tmp_path / "a.txt")], validation=[str(tmp_path / "b.txt")])
    assert "is training and validation data" in caplog.text
