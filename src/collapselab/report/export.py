"""Every figure as SVG and PDF: its panels side by side, in the light colours, with the legend in the picture.

Sizes are for print: at the width of a page of text, about seven inches, three panels fit side by side and the smallest
type has seven points. A single panel fits a column.
"""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from textwrap import wrap

from collapselab.disk import written_whole
from collapselab.report.charts import style
from collapselab.report.charts.panels import Figure, Panel, bare_spec, number_views
from collapselab.report.charts.style import Spec
from collapselab.report.view import Columns, Keys, lines

COLUMNS = 3
WIDTH, WIDE = 168, 250
"""Width of a panel among others, and of a single one, in pixels at 96 per inch, which PDF takes as points."""
HEIGHT = 0.8
"""Height of a panel relative to the page."""
TITLE, BELOW = 28, 41
"""Characters that fit on a line of a panel's title, and of the note below it."""
PADDING = {"left": 18, "right": 12, "top": 6, "bottom": 6}
"""Margins for labels: a reader's font may be wider than the one they were measured with."""


def write_figures(
    folder: str | Path, figures: Iterable[Figure], tables: Mapping[str, Columns], keys: Keys
) -> list[Path]:
    """Write every figure that has panels, each file atomically."""
    import vl_convert

    written = []
    for figure in figures:
        if not figure.panels or figure.axes:
            continue
        # Number clips from 0: the library keeps counting, so a file would depend on the figures drawn before it.
        numbers: dict[str, str] = {}
        svg = vl_convert.vegalite_to_svg(composed(figure, tables, keys))
        svg = re.sub(r"\bclip\d+\b", lambda clip: numbers.setdefault(clip[0], f"clip{len(numbers)}"), svg)  # noqa: B023
        for kind, content in (("svg", svg.encode()), ("pdf", vl_convert.svg_to_pdf(svg))):
            path = Path(folder) / f"{figure.key}.{kind}"
            with written_whole(path) as temporary:
                temporary.write_bytes(content)
            written.append(path)
    return written


def composed(figure: Figure, tables: Mapping[str, Columns], keys: Keys) -> Spec:
    """The figure as one Vega-Lite specification with its data."""
    units = [_unit(panel, alone=len(figure.panels) == 1) for panel in figure.panels]
    view = 1
    for unit in units:
        view = number_views(unit, view)
    used = {panel.table for panel in figure.panels} | set(figure.tables)
    links = [param for unit in units for param in unit.pop("params", [])]
    config = style.config() | {"background": "#ffffff", "padding": PADDING}
    config["title"] |= {"fontSize": 11, "subtitleFontSize": 9.5, "offset": 6}
    config["axis"] |= {"labelFontSize": 10, "titleFontSize": 10.5, "titlePadding": 5}
    config["legend"] |= {"orient": "bottom", "direction": "horizontal", "columns": 2, "labelLimit": 0,
                         "labelFontSize": 10, "titleFontSize": 10.5, "symbolSize": 55}  # fmt: skip
    spec = {
        "concat": units,
        "columns": COLUMNS,
        "spacing": {"row": 22, "column": 14},
        "params": list({param["name"]: param for param in links if param["name"] != "brush"}.values()),
        "datasets": {name: lines(tables[name]) for name in used},
        "config": config,
        "resolve": {"scale": {"color": "shared" if figure.legend else "independent"}},
    }
    return style.resolved(spec, len(keys.widths))


def _unit(panel: Panel, *, alone: bool) -> Spec:
    spec = bare_spec(panel, legends=True)
    spec |= {"width": WIDE if alone else WIDTH, "height": round(HEIGHT * panel.height)}
    if panel.heading:
        broken = partial(wrap, break_long_words=False, break_on_hyphens=False)
        title = f"{panel.code} {panel.heading}".strip()
        below = " · ".join(filter(None, (panel.fit, panel.note)))
        spec["title"] = {"text": broken(title, TITLE), **({"subtitle": broken(below, BELOW)} if below else {})}
    return spec
