"""Every penalty of the catalogue from its definition, in plain loops, with a graph. Shares no code with the package.

Each takes features (tokens, dim), labels, sequences, the weight of the output layer and, where it needs one, a table of
means by class, whose gradient is that of the mean of the class's tokens.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

Table = dict[int, Tensor]


def groups(labels: Tensor) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        found.setdefault(label, []).append(place)
    return found


def repeated(labels: Tensor) -> list[list[int]]:
    return [places for _, places in sorted(groups(labels).items()) if len(places) >= 2]


def scatter(rows: Tensor) -> Tensor:
    centre = sum(rows) / len(rows)
    return sum(((row - centre) ** 2).sum() for row in rows)


def total_variance(features: Tensor, labels: Tensor) -> Tensor:
    used = [place for places in repeated(labels) for place in places]
    return scatter(features[used]) / (len(used) - 1)


def within(features: Tensor, labels: Tensor, *_: object) -> Tensor:
    classes = repeated(labels)
    summed = sum(scatter(features[places]) for places in classes)
    return summed / sum(len(places) - 1 for places in classes) / total_variance(features, labels)


def floor(features: Tensor, labels: Tensor, *_: object) -> Tensor:
    total, terms = total_variance(features, labels), []
    for places in repeated(labels):
        share = scatter(features[places]) / (len(places) - 1) / total
        terms.append((len(places) - 1) * torch.clamp(0.85 - share, min=0))
    return sum(terms) / sum(len(places) - 1 for places in repeated(labels))


def cdnv(features: Tensor, labels: Tensor, *_: object) -> Tensor:
    classes = [features[places] for places in repeated(labels)]
    terms = []
    for one, other in itertools.combinations(classes, 2):
        spread = (scatter(one) / len(one) + scatter(other) / len(other)) / 2
        terms.append(torch.clamp(spread / ((one.mean(0) - other.mean(0)) ** 2).sum(), max=1))
    return sum(terms) / len(terms)


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one @ other) / (one @ one).sqrt() / (other @ other).sqrt()


def simreg(features: Tensor, labels: Tensor, sequences: Tensor, *_: object) -> Tensor:
    losses = []
    for places in groups(sequences).values():
        for anchor in places:
            others = [place for place in places if place != anchor]
            exps = {p: torch.exp(cosine(features[anchor], features[p]) / 0.1) for p in others}
            alike = [p for p in others if labels[p] == labels[anchor]]
            if alike:
                losses.append(-sum(torch.log(exps[p] / sum(exps.values())) for p in alike) / len(alike))
    return sum(losses) / len(losses)


def disperse(features: Tensor, labels: Tensor, sequences: Tensor, *_: object) -> Tensor:
    logs = []
    for places in groups(sequences).values():
        angles = [torch.acos(cosine(features[i], features[j])) for i, j in itertools.permutations(places, 2)]
        logs.append(torch.log(sum(torch.exp(-angle / (math.pi * 0.5)) for angle in angles) / len(angles)))
    return sum(logs) / len(logs)


def energy(rows: list[Tensor]) -> Tensor:
    units = [row / (row @ row).sqrt() for row in rows]
    terms = [-torch.log(((u - v) @ (u - v)).sqrt()) for u, v in itertools.combinations(units, 2)]
    return sum(terms) / len(terms)


def uniform(features: Tensor, labels: Tensor, sequences: Tensor, weight: Tensor, *_: object) -> Tensor:
    rows = [weight[label] for label in sorted(groups(labels))]
    centre = sum(rows) / len(rows)
    return energy([row - centre for row in rows])


def centre(features: Tensor, labels: Tensor, sequences: Tensor, weight: Tensor, *_: object) -> Tensor:
    return (sum(weight) ** 2).sum() / sum((row**2).sum() for row in weight)


def centred_means(features: Tensor, labels: Tensor, table: Table) -> dict[int, Tensor]:
    """Of the classes of the step, with the values of the table and the gradients of the step's tokens."""
    means = dict(table)
    for label, places in groups(labels).items():
        if label in means:
            own = features[places].mean(0)
            means[label] = means[label] + own - own.detach()
    centre = sum(means.values()) / len(means)
    return {label: means[label] - centre for label in sorted(groups(labels)) if label in means}


def uniform_means(features: Tensor, labels: Tensor, _: Tensor, __: Tensor, table: Table) -> Tensor:
    return energy(list(centred_means(features, labels, table).values()))


def cosines(features: Tensor, labels: Tensor, weight: Tensor, table: Table) -> Tensor:
    return torch.stack([cosine(weight[c], mean) for c, mean in centred_means(features, labels, table).items()])


def dual(features: Tensor, labels: Tensor, _: Tensor, weight: Tensor, table: Table) -> Tensor:
    return sum(1 - one for one in cosines(features, labels, weight, table)) / len(
        centred_means(features, labels, table)
    )


def dual_uniform(features: Tensor, labels: Tensor, _: Tensor, weight: Tensor, table: Table) -> Tensor:
    return cosines(features, labels, weight, table).std(correction=0)


def isotropy(features: Tensor, *_: object) -> Tensor:
    values = torch.linalg.eigvalsh(torch.cov(features.T))
    return -(values.sum() ** 2 / (values**2).sum() - 1) / (features.shape[1] - 1)


def flat(features: Tensor, labels: Tensor, _: Tensor, weight: Tensor, *__: object) -> Tensor:
    parts = []
    for feature in features:
        chances = torch.softmax(weight @ feature, 0)
        mixed = sum(p * w for p, w in zip(chances, weight, strict=True))
        spread = sum(p * (w @ w) for p, w in zip(chances, weight, strict=True)) - mixed @ mixed
        parts.append((feature @ feature) * spread)
    mean_square = sum(feature @ feature for feature in features) / len(features)
    return sum(parts) / len(features) / (mean_square * (weight**2).sum() / len(weight))


ORACLES: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        within, floor, cdnv, simreg, disperse, uniform, uniform_means, dual, dual_uniform, isotropy, centre, flat
    )
}  # fmt: skip
