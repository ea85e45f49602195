"""What a pass over a split collects: one collector, and all collectors of a pass together.

The loop (measure_model.py), resume.py, distributed.py and bootstrap.py know these two classes and no single collector.
A new collector is a subclass with `update` and `values`, and an entry of `COLLECTORS` (collectors/__init__.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from collapselab.core.catalogue import METRICS, Need
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import Measurement, metrics_of
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows
from collapselab.measurement.batch import Batch
from collapselab.measurement.distributed import Processes
from collapselab.measurement.plan import SPLITS, MeasurePlan, Split
from collapselab.records.measurement import Key
from collapselab.records.tables import TABLES, RowsByTable

LAST, NULL = "last", " null"
"""The layer that enters the output layer; the end of the name of whatever is of permuted labels."""
ALL = "all"
"""The bin that has all classes."""
TABLE, TOKENS = "table/", "tokens/"
"""The beginning of the names of the tensors of class moments, and of values of single tokens, in a state."""

Measurements = dict[Key, Measurement]


@dataclass
class Values:
    """What collectors contribute to a result: values, those of the null, and rows of further tables by table."""

    measured: Measurements = field(default_factory=dict)
    nulls: Measurements = field(default_factory=dict)
    tables: RowsByTable = field(default_factory=dict)

    def add(self, other: "Values") -> None:
        self.measured |= other.measured
        self.nulls |= other.nulls
        for name, rows in other.tables.items():
            self.add_rows(name, rows)

    def add_rows(self, name: str, rows: Sequence[Any]) -> None:
        """Add rows to a further table; ValueError where a row is not one of that table."""
        for row in rows:
            TABLES[name].check_row(row)
        if rows:
            self.tables[name] = [*self.tables.get(name, []), *rows]


class Collector:
    """Collects one kind of thing from the features of every layer, for some blocks of a split.

    Its state is tensors that add up (`sums`), class moments that merge (`tables`) and values of single tokens
    (`tokens`), each by its name. A bootstrap, a continued measurement and several processes need no more.
    """

    name: ClassVar[str]
    """The name under which its state is stored."""
    option: ClassVar[str | None] = None
    """The option that switches it on; None for one that needs none."""
    splits: ClassVar[tuple[Split, ...]] = SPLITS
    resampled: ClassVar[bool] = False
    """Whether a bootstrap resamples its values."""

    def __init__(self, plan: MeasurePlan, split: Split, earlier: "Collectors") -> None:
        """`earlier` are the collectors of this pass that get a layer before this one."""
        self.plan, self.split, self.split_plan = plan, split, plan.splits[split]
        self.device = plan.model.moments_device
        self.sums: dict[str, Tensor] = {}
        self.tables: dict[str, ClassMoments] = {}
        self.tokens: dict[str, list[Tensor]] = {}

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return split in cls.splits and (cls.option is None or bool(getattr(plan.options, cls.option)))

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Peak memory of its state, and of what it makes from it; within about 30 %."""
        return 0

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        """Add features (tokens, dim) at the positions of `batch.labels.of(layer)`; the layer "last" comes last."""

    def values(self, *, resampled: bool = False) -> Values:
        """What it contributes to the result, in the first process; of resamples, values without nulls and tables."""
        return Values()

    def add(self, name: str, value: Tensor) -> None:
        """Add to a sum; it begins at zero."""
        value = value.to(self.device)
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def table(self, name: str, classes: int, dim: int, **matrices: bool) -> ClassMoments:
        """The class moments of this name, empty ones if there are none yet."""
        if name not in self.tables:
            self.tables[name] = ClassMoments.empty(classes, dim, self.device, **matrices)
        return self.tables[name]

    def empty(self) -> Self:
        """A collector of nothing yet that shares all but the state."""
        other = copy(self)
        other.sums, other.tables, other.tokens = {}, {}, {}
        return other

    def merge(self, other: Self, *, times: int = 1) -> None:
        """Add what was collected from other blocks, `times` times."""
        for name, value in other.sums.items():
            self.add(name, value if times == 1 else times * value)
        for name, moments in other.tables.items():
            if name not in self.tables:
                self.tables[name] = moments.empty_like()
            self.tables[name].merge(moments, times=times)
        for name, parts in other.tokens.items():
            self.tokens.setdefault(name, []).extend(parts * times)

    def state(self) -> dict[str, Tensor | Rows]:
        """All that was collected; `load` reads it back bit for bit."""
        state: dict[str, Tensor | Rows] = {**self.sums}
        state |= {f"{TOKENS}{name}": torch.cat(parts) for name, parts in self.tokens.items()}
        for name, moments in self.tables.items():
            unit = torch.tensor([moments.unit], dtype=torch.float64)
            tensors = {**moments.tensors(), "unit": unit, "classes": torch.tensor([moments.classes])}
            state |= {f"{TABLE}{name}/{field}": tensor for field, tensor in tensors.items()}
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        own = (name for name in state if not name.startswith((TABLE, TOKENS)))
        self.sums = {name: state[name].to(self.device, copy=True) for name in own}
        kept = (name for name in state if name.startswith(TOKENS))
        self.tokens = {name.removeprefix(TOKENS): [state[name].to(self.device, copy=True)] for name in kept}
        tables: dict[str, dict[str, Tensor]] = {}
        for name in state:
            if name.startswith(TABLE):
                table, field = name.removeprefix(TABLE).rsplit("/", 1)
                tables.setdefault(table, {})[field] = state[name]
        self.tables = {}
        for name, tensors in tables.items():
            classes, unit = int(tensors.pop("classes")), float(tensors.pop("unit"))
            facts = {"classes": classes, "dim": tensors["sums"].shape[1], "unit": unit}
            self.tables[name] = ClassMoments.from_tensors(tensors, facts, self.device)

    def drop_null(self) -> None:
        """Forget what is of permuted labels, which a bootstrap does not need."""
        self.sums = {name: value for name, value in self.sums.items() if not name.endswith(NULL)}
        self.tables = {name: moments for name, moments in self.tables.items() if not name.endswith(NULL)}

    def merged(self, processes: Processes) -> Self:
        """What all processes collected, at the end of the pass; frees what only `update` needs."""
        if processes.world == 1:
            return self
        tables, self.tables = self.tables, {}
        whole = self._exchanged(processes)
        if self.split_plan.shards is not None:
            whole.tables = tables
            return whole
        for name in list(tables):  # one after the other, so that at most one is there twice
            alone = self.empty()
            alone.tables[name] = tables.pop(name)
            whole.tables |= alone._exchanged(processes).tables
        return whole

    def _exchanged(self, processes: Processes) -> Self:
        """The merged states of all processes, in all of them and in the order of ranks."""
        state = {
            name: tensor.cpu() if isinstance(tensor, Tensor) else torch.cat([part.cpu() for part in tensor.parts()])
            for name, tensor in self.state().items()
        }
        whole = self.empty()
        for rank in range(processes.world):
            other = self.empty()
            other.load(processes.broadcast(state, rank))
            whole.merge(other)
        return whole


