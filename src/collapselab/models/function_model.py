"""Any function from token ids to features, with the matrix that turns features into logits, as a model to measure.

For models of other libraries, such as TransformerLens or nnsight, and for networks of one's own: what the library calls
a causal language model is not needed, only what its last layer gives and its output layer.
"""

import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from collapselab.errors import ModelError

Forward = Callable[[Tensor], Tensor]
"""From token ids (batch, tokens) to features (batch, tokens, dim)."""

PROBE = 16
"""Tokens whose features tell one function from another."""


class FunctionModel(nn.Module):
    """A function and an output layer (vocabulary × dim), behind the calls that the measurement makes of any model."""

    def __init__(self, forward: Forward, head: Tensor, bias: Tensor | None = None, *, name: str = "") -> None:
        super().__init__()
        for what, value in {"head": head, "bias": bias}.items():
            if value is not None and not isinstance(value, Tensor):
                raise ModelError(f"{what}: {type(value).__name__}; a torch.Tensor is needed, such as a layer's weight.")
        if head.ndim != 2 or not head.is_floating_point():
            raise ModelError(
                f"head: {tuple(head.shape)} numbers of {head.dtype}; a matrix, vocabulary × dim, is needed."
            )
        if bias is not None and tuple(bias.shape) != (len(head),):
            raise ModelError(f"bias: {tuple(bias.shape)} numbers for {len(head):,} rows of the head.")
        self.function = forward
        classes, dim = head.shape
        self.head = nn.Linear(dim, classes, bias=bias is not None, device="meta", dtype=head.dtype)
        self.head.weight = nn.Parameter(head.detach(), requires_grad=False)
        if bias is not None:
            self.head.bias = nn.Parameter(bias.detach().to(head), requires_grad=False)
        self.config = SimpleNamespace(_name_or_path=name, hidden_size=dim, vocab_size=classes)

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> SimpleNamespace:
        """Logits, as the library's models give them."""
        return SimpleNamespace(logits=self.head(self._features(input_ids)))

    def get_output_embeddings(self) -> nn.Linear:
        return self.head

    def _features(self, input_ids: Tensor) -> Tensor:
        weight = self.head.weight
        with torch.no_grad():
            made: Any = self.function(input_ids)
        wanted = (*input_ids.shape, weight.shape[1])
        if not isinstance(made, Tensor) or tuple(made.shape) != wanted:
            result = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise ModelError(
                f"forward: gives {result} for token ids {tuple(input_ids.shape)}; {wanted} is needed: the features "
                "that enter the head, which is vocabulary × dim."
            )
        return made.to(weight.device, weight.dtype)

    def content_hash(self) -> str:
        """Of the output layer, and of the features of a few tokens: the function itself cannot be read."""
        digest = hashlib.blake2b(digest_size=8)
        count = min(PROBE, len(self.head.weight))
        features = self._features(torch.arange(count, device=self.head.weight.device)[None])
        for tensor in (self.head.weight, self.head.bias, features):
            if tensor is not None:
                digest.update(f"\n{tuple(tensor.shape)}\n".encode())
                digest.update(tensor.detach().float().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()
