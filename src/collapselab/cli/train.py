"""`collapselab train` and `collapselab sample`: one model from scratch, and what it writes."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import DEVICE_HELP, JsonOption, explanation, generated
from collapselab.declared import options_of
from collapselab.training.settings import Drawing, Settings, TrainOptions, settings_from

if TYPE_CHECKING:
    from collapselab.records.run import CheckpointRecord


@generated(Settings, TrainOptions)
def train(
    corpus: Annotated[Path, typer.Option(help="A corpus made by `collapselab corpus build`.")],
    out: Annotated[Path, typer.Option(help="Folder of the run. Training continues if it holds this run already.")],
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Train one model from scratch; the defaults are those of the paper.

    After a crash or Ctrl-C, the same command continues and reaches the same weights.

    A few minutes on a laptop:
    `collapselab train --corpus corpora/storyworld --out runs/s --width 128 --depth 2 --head-size 16 --lr 2e-3`

    With checkpoints along the way: `… --epochs 10 --checkpoints 0,1,3,6,10` or `… --checkpoints log:20`

    With two processes: `torchrun --nproc-per-node 2 -m collapselab train …`
    """
    from collapselab.training.train import train as run

    options["intervene"] = options["intervene"] or ()
    running = {option.name: options.pop(option.name) for option in options_of(TrainOptions)}
    made = run(settings_from(options), corpus, out, **running)
    if as_json:
        print(json.dumps({"run": str(out), "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in made]}))
    else:
        _print_checkpoints(out, made)


def interventions(as_json: JsonOption = False) -> None:
    """List interventions on collapse: penalties (`train --intervene`), output layers (`--head`) and optimisers.

    For each: what it does, its formula, which metric it has to move, its cost, and its source.

    Example: `collapselab interventions --json | jq '.[].name'`
    """
    from collapselab.training.heads import HEADS
    from collapselab.training.interventions import INTERVENTIONS
    from collapselab.training.optimizers import OPTIMIZERS

    keys = ("words", "formula", "must_move", "cost", "source")
    further = ("primary", "signs", "plus", "dose_over")
    known = [
        {"kind": kind, "name": name} | {key: getattr(entry, key) for key in (*keys, *more)}
        for kind, table, more in (
            ("penalty", INTERVENTIONS, further),
            ("head", HEADS, ()),
            ("optimizer", OPTIMIZERS, ()),
        )
        for name, entry in table.items()
    ]
    if as_json:
        print(json.dumps(known, ensure_ascii=False))
        return
    for row in known:
        name = f"--{row['kind']} {row['name']}"
        if row["kind"] == "penalty":
            name = f"--intervene {row['name']}:{'±' if row['signs'] == 'both' else ''}0.1"
        parts = zip(("effect", "formula", "has to move", "cost of a step", "source"), keys, strict=True)
        Console().print(explanation(name, {part: row[key] for part, key in parts}))


@generated(Drawing)
def sample(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run (its last checkpoint), a Hugging Face folder or a hub id.")
    ],
    prompt: Annotated[str, typer.Option(help="Beginning of the text.")] = "Once upon a time",
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint of a run. [default: the last]")] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Generate text with a model.

    Example: `collapselab sample runs/small --prompt "Once upon a time" --count 3`
    """
    from collapselab.training.generate import sample as write

    texts = write(model, prompt, checkpoint=checkpoint, device=device, **options)
    print(json.dumps(texts, ensure_ascii=False) if as_json else "\n\n".join(texts))


def _print_checkpoints(out: Path, made: "list[CheckpointRecord]") -> None:
    table = Table(
        "checkpoint", "step", "train loss", "val loss", "val accuracy", "perplexity", box=None, header_style="bold"
    )
    for checkpoint in made:
        losses = (
            _shown(getattr(checkpoint, name)) for name in ("train_loss", "val_loss", "val_accuracy", "perplexity")
        )
        table.add_row(escape(checkpoint.checkpoint), f"{checkpoint.step:,}", *losses)
    for column in table.columns:
        column.justify = "right"
    console = Console()
    console.print(table)
    next_step = f"{out / 'checkpoints'}: folders for from_pretrained. Generate text: collapselab sample {out}"
    console.print(escape(next_step), soft_wrap=True)


def _shown(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.1f}" if value >= 100 else f"{value:.4f}"
