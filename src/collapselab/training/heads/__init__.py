"""The output layers by name: how a model's output layer is replaced or frozen after the model is built.

    frozen.py      frozen-init, frozen-sphere, frozen-code, frozen-etf: rows that are constructed;
                   frozen-donor, frozen-donor-permuted: rows of a finished run
    normalised.py  sphere, class-means: heads of normalised features;  centred

A further one is a function and an entry in `choices.toml`. The function replaces the layer, or freezes it
(`requires_grad = False`), in place, and draws what is random from the generator that it is given: so every other
initial weight keeps its bits. It returns what must happen while the model is trained (`HeadUpdates`), or None. This
file does not import torch: names are checked where settings are read, which must stay quick.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapselab.errors import ConfigError
from collapselab.training import Choice, choices

if TYPE_CHECKING:
    from torch import Tensor

    from collapselab.training.heads.frozen import HeadUpdates
    from collapselab.training.settings import Settings

OF_DONORS = ("frozen-donor", "frozen-donor-permuted")
OF_RUNS = ("donor", "init_from")
"""Settings that name another run; it is identified by its weights."""

HEADS = {name: Choice(make, **entry) for name, make, entry in choices("heads")}


def check_head(settings: "Settings", *, vocabulary: int, tokenizer: Path | None = None) -> None:
    """ConfigError where the model of the settings cannot have the head that they name.

    `tokenizer` is the tokenizer.json of the corpus, where it is there already.
    """
    head, of_run = settings.head, settings.donor
    if settings.tied and head != "learned":
        raise ConfigError(f"head: {head} is not the input embeddings, but tied is true. Set tied to false.")
    if (of_run is None) == (head in OF_DONORS):
        heads = " and ".join(OF_DONORS)
        raise ConfigError(f"donor: the heads {heads} need one, and no others; got head {head} with donor {of_run}.")
    for setting in OF_RUNS:
        if (path := getattr(settings, setting)) is not None:
            from collapselab.training.heads.frozen import check_run

            check_run(path, setting, classes=vocabulary, dim=settings.width, tokenizer=tokenizer)
    if head == "frozen-etf" and vocabulary > settings.width + 1:
        raise ConfigError(
            f"head: a simplex frame in {settings.width:,} dimensions holds at most {settings.width + 1:,} tokens, got "
            f"{vocabulary:,}. Choose a larger width or a smaller vocabulary (corpus build … --tokenizer characters)."
        )


def make_head(model: Any, settings: "Settings", *, counts: "Tensor") -> "HeadUpdates | None":
    """Give the model the output layer that the settings name; return what updates it while it is trained."""
    from torch import Generator

    from collapselab.training.heads.frozen import HeadInputs

    digest = hashlib.blake2b(f"{settings.seed} head {settings.head}".encode(), digest_size=7).digest()
    generator = Generator().manual_seed(int.from_bytes(digest))
    made: HeadUpdates | None = HEADS[settings.head].make(model, HeadInputs(counts, settings.donor), generator)
    return made
