"""`report`: write tables or results as a page, and as figures for a paper.

The contents depend on the `Kind` of the page: one model, several models, or a suite. It is one HTML file that
holds its scripts, its data and its style, and loads nothing. The data (what the figures draw, and the
tables as they are on disk, to search and to save) is compressed JSON. Untrusted text (names of runs, reasons, settings)
is escaped by the template. A content security policy (CSP) names the page's two scripts by their hash: the browser
runs no other code, evaluates no text as code, and makes no network request.
"""

import base64
import gzip
import hashlib
import json
import sys
import webbrowser
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

from collapselab import __version__
from collapselab.analysis.analyze import program_version
from collapselab.disk import checksum_of, written_whole
from collapselab.records.measurement import Result
from collapselab.records.profile import profile, verdict
from collapselab.report import answer, provenance, words
from collapselab.report.charts import style
from collapselab.report.charts.panels import Figure, Panel, depth_areas, drawn_config, drawn_panel
from collapselab.report.data import Kind, ReportData, load_report_data
from collapselab.report.export import write_figures
from collapselab.report.figures import FIGURES, SECTIONS, FigureEntry
from collapselab.report.view import Columns, Keys, View, filters, keys, models_table, overview


@dataclass(frozen=True)
class WrittenReport:
    """The written page, and warnings about it."""

    page: Path
    figures: list[Path]
    notes: list[str]

    def to_json(self) -> dict[str, str | list[str]]:
        """Return a document for `json.dumps`."""
        return {"page": str(self.page), "figures": [str(path) for path in self.figures], "notes": self.notes}


def report(
    source: str | Path | Result, *, out: str | Path | None = None, figures: str | Path | None = None
) -> WrittenReport:
    """Write a self-contained page that fits its source: a suite, several models, or one model.

    >>> from collapselab import report
    >>> report("suites/tiny").page.name
    'report.html'

    The source is the folder of a suite, one that `collect` or `import` made, a folder of results, a result in a file,
    or a `Result`. The page is `report.html` in that folder, `NAME.html` beside a file, or `out`; an `out` that is a
    folder gets `report.html`. `figures` is a folder for every figure as SVG and PDF.
    """
    if isinstance(source, Result):
        folder = Path(mkdtemp(prefix="collapselab-"))
        source.save(folder / "model.json")
        source = folder / "model.json"
    page = _page_path(source, out)
    data = load_report_data(source)
    shown = contents(data)
    with written_whole(page) as temporary:
        temporary.write_text(render(shown), encoding="utf-8")
    written = write_figures(figures, shown.figures.values(), shown.tables, shown.keys) if figures is not None else []
    return WrittenReport(page, written, [data.problem] if data.problem else [])


def show(result: Result) -> Path:
    """Show the page of one model: inside a notebook, else in a browser; return where it is."""
    page = report(result).page
    display = sys.modules.get("IPython.display")
    if display is not None and "ipykernel" in sys.modules:
        frame = f'<iframe srcdoc="{escape(page.read_text(encoding="utf-8"))}" width="100%" height="900"></iframe>'
        display.display(display.HTML(frame))
    else:
        webbrowser.open(page.resolve().as_uri())
    return page


def _page_path(source: str | Path, out: str | Path | None) -> Path:
    """Return the file that gets the page, checked before anything is computed."""
    if out is None:
        source = Path(source)
        return source.with_suffix(".html") if source.is_file() else source / "report.html"
    out = Path(out)
    return out / "report.html" if out.is_dir() else out


@dataclass(frozen=True)
class Contents:
    """Contents of the page: the figures by key, the tables that they draw, and the legend."""

    data: ReportData
    figures: dict[str, Figure]
    tables: dict[str, Columns]
    keys: Keys

    @property
    def panels(self) -> list[Panel]:
        return [panel for figure in self.figures.values() for panel in figure.panels]


def contents(data: ReportData) -> Contents:
    """Make every figure that the tables allow; the others say why they cannot be drawn."""
    models = models_table(data)
    view = View(data, keys(models), models)
    figures = {}
    for key, entry in FIGURES.items():
        if entry.section not in SECTIONS:
            raise ValueError(f"FIGURES[{key!r}]: section must be one of {', '.join(SECTIONS)}, got {entry.section!r}")
        if data.kind in entry.kinds and (data.kind is not Kind.MODEL or entry.section in ("inside", "tokens")):
            drawn = entry.draw(view)
            title = entry.title.format(outcome=words.outcome_name(data.outcome))
            figure = drawn if isinstance(drawn, Figure) else Figure(missing=drawn)
            figures[key] = replace(figure, key=key, title=f"{title[0].upper()}{title[1:]}", look=entry.look)
    tables = {"models": models} | {name: table for figure in figures.values() for name, table in figure.tables.items()}
    if data.kind is Kind.MODELS:
        tables["overview"] = overview(data, models)
    return Contents(data, figures, tables, view.keys)


