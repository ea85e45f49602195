"""report: from the tables of a folder to a page, and to figures for a paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.errors import ConfigError
from collapselab.report.export import write_figures
from collapselab.report.page import contents, write_page
from collapselab.report.story import load_story


@final
@dataclass(frozen=True)
class WrittenReport:
    """What was written, and what the reader should know about it."""

    page: Path
    figures: list[Path]
    notes: list[str]

    def to_json(self) -> dict[str, str | list[str]]:
        """Ready for `json.dumps`."""
        return {"page": str(self.page), "figures": [str(path) for path in self.figures], "notes": self.notes}


def report(
    directory: str | Path,
    *,
    out: str | Path | None = None,
    beside: str | Path | None = None,
    figures: str | Path | None = None,
    corpus: str | Path | None = None,
) -> WrittenReport:
    """Write `DIR/report.html`, or `out`: one page that needs nothing else.

    >>> from collapselab import report
    >>> report("suites/tiny").page.name
    'report.html'

    An `out` that is a folder gets `report.html`. `beside` is another folder, whose models and verdicts are shown too;
    `figures` a folder for every figure as SVG and PDF; `corpus` the one whose class frequencies are drawn, else that of
    the runs if it is still there.
    """
    page = _page_path(directory if out is None else out, is_folder=out is None)
    story = load_story(directory)
    other = None if beside is None else load_story(beside)
    shown = contents(story, beside=other, corpus=None if corpus is None else Path(corpus))
    write_page(page, shown)
    written = write_figures(figures, shown) if figures is not None else []
    notes = [source.problem for source in (story, other) if source is not None and source.problem]
    return WrittenReport(page, written, notes)


def _page_path(out: str | Path, *, is_folder: bool) -> Path:
    """The file that gets the page, checked before anything is computed."""
    out = Path(out)
    for folder in out.parents:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{out}: {folder} is a file, so nothing can be written below it. Name another file.")
    return out / "report.html" if is_folder or out.is_dir() else out
