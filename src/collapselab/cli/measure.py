"""`collapselab measure`: how far a causal language model has collapsed."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from collapselab.cli.options import JsonOption

WHAT, RUNNING, OUTPUT = "What is measured", "Running", "Output"


def measure(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="A folder, a `.gguf` file, an id on the hub (`id@revision`), or a run; or several."
        ),
    ],
    corpus: Annotated[Path, typer.Option(help="A corpus, from `collapselab corpus build`.")],
    layers: Annotated[
        Literal["last", "all"],
        typer.Option(help="`last`: what enters the output layer. `all`: every block too.", rich_help_panel=WHAT),
    ] = "last",
    bins: Annotated[
        int, typer.Option(help="Also within this number of bins of the classes' counts.", rich_help_panel=WHAT)
    ] = 0,
    null: Annotated[bool, typer.Option(help="Beside each value that of shuffled labels.", rich_help_panel=WHAT)] = True,
    bootstrap: Annotated[
        int, typer.Option(help="Resamples for 95 % intervals; 200 are many.", rich_help_panel=WHAT)
    ] = 0,
    tokens: Annotated[
        int | None,
        typer.Option(help="Measure on a sample of about this number of tokens of each split.", rich_help_panel=WHAT),
    ] = None,
    min_count: Annotated[
        int, typer.Option(help="Keep only classes with at least this number of samples.", rich_help_panel=WHAT)
    ] = 1,
    train_loss: Annotated[
        bool, typer.Option("--train-loss", help="The loss on the training split too.", rich_help_panel=WHAT)
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse blocks longer than the context, not cut them.", rich_help_panel=WHAT),
    ] = False,
    skip_positions: Annotated[
        int,
        typer.Option(help="First positions of every block that layers below the last leave out.", rich_help_panel=WHAT),
    ] = 1,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="α,…",
            help="Loss, calibration and agreement if features move by α toward the class means that the model expects, "
            "as in `-0.3,0.3`; `default`: seven from -0.3 to 0.3.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample, the null and the resamples.", rich_help_panel=WHAT)] = 0,
    device: Annotated[str, typer.Option(help="`auto`, `cpu`, `cuda` or `cuda:1`.", rich_help_panel=RUNNING)] = "auto",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="`float32`, `bfloat16`, `float16` or `float64`. [default: as stored]", rich_help_panel=RUNNING
        ),
    ] = None,
    batch: Annotated[
        str, typer.Option(help="Blocks at once, or `auto`: as many as are of use and fit.", rich_help_panel=RUNNING)
    ] = "auto",
    state: Annotated[
        Path | None,
        typer.Option(
            help="Where unfinished work and finished results are kept. [default: the user's cache]",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Measure although the free memory seems too small.", rich_help_panel=RUNNING),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Measure again what is measured already.", rich_help_panel=RUNNING)
    ] = False,
    shard_classes: Annotated[
        bool,
        typer.Option("--shard-classes", help="With torchrun: spread moments over processes.", rich_help_panel=RUNNING),
    ] = False,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Run code that comes with the model.", rich_help_panel=RUNNING)
    ] = False,
    other_tokenizer: Annotated[
        bool,
        typer.Option(
            "--other-tokenizer", help="Measure although the corpus has another tokenizer.", rich_help_panel=RUNNING
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Rows to a file: `.csv`, `.json` or `.parquet`.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the collapse of any causal language model: every metric of the catalogue, each beside its null.

    One model: `collapselab measure EleutherAI/pythia-70m --corpus corpora/mine`

    Every checkpoint of a run: `collapselab measure runs/02x0128 --corpus corpora/storyworld --out results.csv`

    Two processes: `torchrun --nproc-per-node 2 -m collapselab measure MODEL --corpus DIR`

    Stopped or killed, the same command continues and ends with the same numbers; finished, it shows the result again.
    """
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.measure import measure as measured
    from collapselab.measurement.show import shown
    from collapselab.records.measurement import Results
    from collapselab.records.options import Options

    options = Options(
        layers=layers,
        bins=bins,
        null=null,
        bootstrap=bootstrap,
        dtype=dtype,
        batch=_batch(batch),
        tokens=tokens,
        min_count=min_count,
        train_loss=train_loss,
        strict=strict,
        seed=seed,
        shard_classes=shard_classes,
        skip_positions=skip_positions,
        push=push,
    )
    processes = Processes.joined()
    found = measured(
        model,
        corpus,
        options=options,
        device=device,
        out=out,
        state=state or _cache(),
        again=again,
        force=force,
        trust_code=trust_code,
        other_tokenizer=other_tokenizer,
        processes=processes,
    )
    if not processes.first:
        return
    if as_json:
        print(found.to_json())
    else:
        Console().print(shown(found))
    if isinstance(found, Results) and found.failures:
        raise typer.Exit(1)


def _batch(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise typer.BadParameter(f"{text!r} is neither auto nor a number.", param_hint="--batch")
    return int(text)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collapselab" / "measure"
