"""Commands that read stored results: `collapselab tokens`, `compare`, `similarity` and `publish`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from collapselab.cli.options import JsonOption, generated, taken
from collapselab.records.options import ClassChoice

if TYPE_CHECKING:
    import pandas as pd

    from collapselab.analysis.tokens import TokenTable
    from collapselab.measurement.compare_results import Difference
    from collapselab.records.measurement import Results
    from collapselab.records.result_folder import StoredResult

Tables = dict[str, "pd.DataFrame"]
"""What is shown, by its title."""

COLUMNS = ("count", "cdnv", "duality_cos", "agreement", "loss")
"""Numbers that a table shows, the one that it is sorted by among them."""
LONGEST = 20
"""Characters of a token that a table shows."""


@generated(ClassChoice)
def tokens(
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT",
            help="A measurement with `--classes`: the `.json` of `measure --out`, a run, a checkpoint or a model.",
        ),
    ],
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """List the tokens whose classes have collapsed most and least.

    Measure with `--classes` first: `collapselab measure MODEL --data tinystories --classes --out r.json`

    Names only: `collapselab tokens r.json --match '^ [A-Z]' --top 20`

    One token and its neighbours: `collapselab tokens r.json --like " Lily"`

    Changes during training: `collapselab tokens runs/a/checkpoints/0 --compare runs/a/checkpoints/1`
    """
    from collapselab.analysis import tokens as classes

    choice, stored = taken(ClassChoice, options), _one_result(result)
    place: Any = {"split": choice.split, "layer": choice.layer, "min_count": choice.min_count}
    table = classes.token_table(stored.result, **place)
    metric, notes = table.metric(choice.sort), []
    if table.left_out:
        notes.append(f"Classes with fewer than {choice.min_count} samples are left out: {table.left_out:,}.")
    if choice.like is not None:
        shown = _nearest(stored, table, choice.like, choice, notes)
    elif choice.bins is not None:
        medians = table.bins(choice.bins, match=choice.match)
        shown = {
            "medians by count": medians[["low", "high", *dict.fromkeys(("classes", metric, *COLUMNS[1:], "norm"))]]
        }
    elif choice.compare is not None:
        other = classes.token_table(_one_result(choice.compare).result, **place)
        shown = _moved(table, other, metric, choice, notes)
    else:
        columns = ["text", "kind", *dict.fromkeys((metric, *COLUMNS)), "nearest_text"]
        low, high = table.ends(metric, choice.top, match=choice.match)
        shown = {f"smallest {metric}": low[columns], f"largest {metric}": high[columns]}
    if as_json:
        lists = {title: json.loads(frame.to_json(orient="records")) for title, frame in shown.items()}
        print(json.dumps({"model": table.name, "tables": lists, "notes": notes}, ensure_ascii=True))
        return
    console = Console()
    console.print(Text(f"{safe(table.name, quotes=False)}: {classes.SORTABLE[metric]}", style="bold"))
    for title, frame in shown.items():
        console.print(_drawn(title, frame, metric))
    for note in notes:
        console.print(Text(note, style="dim"))


def _nearest(stored: "StoredResult", table: "TokenTable", text: str, choice: ClassChoice, notes: list[str]) -> Tables:
    from collapselab.analysis import tokens as classes

    token = table.find(text)
    moments = classes.stored_moments(stored, split=choice.split, layer=choice.layer)
    if moments is None:
        is_last = (choice.split, choice.layer) == ("train", "last")
        why = "of this measurement were deleted" if is_last else "are stored for the last layer of the training split"
        notes.append(
            f"Class means {why}{'' if is_last else ' only'}. The list has only the nearest class, and the classes "
            "whose nearest class this is."
        )
    own, kind = (str(table.frame.loc[token, name]) for name in ("text", "kind"))
    near = table.neighbours(token, top=choice.top, moments=moments)
    columns = ["text", "kind", "count", "distance", "cosine", "same_kind", "cdnv"]
    return {f"nearest to {safe(own)} ({kind})": near[columns]}


def _moved(table: "TokenTable", other: "TokenTable", metric: str, choice: ClassChoice, notes: list[str]) -> Tables:
    from collapselab.analysis import tokens as classes

    other.metric(metric)
    moved = table.compared(other, metric)
    moved = moved[moved.index.isin(table.matching(choice.match).index)]
    unit = "after - before" if metric in classes.SIGNED else "natural logarithm of after / before"
    notes.append(f"change: {unit}; median {moved['change'].median():.3g} over {len(moved):,} classes.")
    columns = ["text", "kind", "count", "before", "after", "change"]
    return {f"{metric}: {table.name} → {other.name}": moved.head(choice.top)[columns]}


def safe(text: object, *, quotes: bool = True) -> str:
    """Return a token for a terminal: unprintable characters are escaped, and a long token is shortened."""
    whole = repr(str(text))
    whole = whole if len(whole) <= LONGEST or not quotes else f"{whole[: LONGEST - 1]}…"
    return whole if quotes else whole[1:-1]


def _one_result(path: str) -> "StoredResult":
    """Return the last measurement of this name that has classes."""
    from collapselab.errors import ConfigError
    from collapselab.records.result_folder import find_results

    results = find_results(Path(path))
    runs = list(dict.fromkeys(stored.result.facts["run"] for stored in results))
    if len(runs) > 1:
        raise ConfigError(f"{path}: holds measurements of {len(runs):,} models ({', '.join(runs)}). Name one of them.")
    with_classes = [stored for stored in results if "classes" in stored.result.tables]
    return (with_classes or results)[-1]


def _drawn(title: str, frame: "pd.DataFrame", metric: str) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold cyan", box=None, header_style="bold")
    names = {"text": "token", "nearest_text": "nearest", "same_kind": "same kind"}
    for name in frame.columns:
        is_text = name in ("text", "kind", "nearest_text", "same_kind")
        style = "bold" if name == "text" else "green" if name == metric else ""
        # On a narrow terminal the columns that may wrap shrink first: texts, never numbers and names of metrics.
        table.add_column(
            names.get(name, name), justify="left" if is_text else "right", style=style, no_wrap=not is_text
        )
    for row in frame.itertuples(index=False):
        cells = (_cell(name, value) for name, value in zip(frame.columns, row, strict=True))
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    if frame.empty:
        table.add_row(Text("none"))
    return table


def _cell(name: str, value: Any) -> str:
    import pandas as pd

    if name in ("text", "nearest_text"):
        return safe(value) if value else "–"
    if name == "same_kind":
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "–"
    return f"{int(value):,}" if float(value).is_integer() and name not in ("agreement", "loss") else f"{value:.4g}"


def compare(
    mine: Annotated[str, typer.Argument(metavar="MINE", help="A measurement, a run, a suite or a published folder.")],
    theirs: Annotated[str, typer.Argument(metavar="THEIRS", help="Another one.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare although corpus, metric versions or options differ.")
    ] = False,
    top: Annotated[int, typer.Option(help="Number of differing values to show, largest difference first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Compare the values of two measurements that have the same corpus, metric versions and options.

    Example: `collapselab compare suites/scale published/measurements.json`
    """
    from collapselab.measurement.compare_results import compare as compared
    from collapselab.records.result_folder import load_results

    comparison = compared(load_results(mine), load_results(theirs), anyway=anyway)
    if as_json:
        print(comparison.to_json())
        return
    for warning in comparison.warnings:
        print(f"collapselab: {warning}", file=sys.stderr)
    for part in _difference_tables(_by_interest(comparison.differing)[:top]):
        Console().print(part)
    same = len(comparison.rows) - len(comparison.differing)
    print(f"{len(comparison.rows):,} values compared, {same:,} of them equal to the last bit.")
    if comparison.unmatched:
        print(
            f"{len(comparison.unmatched):,} models are in only one of the two: {', '.join(comparison.unmatched[:6])}."
        )


