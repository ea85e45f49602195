"""report: from the tables of a folder to a page, and to figures for a paper.

The page is one HTML file that holds its scripts, its data and its style, and asks for nothing from anywhere. Every
table is in it once. What the figures draw is JSON; the tables as they are on disk are compressed, for the reader to
search and to save. Text of others (names of runs, reasons, settings) passes through the template's escaping, or through
`script_json`, in which no tag can begin. A policy (CSP) in the page names its two scripts by their hash: the browser
runs no other, none that is made from text at run time, and asks nothing of the network.
"""

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import final

from collapselab import __version__
from collapselab.analysis.stored import program_version
from collapselab.disk import checksum_of, written_whole
from collapselab.errors import ConfigError
from collapselab.report import answer, provenance, words
from collapselab.report.charts import style
from collapselab.report.charts.panels import Figure, Panel, depth_areas, drawn_config, drawn_panel
from collapselab.report.data import Columns, Keys, View, filters, keys, models_table
from collapselab.report.export import write_figures
from collapselab.report.figures import FIGURES, SECTIONS, FigureEntry, Section
from collapselab.report.figures.forest import VERDICT_COLOURS, VERDICT_SHAPES
from collapselab.report.figures.relations import has_others
from collapselab.report.story import Story, load_story

PLACED = {"diagnosis"}
"""Topics of the summary that the page itself has a place for; all others follow a figure."""
HEAD = 1 << 16
"""Bytes of a page within which it says what it was made from."""


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
    with written_whole(page) as temporary:
        temporary.write_text(render(shown), encoding="utf-8")
    written = write_figures(figures, shown.figures.values(), shown.tables, shown.keys) if figures is not None else []
    notes = [source.problem for source in (story, other) if source is not None and source.problem]
    return WrittenReport(page, written, notes)


def _page_path(out: str | Path, *, is_folder: bool) -> Path:
    """The file that gets the page, checked before anything is computed."""
    out = Path(out)
    for folder in out.parents:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{out}: {folder} is a file, so nothing can be written below it. Name another file.")
    return out / "report.html" if is_folder or out.is_dir() else out


@final
@dataclass(frozen=True)
class Contents:
    """All that is on the page: the figures by their key, the tables that they draw, and what the legend means."""

    story: Story
    beside: Story | None
    figures: dict[str, Figure]
    tables: dict[str, Columns]
    keys: Keys

    @property
    def names(self) -> list[str]:
        """Of the story, and of the one beside it."""
        return [self.story.name, *([f"{self.beside.name} (beside)"] if self.beside else [])]

    @property
    def panels(self) -> list[Panel]:
        return [panel for figure in self.figures.values() for panel in figure.panels]


def contents(story: Story, *, beside: Story | None = None, corpus: Path | None = None) -> Contents:
    """Every figure that the tables allow; one that they do not says why."""
    models = models_table([story, *([beside] if beside else [])])
    view = View(story, keys(models), models, beside, corpus)
    figures = {}
    for key, entry in FIGURES.items():
        figures[key] = figure = entry.draw(view)
        if figure.key != key or entry.section not in SECTIONS:
            raise ValueError(
                f"FIGURES[{key!r}]: the figure calls itself {figure.key!r} and is in section {entry.section!r}. It "
                f"needs the key of its entry, and one of the sections {', '.join(SECTIONS)}."
            )
    tables = {"models": models} | {name: table for figure in figures.values() for name, table in figure.tables.items()}
    return Contents(story, beside, figures, tables, view.keys)


