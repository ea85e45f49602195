"""The output layers by name: what becomes of a model's output layer once the model is built.

A further one is a function and an entry. The function replaces the layer, or freezes it (`requires_grad = False`), in
place, and draws what is random from the generator that it is given: so every other initial weight keeps its bits. It
imports torch itself: the names are checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from collapselab.errors import ConfigError

if TYPE_CHECKING:
    from torch import Generator


class HeadSettings(Protocol):
    """The settings that a head is made from."""

    @property
    def head(self) -> str: ...
    @property
    def seed(self) -> int: ...


def _learned(model: Any, settings: HeadSettings, generator: "Generator") -> None:
    """As it is built: trained with the rest."""


HEADS: dict[str, Callable[[Any, HeadSettings, "Generator"], None]] = {"learned": _learned}


def make_head(model: Any, settings: HeadSettings) -> None:
    """Give the model the output layer that the settings name."""
    import hashlib

    from torch import Generator

    digest = hashlib.blake2b(f"{settings.seed} head {settings.head}".encode(), digest_size=7).digest()
    HEADS[settings.head](model, settings, Generator().manual_seed(int.from_bytes(digest)))
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if tied != model.config.tie_word_embeddings:  # a checkpoint would be loaded with the weights of the other layer
        raise ConfigError(f"head: {settings.head} is not the input embeddings, but tied is true. Set tied to false.")
