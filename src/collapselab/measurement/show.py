"""Results as tables that a person can read: one model by property, or several side by side."""

from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import PurePath
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from collapselab.core.catalogue import CONTEXT_METRICS, METRICS
from collapselab.measurement.bootstrap import reliability
from collapselab.records.facts import OutcomeFacts, SplitFacts
from collapselab.records.measurement import Key, Result, Results
from collapselab.records.outcomes import OUTCOMES
from collapselab.records.profile import Bar, profile, verdict
from collapselab.records.references import compare_with_references
from collapselab.records.suite import DEFAULT_METRICS
from collapselab.records.tables import ContextRow, DeciderRow, DetectionRow, PushRow, Row

MOST_COLUMNS = 5
"""Of a table of layers or bins: what a terminal of 80 columns has room for."""
WIDE, BAR, SPARKS = 118, 12, "▁▂▃▄▅▆▇█"
"""Columns of a terminal that has room for a sentence beside each bar, and the length of the bar."""
NEXT = (
    "Next: --full prints all values. After --classes --out r.json, `collapselab tokens r.json` lists the tokens and "
    "`collapselab report r.json` draws a page."
)
CHANGING = "†"
"""The mark of a value that twice the tokens would change too much."""
ARROWS = {"falls": "↓", "rises": "↑", "approaches": "→", None: ""}
DETECTED = "token scores: how well each tells right predictions from wrong ones, and this text from others"
DECIDERS = (
    "head: the output layer; nearest N: the nearest class centre of block N; lens N: the output layer on block N. "
    "Every two of them: the table deciders of --out and --json."
)


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
    text = StringIO()
    Console(width=120, file=text, color_system=None).print(_summary(result, 120))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _table(*columns: str, rows: Iterable[Iterable[str]], text_columns: int = 1, whole: int | None = None) -> Table:
    """A table of numbers behind columns of text; rows whose name is indented are dim.

    A terminal cuts off no name of the column `whole`, however narrow it is: two metrics may begin alike.
    """
    table = Table(*columns, box=None, header_style="bold")
    for column in table.columns[text_columns:]:
        column.justify = "right"
    for row in rows:
        cells = list(row)
        table.add_row(*cells, style="dim" if any(cell.startswith("  ") for cell in cells[:2]) else None)
    if whole is not None:
        names = table.columns[whole]
        names.no_wrap, names.min_width = True, max((len(str(cell)) for cell in names.cells), default=0)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


# The summary ---------------------------------------------------------------------------------------------------------


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
    layers = [_sparkline(result, bar) for bar in bars]
    by_layer, is_wide = any(layers), width >= WIDE
    comparison = compare_with_references(result.rows, f"{text} {facts.get('text_hash', '')}", facts.get("parameters"))
    table = Table(box=None, header_style="dim", pad_edge=False)
    beside = [comparison.heading] if comparison.cells else []
    further = [name for name, is_there in (("by layer", by_layer), ("what it means", is_wide)) if is_there]
    for name in ("", "", "", "shuffled → collapsed", *beside, *further):
        table.add_column(name, no_wrap=name != "what it means")
    for bar, layer in zip(bars, layers, strict=True):
        cells: list[Text | str] = [Text(bar.headline.code, style="bold"), bar.headline.metric]
        cells += [_short_number(bar.value), _drawn_bar(bar)]
        if comparison.cells:
            cells.append(Text(comparison.cells.get(bar.headline.metric, "–"), justify="right"))
        table.add_row(*cells, *([layer] if by_layer else []), *([bar.sentence] if is_wide else []))
    parts += [Text(""), table, Text("")]
    if not is_wide:
        parts += [Text(f"{bar.headline.code}: {bar.sentence}", style="dim") for bar in bars]
    parts += [Text(line) for line in (verdict(bars), *_disagreements(bars), comparison.sentence)]
    half, names = facts.get("half_sample"), {bar.headline.metric for bar in bars}
    if half is not None and (changing := [name for name in half["changing"] if name in names]):
        parts.append(Text(f"! More tokens would still change {', '.join(changing)} (--tokens).", style="yellow"))
    if detected := result.tables.get("detection"):
        parts += _titled(DETECTED, _detected(detected))
    return Group(*parts, *_warnings(result), Text(NEXT, style="dim"))


