"""Causal attention of heads of a few numbers, for which the fused kernels have no good products.

The matrices of queries, keys and values are stored with the tokens along the rows, so that every product runs along the
tokens; a part of the queries sees only the keys up to its end, and in local layers those of its windows; and a group of
heads at a time stays near the cache, in memory that is used again. The products are many and small, and several threads
would wait for each other in every one of them: so each thread has groups of its own. For the backward pass of short
blocks the weights are kept, batch · heads · tokens² / 2 numbers and a little more; those of long ones are computed
again.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from collapselab.core.threads import in_threads

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
        ctx.window, ctx.groups = window, groups
        return attended_t.transpose(1, 2).view(query.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_attended: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        queries, keys_t, values_t, *kept = ctx.saved_tensors
        gradients, gradients_t = _rows(of_attended), _columns(of_attended)
        queries_t = queries.transpose(1, 2).contiguous()
        of_queries_t, of_keys_t, of_values_t = map(torch.zeros_like, (queries_t, keys_t, values_t))
        parts, groups = _parts(queries, ctx.window), ctx.groups
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
    """Heads that are worked on at once: as many as the weights of the widest part allow, and some for every thread."""
    heads, widest = len(queries), max(part.seen.stop - part.seen.start for part in parts)
    together = max(1, min(GROUP // (PART * widest), math.ceil(heads / torch.get_num_threads())))
    return [slice(start, min(start + together, heads)) for start in range(0, heads, together)]


class _Rooms:
    """Memory for the weights of the largest part and group, a number of times, for each thread.

    What a thread allocates itself goes back to the system when it is freed: the pages of the next part would be new.
    """

    def __init__(self, queries: Tensor, groups: list[slice], parts: list[_Part], *, number: int) -> None:
        heads = max((group.stop - group.start for group in groups), default=0)
        largest = heads * max(part.hidden.numel() for part in parts)
        threads = min(torch.get_num_threads(), len(groups))
        self._free = [queries.new_empty(number, largest) for _ in range(threads)]

    @contextmanager
    def taken(self) -> Iterator[Tensor]:
        """The memory of one thread (number, weights), until it is given back."""
        room = self._free.pop()
        try:
            yield room
        finally:
            self._free.append(room)
