"""`collapselab measure`: how far a causal language model has collapsed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from collapselab.cli.options import JsonOption, generated, panel, taken
from collapselab.records.options import DATA, Options, Reading, Running


@generated(Options, Running, Reading)
def measure(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="A folder, a `.gguf` file, a hub id (`id@revision`), `base+adapter`, or a run. Several of these, or a "
            "pattern such as `id@step*` or `out/checkpoint-*`, are measured in order of step.",
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Text to measure on: `tinystories`, `storyworld`, `hf:NAME`, or files and folders. A corpus with the "
            "model's tokenizer is built from it and kept.",
        ),
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(help="A corpus made by `collapselab corpus build`, instead of `--data`. Repeat it for several."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        panel(DATA)(metavar="NAME", help="A folder, a .gguf file or a name on the hub. [default: the model's own]"),
    ] = None,
    full: Annotated[
        bool, panel("Output")("--full", help="Print every number of every layer and bin, each with its null.")
    ] = False,
    chain: Annotated[
        bool,
        panel("Output")(
            "--chain",
            help="The models were made from each other, in this order: print what changes from each to the next.",
        ),
    ] = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Measure how far a causal language model has collapsed; each metric is compared with shuffled labels.

    One model: `collapselab measure EleutherAI/pythia-70m --data tinystories`

    On a corpus with its tokenizer: `collapselab measure EleutherAI/pythia-70m --corpus corpora/mine`

    All checkpoints of a run: `collapselab measure runs/02x0128 --corpus corpora/storyworld --out results.csv`

    All matching revisions on the hub, one file each: `collapselab measure 'EleutherAI/pythia-160m@step*' --data
    tinystories --out pythia/`

    By context as well: `collapselab measure MODEL --corpus DIR --contexts 1,2,3,4,8`

    With two processes: `torchrun --nproc-per-node 2 -m collapselab measure MODEL --corpus DIR`

    What fine-tuning changed: `collapselab measure base tuned --chain --data SOURCE`

    If it is stopped, the same command continues and gives the same numbers. A finished measurement is read, not
    repeated.
    """
    from collapselab.cli.results import chain_tables
    from collapselab.corpus.sources import open_source
    from collapselab.disk import user_cache
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.measure import measure as measured
    from collapselab.measurement.show import brief, shown, sweep_table
    from collapselab.records.measurement import Results
    from collapselab.records.result_folder import out_folder

    reading = taken(Reading, settings)
    settings = {name: value for name, value in settings.items() if value is not None}
    if chain:
        settings["classes"] = True
    source = open_source(data, reading=reading) if data else None
    out = settings.get("out")
    processes = Processes.joined()
    if out_folder(out) is None:
        settings.setdefault("state", user_cache("measure"))
    results = measured(model, corpus, data=source, tokenizer=tokenizer, processes=processes, **settings)
    if not processes.first:
        return
    if as_json:
        print(results.to_json())
    elif chain:
        for part in chain_tables(results if isinstance(results, Results) else Results([results])):
            Console().print(part)
    elif out_folder(out) is not None and isinstance(results, Results):
        from collapselab.suite.status import wide_console

        wide_console().print(sweep_table(results))
    else:
        console = Console()
        console.print(shown(results) if full else brief(results, console.width))
    if isinstance(results, Results) and results.failures:
        raise typer.Exit(1)
