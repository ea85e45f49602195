"""Causal attention of heads of a few numbers, on a CPU: batched products in the layout in which they are fast.

PyTorch's fused kernel is made for heads of 64. With heads of 2 to 8, as 16 heads make them at small widths, its
products are with matrices of a few columns. Here those matrices are stored with the tokens along the rows, so that
every product runs along the tokens; a part of the queries sees only the keys up to its end; and a group of heads at a
time stays in the cache. The weights are kept for the backward pass: batch · heads · tokens² / 2 numbers and a little
more.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

MAX_HEAD_SIZE, MAX_TOKENS = 8, 256
"""Up to these it is faster, by half and more; beyond the second the weights would take too much memory."""
PART = 64
"""Queries at a time."""
GROUP = 1 << 18
"""Weights at a time: a megabyte in float32."""


def suits_small_heads(query: Tensor, key: Tensor) -> bool:
    """Whether `causal_attention` is the faster way for queries and keys of the same tokens."""
    tokens, size = query.shape[-2:]
    exact = query.dtype in (torch.float32, torch.float64)
    short = tokens == key.shape[-2] and tokens <= MAX_TOKENS and size <= MAX_HEAD_SIZE
    return bool(query.device.type == "cpu" and exact and short)


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(query · keyᵀ) · value over the keys up to each query, all (batch, heads, tokens, size); scores unscaled.

    Equal to `scaled_dot_product_attention(..., is_causal=True, scale=1.0)` but for rounding. No second derivative.
    """
    attended: Tensor = _CausalAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return attended


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        queries, keys_t, values_t = _rows(query), _columns(key), _columns(value)
        attended = torch.empty_like(queries)
        weights = []
        for heads, part in _parts(queries):
            seen = slice(part.stop)
            hidden = queries.new_full((part.stop - part.start, part.stop), -math.inf).triu_(part.start + 1)
            scores = torch.baddbmm(hidden, queries[heads, part], keys_t[heads, :, seen])
            weights.append(torch.softmax(scores, -1))
            attended[heads, part] = torch.bmm(weights[-1], values_t[heads, :, seen].transpose(1, 2))
        ctx.save_for_backward(queries, keys_t, values_t, *weights)
        return attended.view(query.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_attended: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys_t, values_t, *weights = ctx.saved_tensors
        gradients, gradients_t = _rows(of_attended), _columns(of_attended)
        queries_t = queries.transpose(1, 2).contiguous()
        of_queries, of_keys_t, of_values_t = map(torch.zeros_like, (queries, keys_t, values_t))
        for (heads, part), weight in zip(_parts(queries), weights, strict=True):
            seen = slice(part.stop)
            of_weight = torch.bmm(gradients[heads, part], values_t[heads, :, seen])
            of_scores = torch._softmax_backward_data(of_weight, weight, -1, weight.dtype)
            of_queries[heads, part] = torch.bmm(of_scores, keys_t[heads, :, seen].transpose(1, 2))
            of_keys_t[heads, :, seen] += torch.bmm(queries_t[heads, :, part], of_scores)
            of_values_t[heads, :, seen] += torch.bmm(gradients_t[heads, :, part], weight)
        of_keys, of_values = (one.transpose(1, 2).view(of_attended.shape) for one in (of_keys_t, of_values_t))
        return of_queries.view(of_attended.shape), of_keys, of_values


def _rows(tensor: Tensor) -> Tensor:
    """(batch, heads, tokens, size) as (batch · heads, tokens, size)."""
    return tensor.reshape(-1, *tensor.shape[2:])


def _columns(tensor: Tensor) -> Tensor:
    """The same as (batch · heads, size, tokens), stored so."""
    return _rows(tensor.transpose(2, 3)).contiguous()


def _parts(queries: Tensor) -> Iterator[tuple[slice, slice]]:
    """Heads and queries that are worked on at once."""
    heads, tokens = queries.shape[:2]
    together = max(1, GROUP // (PART * tokens))
    for head in range(0, heads, together):
        for start in range(0, tokens, PART):
            yield slice(head, min(head + together, heads)), slice(start, min(start + PART, tokens))
