"""The facts of a measurement: what is needed to interpret its rows, typed and explained.

Each key has its type and, in one line, its meaning, from which the documentation can be made (`explained`). A key that
was added after the first version is `NotRequired`: results of earlier versions open without it. Keys of a later
version are kept as they are.
"""

from typing import Annotated, NotRequired, get_args, get_origin, get_type_hints

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

    blocks: Annotated[int, "blocks that were measured"]
    tokens: Annotated[int, "samples: positions with a next token"]
    blocks_cut_off: Annotated[int, "blocks longer than the model's context, of which the rest is cut"]
    tokens_below: NotRequired[Annotated[int, "samples at layers below the last, where positions are skipped"]]
    classes: NotRequired[Annotated[int, "classes among the samples"]]
    classes_seen_once: NotRequired[Annotated[int, "classes with a single sample, thus no variance"]]
    tokens_per_class: NotRequired[Annotated[float, "samples of a class, on average"]]
    left_out: NotRequired[Annotated[int, "validation tokens that NC4 leaves out: their class has no centre"]]
    loss: NotRequired[Annotated[float | None, "mean cross-entropy in nats"]]
    accuracy: NotRequired[Annotated[float | None, "share of tokens with the largest logit"]]
    perplexity: NotRequired[Annotated[float | None, "exp of the loss; None where it is too large for a float"]]
    bytes: NotRequired[Annotated[int, "of the validation text that is predicted, but for a run on its own corpus"]]
    bits_per_byte: NotRequired[Annotated[float | None, "the loss over these: comparable between tokenizers"]]


@with_config(KEEP_UNKNOWN)
class TokenizerFacts(TypedDict):
    """The tokenizers of model and corpus."""

    model: Annotated[str | None, "hash of the model's, None where it has none"]
    corpus: Annotated[str | None, "hash of the corpus's"]
    same: Annotated[bool | None, "whether the two are the same, None where that is not known"]


@with_config(KEEP_UNKNOWN)
class HalfSampleFacts(TypedDict):
    """About half of the training sample beside all of it."""

    part_tokens: Annotated[int, "samples of the part"]
    tokens: Annotated[int, "samples of the whole"]
    values: Annotated[dict[str, float], "each metric of the last layer, in the part"]
    changing: Annotated[list[str], "metrics that twice the tokens would change too much"]


@with_config(KEEP_UNKNOWN)
class OutcomeFacts(TypedDict):
    """An outcome, or the reason why there is none."""

    value: Annotated[float | None, "missing exactly where there is a reason"]
    why: Annotated[str | None, "why there is no value"]


@with_config(KEEP_UNKNOWN)
class WarningFacts(TypedDict):
    """What a reader must know before the values are read."""

    code: Annotated[str, "for programs"]
    text: Annotated[str, "a sentence for people"]


@with_config(KEEP_UNKNOWN)
class Seconds(TypedDict):
    """How long it took."""

    train: Annotated[float, "the training pass and its catalogue"]
    all: Annotated[float, "everything, loading the model not included"]


@with_config(KEEP_UNKNOWN)
class Identity(TypedDict):
    """What was measured: model, corpus and options. Two results with the same hashes and options are the same."""

    model: Annotated[str, "path or name as it was given"]
    run: Annotated[str, "the run's name, or the model's"]
    checkpoint: Annotated[str, "the checkpoint, or the revision; `-` for neither"]
    in_a_run: Annotated[bool, "whether it is a checkpoint of a run"]
    model_hash: Annotated[str, "of the weights"]
    corpus: Annotated[str, "path of the corpus"]
    corpus_hash: Annotated[str, "its identity"]
    options: Annotated[OptionFacts, "every option that shapes the numbers"]


@with_config(KEEP_UNKNOWN)
class TrainedFacts(TypedDict):
    """How far a checkpoint of a run was trained."""

    step: Annotated[int, "steps taken"]
    epoch: Annotated[float, "passes over the training split"]
    tokens: Annotated[int, "labels trained on"]
    seed: Annotated[int, "of the run"]


