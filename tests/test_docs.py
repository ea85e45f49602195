"""What the documentation says is run or made from the code."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


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


def test_the_python_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
        numbers = [float(word) for word in result.stdout.split()]
        assert len(numbers) == 3


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        assert set(re.findall(r"\bmake ([a-z-]+)", page.read_text())) <= targets
