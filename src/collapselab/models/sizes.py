"""How large a model is, and how many operations a token takes: what costs are made of, before anything is loaded.

A dense decoder is meant. A mixture of experts runs fewer numbers a token than it holds.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

TRAINING = 3
"""A training step takes a forward pass, and twice that for the gradients of inputs and weights."""

COUNTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")


def check_sizes(config: "PreTrainedConfig") -> None:
    """ValueError if a size is negative: the library builds some of these models, and they fail when they run."""
    for name in COUNTS:
        size = getattr(config, name, None)
        if isinstance(size, int) and size < 0:
            raise ValueError(f"{name} is {size:,}; a size is at least 1.")


@final
@dataclass(frozen=True)
class Architecture:
    """Sizes of a dense causal language model. `matrices`: the numbers in its blocks' matrices, run for every token."""

    parameters: int
    matrices: int
    width: int
    depth: int
    vocabulary: int
    attention: int
    """Heads × head size."""
    feed_forward: int
    tied: bool
    local: int = 0
    """Layers of `depth` that attend window by window."""
    window: int = 0

    def forward_flops(self, block: int, *, output_layer: bool = False) -> float:
        """Of a token: 2 for each number in a matrix, and its scores with the tokens it is compared to.

        Those are all of its block, in local layers those of its own window and of the one before. Causality halves the
        scores that matter, but not those that most kernels compute.
        """
        head = self.vocabulary * self.width if output_layer else 0
        compared = (self.depth - self.local) * block + self.local * self._compared_in_windows(block)
        return 2 * (self.matrices + head) + 4 * self.attention * compared

    def _compared_in_windows(self, block: int) -> float:
        """The tokens that one is compared to in a local layer, on average: every window is, to itself and the last."""
        sizes = [min(self.window, block - start) for start in range(0, block, self.window)] if self.local else []
        return sum(own * (own + before) for before, own in pairwise([0, *sizes])) / block

    def training_flops(self, tokens: int, block: int) -> float:
        """The 6·N·D of scaling laws, with N the numbers in matrices, and attention."""
        return TRAINING * tokens * self.forward_flops(block, output_layer=True)


def architecture_of(model: nn.Module) -> Architecture:
    """That of a model of the library; one on the meta device will do."""
    bare: Any = model
    config, head, first = bare.config.get_text_config(), bare.get_output_embeddings(), bare.get_input_embeddings()
    modules = [module for module in model.modules() if module is not head and not isinstance(module, nn.Embedding)]
    weights = [weight for module in modules if isinstance(weight := getattr(module, "weight", None), Tensor)]
    matrices = [weight for weight in weights if weight.ndim == 2]
    width = config.hidden_size
    local = config.attention_layers.count("local") if config.model_type == "gpt_neo" else 0  # as gpt_neo.py runs them
    return Architecture(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        matrices=sum(matrix.numel() for matrix in matrices),
        width=width,
        depth=config.num_hidden_layers,
        vocabulary=len(head.weight),
        attention=_attention(config),
        feed_forward=max((max(matrix.shape) for matrix in matrices if width in matrix.shape), default=width),
        tied=head.weight is first.weight,
        local=local,
        window=config.window_size if local else 0,
    )


def _attention(config: "PreTrainedConfig") -> int:
    """Heads × head size; 0 where there are no heads, the width where layers differ in them."""
    try:
        heads = getattr(config, "num_attention_heads", None) or 0
        return int(heads * (getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1)))
    except RuntimeError:  # so the library says that there is no one answer
        return int(config.hidden_size)
