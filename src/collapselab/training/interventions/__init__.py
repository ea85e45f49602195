"""Interventions: penalties that a training adds to its cross-entropy, to move a property of its features.

A further one is a file of this package with its penalty, and an entry of `INTERVENTIONS`:

    @closed_form
    def penalty(step: Step) -> Penalty:
        return Penalty(step.features.square().mean(), of_features=2 * step.features / step.features.numel())

    NORM = Intervention("norm", "Makes features shorter.", "mean of h²", "ours", "norm_cv", "both", penalty)

A penalty may return a number with a graph in place of its gradients, which is slower. `penalty.py` says what a penalty
gets and gives; `classes.py`, `class_means.py`, `sequences.py` and `unit_rows.py` are what several of them share;
`dose.py` reads the text of a setting (`norm:+0.1:sham@0.7-1.0`); `term.py` is one intervention in a training, with the
factor that holds its dose; `training/objective.py` adds its gradient to that of the cross-entropy. A penalty's file
imports torch inside its functions: the names are checked where settings are read, which must stay quick.
"""

from collapselab.training.interventions.cdnv import CDNV
from collapselab.training.interventions.centre import CENTRE
from collapselab.training.interventions.disperse import DISPERSE
from collapselab.training.interventions.dual import DUAL
from collapselab.training.interventions.dual_uniform import DUAL_UNIFORM
from collapselab.training.interventions.flat import FLAT
from collapselab.training.interventions.floor import FLOOR
from collapselab.training.interventions.isotropy import ISOTROPY
from collapselab.training.interventions.noise import NOISE
from collapselab.training.interventions.penalty import HeadRows, Intervention, Penalty, Place, Step, closed_form
from collapselab.training.interventions.simreg import SIMREG
from collapselab.training.interventions.uniform import UNIFORM
from collapselab.training.interventions.uniform_means import UNIFORM_MEANS
from collapselab.training.interventions.within import WITHIN

__all__ = ["INTERVENTIONS", "HeadRows", "Intervention", "Penalty", "Place", "Step", "closed_form"]

INTERVENTIONS: dict[str, Intervention] = {
    entry.name: entry
    for entry in (
        WITHIN,
        FLOOR,
        CDNV,
        SIMREG,
        DISPERSE,
        UNIFORM,
        UNIFORM_MEANS,
        DUAL,
        DUAL_UNIFORM,
        ISOTROPY,
        CENTRE,
        FLAT,
        NOISE,
    )
}
"""Every intervention by its name."""
