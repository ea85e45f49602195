"""Frozen output layers: rows that are constructed, and rows of another run, the donor.

Directions have length 1: with features of length √D, as a norm gives them, logits have a standard deviation of about 1
at first. Rows as the library initialises them (`frozen-init`) are several times shorter. Frozen, they keep logits so
small that little can be learned: `frozen-sphere` has the same geometry without that.

A donor is known by the contents of its weights: where its folder is, and what it is called, changes no run.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from collapselab.errors import ConfigError
from collapselab.models.find import checkpoint_model
from collapselab.models.load import load_model
from collapselab.models.taps import output_layer
from collapselab.records.run import Checkpoint, RunFolder, checkpoint_at, verify_checkpoint

ROWS_AT_ONCE = 512
"""Rows whose distances are compared at once."""

PASSES = 100
"""How often every row is moved away from others."""

FIRST_STEP = 4.0
"""How far a row is moved at first, in units of the tangent part of a weighted mean of others; the last step is 0."""

FIRST_BIN = 16
"""Most frequent tokens that are one bin; every further bin ends at twice the rank of the one before."""

Total = Callable[[Tensor], Tensor]
"""The sum of a tensor over all processes."""

Tokens = tuple[Tensor, Tensor]
"""Features (tokens, dim) without gradient, and next tokens (tokens,)."""


class HeadInputs(NamedTuple):
    """What a head is made from, besides the model."""

    counts: Tensor
    """(vocab,) how often each token is a label of the training split."""
    donor: str | None = None


class HeadUpdates:
    """What keeps an output layer as its name says while it is trained. Its state is saved with the training."""

    def observe(self, features: Tensor, labels: Tensor) -> None:
        """See the tokens of a part of a step, as `Tokens` has them."""

    def after_step(self, total: Total) -> None:
        """Act after the optimiser's update."""

    def of_checkpoint(self, training: Iterator[Tokens], total: Total) -> AbstractContextManager[None]:
        """Make the output layer that of a checkpoint for a while; what is trained stays as it is.

        `training` are this process's tokens of the training split, in a pass that costs nothing if it is not used.
        """
        return nullcontext()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return what must be restored beside the weights for the training to continue to the same bits."""
        return {}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""


def learned(model: Any, inputs: object, generator: Generator) -> None:
    """Leave the layer as it is built: trained with the rest."""


def as_initialised(model: Any, inputs: object, generator: Generator) -> None:
    """The rows that the library initialises."""
    freeze(model, model.get_output_embeddings().weight.detach())


def on_the_sphere(model: Any, inputs: object, generator: Generator) -> None:
    """Directions that are independent and uniform."""
    freeze(model, _random_directions(model, generator))


def spread(model: Any, inputs: object, generator: Generator) -> None:
    """Directions that are far from each other."""
    freeze(model, spread_rows(_random_directions(model, generator), generator))


def simplex_frame(model: Any, inputs: object, generator: Generator) -> None:
    """The simplex frame: every two directions have the cosine -1 / (K - 1); it exists for K ≤ D + 1."""
    classes, dim = model.get_output_embeddings().weight.shape
    turned, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    steps = torch.arange(1, classes, dtype=torch.float64)
    contrasts = torch.ones(classes, classes - 1, dtype=torch.float64).triu_()  # Helmert's: orthogonal, each of sum 0
    contrasts[1:].diagonal().copy_(-steps)
    frame = contrasts / (steps * (steps + 1)).sqrt()
    freeze(model, normalize(frame @ turned[: classes - 1], dim=1))


def spread_rows(directions: Tensor, generator: Generator) -> Tensor:
    """Unit rows moved apart, by descent on the mean of -log‖u_i − u_j‖ over pairs, in random subsets of the rows.

        u_i ← u_i − η · tangent part of  Σ_j a_ij u_j / Σ_j a_ij,    a_ij = 1 / ‖u_i − u_j‖²

    The step η falls to 0. Where K ≤ D + 1, the limit is the simplex frame.
    """
    rows = normalize(directions, dim=1)
    parts = -(-len(rows) // ROWS_AT_ONCE)
    for step in range(PASSES):
        rate = FIRST_STEP * (1 - step / PASSES)
        for subset in torch.randperm(len(rows), generator=generator).tensor_split(parts):
            some = rows[subset]
            weights = (2 - 2 * some @ some.T).clamp_min_(1e-6).reciprocal_().fill_diagonal_(0)
            pull = weights @ some / weights.sum(1, keepdim=True)
            pull -= (pull * some).sum(1, keepdim=True) * some
            rows[subset] = normalize(some - rate * pull, dim=1)
    return rows


def freeze(model: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    """Make this the output layer, in no optimiser; a bias that the layer has and that is not given stays as it is."""
    layer = model.get_output_embeddings()
    layer.weight = nn.Parameter(weight.to(layer.weight.dtype).contiguous(), requires_grad=False)
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.detach() if bias is None else bias, requires_grad=False)


def _random_directions(model: Any, generator: Generator) -> Tensor:
    return normalize(torch.randn(model.get_output_embeddings().weight.shape, generator=generator), dim=1)


def as_given(model: Any, inputs: HeadInputs, generator: Generator) -> None:
    """The donor's rows."""
    head = output_layer(load_run(str(inputs.donor), "donor"))
    freeze(model, head.weight, head.bias)


