"""The words that users read, one golden file for each case in tests/golden: all other tests assert codes and values.

    python tests/golden_words.py                   compare; print what differs, and exit with 1 if anything does
    python tests/golden_words.py --write [CASE…]   write these cases again, or all, to be reviewed as a diff

A case is a function of an empty folder that returns a text, and one entry of `CASES`. A case of a table that is not
part of the repository is left out where the table is missing.
"""

import argparse
import difflib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from analysis.planted import rows_of, run_of
from analysis.planted_arms import Planted, arms_runs
from collapselab.analysis.analyze import Analysis, analyze
from collapselab.analysis.words import short_summary
from collapselab.records.published import import_published
from collapselab.records.tables import RESULTS, RUNS, Run
from collapselab.report.report import report
from golden_cli import CLI_CASES
from report.measured import measure_models, result_of
from report.suites import write_suite

GOLDEN = Path(__file__).parent / "golden"
REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
PUBLISHED = REFERENCE / "lc-2024_05_18.csv"
PERMUTATIONS = 499


def of_packed(name: str, folder: Path) -> str:
    """Return the words about a suite that is packed in docs/results."""
    from result_tables import unpack

    unpack(name, folder)
    return summary_words(analyze(folder, permutations=PERMUTATIONS))


def of_published(folder: Path) -> str:
    """Return the words about the paper's models."""
    runs, rows = import_published(PUBLISHED)
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return summary_words(analyze(folder, permutations=PERMUTATIONS))


ARMS = (
    Planted("within:+0.1", {"cdnv_log": -0.3, "val_loss": -0.05}),
    Planted("within:+0.1:sham", {"val_loss": 0.06}),
    Planted("within:-0.1", {"cdnv_log": 0.3, "val_loss": 0.05}, clipped=0.5),
    Planted("uniform_means:+0.05", {"logdist_std": -0.04}),
    Planted("uniform_means:+0.1", {"logdist_std": -0.08, "val_loss": 0.02}),
    Planted("uniform_means:-0.1", {"cdnv_log": 0.2, "logdist_std": 0.08}, unstable={3: 0.4, 5: 0.3}),
    Planted("cdnv:+0.1", {"val_loss": -0.1}),
    Planted("dual:+0.1", {"cdnv_log": -0.1, "val_loss": 0.012}),
)
"""Among them every verdict on an arm: helps, harms, equivalent, undecided, did not reach; a sham that acts, spikes."""


def of_planted_arms(folder: Path) -> str:
    """Return the words about a suite of arms whose effects are known, of which one run diverged."""
    runs, metrics = arms_runs(ARMS, seeds=8, rng=np.random.default_rng(3))
    for run in runs:
        if run["run"] == "64-2-dual:+0.1":
            run["val_loss"] = None
    return planted_words(folder, runs, metrics)


def of_planted_seeds(folder: Path) -> str:
    """Return the words about seeds of eight sizes: at fixed scale more agreement comes with a higher loss, across sizes
    with a lower one; one run is broken."""
    rng = np.random.default_rng(5)
    runs, values = [], []
    for width in (32, 48, 64, 96, 128, 192, 256, 384):
        for seed in range(7):
            luck, size = rng.standard_normal(), np.log2(width / 64)
            loss = 4 - 0.3 * size + 0.02 * luck + 0.008 * rng.standard_normal()
            runs.append(run_of(f"{width}-{seed}", width=width, seed=seed, parameters=1000 * width, val_loss=loss))
            values.append(0.1 + 0.05 * size + 0.004 * luck)
    broken = [value + 0.02 * rng.standard_normal() for value in values]
    runs[3]["val_loss"], broken[3] = 5.0, 3.0
    return planted_words(folder, runs, {"agreement": values, "duality_cos_mean": broken})


def planted_words(folder: Path, runs: list[Run], metrics: Mapping[str, list[float]]) -> str:
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows_of(runs, metrics))
    return summary_words(analyze(folder, permutations=PERMUTATIONS))


