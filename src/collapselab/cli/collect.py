"""`collapselab collect`: measured models of any origin into the tables that `analyze` and `report` read."""

import json
from pathlib import Path
from typing import Annotated

import typer

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
