"""The options of measurements and corpora, each declared once.

`Options` decide the numbers of a measurement, `Running` how and where it is run; `Recipe` decides the bytes of a
corpus, `Reading` how its source is read. The settings of a training are in `training/settings.py`.
"""

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from collapselab.declared import Shown, declared
from collapselab.errors import ConfigError
from collapselab.records.outcomes import LONGEST_CONTEXT, parsed_outcomes

if TYPE_CHECKING:
    import torch

    from collapselab.records.facts import OptionFacts

FIRST = (
    "layers", "bins", "null", "bootstrap", "dtype", "batch", "tokens", "min_count", "train_loss", "strict", "seed",
    "shard_classes"
)  # fmt: skip
"""The options of the first version."""

END_OF_TEXT = "<|endoftext|>"
MAX_SEED = 2**63 - 2
"""The largest seed that torch takes."""

DEFAULT_PUSH, MAX_PUSH, MAX_ALPHAS = "-0.3,-0.2,-0.1,0,0.1,0.2,0.3", 10.0, 100
DTYPES = Literal["float32", "float64", "bfloat16", "float16"]

NUMBERS, SAMPLE, RUNNING, DATA = "Further numbers", "The sample", "Running", "With --data"
PACKING, SPLITS, READING = "Packing", "Splits", "Reading"
WHERE, CONTINUING, CLASSES = "Where it runs", "Continuing", "Which classes"
"""Panels of `--help`. The most important options have no panel here and are listed first."""


def count(value: object) -> object:
    """Return a number of tokens that is written as text, also 2e6; `all` is None."""
    if value == "all":
        return None
    try:
        return int(float(value)) if isinstance(value, str) and float(value).is_integer() else value
    except ValueError:
        return value


def _joined(value: object) -> object:
    """Return numbers as the text that the command line has: 2 and (1, 2) as "2" and "1,2"."""
    parts = value if isinstance(value, list | tuple) else [value] if isinstance(value, int) else None
    return value if parts is None else ",".join(map(str, parts))


def _parsed_contexts(value: object) -> object:
    if value is None:
        return None
    texts = [part.strip() for part in str(_joined(value)).split(",")]
    if not all(
        text.isascii() and text.isdigit() and 1 <= int(text[:3]) <= LONGEST_CONTEXT >= int(text) for text in texts
    ):
        raise ValueError(f"numbers of tokens from 1 to {LONGEST_CONTEXT} are needed, as in 1,2,3")
    return ",".join(map(str, sorted({int(text) for text in texts})))


def _parsed_push(value: object) -> object:
    """Return the numbers of `push` in order, each once, with 0, the model as it is."""
    if value is None:
        return None
    text = DEFAULT_PUSH if value == "default" else str(_joined(value))
    try:
        alphas = {float(part) + 0.0 for part in text.split(",")} | {0.0}
    except ValueError:
        alphas = {math.nan}
    if len(alphas) > MAX_ALPHAS or not all(abs(alpha) <= MAX_PUSH for alpha in alphas):
        needed = f"up to {MAX_ALPHAS} numbers from -{MAX_PUSH:g} to {MAX_PUSH:g} are needed"
        raise ValueError(f"{needed}, as in -0.3,0.3, or default")
    return ",".join(f"{alpha:g}" for alpha in sorted(alphas))


def _several(value: object) -> object:
    return (value,) if isinstance(value, str | Path) else value


def _role(value: object) -> object:
    """Return whose turn each text is: a user's for True."""
    return ("user" if value else None) if isinstance(value, bool) else value


Count = Annotated[int, Field(ge=1)]
Role = Literal["user", "assistant"]
"""Whose turn a text can be. The model reads a user's as it reads its users; an assistant's is its own."""


