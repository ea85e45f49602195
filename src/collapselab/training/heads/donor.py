"""Frozen output layers that are the rows of another run: a donor.

A donor is known by the contents of its weights: where its folder is, and what it is called, changes no run.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from collapselab.errors import ConfigError
from collapselab.models.find import checkpoint_model
from collapselab.models.load import load_model
from collapselab.models.taps import OutputLayer, output_layer
from collapselab.records.run import Checkpoint, RunFolder, checkpoint_at, verify_checkpoint
from collapselab.training.heads.rows import HeadInputs, freeze

FIRST_BIN = 16
"""Most frequent tokens that are one bin; every further bin ends at twice the rank of the one before."""


def as_given(model: Any, inputs: HeadInputs, generator: Generator) -> None:
    """The donor's rows."""
    head = _donated(model, inputs)
    freeze(model, head.weight, head.bias)


def permuted(model: Any, inputs: HeadInputs, generator: Generator) -> None:
    """The donor's rows, each for another token of about the same frequency: norms, angles and spectrum are the same."""
    head, rows = _donated(model, inputs), permutation_within_bins(inputs.counts, generator)
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


def find_donor(path: str) -> Checkpoint:
    """The checkpoint that a donor means: itself, or the last one of a finished run."""
    folder = RunFolder(path)
    record = folder.record()
    if record is None:
        checkpoint = checkpoint_at(path)
        if checkpoint is None or not checkpoint.exists():
            raise ConfigError(f"donor: {path} is neither a run nor a checkpoint of one. Name a run that is trained.")
        return checkpoint
    planned = sorted(record.plan.checkpoints, key=record.plan.checkpoints.__getitem__)
    if not planned:
        raise ConfigError(f"donor: {path} is a run without checkpoints. Name one that is trained.")
    missing = [name for name in planned if not Checkpoint(folder, name).exists()]
    if missing:
        raise ConfigError(
            f"donor: {path} is not finished: its checkpoint {missing[-1]} is not there. Train it to its end, or name "
            "one of its checkpoints."
        )
    return Checkpoint(folder, planned[-1])


def donor_hash(path: str) -> str:
    """16 hex digits over the contents of the donor's weights."""
    checkpoint = find_donor(path)
    record = checkpoint.run.checkpoint(checkpoint.name, verify=False)
    files = {} if record is None else record.files
    weights = sorted((name, digest) for name, digest in files.items() if name.endswith(".safetensors"))
    return hashlib.sha256(repr(weights).encode()).hexdigest()[:16]


def check_donor(path: str, *, classes: int, dim: int, tokenizer: Path | None) -> None:
    """ConfigError where the donor's output layer is of another shape, or its rows are of other tokens."""
    checkpoint = find_donor(path)
    record = checkpoint.run.record()
    width = None if record is None else record.settings.get("width")
    if record is None or not isinstance(width, int):
        raise ConfigError(f"donor: {path} does not say its width in run.json. Name a run that was trained here.")
    shape = (record.corpus.vocabulary, width)
    if shape != (classes, dim):
        raise ConfigError(
            f"donor: {path} has an output layer of {shape[0]:,} tokens × {shape[1]:,}, but this model needs "
            f"{classes:,} × {dim:,}. Choose a donor of the same vocabulary and width."
        )
    if tokenizer is not None and (checkpoint.path / tokenizer.name).read_bytes() != tokenizer.read_bytes():
        raise ConfigError(
            f"donor: {path} was trained with another tokenizer than this corpus, so its rows are of other tokens. "
            "Choose a donor that was trained on this corpus."
        )


def _donated(model: Any, inputs: HeadInputs) -> OutputLayer:
    assert inputs.donor is not None
    checkpoint = find_donor(inputs.donor)
    verify_checkpoint(checkpoint)
    head, layer = output_layer(load_model(checkpoint_model(checkpoint))), model.get_output_embeddings()
    if head.weight.shape != layer.weight.shape or (head.bias is None) != (layer.bias is None):
        raise ConfigError(
            f"donor: {inputs.donor} has an output layer of {_shape(head)}, but this model needs {_shape(layer)}."
        )
    return head


def _shape(layer: Any) -> str:
    classes, dim = layer.weight.shape
    return f"{classes:,} tokens × {dim:,} {'without' if layer.bias is None else 'with'} a bias"
