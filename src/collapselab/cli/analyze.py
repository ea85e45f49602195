"""Commands that relate models to each other: `collapselab collect`, `import`, `analyze` and `report`."""

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
            metavar="DIR…", help="Folders of results (`measure --out DIR/`), runs, suites, or result files."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of `runs.csv`, `results.csv` and their checksums.")],
    facts: Annotated[
        Path | None,
        typer.Option(
            help="A CSV with facts about models: a column `model` (a name or pattern), and any of `tokens`, "
            "`tokens_per_step`, `family`, `seed`, `parameters`, …"
        ),
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="corpora|options",
            help="Accept results with different corpora, or with different options. Repeat it for both.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join the results of several models into tables, with their sizes, tokenizers and training tokens.

    Then draw a page of them: `collapselab collect pythia --out atlas && collapselab report atlas`

    With further facts about the models: `collapselab collect mine theirs --out atlas --facts models.csv`
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
        typer.Argument(metavar="TABLE…", help="One or both tables of models published with Linguistic Collapse."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of `runs.csv`, `results.csv` and their checksums.")],
    as_json: JsonOption = False,
) -> None:
    """Convert the tables published with the paper, so that they can be analysed and compared with a suite.

    Example: `collapselab import lc-2024_05_18.csv --out published && collapselab analyze published`

    Both tables, with centred and uncentred distances:
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
        Path, typer.Argument(metavar="DIR", help="A suite that has run, or a folder made by `collect` or `import`.")
    ],
    outcome: Annotated[
        str | None,
        typer.Option(
            help="`val_loss`, `train_loss`, `perplexity`, `val_accuracy`, `bits_per_byte`, an outcome of `measure "
            "--outcomes` such as `ece`, or one of `--scores` such as `score:arc_easy/acc`. [default: the registered "
            "outcome, else val_loss; bits_per_byte for several tokenizers]",
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own scores as further outcomes: a CSV with a column `run` or `model`, or result files of "
            "lm-evaluation-harness.",
        ),
    ] = None,
    permutations: Annotated[int, typer.Option(help="Permutations of each test, resamples of each interval.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of permutations and resamples.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Print all sentences, not only the summary.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Relate collapse to an outcome: across scale, at fixed scale, and under interventions.

    Writes `DIR/analysis/*.csv` and `summary.json`, and prints the summary.

    A suite: `collapselab analyze suites/demo`

    Benchmark scores: `collapselab analyze suites/demo --scores results/ --outcome score:arc_easy/acc`

    Accuracy, as JSON: `collapselab analyze suites/demo --outcome val_accuracy --json | jq '.relate[]'`
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
            help="A suite, a folder made by `collect` or `import`, a folder of results, or a result file.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File of the page, or a folder for it. [default: X/report.html]")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as SVG and PDF into this folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML page about one model, several models or a suite.

    The page is a single file that needs no network. A suite is analysed first if that is necessary.

    One model: `collapselab report r.json`

    A suite: `collapselab report suites/demo`

    With figures for a paper: `collapselab report suites/demo --figures figures`
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
