"""What is refused of heads before anything is built: a head that cannot be for these settings and this vocabulary."""

from pathlib import Path
from typing import Protocol

from collapselab.errors import ConfigError
from collapselab.training.heads.donor import check_donor

OF_DONORS = ("frozen-donor", "frozen-donor-permuted")


class HeadShape(Protocol):
    """The settings that decide whether a head can be."""

    @property
    def head(self) -> str: ...
    @property
    def donor(self) -> str | None: ...
    @property
    def tied(self) -> bool: ...
    @property
    def width(self) -> int: ...


def check_head(settings: HeadShape, *, vocabulary: int, tokenizer: Path | None = None) -> None:
    """ConfigError where the model of the settings cannot have the head that they name.

    `tokenizer` is the tokenizer.json of the corpus, where it is there already.
    """
    head, donor = settings.head, settings.donor
    if settings.tied and head != "learned":
        raise ConfigError(f"head: {head} is not the input embeddings, but tied is true. Set tied to false.")
    if donor is not None and head not in OF_DONORS:
        raise ConfigError(
            f"donor: {donor} is given, but the head {head} takes none. Choose {' or '.join(OF_DONORS)}, or no donor."
        )
    if head in OF_DONORS:
        if donor is None:
            raise ConfigError(f"head: {head} needs a donor. Name the folder of a finished run as donor.")
        check_donor(donor, classes=vocabulary, dim=settings.width, tokenizer=tokenizer)
    if head == "frozen-etf" and vocabulary > settings.width + 1:
        raise ConfigError(
            f"head: frozen-etf of {vocabulary:,} tokens has no place in {settings.width:,} dimensions, which hold a "
            f"simplex frame of at most {settings.width + 1:,}. Choose a width of at least {vocabulary - 1:,}, or a "
            "smaller vocabulary (collapselab corpus build … --tokenizer characters)."
        )
