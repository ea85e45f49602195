import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from collapselab.corpus.sources import Reading, open_source
from collapselab.errors import CorpusError

STORIES = ["One day, a cat sat.\nIt was happy.", "Two dogs ran.", "Three birds — sang é."]


def read(*names: Path | str, **options: object) -> list[str]:
    return list(open_source([str(name) for name in names], reading=Reading(**options)).train.open())  # type: ignore[arg-type]


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
    with pytest.raises(CorpusError, match="no column 'story'. There are text; choose one with --text-column"):
        list(open_source([f"hf:{folder}"], reading=Reading(text_column="story")).train.open())


def test_a_data_set_that_is_not_there_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be loaded .* give files instead: collapselab corpus build"):
        open_source([f"hf:{tmp_path / 'nowhere'}"])


def spoiled(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


BAD = {
    "empty": (spoiled("a.txt", b""), {}, r"a\.txt: the file is empty\."),
    "binary": (spoiled("a.txt", b"text\nPK\x03\x00\x01"), {}, r"a\.txt: a zero byte at 8: this is a binary file, not text\."),
    "not UTF-8": (spoiled("a.txt", b"good\ncaf\xe9 bad"), {}, r"byte 0xe9 at position 8 \(line 2\) is not UTF-8\. Go on with --errors replace"),
    "not JSON": (spoiled("a.jsonl", b'{"text": "x"}\n{"text": '), {}, r"a\.jsonl, line 2: not JSON"),
    "JSON list": (spoiled("a.jsonl", b"[1, 2]\n"), {}, r"line 1: list, not an object with a column 'text'"),
    "JSON column": (spoiled("a.jsonl", b'{"story": "x", "n": 1}\n'), {}, r"line 1: no column 'text'\. There are story, n; choose"),
    "JSON number": (spoiled("a.jsonl", b'{"text": 3}\n'), {}, r"line 1: column 'text' holds int, not text"),
    "Parquet column": (lambda folder: write_parquet(folder / "a"), {"text_column": "story"}, r"no column 'story'\. There are id, text; choose"),
    "not Parquet": (spoiled("a.parquet", b"nothing of the kind"), {}, r"not a whole Parquet file"),
    "cut gzip": (spoiled("a.txt.gz", gzip.compress(b"long text " * 1000)[:-20]), {}, r"the compressed file is damaged or cut short"),
    "not gzip": (spoiled("a.txt.gz", b"plain"), {}, r"the compressed file is damaged or cut short"),
    "not zstd": (spoiled("a.txt.zst", b"plain text here"), {}, r"the compressed file is damaged or cut short"),
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


@pytest.mark.parametrize("name", ["storyworld:story=5", "storyworld:stories=many", "storyworld:stories=0"])
def test_wrong_settings_of_storyworld_are_refused(name: str) -> None:
    with pytest.raises(CorpusError, match="storyworld"):
        open_source([name])


def test_storyworld_stands_alone(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="stands alone"):
        open_source(["storyworld", str(text_file(tmp_path / "a.txt"))])
