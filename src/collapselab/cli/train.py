"""`collapselab train` and `collapselab sample`: one model from scratch, and what it writes."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import TRACKER_HELP, JsonOption, generated, names_in, panel
from collapselab.training.optimizers import About
from collapselab.training.settings import Settings, settings_from

if TYPE_CHECKING:
    from collapselab.records.run import CheckpointRecord

running_option, drawing_option = panel("Running"), panel("How tokens are drawn")


@generated(Settings)
def train(
    corpus: Annotated[Path, typer.Option(help="A corpus, from `collapselab corpus build`.")],
    out: Annotated[Path, typer.Option(help="The run's folder. If it holds this run already, training continues.")],
    device: Annotated[str, running_option(help="`auto`, `cpu`, `cuda` or `cuda:1`.")] = "auto",
    accumulation: Annotated[int, running_option(help="Parts of a step, one after the other, to save memory.")] = 1,
    save_minutes: Annotated[float, running_option(help="How much work a crash may cost.")] = 10.0,
    log_every: Annotated[int | None, running_option(help="Steps a log line. [default: at most 2,000 lines]")] = None,
    report_to: Annotated[
        str, running_option(metavar="TRACKER", help=TRACKER_HELP, autocompletion=names_in(TRACKER_HELP))
    ] = "none",
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train one model from scratch, in the paper's set-up where nothing else is said.

    The same command starts it and, after a crash or Ctrl-C, continues it to the same weights.

    Minutes on a laptop:
    `collapselab train --corpus corpora/storyworld --out runs/s --width 128 --depth 2 --head-size 16 --lr 2e-3`

    Along training: `… --epochs 10 --checkpoints 0,1,3,6,10` or `… --checkpoints log:20`

    Two processes: `torchrun --nproc-per-node 2 -m collapselab train …`
    """
    from collapselab.training.train import train as run

    settings["intervene"] = settings["intervene"] or ()
    made = run(
        settings_from(settings),
        corpus,
        out,
        device=device,
        accumulation=accumulation,
        save_minutes=save_minutes,
        log_every=log_every,
        report_to=report_to,
    )
    if as_json:
        print(json.dumps({"run": str(out), "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in made]}))
    else:
        _print_checkpoints(out, made)


def interventions(as_json: JsonOption = False) -> None:
    """List what moves collapse: penalties (`train --intervene`), heads (`--head`) and optimisers (`--optimizer`).

    Each with what it does, its formula, what it must move, what it costs, and its source.

    Example: `collapselab interventions --json | jq '.[].name'`
    """
    from collapselab.training import heads, optimizers
    from collapselab.training.interventions import INTERVENTIONS

    entries = INTERVENTIONS.values()
    others = [
        *_described("head", heads.HEADS, heads.ABOUT),
        *_described("optimizer", optimizers.OPTIMIZERS, optimizers.ABOUT),
    ]
    if as_json:
        keys = ("name", "words", "formula", "source", "primary", "signs", "plus", "dose_over", "cost", "must_move")
        penalties = [{"kind": "penalty", **{key: getattr(entry, key) for key in keys}} for entry in entries]
        print(json.dumps([*penalties, *others], ensure_ascii=False))
        return
    columns = ("what it does", "formula", "must move", "cost of a step", "source")
    table, further = (Table(first, *columns, box=None, header_style="bold") for first in ("dose", "option"))
    for entry in entries:
        dose = f"{entry.name}:±0.1" if entry.signs == "both" else f"{entry.name}:0.1"
        table.add_row(*map(escape, (dose, entry.words, entry.formula, entry.must_move, entry.cost, entry.source)))
    coupling = {"kind": "coupling", "name": "0.5", "words": COUPLED, **optimizers.COUPLING._asdict()}
    for row in (*others, coupling):
        cells = (row[name] for name in ("words", "formula", "must_move", "cost", "source"))
        further.add_row(f"--{row['kind']} {row['name']}", *map(escape, cells))
    Console().print(table)
    Console().print(further)


COUPLED = "A share of the decay of adamw through the gradient; the rest apart from it."


def _described(
    kind: str, table: Mapping[str, Callable[..., object]], known: Mapping[str, About]
) -> list[dict[str, str]]:
    """The entries of a table of heads or optimisers: the first sentence of their function, and what else is known."""
    described = []
    for name, entry in table.items():
        words = (entry.__doc__ or "–").strip().splitlines()[0]
        described.append({"kind": kind, "name": name, "words": words, **known.get(name, About("–", "–"))._asdict()})
    return described


def sample(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run (its last checkpoint), a Hugging Face folder or a hub id.")
    ],
    prompt: Annotated[str, typer.Option(help="How the text begins.")] = "Once upon a time",
    count: Annotated[int, typer.Option(help="How many texts.")] = 1,
    tokens: Annotated[int, typer.Option(help="The longest a text may become.")] = 200,
    temperature: Annotated[float, drawing_option(help="0: always the likeliest token.")] = 0.8,
    top_k: Annotated[int, drawing_option(help="Draw from the k likeliest tokens; 0: all.")] = 40,
    seed: Annotated[int, drawing_option(help="Decides what is drawn.")] = 0,
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
    next_step = f"{out / 'checkpoints'}: read them with from_pretrained. Let it write: collapselab sample {out}"
    console.print(escape(next_step), soft_wrap=True)


def _shown(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.1f}" if value >= 100 else f"{value:.4f}"