def render(shown: Contents) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("collapselab.report", "web"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"in_words": words.in_words, "metric_name": words.metric_name, "coded": words.coded}
    data, picture = shown.data, _picture(shown)
    tabs = _sections(shown, picture)
    open_ = {name for name, _, _ in tabs} | {"models"}
    missing = [key for key, figure in shown.figures.items() if figure.missing]
    scripts = {"vega": _vega(), "script": _own("page.js")}
    return environment.get_template(f"{data.kind}.html").render(
        data=data,
        keys=shown.keys,
        picture=picture,
        sections=tabs,
        left_out=[(FIGURES[key], figure) for key, figure in shown.figures.items() if FIGURES[key].section not in open_],
        unplaced=answer.unplaced(data, ["diagnosis", *(topic for entry in FIGURES.values() for topic in entry.topics)]),
        areas=depth_areas(len(shown.keys.depths)),
        shapes=style.SHAPES,
        filters=filters(shown.tables["models"], shown.keys),
        outcome=words.outcome_name(data.outcome),
        names=words,
        answers_of=answer,
        answer=answer.answer(data),
        profile=profile(data.rows),
        standing=verdict(profile(data.rows)),
        facts=provenance.model_facts(data) if data.kind is Kind.MODEL else [],
        next_steps=provenance.next_steps(data, missing) if data.kind is Kind.MODEL else [],
        comparison_with=provenance.comparison(data) if data.kind is Kind.MODEL else None,
        saved=list(saved_tables(shown)),
        drawn=[name for name, table in shown.tables.items() if table],
        provenance=provenance.provenance(data),
        version=__version__,
        made_from=fingerprint(data),
        light=style.variables(len(shown.keys.widths), dark=False),
        dark=style.variables(len(shown.keys.widths), dark=True),
        css=_own("page.css"),
        **scripts,
        policy=policy(*scripts.values()),
        embedded=embedded(shown, picture),
    )


def embedded(shown: Contents, picture: Figure | None) -> str:
    """Return the data of the scripts, as compressed JSON."""
    panels = {panel.key: panel for panel in (*shown.panels, *(picture.panels if picture else []))}
    logarithmic = shown.data.logarithmic
    content = {
        "outcome": words.outcome_column(shown.data.outcome),
        "config": drawn_config(),
        "models": shown.tables["models"],
        "tables": {name: table for name, table in shown.tables.items() if name != "models"},
        "panels": {key: drawn_panel(panel, log=panel.metric in logarithmic) for key, panel in panels.items()},
        "saved": {name: table.decode() for name, table in saved_tables(shown).items()},
        "logarithmic": sorted({*logarithmic, "parameters", "tokens", "step"}),
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _picture(shown: Contents) -> Figure | None:
    """Choose the figure of the first screen: correlations at fixed scale, else the metric that correlates most."""
    if shown.data.kind is not Kind.SUITE:
        return None
    forest, collapse = shown.figures["forest"], shown.figures["collapse"]
    if forest.panels or not collapse.panels:
        return forest if forest.panels else None
    relations = {panel.metric: shown.data.relation(panel.metric) for panel in collapse.panels}
    strength = {metric: abs(relation.r or 0.0) if relation else 0.0 for metric, relation in relations.items()}
    best = max(collapse.panels, key=lambda panel: strength[panel.metric])
    panel = replace(best, key=f"answer-{best.metric}", height=300)
    return replace(collapse, key="picture", panels=[panel], filters=False, missing="")


Tab = tuple[str, str, list[tuple[FigureEntry, Figure]]]
"""Name of a section, its title, and its figures, drawn or with the reason why not."""


def _sections(shown: Contents, picture: Figure | None) -> list[Tab]:
    """Return the sections with figures; for a suite, the scatter plot of any two numbers is among its relations."""
    tabs: list[Tab] = []
    for name, title in SECTIONS.items():
        entries = [(key, entry) for key, entry in FIGURES.items() if entry.section == name]
        if shown.data.kind is Kind.SUITE and name == "models":
            continue
        if shown.data.kind is Kind.SUITE and name == "relations":
            entries.append(("explore", FIGURES["explore"]))
        drawn = [(entry, shown.figures[key]) for key, entry in entries if key in shown.figures]
        drawn = [(entry, figure) for entry, figure in drawn if figure is not picture]
        if any(figure.panels or figure.lists for _, figure in drawn):
            tabs.append((name, title, drawn))
    return tabs


def policy(*scripts: str) -> str:
    """Return the content security policy: only these scripts, the page's own styles and inline pictures."""
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
    """Normalise line ends as a browser does before it hashes a script."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def saved_tables(shown: Contents) -> dict[str, bytes]:
    """Return every CSV table of the folder as it was read, by its name there; long tables stay on disk."""
    contents = shown.data.tables.contents | (shown.data.analysis.contents() if shown.data.analysis else {})
    saved = {name: content for name, content in contents.items() if name.endswith(".csv")}
    return saved | {name: content for figure in shown.figures.values() for name, content in figure.saved.items()}


def fingerprint(data: ReportData) -> str:
    """Return the sha256 of everything that a page is made from: the program, the tables and the analysis."""
    analysis = data.analysis.summary | {"directory": data.name} if data.analysis else None
    return checksum_of({"program": program_version(), "tables": data.tables.hashes, "analysis": analysis})


def is_current(path: Path, data: ReportData) -> bool:
    """Return whether the file is a page made from this data by this program."""
    mark = f'<meta name="made-from" content="{fingerprint(data)}">'
    return path.is_file() and mark.encode() in path.read_bytes()