def _disagreements(bars: list[Bar]) -> Iterator[str]:
    for bar in bars:
        if bar.low is not None and bar.high is not None:
            yield f"The metrics of {bar.headline.code} disagree: {bar.standing}."


def _short_number(value: float) -> str:
    return f"{round(value, 2) + 0:.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _drawn_bar(bar: Bar) -> Text:
    """The way from the null to the ideal, and how much of it the value has gone."""
    if bar.share is None or bar.null is None:
        return Text("no null was measured", style="dim")
    filled = round(BAR * bar.share)
    parts = (("━" * filled, "bold cyan"), ("─" * (BAR - filled), "dim"))
    return Text.assemble(f"{_short_number(bar.null):>6} ", *parts, f" {bar.headline.ideal:g}")


def _sparkline(result: Result, bar: Bar) -> str:
    """The metric over layers, the last one at the end; empty where they were not measured."""
    of_metric = [row for row in result.rows if _is_plain(row) and row.metric == bar.headline.metric]
    below = sorted((row for row in of_metric if row.layer.isdigit()), key=lambda row: int(row.layer))
    values = [row.value for row in below if row.value is not None]
    near = [-abs(value - bar.headline.ideal) for value in (*values, bar.value)]
    low, high = min(near), max(near)
    steps = [round((value - low) / ((high - low) or 1) * (len(SPARKS) - 1)) for value in near]
    return "".join(SPARKS[step] for step in steps) if values else ""


def _warnings(result: Result) -> list[Text]:
    return [Text(f"! {warning['text']}", style="yellow") for warning in result.facts.get("warnings", [])]


# Several models ------------------------------------------------------------------------------------------------------


def side_by_side(results: Results) -> Table:
    """A column for each model, a row for each metric of the last layer; with resamples also its reliability."""
    with_halves = len(results) >= 3 and all("halves" in result.facts for result in results)
    rows = []
    for row in (row for row in results[0].rows if _is_plain(row) and row.layer == "last"):
        cells = [_number(result.row(row.metric).value) + _mark(result, row.metric) for result in results]
        if with_halves:
            cells.append(_number(reliability([result.facts["halves"][_key(row)] for result in results])))
        rows.append([ARROWS[METRICS[row.metric].direction], row.metric, *cells])
    scores: list[Any] = [result.facts["splits"]["validation"] for result in results]
    names = ("loss", "accuracy", "perplexity")
    rows += [["", f"validation {name}", *(_number(score.get(name)) for score in scores)] for name in names]
    models = [escape(_short(result)) for result in results]
    table = _table("", "metric", *models, *(["reliability"] * with_halves), rows=rows, text_columns=2, whole=1)
    table.rows[-1].end_section = True
    return table


def sweep_table(results: Results) -> Table:
    """A row for each model: its loss, and a metric of each property under the code of the property."""
    names = [name for name in DEFAULT_METRICS if name in METRICS]
    different = len({result.name for result in results})
    models, parts = [_short(result) for result in results], [PurePath(_short(result)).name for result in results]
    models = next((found for found in (parts, models) if len(set(found)) == different), [one.name for one in results])
    texts = [str(result.facts.get("text") or PurePath(result.facts["corpus"]).name) for result in results]
    scores: list[Any] = [result.facts["splits"]["validation"] for result in results]
    titles = {"loss": "loss", "bits_per_byte": "bits/byte"}
    titles = {key: title for key, title in titles.items() if any(score.get(key) is not None for score in scores)}
    rows = []
    for result, score, model, text in zip(results, scores, models, texts, strict=True):
        measured = {row.metric: row.value for row in result.rows if _is_plain(row) and row.layer == "last"}
        values = [*(score.get(key) for key in titles), *(measured.get(name) for name in names)]
        numbers = ["–" if value is None else f"{value:.3g}" for value in values]
        rows.append([escape(model), *([escape(text)] if len(set(texts)) > 1 else []), *numbers])
    text_columns = ["model", *(["text"] if len(set(texts)) > 1 else [])]
    codes = [METRICS[name].property.split()[0] for name in names]
    table = _table(*text_columns, *titles.values(), *codes, rows=rows, text_columns=len(text_columns))
    table.columns[0].no_wrap, table.columns[0].overflow = True, "fold"
    told = ", ".join(f"{code}: {name}" for code, name in zip(codes, names, strict=True))
    table.caption, table.caption_justify = told, "left"
    return table