def chain_tables(results: "Results", top: int = 5) -> "Iterator[RenderableType]":
    """Yield a column for each model of a chain, and the tokens that moved most from the first to the last."""
    from collapselab.analysis.chain import chain

    found = chain(results)
    table = Table("", *(name.split("/")[-1] for name in found.table.columns), box=None, header_style="bold")
    for name, values in found.table.iterrows():
        table.add_row(str(name), *(_cell("value", value) for value in values))
    yield table
    for title, sign in (("toward", -1), ("away from", 1)):
        moved = found.moved[found.moved["change"] * sign > 0].head(top)
        ratios = zip(moved["text"], moved["after"] / moved["before"], strict=True)
        words = ", ".join(f"{safe(text)} × {ratio:.2f}" for text, ratio in ratios)
        yield Text(
            f"Moved most {title} collapse (mean CDNV term of the last model over the first's): {words or 'none'}"
        )


def _by_interest(rows: "list[Difference]") -> "list[Difference]":
    """Headline metrics first, then the largest differences; numbers that change sign, mostly ratios, last."""
    from collapselab.records.profile import HEADLINES

    headlines = [headline.metric for headline in HEADLINES]

    def rank(row: "Difference") -> tuple[bool, int]:
        changes_sign = row.mine is not None and row.theirs is not None and row.mine * row.theirs < 0
        is_headline = row.metric in headlines and (row.split, row.layer, row.bin) == ("train", "last", "all")
        return changes_sign, headlines.index(row.metric) if is_headline else len(headlines)

    return sorted(rows, key=rank)  # stable: they come with the largest difference first


