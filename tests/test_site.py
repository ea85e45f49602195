"""The documentation as a site: it builds without a warning, its links lead somewhere, and it needs no other host."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from collapselab.analysis.analyze import analyze
from collapselab.analysis.controls import Control
from collapselab.analysis.curves import Finding
from collapselab.analysis.relate import Relation
from collapselab.analysis.trends import Trend
from collapselab.records.facts import BootstrapFacts
from collapselab.records.tables import RESULTS, RUNS
from collapselab.suite.collect import NOT_COLUMNS, collect
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import perform
from collapselab.suite.recipe import load_suite
from collapselab.suite.run import prepare
from collapselab.training.settings import FIRST, Settings

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "docs" / "files.md").read_text()


def build(root: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a tree into its folder `site`, with warnings as errors."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def tree(folder: Path) -> Path:
    """A copy of all that the site is built of."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tree(tmp_path_factory.mktemp("tree"))
    built = build(root)
    assert built.returncode == 0, built.stdout + built.stderr
    return root / "site"


def test_every_page_is_in_the_site(site: Path) -> None:
    built = {page.stem for page in site.glob("*.html")} - {"404"}
    assert built == {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert not list(site.rglob("*.py"))


def test_a_broken_link_and_a_broken_anchor_fail_the_build(tmp_path: Path) -> None:
    page = tree(tmp_path) / "docs" / "design.md"
    page.write_text(page.read_text() + "\n[one](nowhere.md) [two](files.md#no-such-place) [three](../README.md)\n")
    built = build(tmp_path)
    assert built.returncode != 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr)
    assert "3 issues found" in said
    assert said.count("page does not exist") >= 2
    assert "anchor does not exist" in said


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(part)

    named = sorted(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    docs = ROOT / "docs"
    assert named == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


LOADED = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
    "embed": "src", "object": "data", "use": "href", "image": "href", "input": "src",
}  # fmt: skip
"""What a browser fetches by itself. A link to click on is no such thing."""


class Loads(HTMLParser):
    """Collects the addresses that a page loads from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found += [value for value in (values.get(LOADED.get(tag, "")), values.get("srcset")) if value]
        self.found += re.findall(r"url\(([^)]*)\)", values.get("style") or "")


def loaded(text: str) -> list[str]:
    page = Loads()
    page.feed(text)
    return page.found


def elsewhere(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"['\"]?(https?:)?//", address)]


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        addresses = loaded(page.read_text())
        assert len(addresses) > 3, page
        assert elsewhere(addresses) == [], page
    for sheet in site.rglob("*.css"):
        assert elsewhere(re.findall(r"(?:url\(|@import)\s*([^);]+)", sheet.read_text())) == [], sheet


def test_a_page_that_loads_from_elsewhere_is_noticed() -> None:
    for text in (
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<script src="//cdn.example/x.js"></script>',
        '<img src="http://example.org/a.png">',
        '<p style="background: url(https://example.org/b.png)">',
    ):
        assert elsewhere(loaded(text)), text
    assert elsewhere(loaded('<a href="https://example.org">a link</a><img src="assets/a.png">')) == []


def slugs(page: Path) -> set[str]:
    """The anchors of a page as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page of Markdown that lead nowhere."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and anchor not in slugs(place)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_links_of_pages_outside_the_site_lead_somewhere(name: str) -> None:
    assert broken_links(ROOT / name) == []


def test_the_anchors_of_the_site_are_those_of_the_pages_on_disk() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert broken_links(page) == [], page.name


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, of `sorts`\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md#a-title-of-sorts) [b](gone.md) [c](there.md#elsewhere) [d](#here) [e](https://x.y)")
    assert broken_links(page) == ["gone.md", "there.md#elsewhere", "#here"]


def section(title: str) -> str:
    """What stands in docs/files.md under a heading, up to the next."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", FILES, flags=re.M | re.S)
    assert found is not None, f"docs/files.md has no heading {title}"
    return found[1]


def listed(text: str) -> list[str]:
    """The names in the first column of the tables in a text."""
    cells = re.findall(r"^((?:`[^`]+`(?:, )?)+) ?\|", text, flags=re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


TABLES = {
    "runs.csv": (
        *RUNS.columns, *(name for name in Settings.model_fields if name not in NOT_COLUMNS), "corpus", "best_val_loss",
        "gap", "loss_after_temperature",
    ),
    "results.csv": RESULTS.columns,
    **{
        f"{name}.csv": tuple(field.name for field in fields(kind))
        for name, kind in {
            "relate": Relation, "controls": Control, "trends": Trend, "diagnosis": Finding,
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_of_every_table_are_told(table: str) -> None:
    assert sorted(listed(section(table))) == sorted(TABLES[table])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of one run, trained, measured and analysed, and of one that failed."""
    place = tmp_path_factory.mktemp("written")
    recipe = {
        "question": "Which files are there?",
        "corpus": {"source": "storyworld:stories=30,validation=5", "tokenizer": "bpe:300", "block": 32},
        "base": {"depth": 1, "batch": 4, "steps": 2},
        "grid": {"width": [8, 12]},
        "measure": {"tokens": 400},
    }
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    opened, folder = load_suite(place / "tiny.yaml"), SuiteFolder(place / "suite")
    first, second = prepare(opened, folder).entries
    assert perform(folder, first, opened.measure, device="cpu").result == "done"
    collect(folder)
    analyze(folder.path, permutations=99)
    folder.record_failure(second, stage="training", checkpoint="0", why="it was not to be.")
    return folder.path