C = TypeVar("C", bound=Collector)


class Collectors:
    """All collectors of a pass over a split, over `batches` batches: merged and stored as one."""

    def __init__(self, collectors: Sequence[Collector] = (), trained: "Collectors | None" = None) -> None:
        """`trained` are the finished collectors of the training split, in the pass over the validation split."""
        self.collectors, self.trained, self.batches = list(collectors), trained, 0

    @classmethod
    def wanted(
        cls, kinds: Sequence[type[Collector]], plan: MeasurePlan, split: Split, trained: "Collectors | None" = None
    ) -> "Collectors":
        """Those of these kinds that the options ask for."""
        made = cls(trained=trained)
        for kind in kinds:
            if kind.wanted(plan, split):
                made.collectors.append(kind(plan, split, made))
        return made

    def __iter__(self) -> Iterator[Collector]:
        return iter(self.collectors)

    def get(self, kind: type[C]) -> C | None:
        """The collector of a kind; None where it was not wanted."""
        return next((collector for collector in self.collectors if isinstance(collector, kind)), None)

    def __getitem__(self, kind: type[C]) -> C:
        found = self.get(kind)
        assert found is not None, f"{kind.__name__} is wanted in every pass that needs it"
        return found

    def empty(self, *, resampled: bool = False) -> "Collectors":
        """Collectors of nothing yet; with `resampled` only those whose values a bootstrap resamples."""
        return Collectors([each.empty() for each in self.collectors if each.resampled or not resampled])

    def merge(self, other: "Collectors", *, times: int = 1) -> "Collectors":
        for ours, theirs in zip(self.collectors, other.collectors, strict=True):
            ours.merge(theirs, times=times)
        self.batches += times * other.batches
        return self

    def state(self) -> dict[str, Tensor | Rows]:
        return {f"{each.name}/{name}": tensor for each in self.collectors for name, tensor in each.state().items()}

    def load(self, state: Mapping[str, Tensor], *, batches: int) -> None:
        """Read back what is stored of each; parts of others are passed over."""
        for each in self.collectors:
            start = f"{each.name}/"
            each.load({name.removeprefix(start): state[name] for name in state if name.startswith(start)})
        self.batches = batches

    def finish(self, processes: Processes) -> None:
        """Merge what all processes collected."""
        self.collectors = [each.merged(processes) for each in self.collectors]

    def values(self, *, resampled: bool = False) -> Values:
        """What all of them contribute; every process calls it."""
        values = Values()
        for each in self.collectors:
            values.add(each.values(resampled=resampled))
        return values


def needing(*needs: Need) -> frozenset[str]:
    """Metrics that are computed from any of these."""
    return frozenset(id for id, metric in METRICS.items() if metric.needs & set(needs))


def counted_values(
    plan: MeasurePlan, need: Need, *, split: Split = "train", layer: str = LAST, bin: str = ALL, **given: Any
) -> Measurements:
    """The metrics that need no more than what is given, and the counts of classes."""
    geometry = Geometry(plan.counts.of(layer), min_count=plan.options.min_count, **given)
    measured = metrics_of(geometry, only=needing(need))
    return {Key(split, layer, bin, id): value for id, value in measured.items()}