# Every number of one model -------------------------------------------------------------------------------------------


def _model(result: Result, initial: Result | None) -> RenderableType:
    parts: list[RenderableType] = [Text.from_markup(line) for line in _headline(result)]
    last = [row for row in result.rows if row.layer == "last" and row.bin == "all"]
    parts.append(_catalogue([row for row in last if row.split == "train"], result, initial))
    parts += [Text(line, style="yellow") for line in _changing(result)]
    parts += _further_tables(result, last)
    reasons = sorted({f"{row.metric}: {row.why}" for row in last if row.why})
    return Group(*parts, *(Text(f"– {reason}", style="dim") for reason in reasons), *_warnings(result), Text(""))


def _further_tables(result: Result, last: list[Row]) -> Iterator[RenderableType]:
    """Every table that the measurement has beside the catalogue, below its title."""
    by_layer = [row for row in result.rows if row.layer != "last" and _is_plain(row)]
    by_count = [row for row in result.rows if row.layer == "last" and row.bin != "all"]
    validated = [[row.metric, _number(row.value), _number(row.null)] for row in last if row.split == "validation"]
    if validated:
        yield from _titled("validation split, last layer", _table("metric", "value", "null", rows=validated))
    if by_layer:
        yield from _titled(f"by layer, training split{_skipped(result)}", *_grids(by_layer))
    if by_count:
        yield from _titled("by count of the class, last layer", *_grids(by_count))
    if compared := result.tables.get("deciders"):
        title = "deciders: the share of validation tokens on which each is right, and agrees with the output layer"
        yield from _titled(title, _compared(compared), Text(DECIDERS, style="dim"))
    if detected := result.tables.get("detection"):
        yield from _titled(DETECTED, _detected(detected))
    if outcomes := result.facts.get("outcomes"):
        yield from _titled("outcomes, which a good model has low", _outcomes(outcomes))
    if pushed := result.tables.get("push"):
        yield from _titled("features moved by α toward the class means that the model expects", *_pushed(pushed))
    if contexts := result.tables.get("contexts"):
        yield from _titled("contexts: the last n tokens, last layer (exchanged: the null)", *_contexts(contexts))


def _titled(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield from (Text(""), Text(title, style="bold"), *parts)


def _headline(result: Result) -> Iterator[str]:
    facts = result.facts
    model = f"[bold]{escape(result.name)}[/bold]  {escape(facts['model_hash'])}"
    yield f"{model}  on {escape(facts['corpus'])}  {escape(facts['corpus_hash'])}"
    for name, split in facts["splits"].items():
        cut = f", each cut to the context of {facts['context']:,}" if split["blocks_cut_off"] else ""
        line = f"{name}: {split['tokens']:,} tokens in {split['blocks']:,} blocks{cut}"
        loss, accuracy = split.get("loss"), split.get("accuracy")
        if loss is not None and accuracy is not None:
            line += f"; loss {loss:.4f}, accuracy {accuracy:.2%}, perplexity {_number(split.get('perplexity'))}"
        if (bits := split.get("bits_per_byte")) is not None:
            line += f", {bits:.4f} bits per byte"
        yield line
        if "classes" in split:
            yield f"  {_classes(split, facts['options'])}"
    yield f"{facts['dtype']} on {facts['device']}, {facts['batch']} blocks a batch, {facts['seconds']['all']:,.1f} s"


def _classes(split: SplitFacts, options: dict[str, Any]) -> str:
    """How a split's sample is spread over classes, and what NC4 leaves out of it."""
    least, drawn = options.get("min_count"), options.get("per_class")
    once = split["classes_seen_once"] / max(split["classes"], 1)
    line = f"{split['classes']:,} classes, {once:.0%} of them seen once, {split['tokens_per_class']:.1f} tokens a class"
    line += f", {drawn:,} of which are drawn" if drawn else ""
    if "left_out" in split:
        share, fewest = split["left_out"] / max(split["tokens"], 1), max(least or 1, drawn or 1)
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
        f"{metric} {_number(half['values'][metric])}, all of it {_number(result.row(metric).value)}"
        for metric in half["changing"]
    ]
    yield f"{CHANGING} still changes with the number of tokens: {part} gives {'; '.join(values)}."


