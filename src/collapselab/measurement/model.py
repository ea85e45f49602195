"""A model to measure: its output layer, classes and context, and the samples it can read of a corpus."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.core.devices import by_device, exact_device
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, CorpusError, ModelError
from collapselab.measurement.sample import ByLayer, Sample
from collapselab.models.function_model import FunctionModel
from collapselab.models.scores import mask_inputs
from collapselab.models.taps import OutputLayer, features, output_layer
from collapselab.records.facts import ModelFacts, WarningFacts
from collapselab.records.options import Options

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
"""Configuration fields for the length of the context; a model without any of them has no limit."""

TOKENS_AT_ONCE = {"cpu": 4096, "accelerator": 65536}
"""Tokens of an automatic batch; more are not faster. An accelerator gets fewer if they do not fit."""


class MeasuredModel:
    """A loaded model with its name, and its run and checkpoint if it has them.

    `head` is its output layer, `classifier` the same as a linear classifier: scaled, without a cap on the logits.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str,
        run: str = "",
        checkpoint: str | None = None,
        own_corpus: str = "",
        facts: ModelFacts | None = None,
        warnings: Sequence[WarningFacts] = (),
    ) -> None:
        """`own_corpus` is the hash of the training corpus of its run. `facts` and `warnings` go into the result."""
        self.model, self.name, self.run, self.checkpoint, self.own_corpus = model, name, run, checkpoint, own_corpus
        self.facts, self.warnings = facts or ModelFacts(), list(warnings)
        self.own_head = output_layer(model)
        self.device = self.own_head.weight.device
        """Device of the output layer. A model that is spread over devices takes its input from any."""
        self.moments_device = exact_device(self.device)
        """Of features, `head` and all that is computed from them: the CPU where the model's device has no float64."""
        self.head = self.own_head.to(self.moments_device)
        self.classes = len(self.head.weight)
        self.dtype = str(self.head.weight.dtype).removeprefix("torch.")
        self.context = context_of(getattr(model, "config", None))
        # Its scale changes the scores of a classifier; a cap does not change their order.
        weight, bias, scale = self.head.weight.detach(), self.head.bias, self.head.scale
        bias = None if bias is None else bias.detach()
        if scale != 1:
            weight, bias = weight * scale, None if bias is None else bias * scale
        self.classifier = OutputLayer(weight, bias)
        for what, tensor in (("layer", self.classifier.weight), ("bias", self.classifier.bias)):
            if tensor is not None and not torch.isfinite(tensor).all():
                raise ModelError(f"{name}: its output {what} holds nan or infinite numbers.")

    @cached_property
    def hash(self) -> str:
        """Hash of the weights and the configuration."""
        from collapselab.models.load import model_hash

        if isinstance(self.model, FunctionModel):
            return self.model.content_hash()
        return model_hash(cast("PreTrainedModel", self.model))  # or what has its methods

    def check(self, corpus: Corpus) -> None:
        """Raise CorpusError if the corpus has tokens that the model does not know."""
        embedded = getattr(self.model, "get_input_embeddings", lambda: None)()
        known = min(self.classes, len(getattr(embedded, "weight", self.head.weight)))
        used = [int(split.token_counts.nonzero().max()) for split in corpus.splits.values() if split.token_counts.any()]
        if max(used, default=0) >= known:
            tokenizer = corpus.record.request.tokenizer
            raise CorpusError(
                f"{corpus.path}: token {max(used):,} occurs, but {self.name} knows only {known:,} tokens. "
                f"The corpus was built with the tokenizer {tokenizer}; build one with the model's own."
            )

    def samples(self, corpus: Corpus, split: str, options: Options) -> ByLayer[Sample]:
        """Return the samples of a split, for the last layer and for those below."""
        last = self._sample(corpus, split, options, skip=0)
        if options.layers == "last" or options.skip_positions <= last.first:
            return ByLayer(last, last)
        below = self._sample(corpus, split, options, skip=options.skip_positions)
        if not below.tokens:
            raise ConfigError(
                f"skip_positions is {options.skip_positions:,}, but no block of the {last.name} has a sample after "
                f"them; blocks are {last.length:,} tokens. Skip fewer."
            )
        return ByLayer(last, below)

    def _sample(self, corpus: Corpus, split: str, options: Options, *, skip: int) -> Sample:
        blocks_of_split = corpus.splits[split]
        if not len(blocks_of_split):
            raise CorpusError(f"{corpus.path}: its {split} split has no blocks. Build it with more text.")
        length = min(corpus.block, self.context or corpus.block)
        if length < corpus.block and options.strict:
            raise CorpusError(
                f"{corpus.path}: blocks of {corpus.block:,} tokens, but {self.name} reads {length:,} at once. "
                f"Build one with --block {length}, or leave out --strict to measure the beginning of each block."
            )
        samples = blocks_of_split.samples(length=length)
        if not samples.any():
            raise CorpusError(f"{corpus.path}: blocks of {length} token have no next tokens. Build longer ones.")
        blocks = options.blocks_for(float(samples.mean()), len(blocks_of_split))
        name = "training split" if split == "train" else "validation split"
        return Sample(blocks_of_split, name=name, length=length, blocks=blocks, seed=options.seed, skip=skip)

    @torch.no_grad()
    def sampled_features(
        self,
        sample: Sample,
        start: int,
        stop: int,
        *,
        batch: int = 0,
        change: Callable[[Tensor, int], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run the model on these blocks; return the features (tokens, dim) of their samples, and the next tokens.

        Fewer blocks than `batch` are filled up with the first block of the sample, as in a pass. `change` alters ids
        before the model reads them; it is given the number of the first block too.
        """
        read, own = sample.read(start, stop, fill=batch), stop - start
        ids = read.ids if change is None else change(read.ids, start)
        mask = mask_inputs(self.model, read.attention, self.device)
        states = features(self.model, ids.to(self.device), **mask)[:own, sample.first : -1].to(self.moments_device)
        labels = read.labels[:own, sample.first :].reshape(-1)
        used = (labels != IGNORED).nonzero().squeeze(1)
        return states.reshape(-1, states.shape[-1]).index_select(0, used.to(states.device)), labels[used]

    def batch(self, options: Options, length: int, largest_group: int) -> int:
        """Return the number of blocks in a batch: as asked, or as many as are useful and fit."""
        if options.batch != "auto":
            return min(int(options.batch), largest_group)
        batch = min(largest_group, max(1, by_device(TOKENS_AT_ONCE, self.device) // length))
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


def context_of(config: object) -> int | None:
    """Return the longest context of a configuration, None if it has no limit."""
    lengths = (getattr(config, name, None) for name in CONTEXTS)
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)