def permuted(model: Any, inputs: HeadInputs, generator: Generator) -> None:
    """The donor's rows, each for another token of about the same frequency: norms, angles and spectrum are the same."""
    head = output_layer(load_run(str(inputs.donor), "donor"))
    rows = permutation_within_bins(inputs.counts, generator)
    freeze(model, head.weight[rows], None if head.bias is None else head.bias[rows])


def permutation_within_bins(counts: Tensor, generator: Generator) -> Tensor:
    """A permutation of the classes inside bins of frequency: the 16 most frequent, the next 16, then 32, 64 …"""
    ranked = torch.argsort(counts, descending=True, stable=True)
    rows, start, stop = torch.arange(len(counts)), 0, FIRST_BIN
    while start < len(counts):
        bin_ = ranked[start:stop]
        rows[bin_] = bin_[torch.randperm(len(bin_), generator=generator)]
        start, stop = stop, 2 * stop
    return rows


def find_run(path: str, setting: str) -> Checkpoint:
    """The checkpoint that the path in a setting means: itself, or the last one of a finished run."""
    folder = RunFolder(path)
    record = folder.record()
    steps = {} if record is None else record.plan.checkpoints
    found = Checkpoint(folder, max(steps, key=steps.__getitem__)) if steps else checkpoint_at(path)
    if found is None or not found.exists():
        raise ConfigError(
            f"{setting}: {path} is neither a finished run nor a checkpoint of one. Train it to its end, or name one of "
            "its checkpoints."
        )
    return found


def weights_hash(path: str, setting: str) -> str:
    """16 hex digits over the contents of a run's weights."""
    checkpoint = find_run(path, setting)
    record = checkpoint.run.checkpoint(checkpoint.name, verify=False)
    assert record is not None
    weights = sorted((name, digest) for name, digest in record.files.items() if name.endswith(".safetensors"))
    return hashlib.sha256(repr(weights).encode()).hexdigest()[:16]


def check_run(path: str, setting: str, *, classes: int, dim: int, tokenizer: Path | None) -> None:
    """ConfigError where the run's output layer is of another shape, or its rows are of other tokens."""
    checkpoint = find_run(path, setting)
    record = checkpoint.run.record()
    shape = "unknown size" if record is None else f"{record.corpus.vocabulary} tokens × {record.settings.get('width')}"
    if shape != (needed := f"{classes} tokens × {dim}"):
        raise ConfigError(
            f"{setting}: {path} has an output layer of {shape}, but this model needs {needed}. Choose a run of "
            "the same vocabulary and width."
        )
    if tokenizer is not None and (checkpoint.path / tokenizer.name).read_bytes() != tokenizer.read_bytes():
        raise ConfigError(
            f"{setting}: {path} was trained with another tokenizer than this corpus. Choose a run with the same one, "
            f"or build the corpus with that of the run: --tokenizer {checkpoint.path}"
        )


def load_run(path: str, setting: str) -> PreTrainedModel:
    """The model of a finished run, or of a checkpoint, whose files are checked."""
    checkpoint = find_run(path, setting)
    verify_checkpoint(checkpoint)
    return load_model(checkpoint_model(checkpoint))


def start_from(model: Any, path: str) -> None:
    """Give the model the weights of a run; ConfigError where its architecture is another."""
    weights, own = load_run(path, "init_from").state_dict(), model.state_dict()
    differing = [
        name
        for name in sorted(weights.keys() | own.keys())
        if name not in own or name not in weights or own[name].shape != weights[name].shape
    ]
    if differing:
        raise ConfigError(
            f"init_from: {path} has another architecture: {differing[0]} differs. Give the same family, width, depth, "
            "head_size and context as that run."
        )
    model.load_state_dict(weights)
