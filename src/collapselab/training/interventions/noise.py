"""`noise`: a gradient without direction at the dose of the others, the control for what any added gradient does.

R = mean over tokens of ⟨ε, h⟩,        ε drawn again at every step, normal
"""

from collapselab.training.interventions.penalty import Intervention, Penalty, Step, closed_form


@closed_form
def penalty(step: Step) -> Penalty:
    """∂R/∂h = ε / tokens."""
    import torch

    features = step.features
    drawn = torch.randn(features.shape, generator=step.generator).to(features).div_(len(features))
    return Penalty((drawn * features).sum(), of_features=drawn)


NOISE = Intervention(
    "noise",
    "Adds normal noise to the gradient of the features, blind to labels: the sham of shams.",
    "mean ⟨ε, h⟩, ε normal and drawn at every step",
    "this project",
    None,
    "+",
    penalty,
    cost="N·D normal numbers",
    blind=True,
)
