"""Library models with their slow parts replaced: same weights, names and mathematics, so checkpoints stay compatible.

The attention of GPT-Neo writes out every attention weight. `FusedSelfAttention` computes the same through PyTorch's
fused kernels: scores are not divided by sqrt(dim); local layers see the last `window_size` tokens. The kernels
accumulate scores and softmax in float32 for half-precision inputs, as the library does, and float64 stays float64.

That kernel is made for heads of 64. With heads of 2 to 8, as 16 heads make them at small widths, its products are with
matrices of a few columns. Zeros up to 16 numbers a head change nothing but the time, which is a third less. There is a
faster way: `causal_attention` stores these matrices with the tokens along the rows, so that every product runs along
the tokens; a part of the queries sees only the keys up to its end, and in local layers those of its windows; and a
group of heads at a time stays near the cache, in memory that is used again. Its products are many and small, and
several threads would wait for each other in every one of them: so each thread has groups of its own. For the backward
pass of short blocks the weights are kept, batch · heads · tokens² / 2 numbers and a little more; those of long ones
are computed again.

The GELU of GPT-2 and GPT-Neo is a formula of eight operations; PyTorch has the same formula as a single kernel.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self, final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from collapselab.core.threads import in_threads


def use_fused_kernels(model: PreTrainedModel) -> None:
    """Replace the slow parts of a model, built or loaded, in place; a model without any is left as it is."""
    fuse_attention(model)
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh"))


def fuse_attention(model: PreTrainedModel) -> None:
    """Let a GPT-Neo model, built or loaded, compute attention by the fused kernels; other families already do.

    Attention weights are then never written out: `output_attentions` returns none.
    """
    slow = [module for module in model.modules() if type(module) is GPTNeoSelfAttention]
    for module in slow:
        module.__class__ = FusedSelfAttention
        # The library then makes no mask where attention is only causal, and a boolean mask elsewhere.
        module.config._attn_implementation = "sdpa"


def library_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy from which the library builds its own model, even if `config` comes from a model with fused kernels."""
    config = copy.deepcopy(config)
    if config.model_type == "gpt_neo" and config._attn_implementation == "sdpa":
        config._attn_implementation = "eager"
    return config