def test_the_columns_of_a_suites_table_are_those_told(suite: Path) -> None:
    header = (suite / "runs.csv").read_text().splitlines()[0].split(",")
    later = {name for name in Settings.model_fields if name not in FIRST}  # in runs.csv where a run has set them
    assert sorted({*header, *later}) == sorted(listed(section("runs.csv")))


def keys(path: Path) -> list[str]:
    document: dict[str, Any] = json.loads(path.read_text())
    return list(document)


WHEN_ASKED = tuple(BootstrapFacts.__annotations__)
"""Keys that a measurement has with `--bootstrap` alone, or once metrics were added to it."""


def test_the_keys_of_every_document_are_told(suite: Path) -> None:
    (run,) = (path.parent for path in suite.glob("*/run.json"))
    (corpus,) = (suite / "corpora").iterdir()
    (failure,) = (suite / "failed").iterdir()
    documents = {
        "corpus.json": keys(corpus / "corpus.json"),
        "run.json": keys(run / "run.json"),
        "training.json": keys(run / "checkpoints" / "0" / "training.json"),
        "suite.json": keys(suite / "suite.json"),
        "tables.json": keys(suite / "tables.json"),
        "failed/&lt;run&gt;.json": keys(failure),
        "summary.json": keys(suite / "analysis" / "summary.json"),
        "measure/&lt;epoch&gt;.json": list(json.loads((run / "measure" / "0.json").read_text())["facts"]),
        "log.jsonl": next(
            list(line) for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in line
        ),
    }
    for title, found in documents.items():
        told = [key for key in listed(section(title)) if key not in WHEN_ASKED]
        assert sorted(told) == sorted(key for key in found if key not in ("format", "checksum")), title


NOT_WRITTEN_HERE = {
    "<corpus>/lengths.npy",  # with document packing
    "<run>/measure/.state/<task>/<file>",  # of a measurement that was stopped
    "<run>/measure/<epoch>.layer-<n>.safetensors",  # of measurements with `--layers all --classes`
    "<run>/state/<step>.safetensors",  # of a training that was stopped
    "<suite>/classes.parquet",  # of measurements with `--classes`
    "<suite>/contexts.csv",  # of measurements with `--contexts`
    "<suite>/token_contexts.parquet",  # the same, with `--classes`
    "<suite>/push.csv",  # of measurements with `--push`
    "<suite>/detection.csv",  # of measurements with `--token-scores`
    "<suite>/deciders.csv",  # of measurements with `--deciders`
    "<suite>/analysis/scores.csv",  # of an analysis with `--scores`
    "<suite>/slurm/<file>",  # of a cluster
    "<suite>/logs/<run>.log",  # of a process of its own
    "<suite>/report.html",  # of a report, which takes its time: tests/report
    "<figures>/<figure>.svg",
    "<figures>/<figure>.pdf",
    "<suite>/<run>/<file>",  # told under the run
    "<suite>/corpora/<corpus>/<file>",  # told under the corpus
}


def written(suite: Path) -> Iterator[str]:
    """Every file of the suite as docs/files.md names it: what it belongs to, and its place there."""
    for path in sorted(suite.parent.rglob("*")):
        parts = path.relative_to(suite.parent).parts
        if not path.is_file() or parts == ("tiny.yaml",):
            continue
        if parts[:2] == ("suite", "corpora"):
            yield "/".join(("corpus", *parts[3:]))
        elif (suite / parts[1] / "run.json").exists():
            yield "/".join(("run", *parts[2:]))
        else:
            yield "/".join(parts)


def test_every_file_is_told_and_no_other(suite: Path) -> None:
    told = {
        name: re.sub(r"<[^>]+>", "[^/]+", re.escape(re.sub(r"^<(\w+)>", r"\1", name)).replace(r"\<", "<"))
        for name in listed(FILES)
        if re.match(r"<\w+>/", name)
    }
    found: set[str] = set()
    for path in written(suite):
        names = {name for name, pattern in told.items() if re.fullmatch(pattern, path)} - NOT_WRITTEN_HERE
        assert names, f"docs/files.md says nothing of {path}"
        found |= names
    assert set(told) - NOT_WRITTEN_HERE == found
