"""What the documentation says is run or made from the code."""

import importlib
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.corpus.storyworld import stories
from collapselab.models.build import build_config, build_model
from collapselab.records.published import FIRST, columns_of

ROOT = Path(__file__).parents[1]
SMALL = "storyworld:stories=1500,validation=100"
IN_MINIATURE = {"train": ["--steps", "2"], "measure": ["--tokens", "2000"], "analyze": ["--permutations", "200"]}


def test_generated_tables_are_current() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for path in script["TABLES"]:
        assert script["current"](path) == path.read_text(), f"{path.name}: run `make docs`"


def test_a_stale_table_is_noticed(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    stale = tmp_path / "README.md"
    stale.write_text((ROOT / "README.md").read_text().replace("`cdnv`", "`cndv`"))
    script["TABLES"][stale] = {"catalogue": script["short_table"]}
    assert script["current"](stale) != stale.read_text()


def test_what_can_be_added_has_its_entry_and_a_test_that_adds_a_toy() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:a|an) [^|]+ \| [^|]+ \| ([^|]+) \| `([^`]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 10
    for entries, test in rows:
        added = (ROOT / "tests" / test).read_text(encoding="utf-8")
        for name, file in re.findall(r"`([A-Z]+)` in `([^`]+)`", entries):
            module = "collapselab." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            registry = getattr(importlib.import_module(module), name)
            assert isinstance(registry, dict | list), f"{name} in {file}"
            way = f"setitem({name}, " if isinstance(registry, dict) else f"{name}"
            assert way in added, f"{test} adds nothing to {name}"


def python_blocks() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (page.name, block)
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), python_blocks())
def test_the_python_of_the_documents_runs(page: str, block: str, tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    if page == "README.md":
        assert len([float(word) for word in result.stdout.split()]) == 3


def write_model(folder: Path) -> None:
    """A small model with its tokenizer."""
    recipe = Recipe(tokenizer="bpe:300", block=32)
    corpus = build_corpus(open_source(["storyworld:stories=20,validation=5"]), folder.parent / "its corpus", recipe)
    build_model(build_config("gpt2", width=16, depth=1, vocabulary=300, positions=512), seed=0).save_pretrained(folder)
    corpus.tokenizer().save_pretrained(folder)


def write_published(path: Path) -> None:
    """A table with the columns of the published one, of nine models and made-up numbers."""
    lines = [",".join(columns_of(FIRST))]
    for seed in range(9):
        cells = {column: str(1 + (7 * seed + 3 * place) % 11) for place, column in enumerate(columns_of(FIRST))}
        lines.append(",".join((cells | {"model": f"02x0768_01d{seed}@0"}).values()))
    path.write_text("\n".join(lines))


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    """All that needs no network; the rest must at least be understood."""
    (tmp_path / "train.txt").write_text("\n<|endoftext|>\n".join(stories(2500)))
    (tmp_path / "validation.txt").write_text("\n<|endoftext|>\n".join(stories(300, split="validation")))
    write_model(tmp_path / "path" / "to" / "model")
    write_published(tmp_path / "lc-2024_05_18.csv")
    blocks = re.findall(r"```\n(collapselab .*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    commands = [shlex.split(line, comments=True)[1:] for block in blocks for line in block.splitlines()]
    assert len(commands) >= 4
    for command in commands:
        if "tinystories" in command:
            continue
        command = [SMALL if word == "storyworld" else word for word in command] + IN_MINIATURE.get(command[0], [])
        result = subprocess.run(
            [sys.executable, "-m", "collapselab", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        assert set(re.findall(r"\bmake ([a-z-]+)", page.read_text())) <= targets