@with_config(KEEP_UNKNOWN)
class ModelFacts(TypedDict):
    """How the model is stored, and its tokenizer."""

    files_hash: NotRequired[
        Annotated[str | None, "of the files that the model was loaded from; empty for a model of the hub"]
    ]
    commit: NotRequired[Annotated[str | None, "of the hub, where the model was loaded from there and it is known"]]
    family: NotRequired[Annotated[str | None, "`model_type` of the configuration"]]
    width: NotRequired[Annotated[int, "dimension of the features"]]
    depth: NotRequired[Annotated[int | None, "number of blocks"]]
    parameters: NotRequired[Annotated[int, "of the model, shared ones once"]]
    stored_dtype: NotRequired[Annotated[str | None, "type of the weights on disk"]]
    quantised: NotRequired[Annotated[str | None, "how they were rounded there, empty where they were not"]]
    tokenizer: NotRequired[
        Annotated[
            TokenizerFacts,
            "hashes of the model's and of the corpus's tokenizer, and whether they are the same",
        ]
    ]
    trained: NotRequired[Annotated[TrainedFacts, "of a checkpoint of a run: its step, epoch, training tokens and seed"]]


@with_config(KEEP_UNKNOWN)
class PassFacts(Identity, ModelFacts):
    """What the passes over the splits gave beside the rows, and how they were run."""

    splits: Annotated[
        dict[str, SplitFacts],
        "of each: blocks, tokens, blocks cut to the context, tokens at layers below the last where "
        "these are fewer, classes, classes seen once, tokens a class; of validation also the tokens that NC4 "
        "leaves out; loss, accuracy and perplexity where they were computed",
    ]
    half_sample: NotRequired[
        Annotated[
            HalfSampleFacts | None,
            "the values of about half the sample, and the metrics that still change with the number of tokens",
        ]
    ]
    text: NotRequired[Annotated[str, "what that text is called"]]
    text_hash: NotRequired[
        Annotated[str, "of the text that the corpus was made of: the same for corpora of several tokenizers"]
    ]
    block: NotRequired[Annotated[int, "tokens of a block, as far as the model reads it"]]
    classes: Annotated[int, "rows of the output layer"]
    context: Annotated[int | None, "positions of the model"]
    dtype: Annotated[str, "type the model ran in"]
    device: Annotated[str, "where"]
    batch: Annotated[int, "blocks in a batch"]
    processes: Annotated[int, "how many"]
    versions: Annotated[dict[str, str], "of collapselab, torch, transformers"]
    warnings: NotRequired[
        Annotated[
            list[WarningFacts],
            "what to know before the values are read: a list of `code` and `text`",
        ]
    ]
    seconds: Annotated[Seconds, "of the training pass, and of all"]


@with_config(KEEP_UNKNOWN)
class BootstrapFacts(TypedDict):
    """With `--bootstrap` only."""

    halves: NotRequired[Annotated[dict[str, list[Halves]], "each value on random halves of the groups"]]
    half_difference: NotRequired[Annotated[dict[str, float | None], "how much the halves differ, as a share of them"]]


@with_config(KEEP_UNKNOWN)
class OutcomesFacts(TypedDict):
    """With `--outcomes` or `--on` only."""

    outcomes: NotRequired[Annotated[dict[str, OutcomeFacts], "each outcome by its name: its `value`, or `why` not"]]
    temperature: NotRequired[Annotated[float, "that `loss_after_temperature` divides logits by"]]


@with_config(KEEP_UNKNOWN)
class AddedFacts(TypedDict):
    """Metrics that were added to a finished measurement."""

    metrics: Annotated[list[str], "their ids"]
    version: NotRequired[Annotated[str, "of collapselab, when the last was added"]]


@with_config(KEEP_UNKNOWN)
class LaterFacts(TypedDict):
    """Where something was added later."""

    added: NotRequired[
        Annotated[AddedFacts, "metrics that came later, from the kept class moments: they have no null and no interval"]
    ]


@with_config(KEEP_UNKNOWN)
class Facts(PassFacts, BootstrapFacts, OutcomesFacts, LaterFacts):
    """`Result.facts`."""


def explained(facts: type = Facts) -> dict[str, str]:
    """The meaning of each key, in the order in which a file has them."""
    hints = get_type_hints(facts, include_extras=True).items()
    annotated = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints}
    return {name: str(hint.__metadata__[0]) for name, hint in annotated.items()}
