"""A suite's results as a dataset: what is in it, what is refused, and the upload to a stand-in of the hub."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.test_tokens import facts
from collapselab.analysis.analyze import SummaryRecord, analyze
from collapselab.disk import sha256
from collapselab.errors import ConfigError, RunError, UserError
from collapselab.measurement.compare_results import compare
from collapselab.records.measurement import Result, Results
from collapselab.records.result_folder import load_results
from collapselab.records.suite import SuiteRecord
from collapselab.records.tables import RESULTS, RUNS, ContextRow, write_tables
from collapselab.report import publish as publishing
from collapselab.report.publish import publish, without_local_paths
from records.test_tables import ROW, RUN


def result(value: float = 0.1, **changed: Any) -> Result:
    return Result([replace(ROW, value=value)], facts(**changed))


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "suite"
    RUNS.write(folder / "runs.csv", [RUN])
    RESULTS.write(folder / "results.csv", [ROW])
    monkeypatch.setattr(publishing, "load_results", lambda _: Results([result()]))
    return folder


def test_the_folder_is_a_dataset_with_a_card(suite: Path) -> None:
    made = publish(suite, to="hf:me/my-suite")
    assert made.address is None
    assert made.files == ["README.md", "measurements.json", "results.csv", "runs.csv"]
    card = (made.folder / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert {config["config_name"]: config["data_files"] for config in front["configs"]} == {
        "runs": "runs.csv",
        "results": "results.csv",
    }
    assert 'load_dataset("me/my-suite", "results")' in card
    assert result().facts["corpus_hash"] in card
    again = load_results(made.folder)
    assert again[0].rows == [ROW]
    assert compare(again, again).largest is not None


def test_a_card_says_what_a_stranger_needs(suite: Path) -> None:
    card = (publish(suite, to="hf:me/my-suite").folder / "README.md").read_text()
    assert "- text: c, 9 tokens of train; corpus hash `c`" in card
    assert "\n| `results.csv` | One row for each measured value" in card
    assert "analysis" not in card, "there is none"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "- options: defaults\n"),
        ({"layers": "all", "classes": True, "null": False, "batch": 7, "skip_positions": 1, "min_count": 3},
         "- options: `--layers all --classes --no-null --min-count 3`\n"),
    ],
)  # fmt: skip
def test_a_card_has_the_options_that_are_not_at_their_default(
    suite: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(publishing, "load_results", lambda _: Results([result(options=options)]))
    assert words in (publish(suite, to="hf:me/a").folder / "README.md").read_text()


def test_no_file_says_where_on_this_machine_the_folder_was(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analyze(suite, permutations=99)
    (suite / "report.html").write_text(f"<p>of other tables in {suite}</p>")
    run = suite / RUN["run"]
    results = Results(
        [
            result(
                model=str(run / "checkpoints" / "1"), in_a_run=True, checkpoint="1", corpus=str(suite / "corpora" / "c")
            ),
            result(model=str(suite / "other"), run="other"),
            result(model="hub/model", run="hub/model"),
        ]
    )
    monkeypatch.setattr(publishing, "load_results", lambda _: results)
    made = publish(suite, to="hf:me/a")
    assert "analysis/summary.json" in made.files
    assert "| `report.html` | The page" in (made.folder / "README.md").read_text()
    assert "of other tables" not in (made.folder / "report.html").read_text(), "the page is made again"
    for file in made.files:
        assert str(suite).encode() not in (made.folder / file).read_bytes(), file
    again = load_results(made.folder)
    assert [other.facts["model"] for other in again] == ["m/checkpoints/1", "other", "hub/model"]
    assert SummaryRecord.read(made.folder / "analysis" / "summary.json").directory == "a"


def test_it_can_be_made_again_and_replaces_nothing_else(suite: Path, tmp_path: Path) -> None:
    assert publish(suite, to="hf:me/a").files == publish(suite, to="hf:me/a").files
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="`publish` did not make it"):
        publish(suite, to="hf:me/a", out=tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("to", ["me/a", "hf:a", "hf:me/", "hf:me/a/b", "hf:../a", "https://x.y/z", "hf:me/a\n", ""])
def test_a_place_that_is_none_is_refused(suite: Path, to: str) -> None:
    with pytest.raises(ConfigError, match="Write hf:USER/NAME"):
        publish(suite, to=to)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no results.csv"):
        publish(tmp_path, to="hf:me/a")


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files needs. `server.files` is what it was given."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = (
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.headers["Content-Length"]
            else self.chunks()
        )
        server.requests.append(self.path)
        if server.refuses:
            self.answer({"error": "no"}, 403)
        elif self.path == "/api/repos/create":
            server.created.append(json.loads(body))
            self.answer({"url": f"{server.address}/datasets/me/a", "id": "me/a"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self.answer({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        else:
            lines = [json.loads(line) for line in body.splitlines()]
            server.files |= {line["value"]["path"] for line in lines if line["key"] == "file"}
            address = f"{server.address}/datasets/me/a/commit/{'1' * 40}"
            self.answer({"commitUrl": address, "commitOid": "1" * 40, "success": True})

    def do_GET(self) -> None:
        server: Any = self.server
        server.requests.append(self.path)
        self.answer({"id": "me/a", "sha": "0" * 40, "siblings": []})

    def chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body

    def answer(self, document: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    server.requests, server.created, server.files, server.refuses = [], [], set(), False
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_stand_in")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_nothing_leaves_the_machine_unless_asked_for(suite: Path, hub: Any) -> None:
    publish(suite, to="hf:me/a")
    assert hub.requests == []


def test_an_upload_takes_every_file_to_the_hub(suite: Path, hub: Any) -> None:
    made = publish(suite, to="hf:me/a", upload=True)
    assert made.address == f"{hub.address}/datasets/me/a"
    assert hub.created[0]["type"] == "dataset"
    assert hub.files == set(made.files)


def test_a_hub_that_refuses_is_one_message(suite: Path, hub: Any) -> None:
    hub.refuses = True
    with pytest.raises(RunError, match="me/a: the upload failed"):
        publish(suite, to="hf:me/a", upload=True)


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-10] ^= 4
    path.write_bytes(raw)


DAMAGES = {
    "runs.csv": lambda path: path.write_text(path.read_text().replace("12.5", "13.5")),
    "results.csv": lambda path: path.write_text(path.read_text() + "\n"),
    "contexts.csv": lambda path: path.write_bytes(b""),
    "tables.json": lambda path: path.write_text(""),
    "suite.json": flip,
    "analysis/summary.json": flip,
    "analysis/trends.csv": lambda path: path.write_text(path.read_text() + "\n"),
    "a-1/run.json": lambda path: path.write_text("{}"),
}


@pytest.fixture
def verified(suite: Path) -> Path:
    (suite / "a-1").mkdir()
    (suite / "a-1" / "run.json").write_text("{} ")
    context = ContextRow(
        run="a-1", checkpoint="3", layer="last", n=1, metric="context_within", value=0.5, null=None, contexts=3,
        tokens=9, coverage=0.5, left_out=0, version=1, why=None,
    )  # fmt: skip
    tables = {"runs": [RUN], "results": [ROW], "contexts": [context]}
    write_tables(suite, tables, made_from=[("a-1/run.json", sha256(suite / "a-1" / "run.json"))])
    analyze(suite, permutations=99)
    recipe = {
        "question": "Why?  ![x](http://evil.example/q.png) <b>*now*",
        "corpora": {"own": {"source": "/home/jane/secret/books", "validation": "~/x/held-out.txt"}},
    }
    SuiteRecord(name="tiny", scale="full", recipe=recipe).write(suite / "suite.json")
    return suite


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_was_changed_is_not_published(verified: Path, name: str) -> None:
    DAMAGES[name](verified / name)
    with pytest.raises(UserError, match=name.rpartition("/")[2]):
        publish(verified, to="hf:me/a")
    assert not (verified / "published").exists()


def test_only_files_that_were_verified_are_published(verified: Path) -> None:
    (verified / "analysis" / "notes.txt").write_text("private")
    made = publish(verified, to="hf:me/a")
    assert "analysis/notes.txt" not in made.files
    assert {"suite.json", "tables.json", "analysis/summary.json", "contexts.csv"} <= set(made.files)


def test_a_question_is_plain_text_in_the_card(verified: Path) -> None:
    card = (publish(verified, to="hf:me/a").folder / "README.md").read_text()
    assert r"\!\[x\](http://evil.example/q.png) &lt;b>\*now\*" in card
    assert "![" not in card


def test_no_absolute_path_of_a_recipe_is_published(verified: Path) -> None:
    made = publish(verified, to="hf:me/a")
    recipe = SuiteRecord.read(made.folder / "suite.json").recipe
    assert recipe["corpora"] == {"own": {"source": "books", "validation": "held-out.txt"}}
    for file in made.files:
        assert b"jane" not in (made.folder / file).read_bytes(), file


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/jane/a b/c", "c"),
        ("C:\\Users\\jane\\books", "books"),
        ("frozen:/home/jane/run/head", "frozen:head"),
        ("text from /home/jane/x, and/or https://example.org/a/b", "text from x, and/or https://example.org/a/b"),
        ("corpora/books", "corpora/books"),
        ("hf:name/data", "hf:name/data"),
    ],
)
def test_paths_are_reduced_to_their_last_part(text: str, published: str) -> None:
    assert without_local_paths([{"a": text}, 3, None]) == [{"a": published}, 3, None]
