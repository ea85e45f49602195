"""`collapselab corpus`: build a corpus, and see what is in it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import Commands, JsonOption, generated, panel, taken
from collapselab.declared import options_of
from collapselab.errors import DiskError
from collapselab.records.options import READING, SPLITS, Reading, Recipe

if TYPE_CHECKING:
    from collapselab.corpus.describe import ChainNumbers, Description

HELP = {option.name: option.help for option in options_of(Recipe)}

app = typer.Typer(cls=Commands, help="Build a corpus of tokenised blocks, or describe one.", no_args_is_help=True)


@app.command()
@generated(Recipe, Reading)
def build(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="`storyworld[:stories=N,seed=S]`, `markov[:order=2,types=200,support=5,…]`, `tinystories`, "
            "`hf:NAME[:CONFIG]`, or files and folders.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the corpus.")],
    tokenizer: Annotated[str | None, typer.Option(help=HELP["tokenizer"])] = None,
    block: Annotated[int | None, typer.Option(help=HELP["block"])] = None,
    validation: Annotated[
        list[str] | None, panel(SPLITS)(help="File of the validation split. Repeat it for several.")
    ] = None,
    per_file: Annotated[bool, panel(READING)("--per-file", help="Each text file is one document.")] = False,
    trust_code: Annotated[
        bool, panel(READING)("--trust-code", help="Run Python code that comes with the tokenizer. Read it first.")
    ] = False,
    **settings: Any,
) -> None:
    """Build a corpus: tokenise documents and store them as blocks of token ids. A corpus that exists is opened.

    Synthetic stories, offline: `collapselab corpus build storyworld --out corpora/storyworld`

    A Markov chain with known entropy: `collapselab corpus build markov:order=2,types=50,tokens=1000000 --out
    corpora/markov`

    As in the paper: `collapselab corpus build tinystories --packing paper --out corpora/tinystories`

    Your own text: `collapselab corpus build data/*.jsonl.gz --text-column story --out corpora/mine`

    With a model's tokenizer: `collapselab corpus build my.txt --tokenizer MODEL --out corpora/for-it`
    """
    from collapselab.corpus.build import build_corpus, default_tokenizer
    from collapselab.corpus.sources import open_source
    from collapselab.records.corpus import SPLITS

    reading = taken(Reading, settings)
    reading = replace(reading, separator=None) if per_file else reading
    block = block or (2048 if settings["packing"] == "paper" else Recipe.block)
    recipe = Recipe(tokenizer=tokenizer or default_tokenizer(source), block=block, **settings)
    documents = open_source(source, validation=validation, reading=reading, validation_share=recipe.validation_share)
    if documents.split is not None:
        print(f"{', '.join(source)}: {documents.split}.", file=sys.stderr)
    built = build_corpus(documents, out, recipe, trust_code=trust_code)
    splits = ", ".join(f"{name}: {len(split):,} blocks" for name, split in built.splits.items())
    print(f"{out}: {splits} of {built.block:,}; {built.vocabulary:,} tokens. See it: collapselab corpus show {out}")
    for name in SPLITS:
        numbers = built.record.numbers(name)
        if cut := numbers.documents_cut:
            dropped = numbers.tokens_dropped
            print(f"{name}: {cut:,} documents are longer than a block and were cut; {dropped:,} tokens were dropped.")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A corpus.")],
    figure: Annotated[
        Path | None, typer.Option(help="File of the plot (SVG). [default: FOLDER/frequencies.svg]")
    ] = None,
    verify: Annotated[bool, typer.Option(help="Check every byte against its checksum.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a corpus: documents, tokens, types and the largest classes. Also plot the token frequencies.

    The plot is left out if the corpus's folder is read-only.

    Example: `collapselab corpus show corpora/storyworld`
    """
    from collapselab.corpus.blocks import Corpus
    from collapselab.corpus.describe import description, draw

    opened = Corpus(folder, verify=verify or None)
    facts = description(opened)
    picture = str(figure or folder / "frequencies.svg")
    try:
        draw(opened, picture)
    except DiskError as error:
        if figure is not None:
            raise
        print(f"collapselab: no plot: {error} Choose another file with --figure.", file=sys.stderr)
        picture = ""
    if as_json:
        print(json.dumps({**facts, "figure": picture or None}, ensure_ascii=False))
    else:
        _print_corpus(facts, picture)


def _print_corpus(facts: "Description", picture: str) -> None:
    console = Console()
    about = (
        f"vocabulary {facts['vocabulary']:,} ({facts['tokenizer']}), {facts['packing']} packing, hash {facts['hash']}"
    )
    console.print(f"[bold]{escape(facts['path'])}[/bold]  {escape(about)}")
    if split := facts["source"].get("split"):
        console.print(escape(str(split)))
    console.print(f"begin token: {escape(facts['begin'])}", soft_wrap=True)
    rows = ["documents", "tokens", "types", "types_seen_once", "blocks", "tokens_dropped", "labels", "classes"]
    if facts["packing"] == "document":
        rows.insert(5, "documents_cut")
    numbers = Table("", *map(escape, facts["splits"]), box=None, header_style="bold")
    for row in rows:
        numbers.add_row(row.replace("_", " "), *(f"{split[row]:,}" for split in facts["splits"].values()))
    for column in numbers.columns[1:]:
        column.justify = "right"
    classes = Table("largest classes", "count", "share", box=None, header_style="bold")
    for entry in facts["largest_classes"]:
        classes.add_row(escape(repr(entry["text"])), f"{entry['count']:,}", f"{entry['share']:.1%}")
    kinds = Table("kind of token", "types", "tokens", box=None, header_style="bold")
    for kind, share in facts["kinds"].items():
        kinds.add_row(kind, f"{share['types']:,}", f"{share['tokens']:,}")
    for table in (numbers, classes, kinds):
        console.print(table)
    if chain := facts.get("chain"):
        console.print(_chain_table(chain))
    if picture:
        console.print(f"frequencies: {escape(picture)}", soft_wrap=True)


def _chain_table(chain: "ChainNumbers") -> Table:
    table = Table("markov source", "", box=None, header_style="bold")
    rows = {
        "entropy rate, nats": f"{chain['entropy_rate']:.6f}",
        "least loss on these blocks": f"{chain['least_loss']:.6f}",
        "entropy after 0, 1, … tokens": ", ".join(f"{value:.4f}" for value in chain["entropies"]),
        "contexts, of them visited": f"{chain['contexts']:,}, {chain['visited']:,}",
        "distributions, supports": f"{chain['distributions']:,}, {chain['supports']:,}",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    table.columns[1].justify = "right"
    return table