def _mark(result: Result, metric: str) -> str:
    half = result.facts.get("half_sample")
    return CHANGING if half is not None and metric in half["changing"] else ""


def _catalogue(rows: list[Row], result: Result, initial: Result | None) -> Table:
    has_null, has_intervals = result.facts["options"]["null"], any(row.low is not None for row in rows)
    columns = ["property", "", "metric", "value", *(["null"] if has_null else [])]
    columns += ["initial"] if initial is not None else []
    columns += ["95 % interval", "halves differ"] if has_intervals else []
    before, lines = None, []
    properties = list(dict.fromkeys(metric.property for metric in METRICS.values()))
    for row in sorted(rows, key=lambda row: properties.index(METRICS[row.metric].property)):
        metric = METRICS[row.metric]
        cells = [metric.property if metric.property != before else "", ARROWS[metric.direction]]
        cells.append(row.metric + ("★" if metric.in_paper else ""))
        cells.append(_number(row.value) + _out_of(row, result) + _mark(result, row.metric))
        cells += [_number(row.null)] if has_null else []
        cells += [_number(initial.row(row.metric).value)] if initial is not None else []
        if has_intervals:
            share = result.facts["half_difference"].get(_key(row))
            cells.append("" if row.low is None else f"{_number(row.low)} … {_number(row.high)}")
            cells.append("" if share is None else f"{share:.1%}")
        lines.append(cells)
        before = metric.property
    return _table(*columns, rows=lines, text_columns=3, whole=2)


def _out_of(row: Row, result: Result) -> str:
    """Behind a number of directions: how many there could be."""
    width = result.facts.get("width")
    if row.value is None or row.classes is None or row.tokens is None or width is None:
        return ""
    most = METRICS[row.metric].at_most(classes=row.classes, tokens=row.tokens, dim=width)
    return "" if most is None else f" of {most:,}"


def _grids(rows: list[Row]) -> Iterator[RenderableType]:
    """Metrics down, layers or bins across; several tables where there are more of them than a line can hold; then a
    line for each reason why metrics have no value."""
    by_place = {(row.metric, row.bin if row.bin != "all" else row.layer): row for row in rows}
    names = list(dict.fromkeys(name for _, name in by_place))
    valued = dict.fromkeys(row.metric for row in rows if row.value is not None)
    for start in range(0, len(names), MOST_COLUMNS):
        across, lines = names[start : start + MOST_COLUMNS], []
        for metric in valued:
            cells = [by_place.get((metric, name)) for name in across]
            lines.append([metric, *(_number(None if row is None else row.value) for row in cells)])
            if any(row is not None and row.null is not None for row in cells):
                lines.append(["  shuffled", *(_number(None if row is None else row.null) for row in cells)])
        yield _table("metric", *across, rows=lines, whole=0)
    missing = {row.metric: row.why or "not computed" for row in rows if row.metric not in valued}
    for why in dict.fromkeys(missing.values()):
        yield Text(f"– {', '.join(metric for metric in missing if missing[metric] == why)}: {why}", style="dim")


