"""Write the tables of the documents from the catalogue and the records.

`--check` only says if they are current.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING
from functools import partial
from pathlib import Path

from error_rates import interval_table, verdict_table
from file_tables import FILE_TABLES
from notebooks.run import NAMES, page
from reference import reference

from collapselab.core.catalogue import CONTEXT_METRICS, METRICS, ContextMetric, Metric
from collapselab.corpus.token_kinds import KINDS
from collapselab.declared import options_of
from collapselab.records.options import Options, Reading, Recipe, Running
from collapselab.records.outcomes import ON, OUTCOMES
from collapselab.records.profile import HEADLINE_METRICS
from collapselab.records.references import Reference, references
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.settings import Settings

ROOT = Path(__file__).parents[1]


def short_table() -> str:
    """A row a property: which metrics tell of it."""
    rows = ["|property|metrics (★: in the paper's Table 1)|", "|---|---|"]
    properties = dict.fromkeys(metric.property for metric in METRICS.values())
    for name in properties:
        ids = [f"`{m.id}`{' ★' if m.in_paper else ''}" for m in METRICS.values() if m.property == name]
        rows.append(f"|{name}|{', '.join(ids)}|")
    return "\n".join(rows)


def full_table() -> str:
    """A row a metric: everything the catalogue says of it."""
    rows = ["|id|property|definition|collapse|reference|", "|---|---|---|---|---|"]
    for m in METRICS.values():
        cells = (
            f"`{m.id}`{' ★' if m.in_paper else ''}",
            m.property,
            m.formula.replace("|", "\\|"),
            _ideal(m),
            _reference(m.reference),
        )
        rows.append(f"|{'|'.join(cells)}|")
    return "\n".join(rows)


ARROWS = {"falls": "↓", "rises": "↑", "approaches": "→", None: ""}


def _ideal(metric: Metric | ContextMetric) -> str:
    """Which way collapse moves a metric, and its value in a collapsed model."""
    return f"{ARROWS[metric.direction]} {metric.ideal_text}".strip()


def _reference(text: str) -> str:
    """The number of the arXiv paper alone, with its link, where the reference has one."""
    return re.sub(r"^.*arXiv:(\d+\.\d+).*$", r"[\1](https://arxiv.org/abs/\1)", text)


def kinds_table() -> str:
    """A row a kind of token."""
    return "\n".join(["|kind|what it is|", "|---|---|", *(f"|{name}|{text}|" for name, text in KINDS.items())])


def references_table() -> str:
    """A row a source and text of reference models, with the range of their headline metrics."""
    groups: dict[tuple[str, str], list[Reference]] = {}
    for one in references():
        groups.setdefault((one.source, one.text), []).append(one)
    rows = [f"|source|text|models|parameters|{'|'.join(f'`{name}`' for name in HEADLINE_METRICS)}|"]
    rows.append("|---" * (4 + len(HEADLINE_METRICS)) + "|")
    for (source, text), models in groups.items():
        sizes = sorted(one.parameters for one in models)
        cells = [source, text, str(len(models)), f"{sizes[0]:,} to {sizes[-1]:,}"]
        for name in HEADLINE_METRICS:
            values = sorted(one.values[name] for one in models if name in one.values)
            cells.append(f"{values[0]:.2f} to {values[-1]:.2f}" if values else "–")
        rows.append(f"|{'|'.join(cells)}|")
    return "\n".join(rows)


def contexts_table() -> str:
    """A row a metric of contexts."""
    rows = ["|id|definition|collapse|reference|", "|---|---|---|---|"]
    for m in CONTEXT_METRICS.values():
        cells = (
            f"`{m.id}`",
            m.formula.replace("|", "\\|"),
            _ideal(m),
            _reference(m.reference),
        )
        rows.append(f"|{'|'.join(cells)}|")
    return "\n".join(rows)


def outcomes_table() -> str:
    """A row an outcome."""
    rows = (f"|`{name}`|{'low' if one.better < 0 else 'high'}|{one.meaning}|" for name, one in OUTCOMES.items())
    further = f"|`{ON}NAME`|low|loss on the corpus NAME of `--on`, in bits per byte of its validation text|"
    return "\n".join(["|outcome|good is|what it is|", "|---|---|---|", *rows, further])


def interventions_table() -> str:
    """A row an intervention: what it does, its penalty, the metric that it must move, and its source."""
    rows = ["|dose|what it does|penalty R|must move|source|", "|---|---|---|---|---|"]
    for one in INTERVENTIONS.values():
        dose = f"`{one.name}:±…`" if one.signs == "both" else f"`{one.name}:…`"
        moves = one.must_move.replace(one.primary, f"`{one.primary}`") if one.primary else one.must_move
        cells = (dose, one.words, one.formula.replace("|", "\\|"), moves, one.source)
        rows.append(f"|{'|'.join(cells)}|")
    return "\n".join(rows)


def options_table(*classes: type) -> str:
    """Return a row for each option of a command, from its declaration."""
    rows = ["|option|default|what it does|", "|---|---|---|"]
    for option in (option for cls in classes for option in options_of(cls)):
        if not option.shown.hidden:
            is_flag = isinstance(option.default, bool) or option.default in (None, (), MISSING)
            default = "–" if is_flag else f"`{option.default}`"
            cells = (f"`{option.flag}`", default, option.help)
            rows.append(f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in cells)}|")
    return "\n".join(rows)


TABLES: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "docs" / "api.md": {"reference": reference},
    **{ROOT / "docs" / f"notebook_{name}.md": {"notebook": partial(page, name)} for name in NAMES},
    ROOT / "docs" / "configuration.md": {
        "options of measure": partial(options_table, Options, Running),
        "options of train": partial(options_table, Settings),
        "options of corpus build": partial(options_table, Recipe, Reading),
    },
    ROOT / "docs" / "files.md": FILE_TABLES,
    ROOT / "README.md": {"catalogue": short_table},
    ROOT / "docs" / "metrics.md": {"catalogue": full_table},
    ROOT / "docs" / "models.md": {"reference values": references_table},
    ROOT / "docs" / "contexts.md": {"contexts": contexts_table},
    ROOT / "docs" / "tokens.md": {"kinds": kinds_table, "outcomes": outcomes_table},
    ROOT / "docs" / "interventions.md": {"interventions": interventions_table},
    ROOT / "docs" / "statistics.md": {"error rates": verdict_table, "coverage": interval_table},
}


def current(path: Path) -> str:
    """The file's text with every marked table made again."""
    text = path.read_text()
    for name, table in TABLES[path].items():
        begin, end = f"<!-- {name}: generated by `make docs` -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table()}\n{end}{rest.split(end)[1]}"
    return text


def main() -> int:
    """Write what has changed, or say what would."""
    stale = [path for path in TABLES if current(path) != path.read_text()]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)}: a table is not current; run `make docs`.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(current(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
