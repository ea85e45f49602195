"""Interventions: penalties that a training adds to its cross-entropy, to move a property of its features.

    dose.py          the text of a setting, as in `within:-0.1:sham@0.7-1.0`
    step.py          what a penalty is computed from, and what it returns
    features.py      penalties of the features alone;  sequence.py: of tokens inside a sequence
    output_layer.py  penalties of the output layer
    term.py          one intervention in a training, with the factor that holds its dose

A further one is a function of a `Step` and an entry of `INTERVENTIONS`. This file does not import torch: names are
checked where settings are read, which must stay quick.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, final

if TYPE_CHECKING:
    from torch import Tensor

    from collapselab.training.interventions.step import Penalty, Step

    Function = Callable[[Step], Penalty | Tensor | None]

Place = Literal["features", "head"]


@final
@dataclass(frozen=True)
class Intervention:
    """A penalty, and what is known of it."""

    name: str
    words: str
    """What it does, in one sentence."""
    formula: str
    source: str
    primary: str | None
    """The metric that it must move: an id of the catalogue; None if there is none."""
    signs: Literal["+", "-", "both"]
    """Signs of the doses that make sense: + makes the penalty smaller, - makes it larger."""
    penalty: "Function"
    """Return the penalty with its gradients, or a number with a graph to the features or the output layer's weight;
    None where it cannot act."""
    dose_over: Place = "features"
    """Whose gradients the dose compares: `head` for a penalty of the output layer alone."""
    plus: Literal["falls", "rises", ""] = ""
    """Where a dose of + moves the primary metric."""
    cost: str = ""
    """Multiplications at every step; K classes, D dimensions, N tokens."""
    blind: bool = False
    """Whether it is the same for permuted labels: then its sham is the penalty itself."""

    @property
    def must_move(self) -> str:
        """Its primary metric and where it moves, as in `cdnv_log` falls for +, rises for −."""
        if self.primary is None:
            return "–"
        if self.signs != "both":
            return f"{self.primary} {self.plus}"
        opposite = {"falls": "rises", "rises": "falls", "": ""}[self.plus]
        return f"{self.primary} {self.plus} for +, {opposite} for −"


def _from(module: str, name: str) -> "Function":
    """Return a penalty of a module of this package, which is imported when the penalty is first computed."""

    def penalty(step: "Step") -> "Penalty | Tensor | None":
        found: Penalty | Tensor | None = getattr(import_module(f"{__name__}.{module}"), name)(step)
        return found

    return penalty


# fmt: off
_CATALOGUE = [
    Intervention(
        "within", "Pulls the features of one next token together (+), or spreads them (−).",
        "S_W / S_T, S_W = Σ_{n_c≥2} Σ‖h − h̄_c‖² / Σ(n_c − 1), S_T the same about one centre",
        "this project, after center loss (Wen et al. 2016)",
        "cdnv_log", "both", _from("features", "within"), plus="falls", cost="N·D",
    ),
    Intervention(
        "floor", "Keeps classes from varying less than a floor: collapse prevented, not reversed.",
        "Σ_c (n_c − 1) max(0, γ − s_c²/S_T) / Σ_c (n_c − 1), γ = 0.85, s_c²/S_T a moving average",
        "hinge after VICReg, arXiv:2105.04906",
        "within_share", "+", _from("features", "floor"), plus="rises", cost="N·D",
    ),
    Intervention(
        "cdnv", "Makes classes narrow for their distance (+), or wide (−), pair by pair.",
        "pair mean of (V_c + V_c')/(2‖h̄_c − h̄_c'‖²), at most 1, over 256 classes of the step",
        "arXiv:2509.17738",
        "cdnv_log", "both", _from("features", "cdnv"), plus="falls", cost="N·D, and n²·D for n ≤ 256 classes",
    ),
    Intervention(
        "simreg", "Draws tokens of a sequence with the same next token together, and others apart.",
        "supervised contrastive loss on next tokens inside a sequence, τ 0.1",
        "form ours, after SimReg, arXiv:2605.08809",
        "cdnv_log", "+", _from("sequence", "simreg"), plus="falls",
        cost="n²·D for n ≤ 256 tokens of each sequence",
    ),
    Intervention(
        "disperse", "Pushes the tokens of a sequence apart in angle, blind to labels.",
        "log mean exp(−arccos(cos)/(πτ)) over tokens of a sequence, τ 0.5",
        "dispersion loss, arXiv:2602.00217 (τ ours)",
        "dispersion", "+", _from("sequence", "disperse"), plus="rises",
        cost="n²·D for n ≤ 256 tokens of each sequence", blind=True,
    ),
    Intervention(
        "uniform", "Spreads the rows of the output layer evenly over all directions (+), or clusters them (−).",
        "pair mean of −log‖û_i − û_j‖ over 512 rows w_c − w̄ of the output layer, fewer in small models",
        "MHE, arXiv:1805.09298; HUG, arXiv:2303.06484",
        "head_logdist_std", "both", _from("output_layer", "uniform"), "head", "falls",
        cost="n²·D for n ≤ 512 rows", blind=True,
    ),
    Intervention(
        "uniform_means", "Spreads class means evenly over all directions (+), or clusters them (−).",
        "pair mean of −log‖û_i − û_j‖ over 512 means m_c − m̄ of the table, fewer in small models",
        "MHE, arXiv:1805.09298; HUG, arXiv:2303.06484",
        "logdist_std", "both", _from("features", "uniform_means"), plus="falls",
        cost="n²·D for n ≤ 512 classes; the centre of the table, K·D",
    ),
    Intervention(
        "dual", "Turns rows of the output layer and class means toward each other (+), or apart (−).",
        "mean_c (1 − cos(w_c, m_c − m̄))",
        "after arXiv:2410.04472",
        "duality_cos_mean", "both", _from("output_layer", "dual"), plus="rises",
        cost="N·D; the centre of the table, K·D",
    ),
    Intervention(
        "dual_uniform", "Makes the cosines of output rows and class means alike over classes (+), or unlike (−).",
        "standard deviation over c of cos(w_c, m_c − m̄)",
        "after arXiv:2410.04472",
        "duality_cos_std", "both", _from("output_layer", "dual_uniform"), plus="falls",
        cost="N·D; the centre of the table, K·D",
    ),
    Intervention(
        "isotropy", "Spreads the variance of features over all directions (+), or onto few (−), blind to labels.",
        "−(PR − 1)/(D − 1), PR = (tr Σ)²/tr Σ² of the step's covariance",
        "I-STAR, arXiv:2305.19358: closed form of IsoScore*",
        "participation", "both", _from("features", "isotropy"), plus="rises", cost="N·D²", blind=True,
    ),
    Intervention(
        "centre", "Brings the sum of the rows of the output layer to zero (+), or lets it grow (−).",
        "‖Σ_s w_s‖² / ‖W‖²_F over all rows of the output layer",
        "Output Embedding Centering, arXiv:2601.02031",
        "head_sum", "both", _from("output_layer", "centre"), "head", "falls", cost="K·D", blind=True,
    ),
    Intervention(
        "flat", "Makes the loss flat in the output layer (+), or sharp (−): the rival of collapse.",
        "E[‖h‖²(Σ_s p_s‖w_s‖² − ‖Σ_s p_s w_s‖²)] / (E‖h‖²·‖W‖²_F/K)",
        "exact form of the relative flatness of arXiv:2509.17738",
        "curvature_relative", "both", _from("output_layer", "flat"), plus="falls",
        cost="seven products of n tokens with the output layer, n = 2N/√K", blind=True,
    ),
    Intervention(
        "noise", "Adds normal noise to the gradient of the features, blind to labels: the sham of shams.",
        "mean ⟨ε, h⟩, ε normal and drawn at every step",
        "this project",
        None, "+", _from("features", "noise"), cost="N·D normal numbers", blind=True,
    ),
]
# fmt: on

INTERVENTIONS: dict[str, Intervention] = {entry.name: entry for entry in _CATALOGUE}
"""Every intervention by its name."""
