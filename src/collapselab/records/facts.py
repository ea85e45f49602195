"""The facts of a measurement: what is needed to interpret its rows, typed and explained.

Each key has its type and, in the string below it, its meaning. A key that was added after the first version is
`NotRequired`: results of earlier versions open without it. Keys of a later version are kept as they are.
"""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Strict, with_config
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

KEEP_UNKNOWN = ConfigDict(extra="allow", strict=True)

OptionFacts = dict[str, int | str | bool | None]
"""Options as `Options.facts` gives them."""

Halves = Annotated[tuple[float, float], Strict(False)]
"""The values of two halves of a sample; a list in JSON."""


@with_config(KEEP_UNKNOWN)
class SplitFacts(TypedDict):
    """One split of the corpus: what was measured of it."""

    blocks: int
    """Blocks that were measured."""
    tokens: int
    """Samples: positions with a next token."""
    blocks_cut_off: int
    """Blocks longer than the model's context, of which the rest is cut."""
    tokens_below: NotRequired[int]
    """Samples at layers below the last, where positions are skipped."""
    classes: NotRequired[int]
    """Classes among the samples."""
    classes_seen_once: NotRequired[int]
    """Classes with a single sample, thus no variance."""
    tokens_per_class: NotRequired[float]
    """Samples of a class, on average."""
    left_out: NotRequired[int]
    """Validation tokens that NC4 leaves out: their class has no centre."""
    loss: NotRequired[float | None]
    """Mean cross-entropy in nats."""
    accuracy: NotRequired[float | None]
    """Share of tokens with the largest logit."""
    perplexity: NotRequired[float | None]
    """exp of the loss; None where it is too large for a float."""
    bytes: NotRequired[int]
    """Of the validation text that is predicted, but for a run on its own corpus."""
    bits_per_byte: NotRequired[float | None]
    """The loss over these: comparable between tokenizers."""


@with_config(KEEP_UNKNOWN)
class TokenizerFacts(TypedDict):
    """The tokenizers of model and corpus."""

    model: str | None
    """Hash of the model's, None where it has none."""
    corpus: str | None
    """Hash of the corpus's."""
    same: bool | None
    """Whether the two are the same, None where that is not known."""


@with_config(KEEP_UNKNOWN)
class HalfSampleFacts(TypedDict):
    """About half of the training sample beside all of it."""

    part_tokens: int
    """Samples of the part."""
    tokens: int
    """Samples of the whole."""
    values: dict[str, float]
    """Each metric of the last layer, in the part."""
    changing: list[str]
    """Metrics that twice the tokens would change too much."""


@with_config(KEEP_UNKNOWN)
class OutcomeFacts(TypedDict):
    """An outcome, or the reason why there is none."""

    value: float | None
    """Missing exactly where there is a reason."""
    why: str | None
    """Why there is no value."""


@with_config(KEEP_UNKNOWN)
class WarningFacts(TypedDict):
    """What a reader must know before the values are read."""

    code: str
    """For programs."""
    text: str
    """A sentence for people."""


@with_config(KEEP_UNKNOWN)
class Seconds(TypedDict):
    """How long it took."""

    train: float
    """The training pass and its catalogue."""
    all: float
    """Everything, loading the model not included."""


@with_config(KEEP_UNKNOWN)
class Identity(TypedDict):
    """What was measured: model, corpus and options. Two results with the same hashes and options are the same."""

    model: str
    """Path or name as it was given."""
    run: str
    """The run's name, or the model's."""
    checkpoint: str
    """The checkpoint, or the revision; `-` for neither."""
    in_a_run: bool
    """Whether it is a checkpoint of a run."""
    model_hash: str
    """Of the weights."""
    corpus: str
    """Path of the corpus."""
    corpus_hash: str
    """Its identity."""
    options: OptionFacts
    """Every option that shapes the numbers."""


@with_config(KEEP_UNKNOWN)
class TrainedFacts(TypedDict):
    """How far a checkpoint of a run was trained."""

    step: int
    """Steps taken."""
    epoch: float
    """Passes over the training split."""
    tokens: int
    """Labels trained on."""
    seed: int
    """Of the run."""


@with_config(KEEP_UNKNOWN)
class ModelFacts(TypedDict):
    """How the model is stored, and its tokenizer."""

    files_hash: NotRequired[str | None]
    """Of the files that the model was loaded from; empty for a model of the hub."""
    commit: NotRequired[str | None]
    """Of the hub, where the model was loaded from there and it is known."""
    family: NotRequired[str | None]
    """`model_type` of the configuration."""
    width: NotRequired[int]
    """Dimension of the features."""
    depth: NotRequired[int | None]
    """Number of blocks."""
    parameters: NotRequired[int]
    """Of the model, shared ones once."""
    stored_dtype: NotRequired[str | None]
    """Type of the weights on disk."""
    quantised: NotRequired[str | None]
    """How they were rounded there, empty where they were not."""
    tokenizer: NotRequired[TokenizerFacts]
    """Hashes of the model's and of the corpus's tokenizer, and whether they are the same."""
    trained: NotRequired[TrainedFacts]
    """Of a checkpoint of a run: its step, epoch, training tokens and seed."""


@with_config(KEEP_UNKNOWN)
class PassFacts(Identity, ModelFacts):
    """What the passes over the splits gave beside the rows, and how they were run."""

    splits: dict[str, SplitFacts]
    """Of each: blocks, tokens, blocks cut, classes, classes seen once, tokens a class, loss, accuracy, perplexity."""
    half_sample: NotRequired[HalfSampleFacts | None]
    """Values of about half the sample, and metrics that still change with the number of tokens."""
    text: NotRequired[str]
    """What that text is called."""
    text_hash: NotRequired[str]
    """Of the text that the corpus was made of."""
    block: NotRequired[int]
    """Tokens of a block, as far as the model reads it."""
    classes: int
    """Rows of the output layer."""
    context: int | None
    """Positions of the model."""
    dtype: str
    """Type the model ran in."""
    device: str
    """Where."""
    batch: int
    """Blocks in a batch."""
    processes: int
    """How many."""
    versions: dict[str, str]
    """Of collapselab, torch, transformers."""
    warnings: NotRequired[list[WarningFacts]]
    """What to know before the values are read: a list of `code` and `text`."""
    seconds: Seconds
    """Of the training pass, and of all."""


@with_config(KEEP_UNKNOWN)
class BootstrapFacts(TypedDict):
    """With `--bootstrap` only."""

    halves: NotRequired[dict[str, list[Halves]]]
    """Each value on random halves of the groups."""
    half_difference: NotRequired[dict[str, float | None]]
    """How much the halves differ, as a share of them."""


@with_config(KEEP_UNKNOWN)
class OutcomesFacts(TypedDict):
    """With `--outcomes` or `--on` only."""

    outcomes: NotRequired[dict[str, OutcomeFacts]]
    """Each outcome by its name: its `value`, or `why` not."""
    temperature: NotRequired[float]
    """That `loss_after_temperature` divides logits by."""


@with_config(KEEP_UNKNOWN)
class Facts(PassFacts, BootstrapFacts, OutcomesFacts):
    """`Result.facts`."""