@declared
class Options:
    """The options that decide the numbers of a measurement: with the same model and corpus they give the same numbers.

    >>> from collapselab import Options
    >>> Options(layers="all", bins=4).facts()["layers"]
    'all'
    """

    layers: Literal["last", "all"] = "last"
    """`last`: only the features that enter the output layer. `all`: also the output of every block."""
    tokens: Annotated[Count | None, BeforeValidator(count), Shown(metavar="N|all")] = None
    """Measure a seeded sample of about this many tokens of each split. [default: 200,000 on a CPU, 2,000,000 on an
    accelerator]"""
    classes: bool = False
    """Also make the table `classes`, with one row per class (next token), for `collapselab tokens`."""

    null: Annotated[bool, Shown(NUMBERS)] = True
    """Whether to compute every metric with shuffled labels too."""
    bins: Annotated[int, Field(ge=0, le=1_000), Shown(NUMBERS)] = 0
    """Also measure within this many bins of class frequency."""
    bootstrap: Annotated[int, Field(ge=0, le=100_000), Shown(NUMBERS)] = 0
    """Bootstrap resamples for 95 % intervals, e.g. 200."""
    train_loss: Annotated[bool, Shown(NUMBERS)] = False
    """Compute the loss on the training split too."""
    outcomes: Annotated[str | None, BeforeValidator(_joined), Shown(NUMBERS, "all|NAME,…")] = None
    """Further outcomes: `macro_loss`, `rare_loss`, `gap`, `ece`, `loss_after_temperature`, `corruption_slope`."""
    contexts: Annotated[str | None, BeforeValidator(_parsed_contexts), Shown(NUMBERS, "N,…")] = None
    """Also group features by the last N tokens, as in `1,2,3,4,8`: how far contexts have collapsed, and the lower bound
    that they set for tokens."""
    min_uses: Annotated[int, Field(ge=1), Shown(NUMBERS)] = 10
    """Leave out contexts that occur fewer times."""
    push: Annotated[str | None, BeforeValidator(_parsed_push), Shown(NUMBERS, "α,…")] = None
    """Loss, calibration and agreement after moving features by α toward the class means that the model expects, as in
    `-0.3,0.3`. `default`: seven values from -0.3 to 0.3."""
    token_scores: Annotated[bool, Shown(NUMBERS)] = False
    """Score each validation token (energy, distance to the nearest class mean, NCI, NECO …), and test how well each
    score tells right predictions from wrong ones, and this text from others (`--against`)."""
    deciders: Annotated[bool, Shown(NUMBERS)] = False
    """Count the tokens on which the output layer, the nearest class mean and the logit lens of each layer agree."""

    min_count: Annotated[int, Field(ge=1), Shown(SAMPLE)] = 1
    """Keep only classes with at least this many samples."""
    per_class: Annotated[Count | None, Shown(SAMPLE)] = None
    """Keep this many random samples of each class; classes with fewer are left out."""
    skip_positions: Annotated[int, Field(ge=0), Shown(SAMPLE)] = 1
    """Leave out this many positions at the start of each block, at layers below the last."""
    strict: Annotated[bool, Shown(SAMPLE)] = False
    """Refuse blocks that are longer than the context instead of cutting them."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), Shown(SAMPLE)] = 0
    """Seed of the sample, the shuffled labels, the resamples and the replaced inputs."""

    dtype: Annotated[DTYPES | None, Shown(RUNNING)] = None
    """Precision of the model. [default: as stored]"""
    load_in: Annotated[Literal["4bit", "8bit"] | None, Shown(RUNNING)] = None
    """Load the weights quantised to this many bits, with bitsandbytes."""
    batch: Annotated[Count | Literal["auto"], Shown(RUNNING, "N|auto")] = "auto"
    """Blocks per batch. `auto`: as many as fit into memory and gain speed."""
    shard_classes: Annotated[bool, Shown(RUNNING)] = False
    """With torchrun: distribute class moments over the processes."""
    on: Annotated[str | None, Shown(hidden=True)] = None
    """Further corpora for `loss_on:NAME`, as NAME=HASH with commas between. `measure` fills it in."""
    against: Annotated[str | None, Shown(hidden=True)] = None
    """The corpora for token scores, likewise."""

    def __post_init__(self) -> None:
        if self.per_class is not None:
            object.__setattr__(self, "min_count", max(self.min_count, self.per_class))
        if self.bootstrap == 1:
            raise ConfigError("bootstrap is 1; an interval needs at least 2 resamples, a good one 200 or more.")
        object.__setattr__(self, "outcomes", parsed_outcomes(self.outcomes))
        reasons = {
            "contexts": "cells are not spread over processes",
            "push": "every process needs all class means",
            "token_scores": "every process needs all class means",
            "bootstrap": "groups are kept whole, not by class",
        }
        for name, why in reasons.items():
            if self.shard_classes and getattr(self, name):
                raise ConfigError(f"{name} and shard_classes do not go together: {why}.")

    def facts(self) -> "OptionFacts":
        """What two measurements are compared by: the options of the first version, and later ones that were changed.

        So an option that is added with a default leaves finished measurements valid. `skip_positions` is included
        where it leaves something out, which earlier versions did not.
        """
        changed = [option.name for option in fields(self) if getattr(self, option.name) != option.default]
        facts = {name: getattr(self, name) for name in dict.fromkeys((*FIRST, *changed))}
        facts.pop("skip_positions", None)
        skipped = {"skip_positions": self.skip_positions} if self.layers == "all" and self.skip_positions else {}
        return facts | skipped

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The names of `outcomes`."""
        return () if self.outcomes is None else tuple(filter(None, self.outcomes.split(",")))

    def asks(self, outcome: str) -> bool:
        """Return whether an outcome is to be computed."""
        return outcome in self.outcome_names

    @property
    def alphas(self) -> tuple[float, ...]:
        """The numbers of `push`."""
        return () if self.push is None else tuple(float(part) for part in self.push.split(","))

    @property
    def context_lengths(self) -> tuple[int, ...]:
        """The numbers of `contexts`."""
        return () if self.contexts is None else tuple(int(part) for part in self.contexts.split(","))

    @property
    def torch_dtype(self) -> "torch.dtype | None":
        """`dtype` as PyTorch has it."""
        import torch

        return None if self.dtype is None else getattr(torch, self.dtype)

    def blocks_for(self, labels_per_block: float, blocks: int) -> int:
        """Return how many of the blocks are needed for `tokens`."""
        return blocks if self.tokens is None else min(blocks, int(-(-self.tokens // labels_per_block)))


@declared
class Running:
    """How a measurement runs, how `data` becomes a corpus, and where results go; no number depends on it."""

    out: Annotated[str | Path | None, Shown(metavar="FILE|DIR")] = None
    """A file for the results (`.csv`, `.json` or `.parquet`), or a folder that gets one file per result for
    `collapselab collect`."""
    report_to: Annotated[str, Shown(RUNNING, "TRACKER")] = "none"
    """Log the results to a tracker: `tensorboard`, `wandb` or `trackio`."""
    device: Annotated[str, Shown(RUNNING)] = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `xpu` or `mps`."""
    device_map: Annotated[Any, Shown(RUNNING, "auto|FILE")] = None
    """Spread a large model over GPUs, memory and disk: `auto`, `balanced`, `sequential`, or a JSON file with a device
    (`0`, `cpu`, `disk`) for each module."""
    state: Annotated[str | Path | None, Shown(RUNNING, "DIR")] = None
    """Where unfinished work and finished results are kept. [default: the user's cache]"""
    again: Annotated[bool, Shown(RUNNING)] = False
    """Measure again even if there is a result."""
    force: Annotated[bool, Shown(RUNNING)] = False
    """Measure even if the estimated memory exceeds the free memory."""
    trust_code: Annotated[bool, Shown(RUNNING)] = False
    """Run Python code that comes with the model. Read it first."""
    other_tokenizer: Annotated[bool, Shown(RUNNING)] = False
    """Measure even if the corpus has another tokenizer."""
    quiet: Annotated[bool, Shown(hidden=True)] = False
    """Show neither progress nor messages."""
    on: Annotated[tuple[str | Path, ...], BeforeValidator(_several), Shown(NUMBERS, "DIR")] = ()
    """Another corpus on which to compute the loss in bits per byte. Repeat it for several."""
    against: Annotated[tuple[str | Path, ...], BeforeValidator(_several), Shown(NUMBERS, "DIR")] = ()
    """Another corpus, from which the token scores are to tell this text. Repeat it for several."""
    block: Annotated[int | None, Field(ge=2), Shown(DATA)] = None
    """Tokens per block. [default: 512, or the smallest context of the models]"""
    max_tokens: Annotated[Count | None, BeforeValidator(count), Shown(DATA, "N|all")] = None
    """Stop reading after this many tokens. [default: --tokens]"""
    chat: Annotated[Role | None, BeforeValidator(_role), Shown(DATA)] = None
    """Format each text as a turn of this role in the model's chat template. All its tokens count."""


@declared
class SuiteOptions:
    """How and where the missing runs of a suite are made; no number depends on it."""

    jobs: Annotated[int, Shown(WHERE)] = 1
    """Processes that run side by side and share the processors."""
    launcher: Annotated[str, Shown(WHERE, "NAME")] = "local"
    """`local`: on this machine. `slurm`: on a SLURM cluster. `ray`: on a Ray cluster."""
    device: Annotated[str, Shown(WHERE)] = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `xpu` or `mps`."""
    report_to: Annotated[str, Shown(WHERE, "TRACKER")] = "none"
    """Log the runs to a tracker: `tensorboard`, `wandb` or `trackio`."""
    retry_failed: Annotated[bool, Shown(CONTINUING)] = False
    """Try failed runs again."""
    accept_change: Annotated[bool, Shown(CONTINUING)] = False
    """Continue in the same folder although the recipe has changed."""


@declared
class ClassChoice:
    """Which classes `collapselab tokens` lists, and by what."""

    sort: Annotated[str, Shown(metavar="METRIC")] = "cdnv"
    """Column to sort by, such as `cdnv` or `loss`."""
    top: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Number of tokens at each end of the order."""
    match: Annotated[str | None, Shown(metavar="REGEX")] = None
    """List only tokens that contain this pattern, as in `'^ [A-Z]'`."""
    like: Annotated[str | None, Shown(metavar="TOKEN")] = None
    """List the classes nearest to this token, as in `" Lily"` or `#ID`."""
    bins: Annotated[int | None, Shown(metavar="N")] = None
    """Print medians over this many ranges of token frequency."""
    compare: Annotated[str | None, Shown(metavar="OTHER")] = None
    """List the largest changes from RESULT to this result of the same vocabulary."""
    layer: Annotated[str, Shown(CLASSES)] = "last"
    """`last`, or the number of a block."""
    split: Annotated[Literal["train", "validation"], Shown(CLASSES)] = "train"
    """Split from which the class means are taken."""
    min_count: Annotated[int, Field(ge=1), Shown(CLASSES)] = 10
    """Leave out classes with fewer samples."""


@declared
class Recipe:
    """Everything that decides the bytes of a corpus, apart from its source.

    >>> from collapselab import Recipe
    >>> Recipe(tokenizer="bpe:1024").block
    512
    """

    tokenizer: str = "bpe:4096"
    """A name on the hub, a folder, a `.gguf` file, `bpe:SIZE` or `characters`. [default: bpe:4096; tinystories: gpt2;
    markov: words]"""
    block: Annotated[int, Field(ge=2)] = 512
    """Tokens per block. [default: 512; paper packing: 2048]"""
    packing: Literal["stream", "paper", "document"] = "stream"
    """`stream`: documents one after the other, with a separator token. `paper`: groups of 1,000 documents, as in the
    paper. `document`: one document per block, cut or padded."""
    boundary: Annotated[Literal["auto", "end", "begin"], Shown(PACKING)] = "auto"
    """Separator token of `stream` packing. `auto`: `begin` if the tokenizer adds a begin token."""
    begin: Annotated[Literal["auto", "block", "document"], Shown(PACKING)] = "auto"
    """Where `stream` packing puts begin tokens: at the start of every block, or only as the separator. `auto`: of every
    block if the tokenizer adds one."""
    id_type: Annotated[Literal["auto", "uint16", "uint32"], Shown(PACKING)] = "auto"
    """Integer type of the stored token ids."""
    validation_share: Annotated[float, Shown(SPLITS)] = 0.02
    """Share of the documents, or of a single text, to hold out if the source has no validation split."""
    seed: Annotated[int, Shown(SPLITS)] = 0
    """Seed of the choice of held-out documents."""
    max_tokens: Annotated[Count | None, BeforeValidator(count), Shown(READING, "N")] = None
    """Stop reading when the training split has this many tokens. This limits the validation split too."""


@declared
class Reading:
    """How documents are read from files and data sets."""

    text_column: Annotated[str, Shown(READING)] = "text"
    """Column of the text in JSON lines, Parquet and data sets."""
    separator: Annotated[str | None, Shown(READING)] = END_OF_TEXT
    """Line that separates the documents of a text file; '' for an empty line."""
    errors: Annotated[Literal["strict", "replace"], Shown(READING)] = "strict"
    """`strict` refuses bytes that are not UTF-8, `replace` replaces them."""
    max_document: Annotated[int, Field(ge=1), Shown(READING, "BYTES")] = 64_000_000
    """Largest size of a document, in bytes of UTF-8."""
    split: Annotated[str | None, Shown(READING)] = None
    """Split of a data set of the hub. [default: train and validation]"""
    revision: Annotated[str | None, Shown(READING)] = None
    """Revision of a data set of the hub. [default: the latest]"""
