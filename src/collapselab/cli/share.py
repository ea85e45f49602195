"""`collapselab publish` and `collapselab compare`: results for others, and theirs beside one's own."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from collapselab.cli.options import JsonOption

if TYPE_CHECKING:
    from collapselab.measurement.compare_results import Difference


def publish(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR|RESULT", help="A suite that has run; or one measured model, for its card.")
    ],
    to: Annotated[str, typer.Option(metavar="hf:USER/NAME", help="Where it goes on the hub.")],
    out: Annotated[Path | None, typer.Option(help="The folder to make. [default: DIR/published]")] = None,
    license: Annotated[str, typer.Option(help="Of the numbers, for the card.")] = "mit",
    upload: Annotated[bool, typer.Option("--upload", help="Upload it; else it is only made, to be looked at.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a dataset with a card of a suite's results, and upload it if asked; or the card's section of one model.

    Nothing leaves the machine without `--upload`.

    See what it would be: `collapselab publish suites/scale --to hf:me/scale`

    For a model's card: `collapselab publish result.json --to hf:me/my-model`
    """
    if (directory / "results.csv").is_file() or not _is_one_model(directory):
        _publish_dataset(directory, to, out, license, upload=upload, as_json=as_json)
    else:
        _show_card(directory, to, as_json=as_json)


def compare(
    mine: Annotated[str, typer.Argument(metavar="MINE", help="A measurement, a run, a suite, or a published folder.")],
    theirs: Annotated[str, typer.Argument(metavar="THEIRS", help="Another.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare although corpus, versions or options differ.")
    ] = False,
    top: Annotated[
        int, typer.Option(help="Rows that are shown of those that differ, the largest difference first.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Set two measurements side by side, after checking corpus, metric versions and options.

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
    print(f"{len(comparison.rows):,} numbers compared, {same:,} of them equal to the last bit.")
    if comparison.unmatched:
        print(
            f"{len(comparison.unmatched):,} models are in one of the two alone: {', '.join(comparison.unmatched[:6])}."
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


def _is_one_model(path: Path) -> bool:
    from collapselab.records.result_folder import load_results

    return len({result.facts["run"] for result in load_results(path)}) == 1


def _publish_dataset(directory: Path, to: str, out: Path | None, license: str, *, upload: bool, as_json: bool) -> None:
    from collapselab.report.publish import publish as make

    made = make(directory, to=to, out=out, license=license, upload=upload)
    if as_json:
        print(json.dumps(made.to_json(), ensure_ascii=False))
        return
    print(f"{made.folder}: {len(made.files):,} files, README.md among them.")
    where = f"uploaded to {made.address}" if made.address else f"not uploaded. Upload it to {made.target}: --upload"
    print(f"{where}.")


def _show_card(path: Path, to: str, *, as_json: bool) -> None:
    import yaml  # type: ignore[import-untyped]

    from collapselab.records.result_folder import load_results
    from collapselab.report.cards import model_card
    from collapselab.report.publish import checked_target

    card = model_card(load_results(path)[-1], name=checked_target(to).split("/")[1])
    if as_json:
        print(json.dumps({"section": card.section, "model-index": card.index}, ensure_ascii=False))
        return
    print(yaml.safe_dump({"model-index": card.index}, sort_keys=False, allow_unicode=True))
    print(card.section)
    print("For the model's README.md: the first part between its --- lines, the second below.", file=sys.stderr)
