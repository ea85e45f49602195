"""Results as tables that a person can read: one model by property, or several side by side."""

from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import PurePath
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from collapselab.core.catalogue import METRICS
from collapselab.measurement.bootstrap import reliability
from collapselab.measurement.show_tables import ARROWS, further_tables, number, whole_names
from collapselab.records.facts import SplitFacts
from collapselab.records.measurement import Key, Result, Results
from collapselab.records.profile import Bar, profile
from collapselab.records.references import compare_with_references
from collapselab.records.suite import DEFAULT_METRICS
from collapselab.records.tables import Row

MOST_COLUMNS = 5
"""Of a table of layers or bins: what a terminal of 80 columns has room for."""
WIDE, BAR, SPARKS = 118, 12, "▁▂▃▄▅▆▇█"
"""Columns of a terminal that has room for a sentence beside each bar, and the length of the bar."""
NEXT = (
    "Next: --full prints every number; --classes --out r.json, then collapselab tokens r.json: which tokens; "
    "collapselab report r.json: a page."
)
CHANGING = "†"
"""The mark of a value that twice the tokens would change too much."""


def shown(measured: Result | Results) -> RenderableType:
    """A table for each model, and for several one that sets them side by side."""
    if isinstance(measured, Result):
        return _model(measured, None)
    tables = [_model(result, measured.initial(result)) for result in measured]
    return Group(*tables, side_by_side(measured)) if len(measured) > 1 else Group(*tables)


def brief(measured: Result | Results, width: int = 120) -> RenderableType:
    """Return the summary: seven lines for one model, one row per model for several."""
    return _summary(measured, width) if isinstance(measured, Result) else sweep_table(measured)


def summary_text(result: Result) -> str:
    """The seven lines as plain text."""
    console = Console(width=120, file=StringIO(), color_system=None)
    console.print(_summary(result, 120))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _summary(result: Result, width: int) -> RenderableType:
    facts, bars = result.facts, profile(result.rows)
    tokens = " + ".join(f"{split['tokens']:,}" for split in facts["splits"].values())
    text = facts.get("text") or PurePath(facts["corpus"]).name
    parts: list[RenderableType] = [Text.assemble((result.title, "bold"), f"  on {text}: {tokens} tokens")]
    scores = facts["splits"]["validation"]
    if (loss := scores.get("loss")) is not None:
        accuracy, bits = scores.get("accuracy"), scores.get("bits_per_byte")
        words = [f"validation loss {loss:.3f}", "" if accuracy is None else f"accuracy {accuracy:.1%}"]
        parts.append(Text(" · ".join(filter(None, [*words, "" if bits is None else f"{bits:.3f} bits per byte"]))))
    layers = {bar.headline.code: _sparkline(result, bar) for bar in bars}
    by_layer = ["by layer"] if any(layers.values()) else []
    is_wide = width >= WIDE
    comparison = compare_with_references(result.rows, f"{text} {facts.get('text_hash', '')}", facts.get("parameters"))
    beside = [comparison.heading] if comparison.cells else []
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("", "", "", "shuffled → collapsed", *beside, *by_layer, *(["what it means"] if is_wide else [])):
        table.add_column(name, no_wrap=name != "what it means")
    for bar in bars:
        cells: list[Text | str] = [
            Text(bar.headline.code, style="bold"),
            bar.headline.metric,
            _short_number(bar.value),
            _drawn_bar(bar),
        ]
        if comparison.cells:
            cells.append(Text(comparison.cells.get(bar.headline.metric, "–"), justify="right"))
        table.add_row(*cells, *([layers[bar.headline.code]] if by_layer else []), *([bar.sentence] if is_wide else []))
    parts += [Text(""), table, Text("")]
    if not is_wide:
        parts += [Text(f"{bar.headline.code}: {bar.sentence}", style="dim") for bar in bars]
    parts += [Text(line) for line in _verdict(bars)]
    parts.append(Text(comparison.sentence))
    half = facts.get("half_sample")
    names = {bar.headline.metric for bar in bars}
    if half is not None and (changing := [name for name in half["changing"] if name in names]):
        parts.append(Text(f"! More tokens would still change {', '.join(changing)} (--tokens).", style="yellow"))
    parts += [Text(f"! {warning['text']}", style="yellow") for warning in facts.get("warnings", [])]
    return Group(*parts, Text(NEXT, style="dim"))


