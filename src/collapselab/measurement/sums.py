"""What a pass over a split gathers: moments of every layer, tallies of decisions, scores. Mergeable and storable."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.decisions import Decisions
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows, Stored
from collapselab.measurement.half_sample import Part
from collapselab.measurement.spread import Spread
from collapselab.models.scores import Scores

TALLIES = ("tokens", "agreed", "nearest_right", "head_right")


class LayerKey(NamedTuple):
    """A layer with its labels, or with the shuffled ones of its null."""

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


@final
@dataclass
class Gathered:
    """Sums over some blocks; those of disjoint parts of a split merge to those of the whole."""

    moments: dict[LayerKey, ClassMoments] = field(default_factory=dict)
    decisions: dict[LayerKey, Decisions] = field(default_factory=dict)
    scores: Scores = field(default_factory=Scores)
    batches: int = 0
    spreads: dict[str, Spread] = field(default_factory=dict)
    part: Part | None = None
    """The values of about half of the sample, once the pass is there."""

    def spread(self, layer: str) -> Spread:
        """How the variance of a layer is spread over its features."""
        return self.spreads.setdefault(layer, Spread())

    def add_decisions(self, key: LayerKey, decisions: Decisions) -> None:
        if key in self.decisions:
            self.decisions[key].merge(decisions)
        else:
            self.decisions[key] = decisions

    def merge(self, other: "Gathered", *, times: int = 1) -> "Gathered":
        """Add what another part has gathered, as if it had come so many times."""
        for key, moments in other.moments.items():
            if key not in self.moments:
                self.moments[key] = empty_like(moments)
            self.moments[key].merge(moments, times=times)
        for key, decisions in other.decisions.items():
            if key not in self.decisions:
                self.decisions[key] = Decisions.none(len(decisions.tokens), min_count=decisions.min_count)
            self.decisions[key].merge(decisions, times=times)
        for layer, spread in other.spreads.items():
            self.spread(layer).merge(spread, times=times)
        self.scores += other.scores
        self.batches += times * other.batches
        self.part = self.part or other.part
        return self

    def tensors(self) -> dict[str, Tensor | Rows]:
        """All numbers, to be stored with `facts`."""
        tensors: dict[str, Tensor | Rows] = {}
        tensors |= {f"moments/{key}/{name}": t for key, m in self.moments.items() for name, t in m.tensors().items()}
        for key, decisions in self.decisions.items():
            tensors |= {f"decisions/{key}/{name}": getattr(decisions, name) for name in TALLIES}
        for layer, spread in self.spreads.items():
            tensors |= {f"spreads/{layer}/counts": spread.counts, f"spreads/{layer}/sums": spread.sums}
        return tensors

    def facts(self) -> dict[str, object]:
        return {
            "moments": {str(key): moments.facts() for key, moments in self.moments.items()},
            "decisions": {str(key): [d.left_out, d.min_count] for key, d in self.decisions.items()},
            "scores": asdict(self.scores),
            "batches": self.batches,
            "spreads": list(self.spreads),
            "part": None if self.part is None else asdict(self.part),
        }

    @classmethod
    def from_tensors(cls, tensors: Stored, facts: dict[str, Any], device: str | torch.device = "cpu") -> "Gathered":
        """What `tensors` and `facts` describe, bit for bit."""
        moments = {
            LayerKey.stored(key): ClassMoments.from_tensors(tensors.under(f"moments/{key}/"), its, device)
            for key, its in facts["moments"].items()
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
            for layer in facts.get("spreads", [])  # earlier versions kept none
        }
        part = Part(**facts["part"]) if facts.get("part") else None
        return cls(moments, decisions, Scores(**facts["scores"]), facts["batches"], spreads, part)


def empty_like(moments: ClassMoments) -> ClassMoments:
    return ClassMoments.empty(
        moments.classes,
        moments.dim,
        moments.device,
        covariance=moments.has_covariance,
        shuffle=moments.shuffle,
    )