def _compared(rows: list[DeciderRow]) -> Table:
    """Each decider beside the next token and beside the output layer."""
    shares = {(row.first, row.second): f"{row.agreement:.4f}" for row in rows}
    names = dict.fromkeys(row.second for row in rows)
    cells = ([name, shares["token", name], shares.get(("head", name), "–")] for name in names)
    return _table("decider", "is right", "agrees", rows=cells)


def _detected(rows: list[DetectionRow]) -> Table:
    """AUROC of each score with its interval, for each of what it is to tell apart; then the false-positive rate."""
    cells = [
        [
            row.score,
            row.against,
            f"{row.auroc:.3f} [{row.auroc_low:.3f}, {row.auroc_high:.3f}]",
            f"{row.aupr:.3f}",
            f"{row.fpr95:.3f}",
        ]
        for row in rows
    ]
    return _table("score", "against", "AUROC (chance 0.5)", "AUPR", "FPR at 95 %", rows=cells, text_columns=2)


def _outcomes(outcomes: dict[str, OutcomeFacts]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column()
    for name, fact in outcomes.items():
        what = OUTCOMES[name].meaning if name in OUTCOMES else "bits per byte of the validation text of that corpus"
        table.add_row(Text(name), _number(fact["value"]), Text(fact.get("why") or what, style="dim"))
    return table


def _pushed(rows: list[PushRow]) -> Iterator[RenderableType]:
    """A line for each α; for the output layer and for the nearest-centre head beside it."""
    names = ("loss", "ece", "accuracy", "agreement")
    titles = [f"{name} ({head})" for head in dict.fromkeys(row.head for row in rows) for name in names]
    alphas: dict[float, list[str]] = {}
    for row in rows:
        alphas.setdefault(row.alpha, []).extend(_number(getattr(row, name)) for name in names)
    lines = [[f"{alpha:+g}", *cells] for alpha, cells in alphas.items()]
    yield _table("α", *titles, rows=lines, text_columns=0)
    tau = next((row.tau for row in rows if row.tau is not None), None)
    text = f"own: the output layer; centres: softmax of −τ‖h − μ‖²/2 + log π with τ = {_number(tau)}"
    yield Text(text, style="dim")


def _contexts(rows: list[ContextRow]) -> Iterator[RenderableType]:
    """Metrics down, lengths across, each value above its null; then what took part, and why metrics have no value."""
    by_metric: dict[str, list[ContextRow]] = {}
    for row in (row for row in rows if row.layer == "last"):
        by_metric.setdefault(row.metric, []).append(row)
    lines: list[list[str]] = []
    for metric, of_metric in by_metric.items():
        lines.append([ARROWS[CONTEXT_METRICS[metric].direction], metric, *(_number(row.value) for row in of_metric)])
        lines.append(["", "  exchanged", *(_number(row.null) for row in of_metric)])
    of_all = by_metric["context_within"]
    lines.append(["", "contexts (left out)", *(f"{row.contexts:,} ({row.left_out:,})" for row in of_all)])
    lines.append(["", "tokens", *(f"{row.tokens:,}" for row in of_all)])
    lines.append(["", "coverage", *(_number(row.coverage) for row in of_all)])
    yield _table("", "metric", *(f"n = {row.n}" for row in of_all), rows=lines, text_columns=2, whole=1)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why is not None and row.layer == "last":
            reasons.setdefault(row.why, []).append(f"{row.metric}({row.n})")
    for why, names in reasons.items():
        yield Text(f"– {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}", style="dim")


def _key(row: Row) -> str:
    return Key(row.split, row.layer, row.bin, row.metric).name


def _is_plain(row: Row) -> bool:
    return row.split == "train" and row.bin == "all"


def _skipped(result: Result) -> str:
    """What the layers below the last leave out, in words."""
    skipped = result.facts["options"].get("skip_positions", 0)
    if not skipped:
        return ""
    return f", without the first {'position' if skipped == 1 else f'{skipped:,} positions'} of every block"


def _short(result: Result) -> str:
    return f"{result.facts['run']}@{result.facts['checkpoint']}" if result.facts["in_a_run"] else result.name
