"""What a pass over a split sums up: moments of every layer, counts of decisions, scores, the spread of squares.

The sums of disjoint parts of a split merge to those of the whole, and can be stored on disk to continue from.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.centre_loss import CentreLoss
from collapselab.core.contexts import Gap
from collapselab.core.decisions import Decisions
from collapselab.core.moments import ClassMoments
from collapselab.core.output_curvature import CurvatureSums
from collapselab.core.storage import Rows, Stored
from collapselab.measurement.token_scores import TokenScores
from collapselab.models.scores import Scores

TALLIES = ("tokens", "agreed", "nearest_right", "head_right")

LOWEST, HIGHEST = -300, 300
"""Exponents that are counted apart: those of squared float32 numbers. Smaller and larger ones count as these."""

HANDFUL, HANDFUL_SHARE = 10, 0.002
"""A handful of features: ten, or this share of all if it is more."""


class LayerKey(NamedTuple):
    """A layer with its labels, or with the permuted labels of its null."""

    layer: str
    null: bool = False

    def __str__(self) -> str:
        """The name under which it is stored."""
        return f"{self.layer} null" if self.null else self.layer

    @classmethod
    def stored(cls, name: str) -> "LayerKey":
        """The key that is stored under a name."""
        return cls(name.removesuffix(" null"), name.endswith(" null"))


LAST = LayerKey("last")


class ContextKey(NamedTuple):
    """A layer with the cells of contexts of n tokens."""

    layer: str
    n: int

    def __str__(self) -> str:
        """The name under which it is stored."""
        return f"{self.layer} {self.n}"

    @classmethod
    def stored(cls, name: str) -> "ContextKey":
        layer, _, n = name.partition(" ")
        return cls(layer, int(n))


@final
@dataclass(frozen=True)
class SamplePart:
    """The values of the last layer's metrics in a part of the training split's sample."""

    tokens: int
    values: dict[str, float]


@final
@dataclass
class Sums:
    """Sums over some blocks, in `batches` batches."""

    moments: dict[LayerKey, ClassMoments] = field(default_factory=dict)
    decisions: dict[LayerKey, Decisions] = field(default_factory=dict)
    scores: Scores = field(default_factory=Scores)
    batches: int = 0
    spreads: dict[str, "Spread"] = field(default_factory=dict)
    part: SamplePart | None = None
    """The values of about half of the sample, once the pass has seen that much."""
    push: Tensor | None = None
    """(heads, alphas, sums) of pushed features: see `push.py`."""
    deciders: Tensor | None = None
    """(deciders, deciders) tokens on which two of them agree: see `AgreementMatrix`."""
    curvature: CurvatureSums = field(default_factory=CurvatureSums)
    """Of the tokens that `curvature.py` chose."""
    centre_losses: dict[LayerKey, CentreLoss] = field(default_factory=dict)
    """Of validation tokens, by the centres of the last layer and of its null."""
    scored: TokenScores | None = None
    """Losses by class and what else single tokens give, where it was asked for."""

    contexts: dict[ContextKey, ClassMoments] = field(default_factory=dict)
    """Moments of the cells of contexts; the last row has all tokens that are in none."""
    gaps: dict[int, Gap] = field(default_factory=dict)
    """Of scored tokens, by the length of contexts."""

    def spread(self, layer: str) -> "Spread":
        """How the squares of a layer are spread over its features."""
        return self.spreads.setdefault(layer, Spread())

    def add_decisions(self, key: LayerKey, decisions: Decisions) -> None:
        if key in self.decisions:
            self.decisions[key].merge(decisions)
        else:
            self.decisions[key] = decisions

    def merge(self, other: "Sums", *, times: int = 1) -> "Sums":
        """Add the sums of another part, `times` times."""
        for key, moments in other.moments.items():
            if key not in self.moments:
                self.moments[key] = moments.empty_like()
            self.moments[key].merge(moments, times=times)
        for key, decisions in other.decisions.items():
            if key not in self.decisions:
                self.decisions[key] = Decisions.none(len(decisions.tokens), min_count=decisions.min_count)
            self.decisions[key].merge(decisions, times=times)
        for place, cells in other.contexts.items():
            if place not in self.contexts:
                self.contexts[place] = cells.empty_like()
            self.contexts[place].merge(cells, times=times)
        for n, gap in other.gaps.items():
            self.gaps[n] = self.gaps.get(n, Gap()).merge(gap, times=times)
        for layer, spread in other.spreads.items():
            self.spread(layer).merge(spread, times=times)
        self.scores += other.scores
        self.batches += times * other.batches
        self.part = self.part or other.part
        self.curvature = self.curvature.merge(other.curvature, times=times)
        for key, loss in other.centre_losses.items():
            self.centre_losses[key] = self.centre_losses.get(key, CentreLoss()).merge(loss, times=times)
        if other.push is not None:
            self.push = times * other.push + (0 if self.push is None else self.push)
        if other.deciders is not None:
            self.deciders = times * other.deciders + (0 if self.deciders is None else self.deciders)
        if other.scored is not None:
            start = self.scored or TokenScores.none(len(other.scored.tokens))
            self.scored = start.merge(other.scored, times=times)
        return self

    def tensors(self) -> dict[str, Tensor | Rows]:
        """All numbers, to be stored with `facts`."""
        tensors: dict[str, Tensor | Rows] = {}
        tensors |= {f"moments/{key}/{name}": t for key, m in self.moments.items() for name, t in m.tensors().items()}
        tensors |= {f"contexts/{key}/{name}": t for key, m in self.contexts.items() for name, t in m.tensors().items()}
        for key, decisions in self.decisions.items():
            tensors |= {f"decisions/{key}/{name}": getattr(decisions, name) for name in TALLIES}
        for layer, spread in self.spreads.items():
            tensors |= {f"spreads/{layer}/counts": spread.counts, f"spreads/{layer}/sums": spread.sums}
        if self.deciders is not None:
            tensors["deciders"] = self.deciders
        if self.scored is not None:
            tensors |= {f"scored/{name}": tensor for name, tensor in self.scored.tensors().items()}
        return tensors

    def facts(self) -> dict[str, object]:
        return {
            "moments": {str(key): moments.facts() for key, moments in self.moments.items()},
            "decisions": {str(key): [d.left_out, d.min_count] for key, d in self.decisions.items()},
            "scores": asdict(self.scores),
            "batches": self.batches,
            "spreads": list(self.spreads),
            "part": None if self.part is None else asdict(self.part),
            "push": None if self.push is None else self.push.tolist(),
            "curvature": asdict(self.curvature),
            "centre_losses": {str(key): asdict(loss) for key, loss in self.centre_losses.items()},
            "scored": self.scored is not None,
            "contexts": {str(key): moments.facts() for key, moments in self.contexts.items()},
            "gaps": {str(n): asdict(gap) for n, gap in self.gaps.items()},
        }

    @classmethod
    def from_tensors(cls, tensors: Stored, facts: dict[str, Any], device: str | torch.device = "cpu") -> "Sums":
        """The sums that `tensors` and `facts` describe, bit for bit."""
        moments = {
            LayerKey.stored(key): ClassMoments.from_tensors(tensors.under(f"moments/{key}/"), stored, device)
            for key, stored in facts["moments"].items()
        }
        decisions = {
            LayerKey.stored(key): Decisions(
                **{name: tensor.clone() for name, tensor in tensors.under(f"decisions/{key}/").items()},
                left_out=left_out,
                min_count=min_count,
            )
            for key, (left_out, min_count) in facts["decisions"].items()
        }
        spreads = {
            layer: Spread(**{name: tensor.clone() for name, tensor in tensors.under(f"spreads/{layer}/").items()})
            for layer in facts["spreads"]
        }
        contexts = {
            ContextKey.stored(key): ClassMoments.from_tensors(tensors.under(f"contexts/{key}/"), stored, device)
            for key, stored in facts["contexts"].items()
        }
        return cls(
            moments,
            decisions,
            Scores(**facts["scores"]),
            facts["batches"],
            spreads,
            SamplePart(**facts["part"]) if facts["part"] else None,
            torch.tensor(facts["push"], dtype=torch.float64) if facts["push"] else None,
            tensors["deciders"].clone() if "deciders" in tensors else None,
            CurvatureSums(**facts["curvature"]),
            {LayerKey.stored(key): CentreLoss(**loss) for key, loss in facts["centre_losses"].items()},
            TokenScores.from_tensors(tensors.under("scored/")) if facts["scored"] else None,
            contexts,
            {int(n): Gap(**gap) for n, gap in facts["gaps"].items()},
        )


def _zeros(dtype: torch.dtype) -> Tensor:
    return torch.zeros(HIGHEST - LOWEST + 1, dtype=dtype)


@final
@dataclass
class Spread:
    """How a layer's sum of squares is spread over its features: whether a handful of them carries most of it.

    Squared distances from the reference point of the moments (`core/accumulator.py`: the mean of the first batch, or
    the origin where that mean is short) are counted and added up by powers of two. The table has one size whatever the
    number of features, and tables of parts add up to that of the whole.
    """

    counts: Tensor = field(default_factory=lambda: _zeros(torch.int64))
    sums: Tensor = field(default_factory=lambda: _zeros(torch.float64))

    def add(self, squares: Tensor) -> None:
        """Count a batch of squared distances (tokens,)."""
        squares = torch.nan_to_num(squares.cpu(), nan=0.0, posinf=torch.inf)  # too small or too large for float64
        exponents = torch.where(squares > 0, torch.frexp(squares).exponent.long(), LOWEST).clamp(LOWEST, HIGHEST)
        self.counts += torch.bincount(exponents - LOWEST, minlength=len(self.counts))
        self.sums.index_add_(0, exponents - LOWEST, squares)

    def merge(self, other: "Spread", *, times: int = 1) -> None:
        self.counts += times * other.counts
        self.sums += times * other.sums

    @property
    def features(self) -> int:
        return int(self.counts.sum())

    @property
    def handful(self) -> int:
        return max(HANDFUL, int(HANDFUL_SHARE * self.features))

    def share_of_handful(self) -> float:
        """The share of all squares that the handful of farthest features carries; 0 where all are zero.

        Of the last power of two that is reached, only the missing features count, each with the mean of its power.
        """
        left, carried, total = self.handful, 0.0, float(self.sums.sum())
        if not 0 < total < float("inf") or self.features <= self.handful:
            return 0.0
        for place in self.counts.nonzero().squeeze(1).flip(0).tolist():
            count, power_sum = int(self.counts[place]), float(self.sums[place])
            taken = min(left, count)
            carried += power_sum * taken / count
            left -= taken
            if not left:
                break
        return carried / total
