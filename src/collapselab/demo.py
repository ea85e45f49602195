"""demo: everything once, small and offline: text, 26 models, measurements, statements, a page.

All of it goes by what is in the folder: interrupted, the same call continues; finished, it reads what is there. An
analysis or a page that was made from other tables, or by another version of the program, is made again.
"""

import math
import os
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from pydantic import JsonValue

from collapselab.analysis.stored import read_analysis
from collapselab.messages import logger
from collapselab.records.tables import read_tables
from collapselab.report.answer import headline, opening
from collapselab.report.data import ReportData, load_report_data
from collapselab.report.report import is_current, report
from collapselab.suite import run as suites
from collapselab.suite.corpora import corpus_facts
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import processors
from collapselab.suite.recipe import Suite, load_suite
from collapselab.suite.status import duration, shown_live

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__)

RECIPE = "demo"
HEADLINE = ("cdnv_k2", "cosine_std", "duality_cos_mean", "agreement")
"""One metric for each property, NC1 to NC4."""
RUN_SECONDS, ANALYSIS_SECONDS, PAGE_SECONDS = 9, 10, 15
"""About how long the parts take on two idle cores: each run, then the whole of what follows."""
MOST_JOBS = 2
DONE = "done already"


@final
@dataclass(frozen=True)
class Change:
    """One number of a model before and after training, and what labels that mean nothing give after it."""

    initial: float | None
    trained: float | None
    null: float | None = None


@final
@dataclass(frozen=True)
class HeadlineLine:
    """One model of the headline table."""

    run: str
    width: int
    depth: int
    parameters: int | None
    val_loss: Change
    metrics: dict[str, Change]


@final
@dataclass(frozen=True)
class Demo:
    """What the demo made; `failures` is empty where all went well."""

    folder: Path
    page: Path
    table: list[HeadlineLine]
    sentences: list[str]
    failures: list[str]

    def to_json(self) -> dict[str, JsonValue]:
        """Ready for `json.dumps`."""
        facts = asdict(self)
        return facts | {name: str(facts[name].resolve()) for name in ("folder", "page")}


def run_demo(out: str | Path, *, suite: str | Path | None = None, jobs: int | None = None) -> Demo:
    """Build, train, measure, analyse and report in the folder `out`, as far as that is not done yet.

    `suite` is another recipe than the demo's; `jobs` are the processes side by side. Progress goes to stderr. Runs that
    fail are listed; the page is made of the others.
    """
    opened, folder = load_suite(suite or RECIPE), SuiteFolder(out)
    failures = _run(opened, folder, default_jobs() if jobs is None else jobs)
    analysed = read_analysis(folder.path, read_tables(folder.path)) is not None
    _say(3, f"Relating collapse to the validation loss: {DONE if analysed else _about(ANALYSIS_SECONDS)}")
    data, page = load_report_data(folder.path), folder.path / "report.html"
    drawn = is_current(page, data)
    _say(4, f"Drawing the page: {DONE if drawn else _about(PAGE_SECONDS)}")
    if not drawn:
        report(folder.path)
    return Demo(folder.path, page, headline_table(data), _sentences(data), failures)


def default_jobs() -> int:
    """The processors that this process may use, at most two: the models are too small for more to pay."""
    return min(MOST_JOBS, processors())


def headline_table(data: ReportData) -> list[HeadlineLine]:
    """Of each size the first run that has come to a trained model, without an intervention: its numbers at
    initialisation and at its last checkpoint."""
    if data.models is None:
        return []
    frame = _first_seeds(data.models.frame)
    measured = [metric for metric in HEADLINE if metric in data.models.metrics]
    known = frame["epoch"].notna() & frame[["val_loss", *measured]].notna().any(axis=1)
    runs = frame[known].sort_values("epoch").groupby("run")
    lines = [_line(str(run), checkpoints, measured) for run, checkpoints in runs if checkpoints["epoch"].iloc[-1] > 0]
    return sorted(lines, key=lambda line: (line.width, line.depth, line.run))


def _first_seeds(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The runs that nothing sets apart but their size; of those that differ in the seed alone, the first."""
    if "intervene" in frame:
        frame = frame[frame["intervene"].isna() | (frame["intervene"] == "")]
    seeds = frame.groupby("architecture")["seed"].transform("min")
    return frame[frame["seed"].isna() | (frame["seed"] == seeds)]


def _line(run: str, checkpoints: "pd.DataFrame", measured: list[str]) -> HeadlineLine:
    last = checkpoints.iloc[-1]
    first = checkpoints.iloc[0] if checkpoints["epoch"].iloc[0] == 0 else None
    parameters = _number(last, "parameters")
    metrics = {
        metric: Change(_number(first, metric), _number(last, metric), _number(last, f"{metric} null"))
        for metric in measured
    }
    loss = Change(_number(first, "val_loss"), _number(last, "val_loss"))
    count = None if parameters is None else int(parameters)
    return HeadlineLine(run, int(last["width"]), int(last["depth"]), count, loss, metrics)


def has_desktop(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a browser can be opened on a screen here: not in CI, and not over a remote connection."""
    if environ.get("CI"):
        return False
    if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        return True
    remote = environ.get("SSH_CONNECTION") or environ.get("SSH_TTY")
    return platform in ("darwin", "win32") and not remote


def show_page(page: Path) -> bool:
    """Show the page in the browser, if standard output is a terminal on a desktop; whether it was."""
    return sys.stdout.isatty() and has_desktop() and webbrowser.open(page.resolve().as_uri())


def _run(suite: Suite, folder: SuiteFolder, jobs: int) -> list[str]:
    """Everything up to the two tables. What failed, run by run."""
    corpora = corpus_facts(suite, folder.path).values()
    built = folder.record() is not None and all(corpus.hash for corpus in corpora)
    sources = ", ".join(source for spec in suite.corpora.values() for source in spec.sources)
    _say(1, f"Building the corpus, {sources}: {DONE if built else 'a few seconds'}")
    planned = suites.prepare(suite, folder)
    states = suites.status(suite, folder)
    left = sum(state.stage not in ("done", "failed") for state in states)
    time = f"{left:,} to go, {_about(RUN_SECONDS * left)} on two idle cores" if left else DONE
    checkpoints = sum(len(entry.checkpoints) for entry in planned.entries)
    _say(2, f"Training {len(states):,} models and measuring them at {checkpoints:,} checkpoints: {time}")
    with shown_live(quiet=not left) as watch:
        done = suites.run(suite, folder, jobs=jobs, watch=watch)
    return [f"{state.run}: {state.why}" for state in done.failed] + done.refused


def _sentences(data: ReportData) -> list[str]:
    """The answer at the top of the page."""
    if data.problem is not None:
        return [data.problem]
    return [headline(data), *(sentence.text for sentence in opening(data))]


def _number(row: "pd.Series | None", column: str) -> float | None:
    return None if row is None or math.isnan(row[column]) else float(row[column])


def _about(seconds: float) -> str:
    return f"about {duration(seconds)}"


def _say(stage: int, what: str) -> None:
    log.info("[%d/4] %s", stage, what)
