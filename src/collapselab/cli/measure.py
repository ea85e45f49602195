"""`collapselab measure`: how far a causal language model has collapsed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from collapselab.cli.options import TRACKER_HELP, JsonOption, count, panel, read_config, tracker_names

if TYPE_CHECKING:
    from collapselab.measurement.estimate import Estimate

what_option, data_option, running_option, output_option = map(
    panel, ("What is measured", "With --data", "Running", "Output")
)


def measure(
    model: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="A folder, a `.gguf` file, an id on the hub (`id@revision`), `base+adapter`, or a run; or several; or "
            "a pattern, as in `id@step*` or `out/checkpoint-*`: all that match, in order of step.",
        ),
    ],
    corpus: Annotated[
        list[Path] | None, typer.Option(help="A corpus, from `collapselab corpus build`. Repeat it for several.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="In place of a corpus: text, as `collapselab corpus build` takes it. The corpus that the model's "
            "tokenizer makes of it is built and kept.",
        ),
    ] = None,
    layers: Annotated[
        Literal["last", "all"], what_option(help="`last`: what enters the output layer. `all`: every block too.")
    ] = "last",
    bins: Annotated[int, what_option(help="Also within this number of bins of the classes' counts.")] = 0,
    null: Annotated[bool, what_option(help="Beside each value that of shuffled labels.")] = True,
    bootstrap: Annotated[int, what_option(help="Resamples for 95 % intervals; 200 are many.")] = 0,
    tokens: Annotated[
        int | None,
        what_option(
            parser=count,
            metavar="N",
            help="Measure on a sample of about this number of tokens of each split; 2e6 will do.",
        ),
    ] = None,
    min_count: Annotated[int, what_option(help="Keep only classes with at least this number of samples.")] = 1,
    per_class: Annotated[
        int | None,
        what_option(
            metavar="N", help="N samples of every class, drawn from the seed; classes with fewer are left out."
        ),
    ] = None,
    train_loss: Annotated[bool, what_option("--train-loss", help="The loss on the training split too.")] = False,
    strict: Annotated[
        bool, what_option("--strict", help="Refuse blocks longer than the context, not cut them.")
    ] = False,
    skip_positions: Annotated[
        int, what_option(help="First positions of every block that layers below the last leave out.")
    ] = 1,
    push: Annotated[
        str | None,
        what_option(
            metavar="α,…",
            help="Loss, calibration and agreement if features move by α toward the class means that the model expects, "
            "as in `-0.3,0.3`; `default`: seven from -0.3 to 0.3.",
        ),
    ] = None,
    classes: Annotated[
        bool, what_option("--classes", help="A row for each class (next token): see `collapselab tokens`.")
    ] = False,
    contexts: Annotated[
        str | None,
        what_option(
            metavar="N,…",
            help="Group features by the last N tokens too, as in `1,2,3,4,8`: how far contexts have collapsed, and the "
            "floor that they set for tokens.",
        ),
    ] = None,
    min_uses: Annotated[int, what_option(help="Uses that a context needs.")] = 10,
    deciders: Annotated[
        bool,
        what_option(
            "--deciders",
            help="On how many tokens output layer, nearest centres and logit lens of every layer agree, two by two.",
        ),
    ] = False,
    outcomes: Annotated[
        str | None,
        what_option(
            metavar="all|NAME,…",
            help="Beside the loss: `macro_loss`, `rare_loss`, `gap`, `ece`, `loss_after_temperature`, "
            "`corruption_slope`.",
        ),
    ] = None,
    on: Annotated[
        list[Path] | None,
        what_option(
            metavar="DIR", help="A further corpus, for the loss on it in bits per byte. Repeat it for several."
        ),
    ] = None,
    plan: Annotated[
        bool, running_option("--plan", help="Print memory, operations and time, and stop before anything is loaded.")
    ] = False,
    seed: Annotated[int, what_option(help="Of the sample, the null, the resamples and replaced inputs.")] = 0,
    device: Annotated[str, running_option(help="`auto`, `cpu`, `cuda` or `cuda:1`.")] = "auto",
    device_map: Annotated[
        str | None,
        running_option(
            metavar="auto|FILE",
            help="Spread a large model over GPUs, memory and disk: `auto`, `balanced`, `sequential`, or a JSON file "
            "with a device (`0`, `cpu`, `disk`) for each module.",
        ),
    ] = None,
    dtype: Annotated[
        str | None, running_option(help="`float32`, `bfloat16`, `float16` or `float64`. [default: as stored]")
    ] = None,
    load_in: Annotated[
        Literal["4bit", "8bit"] | None,
        running_option(help="Round weights to fewer bits while loading them, with bitsandbytes."),
    ] = None,
    batch: Annotated[str, running_option(help="Blocks at once, or `auto`: as many as are of use and fit.")] = "auto",
    state: Annotated[
        Path | None,
        running_option(help="Where unfinished work and finished results are kept. [default: the user's cache]"),
    ] = None,
    force: Annotated[bool, running_option("--force", help="Measure although the free memory seems too small.")] = False,
    again: Annotated[bool, running_option("--again", help="Measure again what is measured already.")] = False,
    shard_classes: Annotated[
        bool, running_option("--shard-classes", help="With torchrun: spread moments over processes.")
    ] = False,
    trust_code: Annotated[bool, running_option("--trust-code", help="Run code that comes with the model.")] = False,
    other_tokenizer: Annotated[
        bool, running_option("--other-tokenizer", help="Measure although the corpus has another tokenizer.")
    ] = False,
    block: Annotated[int | None, data_option(help="Tokens of a block. [default: 512, or the model's context]")] = None,
    max_tokens: Annotated[
        int | None, data_option(parser=count, metavar="N", help="Where reading stops. [default: --tokens]")
    ] = None,
    split: Annotated[str | None, data_option(help="Of a data set of the hub. [default: train and validation]")] = None,
    revision: Annotated[str | None, data_option(help="Of a data set of the hub.")] = None,
    chat: Annotated[
        bool,
        data_option("--chat", help="Each text as a user's turn, in the model's chat template; all its tokens count."),
    ] = False,
    chat_role: Annotated[
        Literal["user", "assistant"] | None, data_option(help="With `--chat`: whose turn it is. [default: user]")
    ] = None,
    text_column: Annotated[str, data_option(help="Column of JSON lines, Parquet and data sets.")] = "text",
    config: Annotated[
        Path | None,
        running_option(
            metavar="FILE", help="A YAML file with options, as in `tokens: 2e6`.", callback=read_config, is_eager=True
        ),
    ] = None,
    out: Annotated[
        str | None,
        output_option(
            metavar="FILE|DIR",
            help="Rows to a file: `.csv`, `.json` or `.parquet`. Or a folder, which gets a file for each result as "
            "soon as it is finished; see `collapselab collect`.",
        ),
    ] = None,
    report_to: Annotated[
        str, output_option(metavar="TRACKER", help=TRACKER_HELP, autocompletion=tracker_names)
    ] = "none",
    as_json: JsonOption = False,
) -> None:
    """Measure the collapse of any causal language model: every metric of the catalogue, each beside its null.

    In one line: `collapselab measure EleutherAI/pythia-70m --data hf:roneneldan/TinyStories --tokens 2e6`

    On a corpus of its tokenizer: `collapselab measure EleutherAI/pythia-70m --corpus corpora/mine`

    Every checkpoint of a run: `collapselab measure runs/02x0128 --corpus corpora/storyworld --out results.csv`

    Every revision of the hub that matches, one file each: `collapselab measure 'EleutherAI/pythia-160m@step*' --data
    hf:roneneldan/TinyStories --tokens 2e6 --out pythia/`

    What it would take: `collapselab measure meta-llama/Llama-3.1-8B --corpus corpora/mine --tokens 2e6 --plan`

    How far back it looks: `collapselab measure MODEL --corpus DIR --contexts 1,2,3,4,8`

    Two processes: `torchrun --nproc-per-node 2 -m collapselab measure MODEL --corpus DIR`

    Stopped or killed, the same command continues and ends with the same numbers; finished, it shows the result again.
    """
    from collapselab.corpus.sources import Reading, open_source
    from collapselab.disk import user_cache
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.estimate import measure_plan
    from collapselab.measurement.measure import measure as measured
    from collapselab.measurement.show import shown, sweep_table
    from collapselab.records.measurement import Results
    from collapselab.records.options import Options
    from collapselab.records.result_folder import out_folder
    from collapselab.suite.status import wide_console

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
        classes=classes,
        contexts=contexts,
        min_uses=min_uses,
        deciders=deciders,
        outcomes=outcomes,
        load_in=load_in,
        per_class=per_class,
    )
    reading = Reading(text_column=text_column, split=split, revision=revision)
    source = open_source(data, reading=reading) if data else None
    if plan:
        estimates = measure_plan(
            model,
            corpus,
            data=source,
            block=block,
            max_tokens=max_tokens,
            options=options,
            device=device,
            trust_code=trust_code,
        )
        _print_plan(estimates, as_json)
        return
    processes = Processes.joined()
    results = measured(
        model,
        corpus,
        data=source,
        block=block,
        max_tokens=max_tokens,
        chat=chat_role or chat,
        options=options,
        on=on or (),
        device=device,
        out=out,
        state=state or (None if out_folder(out) else user_cache("measure")),
        again=again,
        force=force,
        trust_code=trust_code,
        device_map=device_map,
        other_tokenizer=other_tokenizer,
        report_to=report_to,
        processes=processes,
    )
    if not processes.first:
        return
    if as_json:
        print(results.to_json())
    elif out_folder(out) is not None and isinstance(results, Results):
        wide_console().print(sweep_table(results))
    else:
        Console().print(shown(results))
    if isinstance(results, Results) and results.failures:
        raise typer.Exit(1)


def _print_plan(estimates: "list[Estimate]", as_json: bool) -> None:
    import json

    from collapselab.measurement.show import estimate_facts, estimate_table
    from collapselab.suite.status import wide_console

    if as_json:
        print(json.dumps([estimate_facts(estimate) for estimate in estimates]))
    else:
        wide_console().print(estimate_table(estimates))


def _batch(text: str) -> int | Literal["auto"]:
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither auto nor a number.", param_hint="--batch") from None