def _verdict(bars: list[Bar]) -> Iterator[str]:
    """How many properties are nearer to a collapsed model than to shuffled labels, and where metrics disagree."""
    judged = [bar for bar in bars if bar.share is not None]
    far = [bar.headline.code for bar in judged if bar.share is not None and bar.share > 0.5]
    if judged:
        named = f": {', '.join(far)}" if far else "; this model has not collapsed"
        yield f"More than half of the way to collapse: {len(far)} of {len(judged)} properties{named}."
    for bar in bars:
        if bar.low is not None and bar.high is not None:
            yield f"The metrics of {bar.headline.code} disagree: {bar.low:.0%} to {bar.high:.0%} of the way."


def _short_number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _drawn_bar(bar: Bar) -> Text:
    """The way from the null to the ideal, and how much of it the value has gone."""
    if bar.share is None or bar.null is None:
        return Text("no null was measured", style="dim")
    filled = round(BAR * bar.share)
    ends = (f"{_short_number(bar.null):>6} ", f" {bar.headline.ideal:g}")
    return Text.assemble(ends[0], ("━" * filled, "bold cyan"), ("─" * (BAR - filled), "dim"), ends[1])


def _sparkline(result: Result, bar: Bar) -> str:
    """The metric over layers, the last one at the end; empty where they were not measured."""
    rows = [
        row for row in result.rows if _is_plain(row) and row.metric == bar.headline.metric and row.value is not None
    ]
    below = sorted((row for row in rows if row.layer.isdigit()), key=lambda row: int(row.layer))
    near = [-abs(row.value - bar.headline.ideal) for row in below if row.value is not None]
    if not near:
        return ""
    near.append(-abs(bar.value - bar.headline.ideal))
    low, high = min(near), max(near)
    steps = [round((value - low) / ((high - low) or 1) * (len(SPARKS) - 1)) for value in near]
    return "".join(SPARKS[step] for step in steps)


def side_by_side(results: Results) -> Table:
    """A column for each model, a row for each metric of the last layer; with resamples also its reliability."""
    with_halves = len(results) >= 3 and all("halves" in result.facts for result in results)
    names = [escape(_short(result)) for result in results]
    table = Table("", "metric", *names, *(["reliability"] if with_halves else []), box=None, header_style="bold")
    for column in table.columns[2:]:
        column.justify = "right"
    first = next(iter(results))
    rows = [row for row in first.rows if row.split == "train" and row.layer == "last" and row.bin == "all"]
    for row in rows:
        cells = [number(result.row(row.metric).value) + _mark(result, row.metric) for result in results]
        if with_halves:
            halves = [result.facts["halves"][_key(row).name] for result in results]
            cells.append(number(reliability(halves)))
        table.add_row(ARROWS[METRICS[row.metric].direction], row.metric, *cells)
    scores: tuple[Literal["loss", "accuracy", "perplexity"], ...] = ("loss", "accuracy", "perplexity")
    for name in scores:
        cells = [number(result.facts["splits"]["validation"].get(name)) for result in results]
        table.add_row("", f"validation {name}", *cells, end_section=name == "perplexity")
    return whole_names(table, column=1)


def sweep_table(results: Results) -> Table:
    """A line for each model: its loss, and one metric of each property; for more models than have room as columns."""
    names = [name for name in DEFAULT_METRICS if name in METRICS]
    corpora = len({result.facts["corpus_hash"] for result in results}) > 1
    short = {_short(result): result.name for result in results}
    are_told_apart = len(short) == len({result.name for result in results})
    scores = [result.facts["splits"]["validation"] for result in results]
    losses = {
        "loss": [score.get("loss") for score in scores],
        "bits/byte": [score.get("bits_per_byte") for score in scores],
    }
    losses = {name: values for name, values in losses.items() if any(value is not None for value in values)}
    table = Table(box=None, header_style="bold")
    table.add_column("model", no_wrap=True, overflow="fold")
    if corpora:
        table.add_column("corpus")
    for name in (*losses, *names):
        table.add_column(name, justify="right")
    for place, result in enumerate(results):
        measured = {row.metric: row.value for row in result.rows if _is_plain(row) and row.layer == "last"}
        cells = [number(measured.get(name)) for name in names]
        corpus = [escape(PurePath(result.facts["corpus"]).name)] if corpora else []
        own = (number(values[place]) for values in losses.values())
        table.add_row(escape(_short(result) if are_told_apart else result.name), *corpus, *own, *cells)
    return table