def render(shown: Contents) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("collapselab.report", "web"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"in_words": words.in_words, "metric_name": words.metric_name, "coded": words.coded}
    lines, saved = answer.strip(shown.story), saved_tables(shown)
    logarithmic = shown.story.logarithmic
    data = {
        "outcome": words.outcome_column(shown.story.outcome),
        "config": drawn_config(),
        "models": shown.tables["models"],
        "tables": {name: table for name, table in shown.tables.items() if name != "models"},
        "panels": {panel.key: drawn_panel(panel, log=panel.metric in logarithmic) for panel in shown.panels},
        "saved": {name: base64.b64encode(gzip.compress(table, mtime=0)).decode() for name, table in saved.items()},
    }
    scripts = {"vega": _vega(), "script": _own("page.js")}
    return environment.get_template("page.html").render(
        story=shown.story,
        beside=shown.beside,
        comparison=_comparison(shown),
        keys=shown.keys,
        sections=_sections(shown),
        unplaced=answer.unplaced(shown.story, PLACED | {topic for entry in FIGURES.values() for topic in entry.topics}),
        areas=depth_areas(len(shown.keys.depths)),
        shapes=style.SHAPES,
        answers=_test_legend(),
        heat_levels=range(style.DEPTH_OF_HEAT),
        filters=filters(shown.tables["models"], shown.keys, shown.names),
        others=has_others(shown.story),
        outcome=words.outcome_name(shown.story.outcome),
        names=words,
        answer=answer,
        lines=lines,
        headline=answer.headline(shown.story, lines),
        saved=list(saved),
        drawn=[name for name, table in shown.tables.items() if table],
        provenance=provenance.provenance(shown.story),
        version=__version__,
        made_from=fingerprint(shown.story, shown.beside),
        light=style.variables(len(shown.keys.widths), dark=False),
        dark=style.variables(len(shown.keys.widths), dark=True),
        css=_own("page.css"),
        **scripts,
        policy=policy(*scripts.values()),
        data=script_json(data),
    )


def _sections(shown: Contents) -> list[tuple[str, Section, list[tuple[FigureEntry, Figure]]]]:
    """Every section with its figures, in their order; an optional one only where something is drawn in it."""
    ordered = sorted(shown.figures, key=lambda key: FIGURES[key].order)
    filled = {FIGURES[key].section for key, figure in shown.figures.items() if figure.panels or figure.lists}
    return [
        (name, section, [(FIGURES[key], shown.figures[key]) for key in ordered if FIGURES[key].section == name])
        for name, section in SECTIONS.items()
        if name in filled or not section.optional
    ]


def _test_legend() -> list[tuple[str, str, str]]:
    """For every verdict of a test its shape, its colour and its words."""
    return [(VERDICT_SHAPES[code], VERDICT_COLOURS[code], text) for code, text in words.TEST_WORDS.items()]


def policy(*scripts: str) -> str:
    """What the browser may do with the page: run these scripts, use its own styles and drawn pictures; nothing else."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


@cache
def _vega() -> str:
    """Vega and its embedding as one script; bundling it takes seconds."""
    import vl_convert

    return _as_parsed(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _own(name: str) -> str:
    return _as_parsed((files("collapselab.report") / "web" / name).read_text(encoding="utf-8"))


def _as_parsed(text: str) -> str:
    """With the line ends that a browser makes of it, which is what it hashes."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def saved_tables(shown: Contents) -> dict[str, bytes]:
    """Every CSV table of the folder as it was read, by the name it has there; those of many rows stay on disk."""
    saved: dict[str, bytes] = {}
    for story, prefix in ((shown.story, ""), (shown.beside, "beside-")):
        if story is not None:
            contents = story.tables.contents | (story.analysis.contents() if story.analysis else {})
            saved |= {prefix + name: content for name, content in contents.items() if name.endswith(".csv")}
    return saved | {name: content for figure in shown.figures.values() for name, content in figure.saved.items()}


def fingerprint(story: Story, beside: Story | None = None) -> str:
    """sha256 of what a page is made from: the program, the tables, and what the analysis made of them."""
    parts: dict[str, object] = {"program": program_version()}
    for name, source in (("story", story), ("beside", beside)):
        if source is not None:
            analysis = source.analysis.summary | {"directory": source.name} if source.analysis else None
            parts[name] = {"tables": source.tables.hashes, "analysis": analysis}
    return checksum_of(parts)


def is_current(path: Path, story: Story) -> bool:
    """Whether the file is a page that was made from this very story by this very program."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'<meta name="made-from" content="{fingerprint(story)}">'.encode() in file.read(HEAD)


def script_json(value: object) -> str:
    """JSON that can be inside a script element: no `<`, so no tag can end or begin there."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _comparison(shown: Contents) -> list[tuple[str, list[answer.Cell]]]:
    """Verdicts of both stories side by side, for every metric that either has."""
    if shown.beside is None:
        return []
    mine, theirs = ({line.metric: line for line in answer.strip(story)} for story in (shown.story, shown.beside))
    return [
        (metric, [getattr(lines[metric], column) if metric in lines else answer.NOT_MEASURED
                  for column in ("scale", "outcome", "fixed") for lines in (mine, theirs)])
        for metric in dict.fromkeys([*mine, *theirs])
    ]  # fmt: skip
