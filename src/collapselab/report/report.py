"""report: from the tables of a folder to a page, and to figures for a paper, as SVG and PDF.

Figures in files are made for print: panels side by side, in the light colours, with the legend in the picture. Set as
wide as a page of text, about seven inches, three panels are side by side and the smallest type is of seven points; a
panel by itself fits a column.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.disk import written_whole
from collapselab.errors import ConfigError
from collapselab.report.charts import style
from collapselab.report.charts.panels import Figure, Panel, bare_spec
from collapselab.report.charts.style import Spec
from collapselab.report.data import lines
from collapselab.report.page import Contents, contents, write_page
from collapselab.report.story import load_story

COLUMNS = 3
WIDTH, WIDE = 168, 250
"""Of a panel among others, and of one by itself; in pixels of 96 to the inch, which a PDF takes for points."""
HEIGHT = 0.8
"""Of a panel, as a share of its height on the page."""
TITLE, BELOW = 27, 40
"""Letters that fit on a line of a panel's title, and of the note below it."""
FORMATS = ("svg", "pdf")
PADDING = {"left": 18, "right": 12, "top": 6, "bottom": 6}
"""Room for labels at the edges: a reader's font may be wider than the one they were measured with."""


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


def write_figures(folder: str | Path, shown: Contents) -> list[Path]:
    """Write every figure that has panels, each file whole or not at all."""
    import vl_convert

    makers = {
        "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    written = []
    for figure in shown.figures.values():
        if not figure.panels:
            continue
        spec = composed(figure, shown)
        for kind in FORMATS:
            path = Path(folder) / f"{figure.key}.{kind}"
            with written_whole(path) as temporary:
                temporary.write_bytes(makers[kind](spec))
            written.append(path)
    return written


def composed(figure: Figure, shown: Contents) -> Spec:
    """The figure as one Vega-Lite specification with its data."""
    cards = [[_unit(panel, alone=len(figure.cards) == 1) for panel in card] for card in figure.cards]
    used = {panel.table for panel in figure.panels} | set(figure.tables)
    links = [param for units in cards for unit in units for param in unit.pop("params", [])]
    spec = {
        "concat": [units[0] if len(units) == 1 else {"vconcat": units, "spacing": 10} for units in cards],
        "columns": COLUMNS,
        "spacing": {"row": 22, "column": 14},
        "params": list({param["name"]: param for param in links if param["name"] != "brush"}.values()),
        "datasets": {name: lines(shown.tables[name]) for name in used},
        "config": _print_config(),
        "resolve": {"scale": {"color": "shared" if figure.legend else "independent"}},
    }
    return style.resolved(spec, len(shown.keys.widths))


def _print_config() -> Spec:
    config = style.config() | {"background": "#ffffff", "padding": PADDING}
    config["title"] |= {"fontSize": 11, "subtitleFontSize": 9.5, "offset": 6}
    config["axis"] |= {"labelFontSize": 10, "titleFontSize": 10.5, "titlePadding": 5}
    config["legend"] |= {"orient": "bottom", "direction": "horizontal", "columns": 2, "labelLimit": 0,
                         "labelFontSize": 10, "titleFontSize": 10.5, "symbolSize": 55}  # fmt: skip
    return config


def _unit(panel: Panel, *, alone: bool) -> Spec:
    spec = bare_spec(panel, legends=True)
    spec |= {"width": WIDE if alone else WIDTH, "height": round(HEIGHT * panel.height)}
    if panel.heading:
        title = f"{panel.code} {panel.heading}".strip()
        below = " · ".join(filter(None, (panel.fit, panel.note)))
        spec["title"] = {"text": _broken(title, TITLE), **({"subtitle": _broken(below, BELOW)} if below else {})}
    return spec


def _broken(title: str, longest: int) -> list[str]:
    """A title on as many lines as the panel's width needs."""
    lines = [""]
    for word in title.split(" "):
        if len(lines[-1]) + len(word) > longest:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