def _difference_tables(rows: "list[Difference]") -> "Iterator[RenderableType]":
    """A table for each model, split, layer and bin, so that names fit on a narrow terminal."""
    groups: dict[str, list[Difference]] = {}
    for row in rows:
        place = f"{row.model}: {row.split}, layer {row.layer}{'' if row.bin == 'all' else f', bin {row.bin}'}"
        groups.setdefault(place, []).append(row)
    for title, of_group in groups.items():
        yield Text(title, style="bold")
        table = Table("metric", "mine", "theirs", "differ by", box=None, header_style="dim")
        table.columns[0].no_wrap = True
        for row in of_group:
            numbers = ("–" if value is None else f"{value:.6g}" for value in (row.mine, row.theirs))
            table.add_row(row.metric, *numbers, "–" if row.relative is None else f"{100 * row.relative:.3g} %")
        yield table


def similarity(
    names: Annotated[list[str], typer.Argument(metavar="A B…", help="Runs, checkpoints, models or results.")],
    layers: Annotated[Literal["last", "all"], typer.Option(help="Compare the last layer, or all layers.")] = "last",
    min_count: Annotated[int, typer.Option(min=1, help="Leave out classes with fewer samples in either.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare the class means of measurements by linear CKA, over the classes that both have.

    1 means that a rotation and a scale map one set of means to the other. All must have the same vocabulary and have
    been measured with `--classes`.

    All pairs of checkpoints of a run: `collapselab similarity runs/small`

    All layers of two checkpoints:
    `collapselab similarity runs/small/checkpoints/0 runs/small/checkpoints/1 --layers all`
    """
    from collapselab.measurement.similarity import similarity as compared

    found = compared(names, layers=layers, min_count=min_count)
    if as_json:
        print(found.to_json(orient="split"))
        return
    table = Table("", *map(str, range(1, len(found) + 1)), box=None, header_style="bold")
    for number, (name, row) in enumerate(found.iterrows(), 1):
        table.add_row(f"{number} {name}", *("–" if value != value else f"{value:.3f}" for value in row))
    Console().print(table)


def publish(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR|RESULT", help="A suite that has run, or the result of one model.")
    ],
    to: Annotated[str, typer.Option(metavar="hf:USER/NAME", help="Dataset on the hub, for a suite.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the dataset. [default: DIR/published]")] = None,
    license: Annotated[str, typer.Option(help="Licence of the results, for the dataset card.")] = "mit",
    upload: Annotated[bool, typer.Option("--upload", help="Upload the dataset. Otherwise it is only made.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a dataset with a card from the results of a suite, or print the reference values of one model.

    Nothing leaves the machine without `--upload`.

    Make a dataset and look at it: `collapselab publish suites/scale --to hf:me/scale`

    Print a model's row for the table of reference values: `collapselab publish result.json`
    """
    from collapselab.records.result_folder import load_results

    is_suite = (directory / "results.csv").is_file()
    results = [] if is_suite else list(load_results(directory))
    if is_suite or len({result.facts["run"] for result in results}) > 1:
        from collapselab.report.publish import publish as make

        made = make(directory, to=to, out=out, license=license, upload=upload)
        where = (
            f"Uploaded to {made.address}" if made.address else f"Not uploaded. Upload to {made.target} with --upload"
        )
        text = f"{made.folder}: {len(made.files):,} files, including README.md.\n{where}."
        print(json.dumps(made.to_json(), ensure_ascii=False) if as_json else text)
        return
    import csv

    from collapselab.records.references import COLUMNS, reference_row

    row = reference_row(results[-1])
    if as_json:
        print(json.dumps(row, ensure_ascii=False))
        return
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    print("To share it, propose the second line for src/collapselab/records/references.csv.", file=sys.stderr)
