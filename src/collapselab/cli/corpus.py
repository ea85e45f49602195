"""`collapselab corpus`: build a corpus, and see what is in it."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import EnvironmentGroup, JsonOption, panel
from collapselab.errors import CorpusError, DiskError

if TYPE_CHECKING:
    from collapselab.corpus.describe import ChainNumbers, Description

split_option, reading_option = panel("Splits"), panel("Reading")

app = typer.Typer(
    cls=EnvironmentGroup, help="Turn text into blocks of tokens, and see what is in them.", no_args_is_help=True
)


@app.command()
def build(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="`storyworld[:stories=N,seed=S]`, `markov[:order=2,types=200,support=5,…]`, `tinystories`, "
            "`hf:NAME[:CONFIG]`, or files and folders.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="A name on the hub, a folder, a .gguf file, `bpe:SIZE`, or `characters`. [default: bpe:4096; "
            "tinystories: gpt2; markov: words]"
        ),
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Run code that comes with the tokenizer. Read it first.")
    ] = False,
    block: Annotated[int | None, typer.Option(help="Tokens in a block. [default: 512; paper packing: 2048]")] = None,
    packing: Annotated[
        Literal["stream", "paper", "document"],
        typer.Option(
            help="`stream`: documents with a mark between. `paper`: groups of 1,000 joined, as published. `document`: "
            "one document a block, cut or padded."
        ),
    ] = "stream",
    boundary: Annotated[
        Literal["auto", "end", "begin"],
        typer.Option(
            help="The mark of a document in `stream` packing. `auto`: `begin` if the tokenizer begins texts so."
        ),
    ] = "auto",
    begin: Annotated[
        Literal["auto", "block", "document"],
        typer.Option(
            help="Where `stream` packing puts begin tokens: at the head of every block, or as `--boundary` says only. "
            "`auto`: of every block if the tokenizer writes one."
        ),
    ] = "auto",
    validation: Annotated[
        list[str] | None, split_option(help="Files of the validation split (repeat for more).")
    ] = None,
    validation_share: Annotated[
        float, split_option(help="Share of documents, or of one text, held out where there is no such split.")
    ] = 0.02,
    seed: Annotated[int, split_option(help="Decides which are held out.")] = 0,
    text_column: Annotated[str, reading_option(help="Column of JSON lines, Parquet and data sets.")] = "text",
    separator: Annotated[
        str, reading_option(help="The line between documents of a text file; '' for empty lines.")
    ] = "<|endoftext|>",
    per_file: Annotated[bool, reading_option(help="Each text file is one document.")] = False,
    errors: Annotated[
        Literal["strict", "replace"],
        reading_option(help="`strict`, or `replace` to read on past bytes that are not UTF-8."),
    ] = "strict",
    max_document: Annotated[float, reading_option(help="The largest size of one document, in MB of text.")] = 64,
    id_type: Annotated[Literal["auto", "uint16", "uint32"], reading_option(help="Type of the stored ids.")] = "auto",
) -> None:
    """Build a corpus: documents in, memory-mapped blocks of token ids out. Repeated, it opens what is there.

    Offline, in seconds: `collapselab corpus build storyworld --out corpora/storyworld`

    With known answers: `collapselab corpus build markov:order=2,types=50,tokens=1000000 --out corpora/markov`

    The paper's: `collapselab corpus build tinystories --packing paper --out corpora/tinystories`

    Your own: `collapselab corpus build data/*.jsonl.gz --text-column story --tokenizer bpe:8192 --out corpora/mine`

    For a model that you have: `collapselab corpus build my.txt --tokenizer MODEL --out corpora/for-it`
    """
    from collapselab.corpus.build import Recipe, build_corpus, default_tokenizer
    from collapselab.corpus.readers import MEGABYTE, Reading
    from collapselab.corpus.sources import open_source
    from collapselab.records.corpus import SPLITS

    recipe = Recipe(
        tokenizer=tokenizer or default_tokenizer(source),
        block=block or (2048 if packing == "paper" else 512),
        packing=packing,
        boundary=boundary,
        begin=begin,
        id_type=id_type,
        validation_share=validation_share,
        seed=seed,
    )
    if not 0 < max_document < math.inf:
        raise CorpusError(f"--max-document: {max_document:g} is not a size. It is a number of MB above 0.")
    reading = Reading(text_column, None if per_file else separator, errors, round(max_document * MEGABYTE))
    documents = open_source(source, validation=validation, reading=reading, validation_share=validation_share)
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
    figure: Annotated[Path | None, typer.Option(help="Where the SVG goes. [default: FOLDER/frequencies.svg]")] = None,
    verify: Annotated[bool, typer.Option(help="Check every byte against its checksum.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a corpus: documents, tokens, types, the largest classes, and a picture of the frequencies.

    Where the corpus's folder may not be written, the picture is left out.

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
        print(f"collapselab: no picture: {error} Name a place for it with --figure.", file=sys.stderr)
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
