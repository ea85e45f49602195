"""A table of the means of all classes, in which a class with one token in a step has its mean too.

A mean moves toward that of the step's n tokens by

    a = max(n / N, 1 − (1 − r)^n),        N the tokens of the class so far, r = 1/10

so that it is the plain mean at first and then remembers the last ten tokens or so. It is used from five tokens on. The
table is float32 and carries no gradient: what is computed from the mean of a class has its gradient in the class's
tokens of the step, as if the mean were theirs, 1/n of it in each of n tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.training.interventions.classes import Classes
from collapselab.training.interventions.penalty import Step

RATE = 0.1
READY = 5
"""Tokens from which on a mean is used."""


class BatchMeans(NamedTuple):
    """The means of the classes of a step that have a mean, about the centre of all classes that have one."""

    places: Tensor
    """Their places in `Classes.ids`."""
    centred: Tensor
    """(classes, dim) m_c − m̄, of the features' type."""
    known: int
    """Classes in the table that have a mean: m̄ is the mean of theirs."""

    def of_features(self, of_centred: Tensor, classes: Classes) -> Tensor:
        """The gradient in the features of what has this gradient in the centred means."""
        of_means = of_centred - of_centred.sum(0) / self.known
        shared = of_means / classes.sizes[self.places, None]
        of_class = shared.new_zeros(len(classes.ids), shared.shape[1])
        of_class[self.places] = shared
        return of_class[classes.of_token]


def batch_means(step: Step) -> BatchMeans | None:
    """Add the step's tokens to the table; the means of its classes, None where fewer than two have one."""
    means, counts = _updated(step)
    ready = counts >= READY
    places = ready[step.classes.ids].nonzero().squeeze(1)
    if len(places) < 2:
        return None
    known = int(ready.sum())
    centre = ready.to(means.dtype) @ means / known
    centred = (means[step.classes.ids[places]] - centre).to(step.features.dtype)
    return BatchMeans(places, centred, known)


def _updated(step: Step) -> tuple[Tensor, Tensor]:
    """The table and the tokens of each class, with this step's; both the same in all processes."""
    classes, dim = step.classes, step.features.shape[1]
    counts = step.kept.setdefault("counts", classes.counts.new_zeros(classes.vocabulary))
    means = step.kept.setdefault("means", torch.zeros(classes.vocabulary, dim, device=counts.device))
    new = step.total(classes.counts)
    ids = new.nonzero().squeeze(1)  # of all processes
    sums = classes.sums(classes.features).to(means.dtype)
    if len(ids) > len(classes.ids):
        own, sums = sums, sums.new_zeros(len(ids), dim)
        sums[torch.searchsorted(ids, classes.ids)] = own
    sums = step.total(sums)
    counts += new
    number = new[ids].to(means.dtype)
    share = torch.maximum(number / counts[ids], 1 - (1 - RATE) ** number)[:, None]
    means[ids] = torch.lerp(means[ids], sums / number[:, None], share)
    return means, counts
