"""The families of models by name, and how large a model is.

A family says what width and depth mean for the heads, the feed-forward size and the layers. A further one is a function
and an entry. The function imports the library itself: the names are shown by the command line, which must stay quick.

`Architecture` is what costs are made of, before anything is loaded: how many operations a token takes. A dense decoder
is meant; a mixture of experts runs fewer numbers a token than it holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from collapselab.errors import ModelError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

MAX_HEADS = 16

TRAINING = 3
"""A training step takes a forward pass, and twice that for the gradients of inputs and weights."""


@dataclass(frozen=True)
class Sizes:
    """Sizes from which every family builds a model."""

    width: int
    depth: int
    vocabulary: int
    positions: int
    tied: bool = True
    dropout: float = 0.0
    """For every dropout of the family."""
    end_of_text: int | None = None
    """Both begins and ends a text."""
    head_size: int | None = None
    """Numbers in a head of attention; None for 16 heads. Small models train twice as fast with heads of 16 numbers."""

    @property
    def heads(self) -> int:
        """Width / head size, at least one; without a head size 16, or the largest power of two that divides the width.

        ModelError if the head size does not divide the width.
        """
        size, width = self.head_size, self.width
        if size is None:
            return min(MAX_HEADS, width & -width)
        if size < 1 or (width > size and width % size):
            raise ModelError(f"head_size: {size} does not divide the width {width:,}. Choose one that does.")
        return max(1, width // size)

    @property
    def tokens(self) -> dict[str, int | None]:
        """Settings about tokens, which have the same names in every configuration.

        No model gets a padding token: some families freeze its row at zero, and blocks are never padded.
        """
        return {
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "bos_token_id": self.end_of_text,
            "eos_token_id": self.end_of_text,
            "pad_token_id": None,
        }

    @property
    def lengths(self) -> dict[str, int]:
        """Width, depth and positions by the names that the library knows them by."""
        return {
            "hidden_size": self.width,
            "num_hidden_layers": self.depth,
            "max_position_embeddings": self.positions,
        }

    @property
    def common(self) -> dict[str, Any]:
        """Settings of every family."""
        return {**self.lengths, **self.tokens, "num_attention_heads": self.heads}

    def check_rotary(self, family: str) -> None:
        """ModelError if a head has an odd number of numbers, for a family that turns them in pairs."""
        size = self.width // self.heads
        if size % 2:
            fitting = "an even width" if self.head_size else f"a multiple of {2 * MAX_HEADS}"
            raise ModelError(
                f"{family}: width {self.width:,} makes heads of {size} numbers, and positions turn them in pairs. "
                f"Choose {fitting}."
            )


def _gpt_neo(sizes: Sizes) -> "PreTrainedConfig":
    """Return the paper's model: feed-forward of 4 widths; global and local layers in turn."""
    from transformers import GPTNeoConfig

    pairs, rest = divmod(sizes.depth, 2)
    pattern = [[["global", "local"], pairs], [["global"], rest]]
    return GPTNeoConfig(
        intermediate_size=4 * sizes.width,
        attention_types=[[kinds, times] for kinds, times in pattern if times],
        window_size=256,
        activation_function="gelu_new",
        resid_dropout=sizes.dropout,
        embed_dropout=sizes.dropout,
        attention_dropout=sizes.dropout,
        **sizes.common,
    )


def _gpt2(sizes: Sizes) -> "PreTrainedConfig":
    from transformers import GPT2Config

    dropout = sizes.dropout
    return GPT2Config(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, **sizes.common)


def _llama(sizes: Sizes) -> "PreTrainedConfig":
    from transformers import LlamaConfig

    sizes.check_rotary("llama")
    return LlamaConfig(
        intermediate_size=32 * -(-sizes.width // 12),  # 8/3 of the width, in steps of 32
        rms_norm_eps=1e-5,
        attention_dropout=sizes.dropout,
        **sizes.common,
    )


def _pythia(sizes: Sizes) -> "PreTrainedConfig":
    from transformers import GPTNeoXConfig

    sizes.check_rotary("pythia")
    head_size = sizes.width // sizes.heads
    turned = max(2, head_size // 8 * 2)  # a quarter of each head turns with the position, in whole pairs
    return GPTNeoXConfig(
        intermediate_size=4 * sizes.width,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": turned / head_size},
        attention_dropout=sizes.dropout,
        hidden_dropout=sizes.dropout,
        **sizes.common,
    )


def _qwen3(sizes: Sizes) -> "PreTrainedConfig":
    from transformers import Qwen3Config

    sizes.check_rotary("qwen3")
    return Qwen3Config(
        num_key_value_heads=max(1, sizes.heads // 2),
        head_dim=sizes.width // sizes.heads,
        intermediate_size=3 * sizes.width,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        attention_dropout=sizes.dropout,
        **sizes.common,
    )


FAMILIES: "dict[str, Callable[[Sizes], PreTrainedConfig]]" = {
    "gpt-neo": _gpt_neo,
    "gpt2": _gpt2,
    "llama": _llama,
    "pythia": _pythia,
    "qwen3": _qwen3,
}


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
        """Return the operations of a token: 2 for each number in a matrix, and its scores with other tokens.

        Those are all of its block, in local layers those of its own window and of the one before. Causality halves the
        scores that matter, but not those that most kernels compute.
        """
        head = self.vocabulary * self.width if output_layer else 0
        compared = (self.depth - self.local) * block + self.local * self._compared_in_windows(block)
        return 2 * (self.matrices + head) + 4 * self.attention * compared

    def _compared_in_windows(self, block: int) -> float:
        """Return the mean number of tokens that a token of a local layer attends to: its window and the one before."""
        sizes = [min(self.window, block - start) for start in range(0, block, self.window)] if self.local else []
        return sum(own * (own + before) for before, own in pairwise([0, *sizes])) / block

    def training_flops(self, tokens: int, block: int) -> float:
        """Return the 6·N·D of scaling laws, with N the numbers in matrices, plus attention."""
        return TRAINING * tokens * self.forward_flops(block, output_layer=True)


def architecture_of(model: "nn.Module") -> Architecture:
    """Return the architecture of a model of transformers, which may be on the meta device."""
    from torch import Tensor, nn

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