@final
class FusedSelfAttention(GPTNeoSelfAttention):
    """The library's attention layer with another `_attn` and no attributes of its own: layers change class in place."""

    def _attn(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        dropout = self.attn_dropout.p if self.training else 0.0
        queries, keys = query.shape[-2], key.shape[-2]
        if attention_mask is None and queries == keys:
            window = self.config.window_size if self._sees_a_window(keys) else None
            if queries > 1 and dropout == 0 and suits_small_heads(query):
                return causal_attention(query, key, value, window=window), None
            if window is not None:
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


MAX_HEAD_SIZE, MAX_TOKENS = 8, 2048
"""Up to these it was seen to be faster, with one thread and with two; heads of 16 gain nothing."""
KEPT_TOKENS = 256
"""Up to this many the weights are kept for the backward pass; beyond they would take too much memory."""
PART = 64
"""Queries at a time."""
GROUP = 1 << 19
"""Weights at a time: two megabytes in float32."""


def suits_small_heads(query: Tensor) -> bool:
    """Whether `causal_attention` is the fastest way for queries and keys of the same tokens."""
    tokens, size = query.shape[-2:]
    exact = query.dtype in (torch.float32, torch.float64)
    small = size <= MAX_HEAD_SIZE and tokens <= MAX_TOKENS
    eager = not torch.compiler.is_compiling()  # a compiler follows no threads
    return bool(query.device.type == "cpu" and exact and small and eager)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, *, window: int | None = None) -> Tensor:
    """softmax(query · keyᵀ) · value over the keys up to each query, all (batch, heads, tokens, size); scores unscaled.

    With a window, each query sees that many keys, the last of them its own. Equal to `scaled_dot_product_attention(...,
    is_causal=True, scale=1.0)` but for rounding. No second derivative.
    """
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    keep = trained and query.shape[-2] <= KEPT_TOKENS
    attended: Tensor = _CausalAttention.apply(query, key, value, window, keep)  # type: ignore[no-untyped-call]
    return attended


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, window: int | None, keep: bool) -> Tensor:
        queries, keys_t, values_t = _rows(query), _columns(key), _columns(value)
        attended_t, parts = torch.empty_like(values_t), _parts(queries, window)
        groups = _groups(queries, parts)
        kept = [part.empty(queries[heads]) for heads in groups for part in parts] if keep else []
        rooms = _Rooms(queries, groups, parts, number=0 if keep else 1)

        def attend(group: tuple[int, slice]) -> None:
            number, heads = group
            with rooms.taken() as room:
                for place, part in enumerate(parts, start=number * len(parts)):
                    weights = kept[place] if keep else part.empty(queries[heads], room[0])
                    part.weigh(queries[heads], keys_t[heads], out=weights)
                    attended_t[heads, :, part.own] = torch.bmm(values_t[heads, :, part.seen], weights.transpose(1, 2))

        _ = list(in_threads(attend, list(enumerate(groups)), query.device))
        ctx.save_for_backward(queries, keys_t, values_t, *kept)
        ctx.window = window
        return attended_t.transpose(1, 2).view(query.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_attended: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        queries, keys_t, values_t, *kept = ctx.saved_tensors
        gradients, gradients_t = _rows(of_attended), _columns(of_attended)
        queries_t = queries.transpose(1, 2).contiguous()
        of_queries_t, of_keys_t, of_values_t = map(torch.zeros_like, (queries_t, keys_t, values_t))
        parts = _parts(queries, ctx.window)
        groups = _groups(queries, parts)
        rooms = _Rooms(queries, groups, parts, number=1 if kept else 2)

        def return_gradients(group: tuple[int, slice]) -> None:
            number, heads = group
            with rooms.taken() as room:
                for place, part in enumerate(parts, start=number * len(parts)):
                    own, seen = part.own, part.seen
                    if kept:
                        weights = kept[place]
                    else:
                        weights = part.empty(queries[heads], room[1])
                        part.weigh(queries[heads], keys_t[heads], out=weights)
                    of_scores = part.empty(queries[heads], room[0])  # and first, in the same place, of the weights
                    torch.bmm(gradients[heads, own], values_t[heads, :, seen], out=of_scores)
                    torch._softmax_backward_data(of_scores, weights, -1, weights.dtype, grad_input=of_scores)
                    of_queries_t[heads, :, own] = torch.bmm(keys_t[heads, :, seen], of_scores.transpose(1, 2))
                    of_keys_t[heads, :, seen] += torch.bmm(queries_t[heads, :, own], of_scores)
                    of_values_t[heads, :, seen] += torch.bmm(gradients_t[heads, :, own], weights)

        _ = list(in_threads(return_gradients, list(enumerate(groups)), queries.device))
        of_queries, of_keys, of_values = (
            gradient.transpose(1, 2).view(of_attended.shape) for gradient in (of_queries_t, of_keys_t, of_values_t)
        )
        return of_queries, of_keys, of_values, None, None


def _rows(tensor: Tensor) -> Tensor:
    """(batch, heads, tokens, size) as (batch · heads, tokens, size)."""
    return tensor.reshape(-1, *tensor.shape[2:])


def _columns(tensor: Tensor) -> Tensor:
    """The same as (batch · heads, size, tokens), stored so."""
    return _rows(tensor.transpose(2, 3)).contiguous()


class _Part(NamedTuple):
    """Queries that are worked on at once, the keys that one of them sees, and -inf for each that another does not."""

    own: slice
    seen: slice
    hidden: Tensor

    def empty(self, heads: Tensor, room: Tensor | None = None) -> Tensor:
        """Memory for the weights of some heads (heads, queries, keys), of their own or in this room."""
        shape = len(heads), *self.hidden.shape
        return heads.new_empty(shape) if room is None else room[: math.prod(shape)].view(shape)

    def weigh(self, queries: Tensor, keys_t: Tensor, *, out: Tensor) -> None:
        """The weights of some heads."""
        torch.baddbmm(self.hidden, queries[:, self.own], keys_t[:, :, self.seen], out=out)
        torch.softmax(out, -1, out=out)

    @classmethod
    def of(cls, queries: Tensor, start: int, window: int | None) -> Self:
        stop = min(start + PART, queries.shape[1])
        first = 0 if window is None else max(0, start - window + 1)
        hidden = queries.new_full((stop - start, stop - first), -math.inf).triu_(start - first + 1)
        if window is not None:
            hidden += torch.full_like(hidden, -math.inf).tril_(start - first - window)
        return cls(slice(start, stop), slice(first, stop), hidden)


def _parts(queries: Tensor, window: int | None) -> list[_Part]:
    return [_Part.of(queries, start, window) for start in range(0, queries.shape[1], PART)]


def _groups(queries: Tensor, parts: list[_Part]) -> list[slice]:
    """Heads that are worked on at once: as many as the weights of the widest part allow."""
    heads, widest = len(queries), max(part.seen.stop - part.seen.start for part in parts)
    together = max(1, GROUP // (PART * widest))
    return [slice(start, min(start + together, heads)) for start in range(0, heads, together)]


class _Rooms:
    """Memory for the weights of the largest part and group, a number of times, for each thread.

    What a thread allocates itself goes back to the system when it is freed: the pages of the next part would be new.
    """

    def __init__(self, queries: Tensor, groups: list[slice], parts: list[_Part], *, number: int) -> None:
        heads = max((group.stop - group.start for group in groups), default=0)
        largest = heads * max(part.hidden.numel() for part in parts)
        self._free = [queries.new_empty(number, largest) for _ in range(torch.get_num_threads())]

    @contextmanager
    def taken(self) -> Iterator[Tensor]:
        """(number, weights)"""
        room = self._free.pop()
        try:
            yield room
        finally:
            self._free.append(room)
