"""What a measurement has beside the catalogue, as tables for people: deciders, outcomes, moved features, contexts."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from collapselab.core.catalogue import CONTEXT_METRICS
from collapselab.records.facts import OutcomeFacts
from collapselab.records.measurement import Result
from collapselab.records.outcomes import OUTCOMES
from collapselab.records.tables import ContextRow, DeciderRow, PushRow

ARROWS = {"falls": "↓", "rises": "↑", "approaches": "→", None: ""}
DECIDERS = (
    "head: the output layer; nearest N: the nearest class centre of block N; lens N: the output layer on block N. "
    "Every two of them: the table deciders of --out and --json."
)


def further_tables(result: Result) -> list[RenderableType]:
    """Those that the measurement has, each below its title."""
    parts: list[RenderableType] = []
    if compared := result.tables.get("deciders"):
        title = "deciders: the share of validation tokens on which each is right, and agrees with the output layer"
        parts += [Text(""), Text(title, style="bold"), _compared(compared)]
        parts.append(Text(DECIDERS, style="dim"))
    if outcomes := result.facts.get("outcomes"):
        parts += [Text(""), Text("outcomes, which a good model has low", style="bold"), _outcomes(outcomes)]
    if pushed := result.tables.get("push"):
        parts += [Text(""), Text("features moved by α toward the class means that the model expects", style="bold")]
        parts += [_pushed(pushed), Text(_heads_of_push(pushed), style="dim")]
    if contexts := result.tables.get("contexts"):
        parts += [
            Text(""),
            Text("contexts: the last n tokens, last layer (exchanged: the null)", style="bold"),
            _contexts(contexts),
        ]
        parts += [Text(f"– {reason}", style="dim") for reason in _context_reasons(contexts)]
    return parts


def whole_names(table: Table, *, column: int) -> Table:
    """The table with names that no narrow terminal cuts off: two metrics may begin alike."""
    names = table.columns[column]
    names.no_wrap, names.min_width = True, max((len(str(cell)) for cell in names.cells), default=0)
    return table


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _compared(rows: list[DeciderRow]) -> Table:
    """Each decider beside the next token and beside the output layer."""
    shares = {(row.first, row.second): row.agreement for row in rows}
    table = Table(box=None, header_style="bold")
    for name in ("decider", "is right", "agrees"):
        table.add_column(name, justify="left" if name == "decider" else "right")
    for name in dict.fromkeys(row.second for row in rows):
        with_head = shares.get(("head", name))
        table.add_row(name, f"{shares['token', name]:.4f}", "–" if with_head is None else f"{with_head:.4f}")
    return table


def _pushed(rows: list[PushRow]) -> Table:
    """A line for each α; for the output layer and for the nearest-centre head beside it."""
    heads, names = list(dict.fromkeys(row.head for row in rows)), ("loss", "ece", "accuracy", "agreement")
    titles = [f"{name} ({head})" for head in heads for name in names]
    table = Table("α", *titles, box=None, header_style="bold")
    for alpha in dict.fromkeys(row.alpha for row in rows):
        of_alpha = [row for row in rows if row.alpha == alpha]
        table.add_row(f"{alpha:+g}", *(number(getattr(row, name)) for row in of_alpha for name in names))
    for column in table.columns:
        column.justify = "right"
    return table


def _heads_of_push(rows: list[PushRow]) -> str:
    tau = next((row.tau for row in rows if row.tau is not None), None)
    return f"own: the output layer; centres: softmax of −τ‖h − μ‖²/2 + log π with τ = {number(tau)}"


def _contexts(rows: list[ContextRow]) -> Table:
    """Metrics down, lengths across, each value above its null; then what took part."""
    last = [row for row in rows if row.layer == "last"]
    lengths = list(dict.fromkeys(row.n for row in last))
    table = Table("", "metric", *(f"n = {n}" for n in lengths), box=None, header_style="bold")
    for metric in dict.fromkeys(row.metric for row in last):
        of_metric = [row for row in last if row.metric == metric]
        arrow = ARROWS[CONTEXT_METRICS[metric].direction]
        table.add_row(arrow, metric, *(number(row.value) for row in of_metric))
        table.add_row("", "  exchanged", *(number(row.null) for row in of_metric), style="dim")
    of_all = [row for row in last if row.metric == "context_within"]
    table.add_row("", "contexts (left out)", *(f"{row.contexts:,} ({row.left_out:,})" for row in of_all))
    table.add_row("", "tokens", *(f"{row.tokens:,}" for row in of_all))
    table.add_row("", "coverage", *(number(row.coverage) for row in of_all))
    for column in table.columns[2:]:
        column.justify = "right"
    return whole_names(table, column=1)


def _context_reasons(rows: list[ContextRow]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why is not None and row.layer == "last":
            reasons.setdefault(row.why, []).append(f"{row.metric}({row.n})")
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}" for why, names in reasons.items()
    ]


def _outcomes(outcomes: dict[str, OutcomeFacts]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column()
    for name, fact in outcomes.items():
        what = OUTCOMES[name].meaning if name in OUTCOMES else "bits per byte of the validation text of that corpus"
        table.add_row(Text(name), number(fact["value"]), Text(fact.get("why") or what, style="dim"))
    return table
