"""From measured models to statements: `collapselab collect`, `import`, `analyze` and `report`."""

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from collapselab.cli.options import JsonOption


def collect(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…", help="Folders of results (`measure --out DIR`), runs, suites, or files with results."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder that gets `runs.csv`, `results.csv` and their hashes.")],
    facts: Annotated[
        Path | None,
        typer.Option(
            help="A table of what is known of models: a column `model` (a name, or a pattern), and any of `tokens`, "
            "`tokens_per_step`, `family`, `seed`, `parameters`, …"
        ),
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="corpora|options",
            help="What may differ between results, which is refused otherwise. Repeat it for several.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join measured models into tables, with their sizes, tokenizers and training tokens.

    All checkpoints of a model of the hub, and then a page of them:
    `collapselab collect pythia --out atlas && collapselab report atlas`

    With what the names do not say: `collapselab collect mine theirs --out atlas --facts models.csv`
    """
    from collapselab.analysis.words import many
    from collapselab.suite.collect_models import collect_models

    collected = collect_models(folders, out, facts=facts, mix=mix or ())
    if as_json:
        known = {"out": str(out), "models": collected.models, "runs": collected.runs, "notes": collected.notes}
        print(json.dumps(known, ensure_ascii=False))
        return
    for note in collected.notes:
        print(note)
    print(f"{out}: {many(collected.models, 'model')} of {many(collected.runs, 'run')}.")
    print(f"Next: collapselab report {out}")


def import_published(
    published: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE…", help="A table of trained models published with Linguistic Collapse, or both."),
    ],
    out: Annotated[Path, typer.Option(help="The folder that gets `runs.csv`, `results.csv` and their hashes.")],
    as_json: JsonOption = False,
) -> None:
    """Read the paper's published tables into ours, so that they can be analysed and compared with a suite.

    Example: `collapselab import lc-2024_05_18.csv --out published && collapselab analyze published`

    Both tables, centred and uncentred distances together:
    `collapselab import lc-2024_05_18.csv lc-2024_10_24.csv --out published`
    """
    from collapselab.records.published import LEFT_OUT, import_published

    runs, rows = import_published(*published, out=out)
    missing = sum(row.value is None for row in rows)
    facts = {"out": str(out), "models": len(runs), "values": len(rows) - missing, "missing": missing, "note": LEFT_OUT}
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    print(f"{out}: {len(runs):,} models, {facts['values']:,} values, {missing:,} missing. {LEFT_OUT}")
    print(f"Next: collapselab analyze {out}")


def analyze(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A suite that has run, or a folder that `collect` or `import` made.")
    ],
    outcome: Annotated[
        str | None,
        typer.Option(
            help="`val_loss`, `train_loss`, `perplexity`, `val_accuracy`, `bits_per_byte`, one of `measure "
            "--outcomes`, as in `ece`, or one of --scores, as in `score:arc_easy/acc`.",
            show_default="the registered outcome, else val_loss; bits_per_byte for several tokenizers",
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Scores of your own as further outcomes: a CSV with a column `run` or `model`, or result files of "
            "lm-evaluation-harness.",
        ),
    ] = None,
    permutations: Annotated[int, typer.Option(help="Of every test; resamples of every interval.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of permutations and resamples.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Print every sentence, not only the summary.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Relate collapse to the outcome in these models: with scale, at fixed scale, and as a cause.

    Writes `DIR/analysis/*.csv` and `summary.json`; prints the summary.

    A suite of yours: `collapselab analyze runs/tiny`

    Scores of benchmarks: `collapselab analyze runs/tiny --scores results/ --outcome score:arc_easy/acc`

    Its accuracy, for a program: `collapselab analyze runs/tiny --outcome val_accuracy --json | jq '.relate[]'`
    """
    from collapselab.analysis.analyze import analyze as run_analysis
    from collapselab.analysis.words import short_summary

    analysis = run_analysis(directory, outcome=outcome, permutations=permutations, seed=seed, scores=scores)
    if as_json:
        print(json.dumps(analysis.to_json(), ensure_ascii=False))
        return
    console = Console()
    printed = analysis.sentences if full else short_summary(analysis.sentences)
    for topic, of_topic in groupby(printed, key=lambda sentence: sentence.topic):
        console.print(f"\n[bold]{escape(topic)}[/bold]")
        for sentence in of_topic:
            console.print(f"  {escape(sentence.text)}", highlight=False)
    if more := len(analysis.sentences) - len(printed):
        console.print(f"\n{more} further sentences: --full")
    console.print(f"\ntables: {escape(str(directory / 'analysis'))}", soft_wrap=True)


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="X",
            help="A suite, a folder that `collect` or `import` made, a folder of results, or a result in a file.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page, or a folder for it.", show_default="X/report.html")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder that gets every figure as SVG and PDF.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one HTML page that fits what it is given: one model, several models, or a suite.

    The page is one file that needs no network. What has not been analysed yet, or has changed since, is analysed first.

    One model: `collapselab report r.json`

    A suite of yours: `collapselab report runs/tiny`

    With figures for a paper: `collapselab report runs/tiny --figures figures`
    """
    from collapselab.report.report import report as write_report

    written = write_report(source, out=out, figures=figures)
    if as_json:
        print(json.dumps(written.to_json(), ensure_ascii=False))
        return
    for note in written.notes:
        print(note)
    print(f"page: {written.page} ({written.page.stat().st_size / 1e6:.1f} MB)")
    if written.figures:
        print(f"figures: {figures} ({len(written.figures)} files)")
