"""The model as it is measured: its output layer as it applies it, its classes, its context; or why it cannot be."""

from typing import Any, final

import torch
from torch import Tensor, nn

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, CorpusError, ModelError
from collapselab.measurement.sample import ByLayer, Sample
from collapselab.models.check_logits import check_logits
from collapselab.models.taps import OutputLayer, features, output_layer
from collapselab.records.options import Options

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
"""What the length of the context is called in a configuration; a model without any has no bound."""

TOKENS_AT_ONCE = {"cpu": 8192, "cuda": 65536}
"""Tokens of an automatic batch: more are no faster. On other devices than a CPU fewer, where they do not fit."""

CHECKED_BLOCKS, CHECKED_POSITIONS = 4, 32
"""Tokens on which the model's own logits are compared: few, as each has a logit for every class."""


@final
class Subject:
    """A loaded model with all that measuring it takes."""

    def __init__(self, model: nn.Module, *, name: str) -> None:
        self.model, self.name = model, name
        self.device: torch.device = next(model.parameters()).device
        self.moments_device = torch.device("cpu") if self.device.type == "mps" else self.device
        self.head = output_layer(model)
        self.classes = len(self.head.weight)
        self.applied = _applied(self.head)
        for what, tensor in (("layer", self.applied.weight), ("bias", self.applied.bias)):
            if tensor is not None and not torch.isfinite(tensor).all():
                raise ModelError(f"{name}: its output {what} holds nan or infinite numbers.")

    @property
    def dtype(self) -> str:
        return str(self.head.weight.dtype).removeprefix("torch.")

    @property
    def context(self) -> int | None:
        """The most tokens that the model can read at once, None if there is no bound."""
        config: Any = getattr(self.model, "config", None)
        found = (getattr(config, name, None) for name in CONTEXTS)
        return next((length for length in found if isinstance(length, int) and length > 0), None)

    def check(self, corpus: Corpus) -> None:
        """CorpusError if the corpus has tokens that the model does not know."""
        embedded = getattr(self.model, "get_input_embeddings", lambda: None)()
        known = min(self.classes, len(getattr(embedded, "weight", self.head.weight)))
        used = [int(split.token_counts.nonzero().max()) for split in corpus.splits.values() if split.token_counts.any()]
        if max(used, default=0) >= known:
            tokenizer = corpus.record.request.tokenizer
            raise CorpusError(
                f"{corpus.path}: token {max(used):,} occurs, but {self.name} knows only {known:,} tokens. "
                f"The corpus was built with the tokenizer {tokenizer}; build one with the model's own."
            )

    def check_logits(self, sample: Sample) -> None:
        """ModelError if features and output layer do not give the model's own logits on the first tokens of blocks."""
        ids = sample.ids(0, CHECKED_BLOCKS)[:, :CHECKED_POSITIONS].to(self.device)
        check_logits(self.model, self.head, ids, name=self.name)

    def samples(self, corpus: Corpus, split: str, options: Options) -> ByLayer[Sample]:
        """The samples of a split that are measured, at the last layer and at those below."""
        last = self._sample(corpus, split, options, skip=0)
        if options.layers == "last" or options.skip_positions <= last.first:
            return ByLayer(last, last)
        below = self._sample(corpus, split, options, skip=options.skip_positions)
        if not below.tokens:
            raise ConfigError(
                f"skip_positions is {options.skip_positions:,}, but no block of the {last.name} has a sample after as "
                f"many; blocks are {last.length:,} tokens. Skip fewer."
            )
        return ByLayer(last, below)

    def _sample(self, corpus: Corpus, split: str, options: Options, *, skip: int) -> Sample:
        found = corpus.splits[split]
        if not len(found):
            raise CorpusError(f"{corpus.path}: its {split} split has no blocks. Build it with more text.")
        length = min(corpus.block, self.context or corpus.block)
        if length < corpus.block and options.strict:
            raise CorpusError(
                f"{corpus.path}: blocks of {corpus.block:,} tokens, but {self.name} reads {length:,} at once. "
                f"Build one with --block {length}, or leave out --strict to measure the beginning of each block."
            )
        samples = found.samples(length=length)
        if not samples.any():
            raise CorpusError(f"{corpus.path}: blocks of {length} token have no next tokens. Build longer ones.")
        blocks = options.blocks_for(float(samples.mean()), len(found))
        name = "training split" if split == "train" else "validation split"
        return Sample(found, name=name, length=length, blocks=blocks, seed=options.seed, skip=skip)

    def batch(self, options: Options, length: int, largest_group: int) -> int:
        """Blocks in a batch: those asked for, or as many as are of use and fit."""
        if options.batch != "auto":
            return min(int(options.batch), largest_group)
        at_once = TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cpu"])
        batch = min(largest_group, max(1, at_once // length))
        while self.device.type != "cpu" and batch > 1 and not self._fits(batch, length):
            batch //= 2
        return batch

    def _fits(self, batch: int, length: int) -> bool:
        try:
            with torch.no_grad():
                features(self.model, torch.zeros(batch, length, dtype=torch.int64, device=self.device))
        except torch.OutOfMemoryError:
            return False
        return True


def _applied(head: OutputLayer) -> OutputLayer:
    """The layer as a linear classifier: its scale folded in, its cap left off, which changes no order."""

    def scaled(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach() * head.scale if head.scale != 1 else tensor.detach()

    weight = scaled(head.weight)
    assert weight is not None
    return OutputLayer(weight, scaled(head.bias))