class PageWords(HTMLParser):
    """The sentences of a page, one a line, with # for every number; without the contents of tables."""

    SKIPPED = frozenset({"script", "style", "td", "th", "option", "dd", "pre"})
    BLOCKS = frozenset({"h1", "h2", "h3", "h4", "p", "li", "dt", "summary", "div", "button", "label", "a", "small"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines, self._open = [""], [""]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self.SKIPPED:
            self._open.append(tag)
        if tag in self.BLOCKS:
            self.lines.append("")
        self.lines[-1] += " "

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open[-1]:
            self._open.pop()
        if tag in self.BLOCKS:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if len(self._open) == 1:
            self.lines[-1] += data

    def words(self) -> str:
        lines = (re.sub(r"(?<!\w)[-+−]?\d+([.,]\d+)*", "#", " ".join(line.split())) for line in self.lines)
        return "\n".join(dict.fromkeys(line for line in lines if re.search(r"[A-Za-z]", line))) + "\n"


def page_words(source: Path) -> str:
    """Return the sentences of the page about these results."""
    return PageWords(report(source).page.read_text("utf-8")).words()


@cache
def measured() -> tempfile.TemporaryDirectory[str]:
    """Return a folder of two measured models, which two cases report."""
    folder = tempfile.TemporaryDirectory()
    measure_models(Path(folder.name))
    return folder


def of_model_page(folder: Path) -> str:
    return page_words(result_of(Path(measured().name) / "results", 16))


def of_models_page(folder: Path) -> str:
    return page_words(Path(measured().name) / "results")


def of_suite_page(folder: Path) -> str:
    """Return the sentences of the page about a suite of sizes and seeds."""
    analyze(write_suite(folder / "suite", widths=(32, 64), depths=(1, 2), seeds=7), permutations=PERMUTATIONS)
    return page_words(folder / "suite")


def of_arms_page(folder: Path) -> str:
    """Return the sentences of the page about planted interventions."""
    runs, metrics = arms_runs(ARMS, seeds=8, rng=np.random.default_rng(3))
    planted_words(folder / "arms", runs, metrics)
    return page_words(folder / "arms")


def summary_words(analysis: Analysis) -> str:
    """Return the short summary, then every sentence by topic."""
    short = [f"- {sentence.text}" for sentence in short_summary(analysis.sentences)]
    whole = [f"- {sentence.topic}: {sentence.text}" for sentence in analysis.sentences]
    return "\n".join(["# Summary", "", *short, "", "# All sentences", "", *whole]) + "\n"


CASES: dict[str, Callable[[Path], str]] = {
    "summary-cause": partial(of_packed, "cause"),
    "summary-coupling": partial(of_packed, "coupling"),
    "summary-seeds": partial(of_packed, "seeds"),
    "summary-scale": partial(of_packed, "scale"),
    "summary-published": of_published,
    "summary-planted-arms": of_planted_arms,
    "summary-planted-seeds": of_planted_seeds,
    **CLI_CASES,
    "page-model": of_model_page,
    "page-models": of_models_page,
    "page-suite": of_suite_page,
    "page-arms": of_arms_page,
}
"""The function of each case, by the name of its file in tests/golden."""
NEEDS = {"summary-published": PUBLISHED}
"""Files beside the checkout without which a case is left out."""


def made(name: str) -> str:
    """Return the words of a case as the program has them now."""
    with tempfile.TemporaryDirectory() as folder:
        return CASES[name](Path(folder))


def difference(name: str) -> Iterator[str]:
    """Yield the lines of a diff from the golden file of a case to its words now; none where they are the same."""
    path = GOLDEN / f"{name}.txt"
    before = path.read_text("utf-8") if path.is_file() else ""
    yield from difflib.unified_diff(before.splitlines(), made(name).splitlines(), f"golden/{name}", "now", lineterm="")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the words of every case with its golden file.")
    parser.add_argument("--write", action="store_true", help="write the golden files again")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}")
    args = parser.parse_args()
    differ = False
    for name in args.cases or CASES:
        if name in NEEDS and not NEEDS[name].is_file():
            print(f"{name}: left out; {NEEDS[name]} is missing.", file=sys.stderr)
        elif args.write:
            GOLDEN.mkdir(exist_ok=True)
            (GOLDEN / f"{name}.txt").write_text(made(name), "utf-8")
        elif lines := list(difference(name)):
            differ = True
            print("\n".join(lines))
    return int(differ)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
    sys.exit(main())