def _model(result: Result, initial: Result | None) -> RenderableType:
    parts: list[RenderableType] = [Text.from_markup(line) for line in _headline(result)]
    last = [row for row in result.rows if row.layer == "last" and row.bin == "all"]
    parts.append(_catalogue([row for row in last if row.split == "train"], result, initial))
    parts += [Text(line, style="yellow") for line in _changing(result)]
    validated = [row for row in last if row.split == "validation"]
    by_layer = [row for row in result.rows if row.layer != "last" and _is_plain(row)]
    by_count = [row for row in result.rows if row.layer == "last" and row.bin != "all"]
    for title, rows, drawn in (
        ("validation split, last layer", validated, lambda rows: [_with_nulls(rows)]),
        (f"by layer, training split{_skipped(result)}", by_layer, _grids),
        ("by count of the class, last layer", by_count, _grids),
    ):
        if rows:
            parts += [Text(""), Text(title, style="bold"), *drawn(rows)]
    parts += further_tables(result)
    reasons = sorted({f"{row.metric}: {row.why}" for row in last if row.why})
    parts += [Text(f"– {reason}", style="dim") for reason in reasons]
    parts += [Text(f"! {warning['text']}", style="yellow") for warning in result.facts.get("warnings", [])]
    return Group(*parts, Text(""))


def _headline(result: Result) -> Iterator[str]:
    facts = result.facts
    model = f"[bold]{escape(result.name)}[/bold]  {escape(facts['model_hash'])}"
    yield f"{model}  on {escape(facts['corpus'])}  {escape(facts['corpus_hash'])}"
    for name, split in facts["splits"].items():
        cut = f", each cut to the context of {facts['context']:,}" if split["blocks_cut_off"] else ""
        line = f"{name}: {split['tokens']:,} tokens in {split['blocks']:,} blocks{cut}"
        loss, accuracy, perplexity = split.get("loss"), split.get("accuracy"), split.get("perplexity")
        if loss is not None and accuracy is not None:
            line += f"; loss {loss:.4f}, accuracy {accuracy:.2%}, perplexity {number(perplexity)}"
        if (bits := split.get("bits_per_byte")) is not None:
            line += f", {bits:.4f} bits per byte"
        yield line
        if "classes" in split:
            yield f"  {_classes(split, facts['options'])}"
    yield f"{facts['dtype']} on {facts['device']}, {facts['batch']} blocks a batch, {facts['seconds']['all']:,.1f} s"


def _classes(split: SplitFacts, options: Mapping[str, object]) -> str:
    """How a split's sample is spread over classes, and what NC4 leaves out of it."""
    least, drawn = options.get("min_count"), options.get("per_class")
    once = split["classes_seen_once"] / max(split["classes"], 1)
    line = f"{split['classes']:,} classes, {once:.0%} of them seen once, {split['tokens_per_class']:.1f} tokens a class"
    line += f", {drawn:,} of which are drawn" if isinstance(drawn, int) else ""
    if "left_out" in split:
        share = split["left_out"] / max(split["tokens"], 1)
        fewest = max(number for number in (least, drawn, 1) if isinstance(number, int))
        lacks = f"has fewer than {fewest:,} times" if fewest > 1 else "does not have"
        line += f"; NC4 leaves out {share:.0%} of the tokens, whose class the training sample {lacks}"
    return line


def _changing(result: Result) -> Iterator[str]:
    half = result.facts.get("half_sample")
    if half is None or not half["changing"]:
        return
    share = half["part_tokens"] / half["tokens"]
    part = "half the sample" if 0.4 < share < 0.6 else f"{share:.0%} of the sample"
    values = [
        f"{metric} {number(half['values'][metric])}, all of it {number(result.row(metric).value)}"
        for metric in half["changing"]
    ]
    yield f"{CHANGING} still changes with the number of tokens: {part} gives {'; '.join(values)}."


def _mark(result: Result, metric: str) -> str:
    half = result.facts.get("half_sample")
    return CHANGING if half is not None and metric in half["changing"] else ""


