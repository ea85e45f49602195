"""Quantities that several metrics share, each computed once and only when a metric asks for it.

A quantity that does not exist raises `Missing` with the reason, which every metric that needs it reports.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from collapselab.core.catalogue import Missing, ReasonCode
from collapselab.core.centre_loss import CentreLoss
from collapselab.core.decisions import Decisions, check_head
from collapselab.core.moments import ClassMoments
from collapselab.core.output_curvature import CurvatureSums
from collapselab.core.pair_sweep import Summary
from collapselab.core.pairs import PairStatistics, pair_statistics
from collapselab.core.vectors import Vectors, add_gram, squared_lengths


class Geometry:
    """The kept classes of some moments, their output layer, and the decisions made with them."""

    def __init__(
        self,
        moments: ClassMoments | Tensor,
        *,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        min_count: int = 1,
        decisions: Decisions | None = None,
        curvature: CurvatureSums | None = None,
        centre_loss: CentreLoss | None = None,
        output_layer: Tensor | None = None,
        classes: Tensor | None = None,
        rows: bool = False,
        tile: int = 1024,
    ) -> None:
        """For metrics of decisions, losses and the output layer, the counts of all classes do as `moments`.

        `classes` masks those that may be kept; with `rows`, `pairs` has the values of single classes.

        `output_layer` has all rows of the output layer, where `weight` has only those of the classes of the moments.
        """
        if min_count < 1:
            raise ValueError(f"min_count must be ≥ 1, got {min_count}.")
        counts = moments if isinstance(moments, Tensor) else moments.counts
        self._moments = None if isinstance(moments, Tensor) else moments
        if weight is not None:
            check_head(weight, bias, len(counts), self.moments.dim)
        elif bias is not None:
            raise ValueError("an output bias without an output layer; give weight too.")
        if decisions is not None and (len(decisions.tokens), decisions.min_count) != (len(counts), min_count):
            raise ValueError(
                f"decisions over {len(decisions.tokens):,} classes with min_count {decisions.min_count}, but moments "
                f"of {len(counts):,} classes with min_count {min_count}; they must be the same."
            )
        if classes is not None and (classes.dtype != torch.bool or classes.shape != counts.shape):
            what = f"{classes.dtype} of shape {tuple(classes.shape)}"
            raise ValueError(f"classes must be a mask over {len(counts):,} classes, got {what}.")
        self.weight, self.decided, self.curvature_sums = weight, decisions, curvature
        self.centre_loss, self.output_layer = centre_loss, weight if output_layer is None else output_layer
        self.min_count, self.rows, self.tile = min_count, rows, tile
        kept = counts >= min_count
        if classes is not None:
            kept &= classes.to(kept.device)
            self.decided = None if decisions is None else decisions.of(classes)
        self.variance_along_pairs = True
        """Whether `pairs` has the variance between two class means, for one more product; only if it exists."""
        self.kept = kept.nonzero().squeeze(1)
        self.classes, self.dim = len(self.kept), 1 if self._moments is None else self._moments.dim
        self.counts = counts[self.kept]
        self.tokens = int(self.counts.sum())

    @property
    def moments(self) -> ClassMoments:
        if self._moments is None:
            raise ValueError("only the counts of classes were given, but a metric needs class means.")
        return self._moments

    def at_least(self, classes: int) -> None:
        if self.classes < classes:
            what = _plural(self.classes, "kept class", "kept classes")
            raise Missing(ReasonCode.FEW_CLASSES, f"{what}; at least {classes} are needed.")

    # Class means and their scatter -----------------------------------------------------------------------------------

    @cached_property
    def means(self) -> Vectors:
        """Means of the kept classes; computed a block at a time, wherever they are needed."""
        return self.moments.mean_vectors(self.kept)

    @cached_property
    def scatter(self) -> Tensor:
        """Σ|h - μ|² of each kept class (classes,)."""
        return self.moments.scatter[self.kept]

    @cached_property
    def variances(self) -> Tensor:
        return self.scatter / self.counts

    @cached_property
    def centre(self) -> Tensor:
        return self.means.mean()

    def centred_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the centred means, a block of classes at a time."""
        for chosen, block in self.means.blocks():
            yield chosen, block.sub_(self.centre)

    @cached_property
    def norms(self) -> Tensor:
        """Norms of the centred means."""
        self.at_least(2)
        return torch.cat([torch.linalg.vector_norm(block, dim=1) for _, block in self.centred_blocks()])

    @cached_property
    def positive_norms(self) -> Tensor:
        self._check_directions(self.norms, "centred mean")
        return self.norms

    @cached_property
    def within_covariance(self) -> Tensor:
        """Pooled covariance within the kept classes (dim, dim)."""
        if not self.moments.has_covariance:
            raise Missing(ReasonCode.NO_COVARIANCE, "the pooled covariance was not collected; ask for covariance=True.")
        others = torch.ones_like(self.moments.counts, dtype=torch.bool)
        others[self.kept] = False
        if others.any() and self.moments.scatter[others].any():
            raise Missing(ReasonCode.NO_COVARIANCE, "the pooled covariance also covers classes that are not kept.")
        pooled = self.moments.pooled
        assert pooled is not None
        return pooled / self.tokens

    @cached_property
    def gram(self) -> Tensor:
        """Mᵀ M (dim, dim) of the centred means."""
        self.at_least(2)
        return _gram(self.means, self.centre)

    def _rounding(self, largest: float) -> float:
        """Return the size up to which rounding alone may have made an eigenvalue of the Gram matrix.

        `largest` is the largest eigenvalue. The rounding of the features counts too: outputs of a LayerNorm lie in a
        plane except for rounding, and across that plane a ratio of noise to noise means nothing.
        """
        if not largest > 0:
            raise Missing(ReasonCode.COINCIDENT, "all class means coincide.")
        power = float(self.gram.trace() + self.classes * self.centre.square().sum() + self.variances.sum())
        of_features = (4 * self.moments.unit) ** 2 * power  # Σ |μ|² + Σ σ² is what they are relative to
        if largest <= of_features:
            raise Missing(ReasonCode.COINCIDENT, "the class means differ by no more than the rounding of the features.")
        return max(self.dim * torch.finfo(torch.float64).eps * largest, of_features)

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues of the Gram matrix, ascending and 0 where rounding alone could have made them, and vectors."""
        values, vectors = torch.linalg.eigh(self.gram)
        return torch.where(values > self._rounding(float(values[-1])), values, 0), vectors

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Those of `spectrum`, without the vectors, which cost several times as much."""
        if "spectrum" in self.__dict__:
            return self.spectrum[0]
        values = torch.linalg.eigvalsh(self.gram)
        return torch.where(values > self._rounding(float(values[-1])), values, 0)

    @cached_property
    def pairs(self) -> PairStatistics:
        self.at_least(2)
        try:
            covariance = self.within_covariance if self.variance_along_pairs else None
        except Missing:  # metrics of the covariance report the reason; the others have a value
            covariance = None
        return pair_statistics(
            self.means,
            self.variances,
            uncentred=True,
            covariance=covariance,
            rows=self.rows,
            tile=self.tile,
        )

    # All features of the kept classes, where a class counts by its tokens --------------------------------------------

    @cached_property
    def token_mean(self) -> Tensor:
        """The mean of all features (dim,)."""
        sums = [self.counts[chosen].double() @ block for chosen, block in self.means.blocks()]
        return torch.stack(sums).sum(0) / self.tokens

    @cached_property
    def between_tokens(self) -> float:
        """tr Σ_B: mean over tokens of the squared distance from their class mean to the mean of all features."""
        self.at_least(2)
        squares = (
            float(self.counts[chosen].double() @ squared_lengths(block.sub_(self.token_mean)))
            for chosen, block in self.means.blocks()
        )
        return sum(squares) / self.tokens

    @cached_property
    def total_covariance(self) -> Tensor:
        """Σ_T = Σ_W + Σ_B (dim, dim)."""
        self.at_least(2)
        second = self.moments.second_about(self.token_mean)
        if second is not None and self.tokens == self.moments.tokens:
            return second / self.tokens
        covariance = self.within_covariance.clone()
        for chosen, block in self.means.blocks():
            block.sub_(self.token_mean)
            covariance.addmm_((block * (self.counts[chosen].double() / self.tokens)[:, None]).T, block)
        return covariance

    def total_rounding(self, largest: float) -> float:
        """Return the size up to which rounding alone may have made an eigenvalue of a covariance of tokens.

        Without the pooled covariance, products in the precision of the features add at most a few roundings of each
        entry. These are independent, so that their spectral norm is that of a random matrix.
        """
        trace = float(self.total_covariance.trace())
        of_features = (4 * self.moments.unit) ** 2 * (float(self.token_mean.square().sum()) + trace)
        if not largest > of_features:
            raise Missing(ReasonCode.COINCIDENT, "the features differ by no more than their rounding.")
        of_products = 0.0 if self.moments.has_covariance else 8 * self.moments.unit * trace / math.sqrt(self.dim)
        return max(self.dim * torch.finfo(torch.float64).eps * largest, of_features, of_products)

    @cached_property
    def total_spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues of Σ_T, ascending and 0 where rounding alone could have made them, and vectors."""
        values, vectors = torch.linalg.eigh(self.total_covariance)
        return torch.where(values > self.total_rounding(float(values[-1])), values, 0), vectors

    @cached_property
    def total_eigenvalues(self) -> Tensor:
        """Those of `total_spectrum`, without the vectors, which cost several times as much."""
        if "total_spectrum" in self.__dict__:
            return self.total_spectrum[0]
        return self._token_eigenvalues(self.total_covariance)

    @cached_property
    def uncentred_eigenvalues(self) -> Tensor:
        """Eigenvalues of E h hᵀ, as `total_eigenvalues`."""
        return self._token_eigenvalues(self.total_covariance + torch.outer(self.token_mean, self.token_mean))

    def _token_eigenvalues(self, matrix: Tensor) -> Tensor:
        values = torch.linalg.eigvalsh(matrix)
        return torch.where(values > self.total_rounding(float(values[-1])), values, 0)

    @property
    def direction_sum(self) -> Tensor:
        """Σ h/‖h‖ (dim,)."""
        directions, what = self.moments.directions, "the sum of the features' directions"
        if directions is None:
            raise Missing(ReasonCode.NO_DIRECTIONS, f"{what} was not collected.")
        if self.tokens < int(self.moments.counts.sum()):
            raise Missing(ReasonCode.NO_DIRECTIONS, f"{what} also covers classes that are not kept.")
        if torch.isnan(directions).any():
            raise Missing(ReasonCode.ZERO, "a feature is zero and has no direction.")
        return directions

    # The output layer ------------------------------------------------------------------------------------------------

    @cached_property
    def head(self) -> Vectors:
        """Rows of the output layer for the kept classes."""
        if self.weight is None:
            raise Missing(ReasonCode.NO_HEAD, "no output layer was given.")
        return Vectors(self.weight.detach().to(self.kept.device), chosen=self.kept)

    @cached_property
    def head_norms(self) -> Tensor:
        """Norms of the rows of the output layer, centred over the kept classes."""
        head = self.head
        self.at_least(2)
        centre = head.mean()
        norms = torch.cat([torch.linalg.vector_norm(block.sub_(centre), dim=1) for _, block in head.blocks()])
        self._check_directions(norms, "centred output row")
        return norms

    @cached_property
    def head_eigenvalues(self) -> Tensor:
        """Of the Gram matrix of the output rows, centred over the kept classes; ascending, 0 where rounding is all."""
        head = self.head
        self.at_least(2)
        return _row_eigenvalues(_gram(head, head.mean()))

    @cached_property
    def output_rows(self) -> Vectors:
        """All rows of the output layer."""
        if self.output_layer is None:
            raise Missing(ReasonCode.NO_HEAD, "no output layer was given.")
        return Vectors(self.output_layer.detach().to(self.kept.device))

    @cached_property
    def output_row_eigenvalues(self) -> Tensor:
        """Of the Gram matrix of all rows of the output layer, which are not centred; as `head_eigenvalues`."""
        return _row_eigenvalues(_gram(self.output_rows, 0.0))

    @cached_property
    def head_pairs(self) -> PairStatistics:
        head = self.head
        self.at_least(2)
        return pair_statistics(head, tile=self.tile)

    @cached_property
    def duality_cosines(self) -> Tensor:
        """cos(w_c, m_c) for each kept class."""
        head_norms = self.head.lengths()
        self._check_directions(head_norms, "output row")
        norms = self.positive_norms
        dots = [torch.linalg.vecdot(self.head.at(chosen), block) for chosen, block in self.centred_blocks()]
        cosines: Tensor = torch.cat(dots) / head_norms / norms
        return cosines

    # What was given --------------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> Decisions:
        if self.decided is None:
            raise Missing(ReasonCode.NO_DECISIONS, "no decisions were given; they are made on the validation split.")
        if not int(self.decided.tokens.sum()):
            left_out = self.decided.left_out
            why = f"no token was judged; {left_out:,} have a label that is not kept."
            raise Missing(ReasonCode.NOTHING_LEFT, why, left_out=left_out)
        return self.decided

    @property
    def curvature(self) -> CurvatureSums:
        if self.curvature_sums is None or not self.curvature_sums.tokens:
            raise Missing(ReasonCode.NO_CURVATURE, "the curvature of the loss was not computed; it takes a pass.")
        return self.curvature_sums

    @property
    def loss_by_centres(self) -> CentreLoss:
        if self.centre_loss is None:
            raise Missing(ReasonCode.NO_CENTRE_LOSS, "the loss by class centres was not computed.")
        if not self.centre_loss.tokens:
            left_out = self.centre_loss.left_out
            why = f"no token was scored; {left_out:,} have a label that is not kept."
            raise Missing(ReasonCode.NOTHING_LEFT, why, left_out=left_out)
        return self.centre_loss

    def summary(self, family: str, *, head: bool = False) -> Summary:
        """Return a family of pair statistics, or raise the reason why there is none."""
        summary: Summary | None = getattr(self.head_pairs if head else self.pairs, family)
        if summary is None:
            if family == "directional":
                _ = self.within_covariance  # raises the reason
            if family == "logdist_uncentred":
                self._check_directions(self.means.lengths(), "mean")
            reasons = self.head_norms if head else self.positive_norms
            raise AssertionError(f"{family} is missing, though all of {len(reasons)} norms are positive")
        if not summary.pairs:
            why = f"all {_plural(summary.left_out, 'pair', 'pairs')} were left out."
            raise Missing(ReasonCode.NOTHING_LEFT, why, left_out=summary.left_out)
        return summary

    def _check_directions(self, norms: Tensor, what: str) -> None:
        zero = (norms == 0).nonzero().squeeze(1)
        if len(zero):
            first, classes = int(self.kept[zero[0]]), _plural(len(zero), "class", "classes")
            raise Missing(ReasonCode.ZERO, f"class {first:,} has a {what} of zero ({classes} in all).")


def _gram(rows: Vectors, centre: Tensor | float) -> Tensor:
    """Return (rows - centre)ᵀ (rows - centre)."""
    gram = torch.zeros(rows.dim, rows.dim, dtype=torch.float64, device=rows.device)
    for _, block in rows.blocks():
        add_gram(gram, block.sub_(centre))
    return gram


def _row_eigenvalues(gram: Tensor) -> Tensor:
    values = torch.linalg.eigvalsh(gram)
    if not values[-1] > 0:
        raise Missing(ReasonCode.ZERO, "all output rows coincide.")
    return torch.where(values > len(gram) * torch.finfo(values.dtype).eps * values[-1], values, 0)


def _plural(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"
