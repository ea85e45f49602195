"""`dual`: rows of the output layer and centred class means brought to one direction.

    R = mean_c (1 − cos(w_c, m_c − m̄))

over the classes of the step, with their means and the centre m̄ from the table of `class_means.py`. It acts on features
and output layer at once; its dose is over the features.
"""

from typing import TYPE_CHECKING, NamedTuple

from collapselab.training.interventions.penalty import HeadRows, Intervention, Penalty, Step, closed_form

if TYPE_CHECKING:
    from torch import Tensor

    from collapselab.training.interventions.class_means import BatchMeans
    from collapselab.training.interventions.unit_rows import Directions


class Cosines(NamedTuple):
    """cos(w_c, m_c − m̄) of the classes of a step."""

    values: "Tensor"
    ids: "Tensor"
    rows: "Directions"
    centred: "Directions"
    means: "BatchMeans"

    def penalty(self, value: "Tensor", of_values: "Tensor", step: Step) -> Penalty:
        """A penalty with this gradient in the cosines."""
        of_row = self.rows.gradient(self.centred.units * of_values[:, None])
        of_centred = self.centred.gradient(self.rows.units * of_values[:, None])
        return Penalty(value, self.means.of_features(of_centred, step.classes), HeadRows(self.ids, of_row))


def cosines(step: Step) -> Cosines | None:
    """The cosines of the step's classes, None where fewer than two have a mean."""
    import torch

    from collapselab.training.interventions.class_means import batch_means
    from collapselab.training.interventions.unit_rows import directions

    means = batch_means(step)
    if means is None:
        return None
    ids = step.classes.ids[means.places]
    rows = directions(step.head.weight.detach()[ids].to(step.features.dtype))
    centred = directions(means.centred)
    return Cosines(torch.linalg.vecdot(rows.units, centred.units), ids, rows, centred, means)


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂R/∂cos = −1/K."""
    cosine = cosines(step)
    if cosine is None:
        return None
    values = cosine.values
    return cosine.penalty(1 - values.mean(), values.new_full(values.shape, -1 / len(values)), step)


DUAL = Intervention(
    "dual",
    "Turns rows of the output layer and class means toward each other (+), or apart (−).",
    "mean_c (1 − cos(w_c, m_c − m̄))",
    "after arXiv:2410.04472",
    "duality_cos_mean",
    "both",
    penalty,
    plus="rises",
    cost="N·D; the centre of the table, K·D",
)
