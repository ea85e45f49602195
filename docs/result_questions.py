"""The questions of docs/results: the suite that answers each, and what its page shows of it."""

from dataclasses import dataclass
from typing import final

from collapselab.analysis.subsets import ALL, WITHIN

NC1 = ("cdnv_k2", "cdnv", "cdnv_log", "within_share", "vci", "directional_cdnv")
"""The paper's metric first. They move in different directions, so every page prints those that its tables have."""
OTHERS = ("logdist_std", "duality_cos_mean", "duality_cos_std", "agreement")
"""One metric for each other property; effects are judged by these and by `cdnv_log`."""


@final
@dataclass(frozen=True)
class Question:
    """One page: its table has a row for each combination of `by`, the mean over seeds of `metrics` at the last
    checkpoint (or at each, with `checkpoints`); `figures` are those of `report`."""

    title: str
    by: tuple[str, ...]
    figures: tuple[str, ...]
    metrics: tuple[str, ...] = (*NC1, *OTHERS)
    """Of the training split; with ` (validation)` after it, of the other."""
    outcomes: tuple[str, ...] = ()
    """Columns of runs.csv that the table has beside the validation loss."""
    effects: bool = False
    """Whether the page has a table of the arms' effects on the outcome."""
    checkpoints: bool = False
    null: bool = False
    published: str = ""
    """The subset (of `PUBLISHED`) in which the page sets correlations with the loss beside the paper's."""
    contexts: tuple[str, ...] = ()
    """Metrics of contexts of which the page has a table: a row for each length and combination of `by`."""


QUESTIONS = {
    "initialisation": Question(
        "Initialisation and early training", ("tokens",), ("training", "layers", "bins"),
        metrics=(*NC1, *OTHERS, "ncc_accuracy"), checkpoints=True, null=True,
    ),
    "scale": Question(
        "Width and depth", ("width", "depth"), ("collapse", "width_lines"),
        metrics=(*NC1, "logdist_uncentred_cv", "duality_cos_mean", "duality_cos_cv", "agreement", "lognorm_mean"),
        published=ALL,
    ),
    "training": Question(
        "Regularisation and training length", ("weight_decay", "dropout", "label_smoothing", "epoch"),
        ("regularisation", "training"), checkpoints=True,
    ),
    "overfitting": Question(
        "Training past the best validation loss", ("weight_decay", "dropout", "label_smoothing", "epoch"),
        ("training", "regularisation"),
        metrics=(*NC1, *OTHERS, "ncc_accuracy", "cdnv_k2 (validation)", "cdnv_log (validation)"),
        outcomes=("train_loss_running", "gap", "val_accuracy"), checkpoints=True,
    ),
    "seeds": Question(
        "Seeds at fixed scale", (), ("forest", "seeds"),
        metrics=(*NC1, "logdist_uncentred_cv", "duality_cos_mean", "duality_cos_cv", "agreement"), published=WITHIN,
    ),
    "text": Question("Five texts", ("corpus",), (), null=True),  # losses of several texts share no axis
    "real": Question("Real models", ("run",), ("layers",), null=True),
    "contexts": Question(
        "Variance within tokens and contexts", ("corpus", "epoch"), ("how_far_back",),
        metrics=(*NC1, "agreement"),
        contexts=(
            "context_within", "token_within_context", "token_between_contexts", "in_support_slope", "in_support_r2",
            "entropy_gap",
        ),
        checkpoints=True,
    ),
    "families": Question("Architectures and tied embeddings", ("family", "tied"), ("collapse",)),
    "coupling": Question(
        "Coupled weight decay", ("tied", "optimizer", "coupling"), ("manipulation", "effects"), effects=True,
        outcomes=("clipped",),
    ),
    "longer": Question(
        "Interventions, five times as long", ("intervene", "tokens"), ("effects",), effects=True,
        checkpoints=True,
    ),
    "cause": Question(
        "Interventions", ("intervene",), ("manipulation", "effects", "attribution", "shams"), effects=True,
        metrics=(*NC1, *OTHERS, "participation"),
    ),
    "separable-pilot": Question(
        "NC1 and GNC2 apart: first pilot", ("intervene",), (), effects=True, outcomes=("clipped",),
    ),
    "separable-pilot-2": Question(
        "NC1 and GNC2 apart: second pilot", ("intervene",), (), effects=True, outcomes=("clipped",),
    ),
    "separable": Question(
        "NC1 and GNC2 apart", ("intervene",), ("manipulation", "effects"), effects=True,
        metrics=(*NC1, *OTHERS, "logdist_uncentred_std", "participation"),
        outcomes=("train_loss", "gap", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
    "imdb": Question(
        "Interventions on film reviews", ("intervene",), ("effects",), effects=True,
        outcomes=("train_loss", "gap", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
    "code": Question(
        "Interventions on Python code", ("intervene",), ("effects",), effects=True,
        outcomes=("train_loss", "gap", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
    "rate-pilot": Question(
        "Interventions at four learning rates", ("intervene", "lr"), (), metrics=("cdnv_k2", "cdnv_log", "within_share",
        "logdist_std", "agreement"), outcomes=("train_loss", "gap", "clipped"),
    ),
    "rate-confirm": Question(
        "Interventions at the best learning rate", ("intervene",), ("effects",), effects=True,
        outcomes=("train_loss", "gap", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
    "gap-100": Question(
        "Interventions and a large generalisation gap", ("intervene",), ("effects",), effects=True,
        outcomes=("train_loss", "gap", "best_val_loss", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
    "gap-400": Question(
        "Interventions and a small generalisation gap", ("intervene",), ("effects",), effects=True,
        outcomes=("train_loss", "gap", "best_val_loss", "loss_after_temperature", "val_accuracy", "clipped"),
    ),
}  # fmt: skip
"""By the name of the recipe in recipes/ and of the page."""

PUBLISHED = {
    ALL: {
        "cdnv_k2": 0.957, "lognorm_cv": 0.930, "cosine_cv": -0.593, "logdist_uncentred_cv": -0.852,
        "duality_cos_mean": -0.558, "duality_cos_cv": 0.833, "agreement": -0.944,
    },
    WITHIN: {
        "cdnv_k2": 0.441, "lognorm_cv": 0.162, "cosine_cv": -0.468, "logdist_uncentred_cv": -0.699,
        "duality_cos_mean": -0.568, "duality_cos_cv": 0.006, "agreement": -0.700,
    },
}  # fmt: skip
"""r with the validation loss over the 230 published models, and over their 21 seeds of 2 × 768 (of the logarithm
for `cdnv_k2`), as `analyze` gives it for lc-2024_05_18.csv of rhubarbwu/linguistic-collapse (arXiv:2405.17767)."""
PUBLISHED_MODELS = {ALL: "230 published models", WITHIN: "21 published seeds"}
