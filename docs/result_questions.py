"""The questions of docs/results: the suite that answers each, and what its page shows of it."""

from dataclasses import dataclass
from typing import final

from collapselab.analysis.subsets import ALL, WITHIN

PAPER = ("cdnv_k2", "logdist_uncentred_cv", "duality_cos_mean", "duality_cos_cv", "agreement")
"""One metric of the paper's Table 1 for each property."""
PRIMARY = ("cdnv_log", "logdist_std", "duality_cos_mean", "duality_cos_std", "agreement")
"""Those by which effects are judged."""


@final
@dataclass(frozen=True)
class Question:
    """One page: its table has a row for each combination of `by`, the mean over seeds of `metrics` at the last
    checkpoint (or at each, with `checkpoints`); `figures` are those of `report`, `topics` those of the summary."""

    title: str
    by: tuple[str, ...]
    figures: tuple[str, ...]
    topics: tuple[str, ...]
    metrics: tuple[str, ...] = PRIMARY
    """Of the training split; with ` (validation)` after it, of the other."""
    outcomes: tuple[str, ...] = ()
    """Columns of runs.csv that the table has beside the validation loss."""
    checkpoints: bool = False
    null: bool = False
    published: str = ""
    """The subset (of `PUBLISHED`) in which the page sets correlations with the loss beside the paper's."""
    contexts: tuple[str, ...] = ()
    """Metrics of contexts of which the page has a table: a row for each length and combination of `by`."""


QUESTIONS = {
    "initialisation": Question(
        "At initialisation", ("tokens",), ("training", "phases", "layers", "bins"), ("models", "phases"),
        metrics=(*PRIMARY, "cdnv_k2"), checkpoints=True, null=True,
    ),
    "scale": Question(
        "With scale", ("width", "depth"), ("collapse", "width_lines", "loss_and_scale"),
        ("models", "reversal", "across models", "trends", "controls", "prediction"),
        metrics=(*PAPER, "cdnv_log", "lognorm_mean"), published=ALL,
    ),
    "training": Question(
        "With regularisation and training length", ("weight_decay", "dropout", "label_smoothing", "epoch"),
        ("regularisation", "training"), ("models", "trends", "diagnosis"), metrics=(*PRIMARY, "cdnv_k2"),
        checkpoints=True,
    ),
    "overfitting": Question(
        "Past the best validation loss", ("weight_decay", "dropout", "label_smoothing", "epoch"),
        ("training", "regularisation"), ("models", "trends", "diagnosis"),
        metrics=(*PRIMARY, "cdnv_log (validation)", "cdnv_k2"), outcomes=("train_loss",), checkpoints=True,
    ),
    "seeds": Question(
        "At fixed scale", (), ("forest", "seeds"), ("models", "scale held fixed", "reversal"), metrics=PAPER,
        published=WITHIN,
    ),
    "text": Question("Other text", ("corpus",), (), ("models",), null=True),  # losses of several texts share no axis
    "real": Question("Real models", ("run",), ("atlas_layers",), ("models",), null=True),
    "contexts": Question(
        "Contexts and the floor of NC1", ("corpus",), ("how_far_back",), ("models",),
        metrics=("within_share", "cdnv_log", "agreement"),
        contexts=(
            "context_within", "token_within_context", "token_between_contexts", "in_support_slope", "in_support_r2",
            "entropy_gap",
        ),
    ),
    "families": Question("Other models", ("family", "tied"), ("collapse",), ("models",)),
    "coupling": Question(
        "Other optimisers", ("tied", "optimizer", "coupling"), ("manipulation", "effects"),
        ("models", "as a cause"), metrics=(*PRIMARY, "head_sum"),
    ),
    "longer": Question(
        "As a cause, five times as long", ("intervene", "tokens"), ("effects", "pace"), ("models", "as a cause"),
        checkpoints=True,
    ),
    "cause": Question(
        "As a cause", ("intervene",), ("manipulation", "effects", "instruments", "shams", "pace"),
        ("models", "as a cause"),
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
