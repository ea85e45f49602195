"""`collapselab measure`: how far a causal language model has collapsed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from collapselab.cli.options import JsonOption, generated, panel
from collapselab.records.options import DATA, RUNNING, Options, Running

data_option, running_option = panel(DATA), panel(RUNNING)


@generated(Options, Running)
def measure(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="A folder, a `.gguf` file, an id on the hub (`id@revision`), `base+adapter`, or a run; or several; or "
            "a pattern, as in `id@step*` or `out/checkpoint-*`: all that match, in order of step.",
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Text to measure on: `tinystories`, `hf:NAME`, `storyworld`, or files and folders. A corpus with the "
            "model's tokenizer is built of it and kept.",
        ),
    ] = None,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="Or a corpus, from `collapselab corpus build`. Repeat it for several.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        data_option(metavar="NAME", help="A folder, a .gguf file or a name on the hub. [default: the model's own]"),
    ] = None,
    split: Annotated[str | None, data_option(help="Of a data set of the hub. [default: train and validation]")] = None,
    revision: Annotated[str | None, data_option(help="Of a data set of the hub.")] = None,
    text_column: Annotated[str, data_option(help="Column of JSON lines, Parquet and data sets.")] = "text",
    full: Annotated[
        bool, panel("Output")("--full", help="Print every number of every layer and bin, each with its null.")
    ] = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Measure the collapse of any causal language model: every metric of the catalogue, each beside its null.

    In one line: `collapselab measure EleutherAI/pythia-70m --data hf:roneneldan/TinyStories --tokens 2e6`

    On a corpus of its tokenizer: `collapselab measure EleutherAI/pythia-70m --corpus corpora/mine`

    Every checkpoint of a run: `collapselab measure runs/02x0128 --corpus corpora/storyworld --out results.csv`

    Every revision of the hub that matches, one file each: `collapselab measure 'EleutherAI/pythia-160m@step*' --data
    hf:roneneldan/TinyStories --tokens 2e6 --out pythia/`

    How far back it looks: `collapselab measure MODEL --corpus DIR --contexts 1,2,3,4,8`

    Two processes: `torchrun --nproc-per-node 2 -m collapselab measure MODEL --corpus DIR`

    Stopped or killed, the same command continues and ends with the same numbers; finished, it shows the result again.
    """
    from collapselab.corpus.sources import Reading, open_source
    from collapselab.disk import user_cache
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.measure import measure as measured
    from collapselab.measurement.show import brief, shown, sweep_table
    from collapselab.records.measurement import Results
    from collapselab.records.result_folder import out_folder

    settings = {name: value for name, value in settings.items() if value is not None}
    source = open_source(data, reading=Reading(text_column, split=split, revision=revision)) if data else None
    out = settings.get("out")
    processes = Processes.joined()
    if out_folder(out) is None:
        settings.setdefault("state", user_cache("measure"))
    results = measured(model, corpus, data=source, tokenizer=tokenizer, processes=processes, **settings)
    if not processes.first:
        return
    if as_json:
        print(results.to_json())
    elif out_folder(out) is not None and isinstance(results, Results):
        from collapselab.suite.status import wide_console

        wide_console().print(sweep_table(results))
    else:
        console = Console()
        console.print(shown(results) if full else brief(results, console.width))
    if isinstance(results, Results) and results.failures:
        raise typer.Exit(1)
