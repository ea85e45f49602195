"""The style of every figure: colours that colour-blind readers can distinguish, readable type, light and dark.

A figure names its colours as CSS variables. On the page the style sheet defines them, so a figure follows the
reader's light or dark mode; for a file `resolved` inserts the light colours.
"""

import json
from typing import Any

Spec = dict[str, Any]
"""A chart, or a part of one, in the formats of Vega and Vega-Lite, which are open."""

LIGHT = {
    "paper": "#ffffff", "ground": "#f6f7f9", "ink": "#1b1f24", "soft": "#59636e", "line": "#d5dae0", "grid": "#e9ecef",
    "accent": "#0b61a4", "with": "#00694e", "against": "#a83c00", "mixed": "#7a5b00", "unshown": "#59636e",
    "with-ground": "#ddf3ea", "against-ground": "#fde9dd", "mixed-ground": "#fbf0cd", "unshown-ground": "#eef0f2",
    "other": "#7d8790",
}  # fmt: skip
DARK = {
    "paper": "#171b20", "ground": "#0f1215", "ink": "#e8ebee", "soft": "#a3adb8", "line": "#343b43", "grid": "#272d34",
    "accent": "#6cb6f5", "with": "#5ad1a7", "against": "#ff9d66", "mixed": "#e6c35c", "unshown": "#a3adb8",
    "with-ground": "#12342a", "against-ground": "#41230f", "mixed-ground": "#382d0c", "unshown-ground": "#252a30",
    "other": "#8d97a1",
}  # fmt: skip
CATEGORIES = ("#0b61a4", "#a83c00", "#00694e", "#7a3e9d", "#7a5b00", "#b0225e", "#2f6f7e", "#3f464d")
CATEGORIES_DARK = ("#6cb6f5", "#ff9d66", "#5ad1a7", "#c79bf2", "#e6c35c", "#ff8fb3", "#7fd3e0", "#d5dae0")
"""Colours of unordered categories, such as models: each differs from the background and from its neighbours."""
PLASMA = ("#0d0887", "#41049d", "#6a00a8", "#8f0da4", "#b12a90", "#cc4778", "#e16462", "#f2844b", "#fca636", "#fcce25")
"""A sequence that darkens evenly under every kind of colour vision (matplotlib's plasma)."""
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
WHERE_SHOWN = "shown.all || shown[datum.id]"
WHERE_CHOSEN = "chosen.all || chosen[datum.id]"


def width_colours(count: int, *, dark: bool) -> list[str]:
    """Return the colours from narrow to wide: bright to deep, all visible on the background."""
    first, last = (0.98, 0.42) if dark else (0.78, 0.02)
    return [_plasma(first + (last - first) * (i / (count - 1) if count > 1 else 0.6)) for i in range(count)]


def variables(widths: int, *, dark: bool) -> dict[str, str]:
    """Return every CSS variable that figures and page may use."""
    named = dict(DARK if dark else LIGHT)
    named |= {f"w{i}": colour for i, colour in enumerate(width_colours(max(widths, 1), dark=dark))}
    named |= {f"c{i}": colour for i, colour in enumerate(CATEGORIES_DARK if dark else CATEGORIES)}
    return named


def resolved(spec: Spec, widths: int) -> Spec:
    """Replace CSS variables by the light colours, for a file, which has no style sheet."""
    text = json.dumps(spec)
    for name, colour in variables(widths, dark=False).items():
        text = text.replace(f"var(--{name})", colour)
    light: Spec = json.loads(text)
    return light


def config() -> Spec:
    """Return Vega-Lite's configuration for every figure."""
    words = {"labelColor": "var(--soft)", "titleColor": "var(--ink)", "labelFont": FONT, "titleFont": FONT}
    return {
        "aria": False,
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **words, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8,
            "gridColor": "var(--grid)", "domainColor": "var(--line)", "tickColor": "var(--line)", "tickSize": 4,
            "labelOverlap": True, "labelSeparation": 5, "tickCount": 5, "labelFlush": False,
        },
        "legend": {**words, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "symbolSize": 70},
        "title": {"color": "var(--ink)", "subtitleColor": "var(--soft)", "font": FONT, "subtitleFont": FONT,
                  "fontSize": 13, "subtitleFontSize": 11, "anchor": "start", "offset": 8},
        "text": {"font": FONT, "fontSize": 11, "color": "var(--ink)"},
    }  # fmt: skip


def _plasma(position: float) -> str:
    place = min(max(position, 0.0), 1.0) * (len(PLASMA) - 1)
    index = min(int(place), len(PLASMA) - 2)
    return _blend(PLASMA[index], PLASMA[index + 1], place - index)


def _blend(low: str, high: str, share: float) -> str:
    mixed = (round(a + (b - a) * share) for a, b in zip(_rgb(low), _rgb(high), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
