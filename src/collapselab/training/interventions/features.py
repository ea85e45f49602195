"""Penalties of the features alone, and the table of class means. Two compare tokens inside a sequence.

A class with one token in a step has its mean in a table, which moves toward that of the step's n tokens by

    a = max(n / N, 1 − (1 − r)^n),        N the tokens of the class so far, r = 1/10

so that it is the plain mean at first and then remembers the last ten tokens or so. It is used from five tokens on. The
table is float32 and carries no gradient: what is computed from the mean of a class has its gradient in the class's
tokens of the step, as if the mean were theirs, 1/n of it in each of n tokens.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.training.interventions.step import Classes, Penalty, Step, if_finite, or_infinite

ROWS = 512
"""Most rows or means whose directions `uniform` and `uniform_means` compare."""
NEAREST = 0.01
"""Distance below which two directions count as this far apart: the energy is bounded, and has no gradient there."""

MEAN_RATE = 0.1
READY = 5
"""Tokens from which on the mean of a class is used."""

FLOOR = 0.85
"""γ: the share of the whole variability up to which a class is spread."""
FLOOR_TARGET = 0.8
"""The `within_share` that a training with floor:0.3 is to keep."""
FLOOR_RATE = 0.05
"""Share of a token in the moving average of its class, once it has more than 1 / FLOOR_RATE."""

CDNV_CLASSES, CDNV_LARGEST = 256, 1.0

TOKENS = 256
"""Most tokens of a sequence, fewer where the step is small; they are drawn again at every step."""

SIMREG_TEMPERATURE, DISPERSE_TEMPERATURE = 0.1, 0.5

NEARLY_ONE = 1 - 1e-6
"""A larger cosine counts as this one: the slope of arccos has no bound there."""


@torch.no_grad()
def within(step: Step) -> Penalty | None:
    """Variability within classes, as a share of all variability, in the tokens of a step.

        R = S_W / S_T
        S_W = Σ_{n_c ≥ 2} Σ ‖h − h̄_c‖² / Σ (n_c − 1),        S_T the same about one centre

    Between 0 and a little above 1, and free of scale.

        ∂R/∂h = 2/S_T · ((h − h̄_c) / Σ(n_c − 1) − R (h − h̄) / (N − 1))
    """
    classes = step.classes
    if not classes.can_compare:
        return None
    about = classes.about_centre
    variance = or_infinite(about.variance)
    freedom = len(step.features) - len(classes.ids)  # a class with one token adds nothing
    ratio = torch.linalg.vector_norm(classes.deviations).square() / freedom / variance
    gradient = classes.deviations * (2 / freedom / variance)
    gradient.addcmul_(about.differences, -2 * ratio / variance / (about.tokens - 1))
    return Penalty(if_finite(ratio, variance), of_features=gradient)


@torch.no_grad()
def floor(step: Step) -> Penalty | None:
    """Spread classes that vary less than a floor, and leave those above it unchanged.

        R = Σ_c (n_c − 1) max(0, γ − s_c²/S_T) / Σ_c (n_c − 1),        s_c² = Σ ‖h − h̄_c‖² / (n_c − 1)

    over classes with two tokens or more; S_T is that of `within`. Classes are weighted as `within_share` weights them,
    by their tokens: with equal weights most of the dose went to classes with two tokens in a step, and frequent ones
    stayed below the floor.

    Two tokens say little of a class: s_c² of a step is below the floor by chance in many classes that are not. So the
    share of a class is a moving average over its last twenty tokens or so, and only its gradient is of the step.
    Otherwise tokens that are near each other by chance would be pushed apart whatever their labels are, and a sham
    would move as well.

    γ is above the `within_share` that is to be reached, as the hinge stops classes at γ that come from below, others
    stay below it, and `within_share` divides by n_c. As the dose is held, the force on the classes below the floor does
    not fade when they are few; with no class below, the step counts as one in which it could not act.

        ∂R/∂h = −2/(F S_T) · ((h − h̄_c) [c below] − B/S_T (h − h̄) / (N − 1)), F = Σ(n_c − 1), B the scatter below
    """
    classes = step.classes
    about = classes.about_centre if classes.can_compare else None
    variance = None if about is None else or_infinite(about.variance)
    shares = _moving_shares(step, variance)  # of all processes: also where this one has nothing to compare
    if about is None or variance is None:
        return None
    freedom = classes.sizes - 1
    below = ((classes.sizes >= 2) & (shares < FLOOR)).to(shares.dtype)
    value = (below * freedom * (FLOOR - shares)).sum() / freedom.sum()
    factor = -2 / (freedom.sum() * variance)
    gradient = classes.deviations * (factor * below)[classes.of_token][:, None]
    of_total = -factor * (below * classes.scatter).sum() / variance / (about.tokens - 1)
    return Penalty(if_finite(value, variance), of_features=gradient.addcmul_(about.differences, of_total))


def _moving_shares(step: Step, variance: Tensor | None) -> Tensor:
    """Return s_c²/S_T of the classes of this step, each the moving average of its class including this step."""
    classes, shape = step.classes, (2, step.classes.vocabulary)
    table = step.kept.setdefault("shares", step.features.new_zeros(shape))  # and the freedom behind each
    new = step.features.new_zeros(shape)
    if variance is not None:
        freedom = torch.where(variance.isfinite(), classes.sizes - 1, 0.0)
        new[:, classes.ids] = torch.stack([classes.scatter / variance, freedom])
    scatter, freedom = step.total(new)
    table[1] += freedom
    moved = torch.maximum(freedom / table[1].clamp(min=1), 1 - (1 - FLOOR_RATE) ** freedom)
    table[0].lerp_(scatter / freedom.clamp(min=1), moved)
    return table[0, classes.ids]


@torch.no_grad()
def cdnv(step: Step) -> Penalty | None:
    """Class-distance normalised variance of the classes of a step, a measure of NC1 that is its own penalty.

        R = pair mean of min(1, T),        T = (V_c + V_c') / (2‖h̄_c − h̄_c'‖²),   V_c = Σ ‖h − h̄_c‖² / n_c

    over classes with two tokens or more, at most 256. Free of scale. Classes that are wider than they are far apart,
    T > 1, have no gradient: otherwise the few pairs that nearly coincide dominate it, and `cdnv_log` can move against
    the dose. With d the squared distance of a pair, over K(K−1):

        ∂R/∂V_c = Σ 1/d,        ∂R/∂h̄_c = −4 Σ T/d (h̄_c − h̄_c')
    """
    classes = step.classes
    if not classes.can_compare:
        return None
    chosen = classes.repeated.nonzero().squeeze(1)
    chosen = chosen[step.drawn(len(chosen), step.pair_rows(CDNV_CLASSES))]
    means, sizes = classes.means[chosen], classes.sizes[chosen]
    means, pairs = means - means.mean(0), len(chosen) * (len(chosen) - 1)
    variances, norms = classes.scatter[chosen] / sizes, means.square().sum(1)
    distances = torch.addmm(norms[:, None] + norms, means, means.T, alpha=-2)
    coincident = distances <= 4 * torch.finfo(means.dtype).eps * (norms[:, None] + norms)
    distances.masked_fill_(coincident, torch.inf).fill_diagonal_(torch.inf)  # so that their T is 0
    terms = (variances[:, None] + variances) / 2 / distances
    of_variance = (terms < CDNV_LARGEST) / distances
    of_mean = of_variance * terms
    pulls = of_mean.sum(1)[:, None] * means - of_mean @ means
    # The index of each token's class among the chosen; tokens of other classes take the last row, which is zero.
    index = torch.full((len(classes.ids),), len(chosen))
    index[chosen] = torch.arange(len(chosen))
    index = index.to(means.device)[classes.of_token]
    factors = of_variance.sum(1) * (2 / pairs) / sizes
    factors = torch.cat([factors, factors.new_zeros(1)])[index]
    shared = pulls * (-4 / pairs / sizes)[:, None]
    gradient = torch.cat([shared, shared.new_zeros(1, shared.shape[1])])[index]
    gradient.addcmul_(classes.deviations, factors[:, None])
    return Penalty(terms.clamp(max=CDNV_LARGEST).sum() / pairs, of_features=gradient)


@torch.no_grad()
def uniform_means(step: Step) -> Penalty | None:
    """Class means spread evenly over all directions: `uniform` of the table of means.

        R = pair mean of −log‖û_i − û_j‖,        û_c = (m_c − m̄) / ‖m_c − m̄‖

    over classes of the step, at most 512, with their means and the centre m̄ from the table.
    """
    means = batch_means(step)
    if means is None:
        return None
    chosen = step.drawn(len(means.indices), step.pair_rows(ROWS))
    value, gradient = log_energy(means.centred[chosen])
    used = means._replace(indices=means.indices[chosen])
    return Penalty(value, of_features=used.of_features(gradient, step.classes))


@torch.no_grad()
def isotropy(step: Step) -> Penalty | None:
    """The variance of the features spread over all directions alike, whatever their labels.

        R = −(PR − 1) / (D − 1),        PR = (tr Σ)² / tr Σ²

    with Σ the covariance of the step's features: PR is the participation ratio, 1 on a line and D where all directions
    have the same variance; R is −IsoScore* without shrinkage. Between −1 and 0, free of scale.

        ∂PR/∂X = 4 q/(N−1) (X − q X Σ) with q = tr Σ / tr Σ² and X the centred features
    """
    features = step.features.detach()
    tokens, dim = features.shape
    if tokens < 2 or dim < 2:
        return None
    centred = features - features.mean(0)
    covariance = centred.T @ centred / (tokens - 1)
    trace, square = covariance.trace(), or_infinite(covariance.square().sum())
    factor = trace / square
    gradient = (centred - (centred @ covariance).mul_(factor)).mul_(-4 * factor / (tokens - 1) / (dim - 1))
    return Penalty(if_finite(-(trace * factor - 1) / (dim - 1), square), of_features=gradient)


@torch.no_grad()
def noise(step: Step) -> Penalty:
    """A gradient without direction at the dose of the others, the control for what any added gradient does.

    R = mean over tokens of ⟨ε, h⟩,        ε drawn again at every step, normal
    """
    features = step.features
    drawn = torch.randn(features.shape, generator=step.generator).to(features).div_(len(features))
    return Penalty((drawn * features).sum(), of_features=drawn)


@torch.no_grad()
def simreg(step: Step) -> Penalty | None:
    """Features of one next token drawn together and away from all others of the sequence.

        R = mean over anchors i of −(1/|P(i)|) Σ_{p ∈ P(i)} log( exp(cos_ip / τ) / Σ_{a ≠ i} exp(cos_ia / τ) ),  τ = 0.1

    P(i) are the other tokens of i's sequence with i's label; a token without any is no anchor. The form (supervised
    contrastive, arXiv:2004.11362) is ours. Its sham still pushes tokens apart: it is the control for that part.

        ∂R/∂cos_ij = (softmax_ij − [j ∈ P(i)] / |P(i)|) / (τ anchors)
    """
    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    labels = step.labels[drawn.indices]
    positive = drawn.only_pairs((labels[:, :, None] == labels[:, None, :]).to(step.features.dtype))
    number = positive.sum(2, keepdim=True)
    anchor = (number > 0).to(number.dtype)
    anchors = or_infinite(anchor.sum())
    rows = directions(step.features.detach()[drawn.indices])
    cosines = rows.units @ rows.units.transpose(1, 2)
    targets = positive.div_(number.clamp_(min=1))
    pulls = (cosines * targets).sum()  # targets of a token without any positive are zero
    powers = drawn.only_pairs(cosines.sub_(1).div_(SIMREG_TEMPERATURE).exp_())  # no cosine is above 1
    totals = powers.sum(2, keepdim=True).clamp_(min=torch.finfo(powers.dtype).tiny)
    value = ((totals.log() + 1 / SIMREG_TEMPERATURE) * anchor).sum() - pulls / SIMREG_TEMPERATURE
    of_cosines = powers.mul_(anchor / totals).sub_(targets).div_(SIMREG_TEMPERATURE * anchors)
    of_units = of_cosines @ rows.units + of_cosines.transpose(1, 2) @ rows.units
    of_features = drawn.of_features(rows.gradient(of_units), step.features)
    return Penalty(if_finite(value / anchors, anchors), of_features=of_features)


@torch.no_grad()
def disperse(step: Step) -> Penalty | None:
    """The tokens of a sequence pushed apart in angle, whatever their labels.

        R = mean over sequences of log mean_{i ≠ j} exp(−arccos(cos_ij) / (π τ)),   τ = 0.5

    Free of scale. The cosines of all pairs of tokens fall, so `dispersion` rises and `anisotropy` falls. Two tokens in
    the same direction have no gradient. With the softmax over all pairs of the sequence:

        ∂R/∂cos_ij = softmax_ij / (π τ √(1 − cos²)) / sequences
    """
    drawn = drawn_tokens(step)
    if drawn is None:
        return None
    rows, number = directions(step.features.detach()[drawn.indices]), len(drawn.indices)
    cosines = (rows.units @ rows.units.transpose(1, 2)).clamp_(-NEARLY_ONE, NEARLY_ONE)
    powers = drawn.only_pairs(cosines.acos().div_(-math.pi * DISPERSE_TEMPERATURE).exp_())
    totals = powers.sum((1, 2))
    value = (totals / drawn.pairs).log().mean()
    slopes = (1 - cosines.square()).rsqrt_().masked_fill_(cosines.abs_() >= NEARLY_ONE, 0.0)  # of −arccos
    of_cosines = powers.mul_(slopes).div_((math.pi * DISPERSE_TEMPERATURE * number) * totals[:, None, None])
    of_units = (of_cosines @ rows.units).mul_(2)
    return Penalty(value, of_features=drawn.of_features(rows.gradient(of_units), step.features))


class Drawn(NamedTuple):
    """Tokens of each sequence side by side."""

    indices: Tensor
    """(sequences, tokens) in the step; 0 beyond the end of a short sequence."""
    inside: Tensor | None
    """Which of `indices` are tokens of the sequence; None where all are."""

    @property
    def pairs(self) -> Tensor | int:
        """Ordered pairs of two tokens, of each sequence (sequences,)."""
        tokens = self.indices.shape[1] if self.inside is None else self.inside.sum(1)
        return tokens * (tokens - 1)

    def only_pairs(self, values: Tensor) -> Tensor:
        """Set (sequences, tokens, tokens) values to 0 in place where they are not of two tokens."""
        values.diagonal(dim1=1, dim2=2).fill_(0.0)
        if self.inside is not None:
            values.masked_fill_(~(self.inside[:, :, None] & self.inside[:, None, :]), 0.0)
        return values

    def of_features(self, of_drawn: Tensor, features: Tensor) -> Tensor:
        """Return the gradient of all features from that of the drawn tokens; padding adds zero."""
        rows = of_drawn.reshape(-1, features.shape[1])
        return torch.zeros_like(features).index_add_(0, self.indices.reshape(-1), rows)


def drawn_tokens(step: Step) -> Drawn | None:
    """Draw tokens of each sequence that has two or more; None where none has."""
    counts = torch.bincount(step.sequences)
    comparable = counts >= 2
    if not comparable.any():
        return None
    lengths, starts = counts[comparable], (counts.cumsum(0) - counts)[comparable]
    number, longest, shortest, device = len(lengths), int(lengths.max()), int(lengths.min()), step.features.device
    limit = min(TOKENS, max(32, math.isqrt(step.pair_rows(1 << 20) ** 2 // (2 * number))))
    offsets = torch.arange(longest).expand(number, longest)
    if longest > limit:
        keys = torch.rand(number, longest, generator=step.generator)
        keys[offsets >= lengths[:, None]] = 2.0
        offsets = keys.to(device).topk(limit, largest=False).indices.sort().values
    offsets, lengths, starts = offsets.to(device), lengths.to(device), starts.to(device)
    if shortest >= offsets.shape[1]:
        return Drawn(starts[:, None] + offsets, None)
    inside = offsets < lengths[:, None]
    return Drawn((starts[:, None] + offsets).where(inside, 0), inside)


class BatchMeans(NamedTuple):
    """The means of the classes of a step that have a mean, about the centre of all classes that have one."""

    indices: Tensor
    """Their indices in `Classes.ids`, on the CPU."""
    centred: Tensor
    """(classes, dim) m_c − m̄, of the features' type."""
    known: int
    """Classes in the table that have a mean: m̄ is the mean of theirs."""

    def of_features(self, of_centred: Tensor, classes: Classes) -> Tensor:
        """Return the gradient in the features of what has this gradient in the centred means."""
        of_means = of_centred - of_centred.sum(0) / self.known
        shared = of_means / classes.sizes[self.indices, None]
        of_class = shared.new_zeros(len(classes.ids), shared.shape[1])
        of_class[self.indices] = shared
        return of_class[classes.of_token]


def batch_means(step: Step) -> BatchMeans | None:
    """Add the step's tokens to the table; return the means of its classes, None where fewer than two have one."""
    means, counts = _updated_table(step)
    ready = counts >= READY
    indices = ready[step.classes.ids].nonzero().squeeze(1)
    if len(indices) < 2:
        return None
    known = int(ready.sum())
    centre = ready.to(means) @ means / known
    centred = (means[step.classes.ids[indices]] - centre).to(step.features.dtype)
    return BatchMeans(indices, centred, known)


def _updated_table(step: Step) -> tuple[Tensor, Tensor]:
    """Return the table and the tokens of each class, with this step's; both the same in all processes."""
    classes, dim = step.classes, step.features.shape[1]
    counts = step.kept.setdefault("counts", classes.counts.new_zeros(classes.vocabulary))
    means = step.kept.setdefault("means", torch.zeros(classes.vocabulary, dim, device=step.features.device))
    new = step.total(classes.counts)
    ids = new.nonzero().squeeze(1)  # of all processes
    sums = classes.sums(classes.features).to(means.dtype)
    if len(ids) > len(classes.ids):
        places = torch.searchsorted(ids, classes.ids).to(sums.device)
        sums = sums.new_zeros(len(ids), dim).index_copy_(0, places, sums)
    sums = step.total(sums)
    counts += new
    number = new[ids].to(means.dtype)
    share = torch.maximum(number / counts[ids], 1 - (1 - MEAN_RATE) ** number)[:, None].to(means.device)
    means[ids] = torch.lerp(means[ids], sums / number[:, None].to(means.device), share)
    return means, counts


class Directions(NamedTuple):
    """Rows divided by their norms."""

    units: Tensor
    norms: Tensor

    def gradient(self, of_units: Tensor) -> Tensor:
        """Return ∂R/∂x = (I − û ûᵀ) ∂R/∂û / ‖x‖ of every row; `of_units` is overwritten."""
        along = torch.linalg.vecdot(of_units, self.units)
        return of_units.addcmul_(self.units, -along[..., None]).div_(self.norms)


def directions(rows: Tensor) -> Directions:
    """Return the directions of rows (…, dim); a row of zeros has none and keeps its zeros."""
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=torch.finfo(rows.dtype).tiny)
    return Directions(rows / norms, norms)


def log_energy(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of −log‖û_i − û_j‖ over pairs of rows, and its gradient in the rows."""
    row_directions = directions(rows)
    units, pairs = row_directions.units, len(rows) * (len(rows) - 1)
    squares = torch.addmm(units.new_full((), 2.0), units, units.T, alpha=-2)  # ‖û_i − û_j‖² = 2 − 2⟨û_i, û_j⟩
    squares.fill_diagonal_(1.0)  # which has the logarithm 0
    squares.clamp_(min=NEAREST**2)
    value = squares.log().sum() / (-2 * pairs)
    weights = squares.reciprocal().mul_(squares > NEAREST**2)  # of ⟨û_i, û_j⟩
    weights.fill_diagonal_(0.0)
    return value, row_directions.gradient((weights @ units).mul_(2 / pairs))
