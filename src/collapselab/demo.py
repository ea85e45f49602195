"""demo: build a corpus, train and measure 26 small models, analyse them and write a page, offline.

Progress is determined by the files in the folder: an interrupted call can be repeated to continue, and a finished one
is read. An analysis or page made from other tables, or by another version of the program, is made again.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from collapselab.analysis.analyze import read_analysis
from collapselab.messages import logger
from collapselab.records.tables import read_tables
from collapselab.report.answer import headline, opening
from collapselab.report.data import load_report_data
from collapselab.report.report import is_current, report
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import processors
from collapselab.suite.plan import corpus_facts
from collapselab.suite.recipe import load_suite
from collapselab.suite.status import duration, shown_live

log = logger(__name__)

RECIPE = "demo"
RUN_SECONDS = 9
"""Approximate seconds per run on two idle cores."""
MOST_JOBS = 2
"""More processes do not help for models this small."""
DONE = "done already"


@dataclass(frozen=True)
class Demo:
    """The result of the demo: its page, the answer at the top of the page, and failed runs."""

    folder: Path
    page: Path
    sentences: list[str]
    failures: list[str]

    def to_json(self) -> dict[str, JsonValue]:
        """Ready for `json.dumps`."""
        facts = asdict(self)
        return facts | {name: str(facts[name].resolve()) for name in ("folder", "page")}


def run_demo(out: str | Path, *, suite: str | Path | None = None, jobs: int | None = None) -> Demo:
    """Build, train, measure, analyse and report in the folder `out`, skipping what is already done.

    `suite` replaces the recipe of the demo; `jobs` is the number of processes. Progress goes to stderr. Failed runs are
    listed, and the page is made of the others.
    """
    opened, folder = load_suite(suite or RECIPE), SuiteFolder(out)
    jobs = min(MOST_JOBS, processors()) if jobs is None else jobs
    corpora = corpus_facts(opened, folder.path).values()
    built = folder.record() is not None and all(corpus.hash for corpus in corpora)
    _say(1, f"Building the corpus: {DONE if built else 'a few seconds'}")
    suites.prepare(opened, folder)
    states = suites.status(opened, folder)
    left = sum(state.stage not in ("done", "failed") for state in states)
    time = f"{left:,} to go, about {duration(RUN_SECONDS * left)} on two idle cores" if left else DONE
    _say(2, f"Training {len(states):,} models and measuring their checkpoints: {time}")
    with shown_live(quiet=not left) as watch:
        done = suites.run(opened, folder, jobs=jobs, watch=watch)
    analysed = read_analysis(folder.path, read_tables(folder.path)) is not None
    _say(3, f"Relating collapse to the validation loss: {DONE if analysed else 'seconds'}")
    data, page = load_report_data(folder.path), folder.path / "report.html"
    drawn = is_current(page, data)
    _say(4, f"Drawing the page: {DONE if drawn else 'seconds'}")
    if not drawn:
        report(folder.path)
    answer = [data.problem] if data.problem else [headline(data), *(sentence.text for sentence in opening(data))]
    return Demo(folder.path, page, answer, [f"{state.run}: {state.why}" for state in done.failed] + done.refused)


def _say(stage: int, what: str) -> None:
    log.info("[%d/4] %s", stage, what)
