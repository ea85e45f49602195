"""What is imported before anything is computed: which modules, not how long they take, which a busy machine decides."""

import inspect
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

LISTING = """
import sys
before = set(sys.modules)
{code}
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
HELP = """
sys.argv = ["collapselab", "--help"]
from collapselab.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
"""
LIBRARIES = {"torch", "transformers", "numpy", "pandas", "pydantic", "pyarrow", "scipy", "altair", "yaml", "datasets"}


def imported(code: str) -> tuple[set[str], str]:
    """The modules that code imports, and what it prints."""
    command = [sys.executable, "-c", LISTING.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split()), done.stdout


def test_the_package_imports_nothing_but_itself() -> None:
    modules, _ = imported("import collapselab")
    assert "collapselab" in modules
    assert {name for name in modules if name.startswith("collapselab.")} == set()
    assert not modules & (LIBRARIES | {"typing", "re", "dataclasses"})


def test_the_help_imports_no_library_that_it_does_not_show() -> None:
    modules, shown = imported(HELP)
    assert "collapselab.cli.train" in modules
    assert "Several models" in shown
    assert not modules & (LIBRARIES - {"pydantic"})
    assert not modules & {"collapselab.disk", "collapselab.core", "collapselab.corpus"}


@pytest.mark.slow
def test_every_public_name_is_there_and_does_what_it_says() -> None:
    code = """
    import collapselab
    from collapselab import Corpus, Result, analyze, build_corpus, load_results, measure, report, train
    import collapselab.report.report
    from collapselab import report as again
    assert again is report and callable(report)
    assert all(getattr(collapselab, name) is not None for name in collapselab.__all__)
    try:
        report("no such folder")
    except Exception as error:
        print(type(error).__name__, error)
    """
    _, shown = imported(inspect.cleandoc(code))
    assert "RunError no such folder: no such folder" in shown


def test_public_names_are_imported_when_they_are_used() -> None:
    modules, shown = imported("import collapselab; print(sorted(collapselab.METRICS)[:2], collapselab.measure)")
    assert "torch" in modules
    assert "agreement" in shown


COMMANDS = ["metrics", "suite list", "suite status {suite}"]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_only_reads_imports_no_torch(command: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parent / "fixtures" / "version-0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    suite = next(tmp_path.rglob("suite.json")).parent
    for path in suite.glob("*/measure/*.json"):  # measurements of another version are read whole
        path.unlink()
    words = ["collapselab", *command.format(suite=suite).split()]
    modules, _ = imported(HELP.replace('["collapselab", "--help"]', repr(words)))
    assert "collapselab.cli.suite" in modules
    assert not modules & {"torch", "transformers", "pandas", "pyarrow", "scipy", "altair", "datasets"}
