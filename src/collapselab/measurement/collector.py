"""What a pass over a split collects: the protocol of one collector, and all collectors of a pass together.

The loop (forward_pass.py), resume.py, distributed.py and bootstrap.py know the protocol and no single collector. A new
collector is a class with these methods and an entry of `COLLECTORS` (collectors/__init__.py). Most extend `Summed`,
whose state is named tensors that add up and named class moments that merge; then `update` and `values` are left to
write. `plan.splits[split].shards` says whether class moments are spread over the processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar, final

import torch
from torch import Tensor

from collapselab.core.metrics import Measurement
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows
from collapselab.measurement.batch import Batch
from collapselab.measurement.distributed import Processes
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.measurement import Key
from collapselab.records.tables import TABLES, RowsByTable

LAST, NULL = "last", " null"
"""The layer that enters the output layer; the end of the name of whatever is of permuted labels."""

TABLE = "table/"
"""The beginning of the names of the tensors of class moments in a state."""

Measurements = dict[Key, Measurement]


@final
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


class Collector(Protocol):
    """Collects one kind of thing from the features of every layer, for some blocks of a split."""

    name: ClassVar[str]
    """The name under which its state is stored."""
    option: ClassVar[str | None]
    """The option that switches it on; None for one that needs none."""
    resampled: ClassVar[bool]
    """Whether a bootstrap resamples its values."""

    def __init__(self, plan: MeasurePlan, split: Split, earlier: "Collectors | None" = None) -> None:
        """`earlier` are the collectors of this pass that get a layer before this one."""

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool: ...

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Peak memory of its state, and of what it makes from it; within about 30 %."""
        ...

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        """Add features (tokens, dim) at the positions of `batch.labels.of(layer)`; the layer "last" comes last."""

    def empty(self) -> Self:
        """A collector of nothing yet that shares all but the state."""
        ...

    def merge(self, other: Self, *, times: int = 1) -> None:
        """Add what was collected from other blocks, `times` times."""

    def state(self) -> Mapping[str, Tensor | Rows]:
        """All that was collected; `load` reads it back bit for bit."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...

    def drop_null(self) -> None:
        """Forget what is of permuted labels, which a bootstrap does not need."""

    def finish(self, processes: Processes) -> None:
        """Merge the states of all processes, at the end of the pass; frees what only `update` needs."""

    def values(self, *, resampled: bool = False) -> Values:
        """What it contributes to the result, in the first process; of resamples, values without nulls and tables."""
        ...


class Summed:
    """A collector whose state is tensors that add up, and class moments that merge, each by its name."""

    name: ClassVar[str]
    option: ClassVar[str | None] = None
    resampled: ClassVar[bool] = False

    def __init__(self, plan: MeasurePlan, split: Split, earlier: "Collectors | None" = None) -> None:
        self.plan, self.split, self.split_plan = plan, split, plan.splits[split]
        self.device = plan.model.moments_device
        self.sums: dict[str, Tensor] = {}
        self.tables: dict[str, ClassMoments] = {}

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return True

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        return 0

    def add(self, name: str, value: Tensor) -> None:
        """Add to a sum; it begins at zero."""
        value = value.to(self.device)
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def table(
        self, name: str, classes: int, dim: int, *, covariance: bool = False, spectrum: bool = False
    ) -> ClassMoments:
        """The class moments of this name, empty ones if there are none yet."""
        if name not in self.tables:
            empty = ClassMoments.empty(classes, dim, self.device, covariance=covariance, spectrum=spectrum)
            self.tables[name] = empty
        return self.tables[name]

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        raise NotImplementedError

    def empty(self) -> Self:
        other = copy(self)
        other.sums, other.tables = {}, {}
        return other

    def merge(self, other: Self, *, times: int = 1) -> None:
        for name, value in other.sums.items():
            self.add(name, value if times == 1 else times * value)
        for name, moments in other.tables.items():
            if name not in self.tables:
                self.tables[name] = moments.empty_like()
            self.tables[name].merge(moments, times=times)

    def state(self) -> Mapping[str, Tensor | Rows]:
        state: dict[str, Tensor | Rows] = {**self.sums}
        for name, moments in self.tables.items():
            tensors = {**moments.tensors(), "unit": torch.tensor([moments.unit], dtype=torch.float64)}
            state |= {f"{TABLE}{name}/{field}": tensor for field, tensor in tensors.items()}
            state[f"{TABLE}{name}/classes"] = torch.tensor([moments.classes])
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.sums = {
            name: tensor.to(self.device, copy=True) for name, tensor in state.items() if not name.startswith(TABLE)
        }
        tables: dict[str, dict[str, Tensor]] = {}
        for name in state:
            if name.startswith(TABLE):
                table, field = name.removeprefix(TABLE).rsplit("/", 1)
                tables.setdefault(table, {})[field] = state[name]
        self.tables = {}
        for name, tensors in tables.items():
            classes, unit = int(tensors.pop("classes")), float(tensors.pop("unit"))
            facts = {"classes": classes, "dim": tensors["sums"].shape[1], "shuffle": None, "unit": unit}
            self.tables[name] = ClassMoments.from_tensors(tensors, facts, self.device)

    def drop_null(self) -> None:
        self.sums = {name: value for name, value in self.sums.items() if not name.endswith(NULL)}
        self.tables = {name: moments for name, moments in self.tables.items() if not name.endswith(NULL)}

    def finish(self, processes: Processes) -> None:
        """Merge over processes: sums all at once; moments one after the other, so that at most one is there twice."""
        tables, self.tables = self.tables, {}
        if processes.world > 1:
            merge_states(self, processes)
        is_sharded = self.split_plan.shards is not None
        for name in list(tables):
            moments = tables.pop(name)
            self.tables[name] = moments if is_sharded else processes.merge(moments)

    def values(self, *, resampled: bool = False) -> Values:
        return Values()


def merge_states(collector: Collector, processes: Processes) -> None:
    """Merge the states of all processes, in all of them and in the order of ranks."""
    state = {name: tensor.cpu() for name, tensor in collector.state().items() if isinstance(tensor, Tensor)}
    total = collector.empty()
    for part in processes.gather(state):
        other = collector.empty()
        other.load(part)
        total.merge(other)
    collector.load({name: tensor for name, tensor in total.state().items() if isinstance(tensor, Tensor)})


C = TypeVar("C")


@final
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
        if found is None:
            raise KeyError(kind.__name__)
        return found

    def empty(self, *, resampled: bool = False) -> "Collectors":
        """Collectors of nothing yet; with `resampled` only those whose values a bootstrap resamples."""
        return Collectors([each.empty() for each in self.collectors if each.resampled or not resampled])

    def merge(self, other: "Collectors", *, times: int = 1) -> None:
        for ours, theirs in zip(self.collectors, other.collectors, strict=True):
            ours.merge(theirs, times=times)
        self.batches += times * other.batches

    def state(self) -> dict[str, Tensor | Rows]:
        return {f"{each.name}/{name}": tensor for each in self.collectors for name, tensor in each.state().items()}

    def load(self, state: Mapping[str, Tensor], *, batches: int) -> "Collectors":
        """These collectors with what is stored of each; parts of others are passed over."""
        for each in self.collectors:
            start = f"{each.name}/"
            each.load({name.removeprefix(start): state[name] for name in state if name.startswith(start)})
        self.batches = batches
        return self

    def finish(self, processes: Processes) -> None:
        for each in self.collectors:
            each.finish(processes)

    def values(self, *, resampled: bool = False) -> Values:
        """What all of them contribute; every process calls it."""
        values = Values()
        for each in self.collectors:
            values.add(each.values(resampled=resampled))
        return values