def _catalogue(rows: list[Row], result: Result, initial: Result | None) -> Table:
    bootstrap = any(row.low is not None for row in rows)
    columns = ["property", "", "metric", "value"]
    columns += ["null"] if result.facts["options"]["null"] else []
    columns += ["initial"] if initial is not None else []
    columns += ["95 % interval", "halves differ"] if bootstrap else []
    table = Table(*columns, box=None, header_style="bold")
    for column in table.columns[3:]:
        column.justify = "right"
    before = None
    properties = list(dict.fromkeys(metric.property for metric in METRICS.values()))
    for row in sorted(rows, key=lambda row: properties.index(METRICS[row.metric].property)):
        metric = METRICS[row.metric]
        cells = [metric.property if metric.property != before else "", ARROWS[metric.direction]]
        value = number(row.value) + _out_of(row, result) + _mark(result, row.metric)
        cells += [row.metric + ("★" if metric.in_paper else ""), value]
        if result.facts["options"]["null"]:
            cells.append(number(row.null))
        if initial is not None:
            cells.append(number(initial.row(row.metric).value))
        if bootstrap:
            share = result.facts["half_difference"].get(_key(row).name)
            interval = "" if row.low is None else f"{number(row.low)} … {number(row.high)}"
            cells += [interval, "" if share is None else f"{share:.1%}"]
        table.add_row(*cells)
        before = metric.property
    return whole_names(table, column=2)


def _out_of(row: Row, result: Result) -> str:
    """Behind a number of directions: how many there could be."""
    width = result.facts.get("width")
    if row.value is None or row.classes is None or row.tokens is None or width is None:
        return ""
    most = METRICS[row.metric].at_most(classes=row.classes, tokens=row.tokens, dim=width)
    return "" if most is None else f" of {most:,}"


def _with_nulls(rows: list[Row]) -> Table:
    table = Table("metric", "value", "null", box=None, header_style="bold")
    for row in rows:
        table.add_row(row.metric, number(row.value), number(row.null))
    return _right_aligned(table)


def _grids(rows: list[Row]) -> list[RenderableType]:
    """Metrics down, layers or bins across; several tables where there are more of them than a line can hold; then a
    line for each reason why metrics have no value."""
    names = list(dict.fromkeys(row.bin if row.bin != "all" else row.layer for row in rows))
    values = {(row.metric, row.bin if row.bin != "all" else row.layer): row.value for row in rows}
    nulls = {(row.metric, row.bin if row.bin != "all" else row.layer): row.null for row in rows}
    tables: list[RenderableType] = []
    for start in range(0, len(names), MOST_COLUMNS):
        across = names[start : start + MOST_COLUMNS]
        table = Table("metric", *across, box=None, header_style="bold")
        for metric in dict.fromkeys(row.metric for row in rows if row.value is not None):
            table.add_row(metric, *(number(values.get((metric, name))) for name in across))
            if any(nulls.get((metric, name)) is not None for name in across):
                table.add_row("  shuffled", *(number(nulls.get((metric, name))) for name in across), style="dim")
        tables.append(whole_names(_right_aligned(table), column=0))
    return [*tables, *_without_value(rows)]


def _without_value(rows: list[Row]) -> list[Text]:
    """A line for each reason why metrics have no value in any of these rows."""
    valued = {row.metric for row in rows if row.value is not None}
    reasons: dict[str, list[str]] = {}
    for metric, why in {row.metric: row.why for row in rows if row.metric not in valued}.items():
        reasons.setdefault(why or "not computed", []).append(metric)
    return [Text(f"– {', '.join(metrics)}: {why}", style="dim") for why, metrics in reasons.items()]


def _right_aligned(table: Table) -> Table:
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _key(row: Row) -> Key:
    return Key(row.split, row.layer, row.bin, row.metric)


def _is_plain(row: Row) -> bool:
    return row.split == "train" and row.bin == "all"


def _skipped(result: Result) -> str:
    """What the layers below the last leave out, in words."""
    skipped = result.facts["options"].get("skip_positions", 0)
    if not isinstance(skipped, int) or not skipped:
        return ""
    return f", without the first {'position' if skipped == 1 else f'{skipped:,} positions'} of every block"


def _short(result: Result) -> str:
    return f"{result.facts['run']}@{result.facts['checkpoint']}" if result.facts["in_a_run"] else result.name
