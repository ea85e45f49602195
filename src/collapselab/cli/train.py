"""`collapselab train` and `collapselab sample`: one model from scratch, and what it writes."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import JsonOption
from collapselab.errors import ConfigError
from collapselab.models.families import FAMILIES
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from collapselab.records.run import CheckpointRecord

MODEL, LENGTH, OPTIMISER, RUNNING = "Model", "Length and batch", "Optimiser", "Running"
DRAWING = "How tokens are drawn"
NAMES = ", ".join(INTERVENTIONS) or "none yet"


def train(
    corpus: Annotated[Path, typer.Option(help="A corpus, from `collapselab corpus build`.")],
    out: Annotated[Path, typer.Option(help="The run's folder. If it holds this run already, training continues.")],
    width: Annotated[int, typer.Option(help="Dimension of the features.", rich_help_panel=MODEL)],
    depth: Annotated[int, typer.Option(help="Number of blocks.", rich_help_panel=MODEL)],
    family: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(FAMILIES)}, or a config.json to resize.",
            autocompletion=lambda incomplete: [name for name in FAMILIES if name.startswith(incomplete)],
            rich_help_panel=MODEL,
        ),
    ] = "gpt-neo",
    head_size: Annotated[
        int | None,
        typer.Option(
            help="Numbers in a head of attention. [default: 16 heads, as in the paper]", rich_help_panel=MODEL
        ),
    ] = None,
    tied: Annotated[bool, typer.Option(help="Output layer = input embeddings.", rich_help_panel=MODEL)] = True,
    dropout: Annotated[float, typer.Option(help="Every dropout of the family.", rich_help_panel=MODEL)] = 0.0,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"What becomes of the output layer: {', '.join(HEADS)}. [default: learned]",
            autocompletion=lambda incomplete: [name for name in HEADS if name.startswith(incomplete)],
            rich_help_panel=MODEL,
        ),
    ] = None,
    donor: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="The finished run, or a checkpoint, whose output layer the heads of donors take.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="Positions. [default: the corpus's block]", rich_help_panel=MODEL)
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the data, fractions allowed. [default: 1]", rich_help_panel=LENGTH)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Or optimiser steps.", rich_help_panel=LENGTH)] = None,
    batch: Annotated[
        int | None, typer.Option(help="Sequences in a step. [default: the paper's, 4 to 16]", rich_help_panel=LENGTH)
    ] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Or tokens in a step.", rich_help_panel=LENGTH)] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            help="Epochs, as in `0,1,3,6,10`, or `log:20`. The end is always one, and `0` initialisation.",
            rich_help_panel=LENGTH,
        ),
    ] = "0",
    intervene: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:DOSE[:sham]",
            help="A penalty beside the cross-entropy, as in `within:+0.1` or `within:-0.1:sham@0.7-1.0`: the ratio of "
            f"their gradients, the labels permuted, the share of training. Repeat it for several. Names: {NAMES}.",
            rich_help_panel=OPTIMISER,
        ),
    ] = None,
    lr: Annotated[float, typer.Option(help="Learning rate at its highest.", rich_help_panel=OPTIMISER)] = 5e-5,
    weight_decay: Annotated[float, typer.Option(help="On matrices, not biases.", rich_help_panel=OPTIMISER)] = 5e-4,
    optimizer: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(OPTIMIZERS)}. `adam`: decay coupled with the gradient (L2). `coupled-adam`: one second "
            "moment for all rows of the (un)embedding.",
            autocompletion=lambda incomplete: [name for name in OPTIMIZERS if name.startswith(incomplete)],
            rich_help_panel=OPTIMISER,
        ),
    ] = "adamw",
    coupling: Annotated[
        float,
        typer.Option(help="Share of the decay in the gradient: 0 is `adamw`, 1 `adam`.", rich_help_panel=OPTIMISER),
    ] = 0.0,
    schedule: Annotated[
        Literal["linear", "cosine", "constant"],
        typer.Option(help="How the rate goes down.", rich_help_panel=OPTIMISER),
    ] = "linear",
    warmup: Annotated[
        float, typer.Option(help="Steps, or below 1 a share of all steps.", rich_help_panel=OPTIMISER)
    ] = 0.0,
    clip: Annotated[
        float, typer.Option(help="Largest norm of the gradient; 0 for no limit.", rich_help_panel=OPTIMISER)
    ] = 1.0,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of the label given to all.", rich_help_panel=OPTIMISER)
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Decides the initial weights.", rich_help_panel=OPTIMISER)] = 0,
    data_seed: Annotated[
        int | None, typer.Option(help="Decides the order of the data. [default: the seed]", rich_help_panel=OPTIMISER)
    ] = None,
    precision: Annotated[
        Literal["auto", "fp32", "bf16"], typer.Option(help="`auto`: bf16 on GPUs.", rich_help_panel=RUNNING)
    ] = "auto",
    device: Annotated[str, typer.Option(help="`auto`, `cpu`, `cuda` or `cuda:1`.", rich_help_panel=RUNNING)] = "auto",
    accumulation: Annotated[
        int, typer.Option(help="Parts of a step, one after the other, to save memory.", rich_help_panel=RUNNING)
    ] = 1,
    save_minutes: Annotated[
        float, typer.Option(help="How much work a crash may cost.", rich_help_panel=RUNNING)
    ] = 10.0,
    log_every: Annotated[
        int | None, typer.Option(help="Steps a log line. [default: at most 2,000 lines]", rich_help_panel=RUNNING)
    ] = None,
    report_to: Annotated[
        str, typer.Option(help="`tensorboard`, `wandb` or `trackio`.", rich_help_panel=RUNNING)
    ] = "none",
    as_json: JsonOption = False,
) -> None:
    """Train one model from scratch, in the paper's set-up where nothing else is said.

    The same command starts it and, after a crash or Ctrl-C, continues it to the same weights.

    Minutes on a laptop:
    `collapselab train --corpus corpora/storyworld --out runs/s --width 128 --depth 2 --head-size 16 --lr 2e-3`

    Along training: `… --epochs 10 --checkpoints 0,1,3,6,10` or `… --checkpoints log:20`

    Two processes: `torchrun --nproc-per-node 2 -m collapselab train …`
    """
    from collapselab.training.settings import Settings, settings_from
    from collapselab.training.train import train as run

    given = {name: value for name, value in locals().items() if name in Settings.model_fields}
    given["intervene"] = intervene or ()
    given["head"] = _only_head(head or ["learned"])
    made = run(
        settings_from(given),
        corpus,
        out,
        device=device,
        accumulation=accumulation,
        save_minutes=save_minutes,
        log_every=log_every,
        report_to=report_to,
    )
    if as_json:
        print(json.dumps({"run": str(out), "checkpoints": [one.model_dump(mode="json") for one in made]}))
    else:
        _print_checkpoints(out, made)


def sample(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run (its last checkpoint), a Hugging Face folder or a hub id.")
    ],
    prompt: Annotated[str, typer.Option(help="How the text begins.")] = "Once upon a time",
    count: Annotated[int, typer.Option(help="How many texts.")] = 1,
    tokens: Annotated[int, typer.Option(help="The longest a text may become.")] = 200,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.", rich_help_panel=DRAWING)] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens; 0: all.", rich_help_panel=DRAWING)] = 40,
    seed: Annotated[int, typer.Option(help="Decides what is drawn.", rich_help_panel=DRAWING)] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Which checkpoint of a run. [default: the last]")] = None,
    device: Annotated[str, typer.Option(help="`auto`, `cpu`, `cuda` or `cuda:1`.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Let a model write.

    Example: `collapselab sample runs/small --prompt "Once upon a time" --count 3`
    """
    from collapselab.training.generate import sample as write

    texts = write(
        model,
        prompt,
        count=count,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        checkpoint=checkpoint,
        device=device,
    )
    print(json.dumps(texts, ensure_ascii=False) if as_json else "\n\n".join(texts))


def _only_head(names: list[str]) -> str:
    first, *others = dict.fromkeys(names)
    if others:
        raise ConfigError(f"head: {first} and {others[0]} are both given. A model has one output layer: choose one.")
    return first


def _print_checkpoints(out: Path, made: "list[CheckpointRecord]") -> None:
    table = Table(
        "checkpoint", "step", "train loss", "val loss", "val accuracy", "perplexity", box=None, header_style="bold"
    )
    for one in made:
        losses = (_shown(getattr(one, name)) for name in ("train_loss", "val_loss", "val_accuracy", "perplexity"))
        table.add_row(escape(one.checkpoint), f"{one.step:,}", *losses)
    for column in table.columns:
        column.justify = "right"
    console = Console()
    console.print(table)
    next_step = f"{out / 'checkpoints'}: read them with from_pretrained. Let it write: collapselab sample {out}"
    console.print(escape(next_step), soft_wrap=True)


def _shown(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.1f}" if value >= 100 else f"{value:.4f}"
