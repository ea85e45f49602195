import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from collapselab.cli import app
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.describe import description, draw
from collapselab.corpus.sources import open_source
from collapselab.errors import CorpusError, DiskError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpora") / "small"
    return build_corpus(
        open_source(["storyworld:stories=200,validation=40"]), path, Recipe(tokenizer="bpe:800", block=64)
    )


def test_the_description_counts_what_is_there(corpus: Corpus) -> None:
    facts = description(corpus)
    train = facts["splits"]["train"]
    assert train["documents"] == 200
    assert train["labels"] == len(corpus.train) * 63
    assert sum(kind["tokens"] for kind in facts["kinds"].values()) == train["tokens"]
    assert sum(kind["types"] for kind in facts["kinds"].values()) == train["types"]
    largest = facts["largest_classes"]
    assert [entry["count"] for entry in largest] == sorted((entry["count"] for entry in largest), reverse=True)
    assert largest[0]["count"] == int(corpus.train.counts.max())
    assert {" the", ".", ","} <= {entry["text"] for entry in largest}


def test_show_says_where_begin_tokens_are(corpus: Corpus, tmp_path: Path) -> None:
    recipe = Recipe(tokenizer=str(corpus.path / "tokenizer"), block=64, begin="block")
    build_corpus(open_source(["storyworld:stories=50,validation=10"]), tmp_path / "c", recipe)
    shown = CliRunner().invoke(app, ["corpus", "show", str(tmp_path / "c")])
    assert "begin token: at the start of every block" in shown.output
    assert description(corpus)["begin"] == "none"


def test_build_and_show_say_how_many_documents_were_cut(tmp_path: Path) -> None:
    out = str(tmp_path / "c")
    command = ["corpus", "build", "storyworld:stories=50,validation=10", "--tokenizer", "bpe:300", "--block", "64"]
    built = CliRunner().invoke(app, [*command, "--packing", "document", "--out", out])
    assert "train: 50 documents are longer than a block and were cut" in built.output
    shown = CliRunner().invoke(app, ["corpus", "show", out])
    assert "documents cut" in shown.output


def test_the_picture_is_an_svg_with_both_splits(corpus: Corpus, tmp_path: Path) -> None:
    draw(corpus, tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert all(split in text for split in corpus.splits)
    assert "rank of the token" in text


def test_show_prints_a_table_or_json(corpus: Corpus, tmp_path: Path) -> None:
    figure = str(tmp_path / "f.svg")
    result = CliRunner().invoke(app, ["corpus", "show", str(corpus.path), "--figure", figure, "--json", "--verify"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["splits"]["train"]["documents"] == 200
    table = CliRunner().invoke(app, ["corpus", "show", str(corpus.path), "--figure", figure]).stdout
    assert "types seen once" in table
    assert "' the'" in table


def test_a_corpus_that_may_not_be_written_is_shown_without_a_picture(corpus: Corpus, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(corpus.path, copy)
    (copy / "frequencies.svg").mkdir()  # a folder of that name: nothing can be written there, not by root either
    result = CliRunner().invoke(app, ["corpus", "show", str(copy), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["figure"] is None
    assert json.loads(result.stdout)["splits"]["train"]["documents"] == 200
    assert "--figure" in result.stderr
    with pytest.raises(DiskError):
        CliRunner().invoke(app, ["corpus", "show", str(copy), "--figure", str(tmp_path)], catch_exceptions=False)


def test_one_text_is_split_and_this_is_said(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("".join(f"This is line {n} of the text.\n" for n in range(500)))
    arguments = ["corpus", "build", str(tmp_path / "my.txt"), "--tokenizer", "bpe:300", "--block", "32"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "c")])
    assert result.exit_code == 0
    assert "my.txt: one text; its last 2.0% are held out for validation." in result.stderr
    shown = CliRunner().invoke(app, ["corpus", "show", str(tmp_path / "c")]).stdout
    assert "one text; its last 2.0% are held out" in shown


def test_the_largest_document_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("x" * 2000)
    arguments = ["corpus", "build", str(tmp_path / "my.txt"), "--max-document", "1000", "--out", str(tmp_path / "c")]
    with pytest.raises(CorpusError, match="0.001 MB"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not (tmp_path / "c").exists()


def test_build_says_where_to_look(tmp_path: Path) -> None:
    arguments = ["corpus", "build", "storyworld:stories=60,validation=20", "--tokenizer", "bpe:400", "--block", "32"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "c")])
    assert result.exit_code == 0
    assert "blocks of 32; 400 tokens. See it: collapselab corpus show" in result.stdout
    assert CliRunner().invoke(app, [*arguments, "--packing", "tape", "--out", str(tmp_path / "d")]).exit_code == 2
