"""The output layers by name: how a model's output layer is replaced or frozen after the model is built.

    rows.py        frozen-init, frozen-sphere, frozen-code, frozen-etf: rows that are constructed
    donor.py       frozen-donor, frozen-donor-permuted: rows of a finished run
    normalised.py  sphere, class-means: heads of normalised features;  centred

A further one is a function and an entry. The function replaces the layer, or freezes it (`requires_grad = False`), in
place, and draws what is random from the generator that it is given: so every other initial weight keeps its bits. It
returns what must happen while the model is trained (`HeadUpdates`), or None. This file does not import torch: names are
checked where settings are read, which must stay quick.
"""

import hashlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from collapselab.errors import ConfigError
from collapselab.training.optimizers import About

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from collapselab.training.heads.rows import HeadInputs, HeadUpdates

    Function = Callable[[Any, HeadInputs, Generator], HeadUpdates | None]

OF_DONORS = ("frozen-donor", "frozen-donor-permuted")


class HeadSettings(Protocol):
    """The settings that a head is made from, and that decide whether it can be."""

    @property
    def head(self) -> str: ...
    @property
    def donor(self) -> str | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def tied(self) -> bool: ...
    @property
    def width(self) -> int: ...


def _from(module: str, name: str, words: str) -> "Function":
    """Return a function of a module of this package, which is imported when the head is made."""

    def make(model: Any, inputs: "HeadInputs", generator: "Generator") -> "HeadUpdates | None":
        made: HeadUpdates | None = getattr(import_module(f"{__name__}.{module}"), name)(model, inputs, generator)
        return made

    make.__doc__ = words
    return make


HEADS: "dict[str, Function]" = {
    "learned": _from("rows", "learned", "Trained with the rest."),
    "frozen-init": _from("rows", "as_initialised", "The rows that the library initialises."),
    "frozen-sphere": _from("rows", "on_the_sphere", "Directions that are independent and uniform."),
    "frozen-code": _from("rows", "spread", "Directions that are far from each other."),
    "frozen-etf": _from("rows", "simplex_frame", "The simplex frame, which exists for K ≤ D + 1."),
    "frozen-donor": _from("donor", "as_given", "The donor's rows."),
    "frozen-donor-permuted": _from(
        "donor", "permuted", "The donor's rows, each for another token of similar frequency."
    ),
    "class-means": _from(
        "normalised", "class_means", "Directions of class means, from a table that follows the features."
    ),
    "sphere": _from("normalised", "sphere", "Rows of one length about their mean, and features of one length."),
    "centred": _from("normalised", "centred", "Learned rows whose mean is subtracted after every update."),
}

_FROZEN = "frozen heads: arXiv:1801.04540"
_STAY = "head_* stay what they are; duality_cos_mean and agreement, against"

ABOUT: dict[str, About] = {
    "learned": About("⟨h, w_c⟩, w_c learned", "–"),
    "frozen-init": About("⟨h, w_c⟩, w_c as initialised", _FROZEN),
    "frozen-sphere": About(
        "⟨h, w_c⟩, w_c independent and uniform, ‖w_c‖ = 1", _FROZEN, must_move=f"{_STAY} frozen-init"
    ),
    "frozen-code": About(
        "⟨h, w_c⟩, ‖w_c‖ = 1, least mean of −log‖w_i − w_j‖ over pairs",
        "energy: MHE, arXiv:1805.09298",
        cost="once, 100·512·K·D",
        must_move=f"{_STAY} frozen-sphere",
    ),
    "frozen-etf": About(
        "⟨h, w_c⟩, ‖w_c‖ = 1, ⟨w_i, w_j⟩ = −1/(K − 1)",
        "frozen simplex frame: arXiv:2105.02375",
        must_move="etf_error of the output layer is 0",
    ),
    "frozen-donor": About(
        "⟨h, w_c⟩, w_c of a finished run",
        "this project",
        must_move="duality_cos_mean and agreement, against frozen-donor-permuted",
    ),
    "frozen-donor-permuted": About("⟨h, w_π(c)⟩, π a permutation within bins of frequency", "this project"),
    "class-means": About(
        "τ⟨ĥ, m̂_c⟩ + log π_c, τ learned, m̂_c the direction of the class mean about the mean of all",
        "this project",
        cost="N·D and K·D; one pass over the training split for a checkpoint",
        must_move="duality_cos_mean approaches 1",
    ),
    "sphere": About(
        "τ⟨ĥ, ŵ_c⟩, τ and ŵ_c learned, Σ_c ŵ_c = 0",
        "after NormFace, arXiv:1704.06369",
        cost="K·D",
        must_move="head_norm_cv approaches 0; norm_cv too where classes are points",
    ),
    "centred": About(
        "⟨h, w_c⟩, w_c learned, the mean of all rows subtracted after every update",
        "μ-centring, arXiv:2601.02031",
        cost="K·D",
        must_move="head_sum is 0",
    ),
}


def check_head(settings: HeadSettings, *, vocabulary: int, tokenizer: Path | None = None) -> None:
    """ConfigError where the model of the settings cannot have the head that they name.

    `tokenizer` is the tokenizer.json of the corpus, where it is there already.
    """
    head, of_run = settings.head, settings.donor
    if settings.tied and head != "learned":
        raise ConfigError(f"head: {head} is not the input embeddings, but tied is true. Set tied to false.")
    if of_run is not None and head not in OF_DONORS:
        raise ConfigError(
            f"donor: {of_run} is given, but the head {head} takes none. Choose {' or '.join(OF_DONORS)}, or no donor."
        )
    if head in OF_DONORS:
        if of_run is None:
            raise ConfigError(f"head: {head} needs a donor. Name the folder of a finished run as donor.")
        from collapselab.training.heads.donor import check_donor

        check_donor(of_run, classes=vocabulary, dim=settings.width, tokenizer=tokenizer)
    if head == "frozen-etf" and vocabulary > settings.width + 1:
        raise ConfigError(
            f"head: frozen-etf of {vocabulary:,} tokens has no place in {settings.width:,} dimensions, which hold a "
            f"simplex frame of at most {settings.width + 1:,}. Choose a width of at least {vocabulary - 1:,}, or a "
            "smaller vocabulary (collapselab corpus build … --tokenizer characters)."
        )


def make_head(model: Any, settings: HeadSettings, *, counts: "Tensor") -> "HeadUpdates | None":
    """Give the model the output layer that the settings name; return what updates it while it is trained."""
    from torch import Generator

    from collapselab.training.heads.rows import HeadInputs

    digest = hashlib.blake2b(f"{settings.seed} head {settings.head}".encode(), digest_size=7).digest()
    made = HEADS[settings.head](
        model, HeadInputs(counts, settings.donor), Generator().manual_seed(int.from_bytes(digest))
    )
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if tied != model.config.tie_word_embeddings:  # a checkpoint would be loaded with the weights of the other layer
        raise ConfigError(f"head: {settings.head} is not the input embeddings, but tied is true. Set tied to false.")
    return made
