"""Library models with their slow parts replaced: same weights, names and mathematics, so checkpoints stay compatible.

The attention of GPT-Neo writes out every attention weight. `FusedSelfAttention` computes the same through PyTorch's
fused kernels: scores are not divided by sqrt(dim); local layers see the last `window_size` tokens. The kernels
accumulate scores and softmax in float32 for half-precision inputs, as the library does, and float64 stays float64.

That kernel is made for heads of 64. With heads of 2 to 8, as 16 heads make them at small widths, its products are with
matrices of a few columns. Zeros up to 16 numbers a head change nothing but the time, which is a third less.

The GELU of GPT-2 and GPT-Neo is a formula of eight operations; PyTorch has the same formula as a single kernel.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention


def use_fused_kernels(model: PreTrainedModel) -> None:
    """Replace the slow parts of a model, built or loaded, in place; a model without any is left as it is.

    Attention weights of GPT-Neo are then never written out: `output_attentions` returns none.
    """
    for module in list(model.modules()):
        if type(module) is GPTNeoSelfAttention:
            module.__class__ = FusedSelfAttention
            # The library then makes no mask where attention is only causal, and a boolean mask elsewhere.
            module.config._attn_implementation = "sdpa"
        for name, child in module.named_children():
            if type(child) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh"))


def library_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy from which the library builds its own model, even if `config` comes from a model with fused kernels."""
    config = copy.deepcopy(config)
    if config.model_type == "gpt_neo" and config._attn_implementation == "sdpa":
        config._attn_implementation = "eager"
    return config


class FusedSelfAttention(GPTNeoSelfAttention):
    """The library's attention layer with another `_attn` and no attributes of its own: layers change class in place."""

    def _attn(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        dropout = self.attn_dropout.p if self.training else 0.0
        queries, keys = query.shape[-2], key.shape[-2]
        if attention_mask is None and queries == keys and self._sees_a_window(keys):
            return self._window_by_window(query, key, value, dropout), None
        mask = self._visible(query, key, attention_mask)
        causal = mask is None and queries > 1
        return _attend(query, key, value, mask, dropout=dropout, causal=causal), None

    def _sees_a_window(self, keys: int) -> bool:
        return bool(self.attention_type == "local" and keys > self.config.window_size)

    def _window_by_window(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """A window of queries at a time, which sees its own tokens and the window before: linear in the tokens."""
        parts, tokens, window = [], query.shape[-2], self.config.window_size
        for start in range(0, tokens, window):
            own = slice(start, min(start + window, tokens))
            seen = slice(max(start - window, 0), own.stop)
            band = self.bias[:, :, own, seen] if start else None  # the first window is only causal
            visible = query[:, :, own], key[:, :, seen], value[:, :, seen]
            parts.append(_attend(*visible, band, dropout=dropout, causal=band is None))
        return torch.cat(parts, dim=2)

    def _visible(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which keys each query sees, (batch, 1, queries, keys); None if the attention is only causal."""
        queries, keys = query.shape[-2], key.shape[-2]
        if self._sees_a_window(keys):
            band = self.bias[:, :, keys - queries : keys, :keys]  # the library made it once for all lengths
            if mask is None:
                return band
            mask = mask & band if mask.dtype == torch.bool else mask.masked_fill(~band, torch.finfo(mask.dtype).min)
        if mask is None or mask.dtype != torch.bool:
            return mask
        # A padded query may see no key. Some kernels return nan for it, which spreads: let it see all keys.
        return mask | ~mask.any(dim=-1, keepdim=True)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, dropout: float, causal: bool) -> Tensor:
    size = query.shape[-1]
    if size < FULL_HEAD and dropout == 0 and query.device.type == "cpu" and query.dtype == torch.float32:
        query, key, value = (pad(numbers, (0, FULL_HEAD - size)) for numbers in (query, key, value))
    attended = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=1.0
    )
    return attended[..., :size]


FULL_HEAD = 16
"""Numbers of a head that fill the kernel's registers: fewer take it longer, not shorter."""
