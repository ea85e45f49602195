"""`isotropy`: the variance of the features spread over all directions alike, whatever their labels.

    R = −(PR − 1) / (D − 1),        PR = (tr Σ)² / tr Σ²

with Σ the covariance of the step's features: PR is the participation ratio, 1 on a line and D where all directions have
the same variance; R is −IsoScore* without shrinkage. Between −1 and 0, free of scale.
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form


@closed_form
def penalty(step: Step) -> Penalty | None:
    """∂PR/∂X = 4 q/(N−1) (X − q X Σ) with q = tr Σ / tr Σ² and X the centred features."""
    features = step.features.detach()
    tokens, dim = features.shape
    if tokens < 2 or dim < 2:
        return None
    centred = features - features.mean(0)
    covariance = centred.T @ centred / (tokens - 1)
    trace, square = covariance.trace(), covariance.square().sum()
    if not square > 0:
        return None
    factor = trace / square
    gradient = (centred - (centred @ covariance).mul_(factor)).mul_(-4 * factor / (tokens - 1) / (dim - 1))
    return Penalty(-(trace * factor - 1) / (dim - 1), of_features=gradient)


ISOTROPY = Intervention(
    "isotropy",
    "Spreads the variance of features over all directions (+), or onto few (−), blind to labels.",
    "−(PR − 1)/(D − 1), PR = (tr Σ)²/tr Σ² of the step's covariance",
    "I-STAR, arXiv:2305.19358: closed form of IsoScore*",
    "participation",
    "both",
    penalty,
    plus="rises",
    cost="N·D²",
    blind=True,
)
