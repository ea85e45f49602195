"""Arms: runs that an intervention, a head or an optimiser sets apart from a control that is equal in all else.

Four groups of settings can be an arm: the interventions, the output layer, the optimiser, and whether input and output
share a matrix. The control of a run has the first group that is not at its default at its default, and all else equal,
seeds included; where there is no such run, the next group too. So an intervention under Adam is compared with Adam
alone, and a frozen head with a learned one that is untied too, where those were trained.

Only last checkpoints of the same epoch are compared. A run whose doses are all 0 repeats the control, bit for bit,
and is no arm. A run that diverged has no outcome, and its pair is left out; those that are left are the runs that the
arm did not break. So the lost ones are counted, by arm: what they would have shown is not known.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from collapselab.analysis.models import ARCHITECTURE, NOT_TESTED, RELATED, Models, Regime, further_settings
from collapselab.errors import ConfigError
from collapselab.records.suite import Primary, registered_primary
from collapselab.records.table import Cell
from collapselab.training.interventions import INTERVENTIONS, Dose, parse_doses

DEFAULTS = {"intervene": "", "head": "learned", "donor": "", "optimizer": "adamw", "coupling": "0", "tied": "True"}
GROUPS = (("intervene",), ("head", "donor"), ("optimizer", "coupling"), ("tied",))
SHAM_HEADS = {"frozen-donor-permuted"}
"""Heads that are the sham of another."""
SHAM_OF = {"frozen-code": "frozen-sphere", "frozen-etf": "frozen-sphere", "frozen-donor": "frozen-donor-permuted"}
"""What a head is compared with beside the learned one: the same with rows that say nothing."""


FURTHER = (
    "gap", "best_val_loss", "loss_after_temperature", "val_accuracy", "train_loss", "train_loss_running", "clipped",
)  # fmt: skip
"""Columns of runs.csv that are compared in every suite beside the outcome of the analysis."""
NEEDS_CONTROL = ("intervene", "head", "donor", "optimizer", "coupling")
"""Settings without a control that are named. Whether matrices are tied is a property of many models, and not an arm."""


ArmKey = tuple[Regime | None, str, float | None, bool]
"""An arm with its dose: where, name, dose, sham."""
Key = tuple[tuple[str, ...], tuple[str, ...]]
"""What a run shares with its control, and the settings of its arm."""


class Target(NamedTuple):
    """A metric that an arm must move: down (-1), up (1), or either way (0)."""

    metric: str
    sign: int


HEAD_TARGETS = {
    "class-means": Target("duality_cos_mean", 1),
    "sphere": Target("head_norm_cv", -1),
    "frozen-etf": Target("head_cosine_std", -1),
    "frozen-code": Target("head_logdist_std", -1),
    "frozen-init": Target("duality_cos_mean", 0),
    "frozen-sphere": Target("duality_cos_mean", 0),
    "frozen-donor": Target("duality_cos_mean", 0),
}


@dataclass(frozen=True)
class Arm:
    """What sets a run apart from its control."""

    where: Regime | None
    """The other settings of these groups, which control and arm share, where the table has several."""
    name: str
    """As in `within`, `frozen-code` or `coupling`; of several at once all of them, with their doses."""
    dose: float | None
    sham: bool
    targets: tuple[Target, ...]
    """The metrics that it must move; empty for a sham, and where none is known."""

    @property
    def label(self) -> str:
        """As it is set: within:+0.1:sham."""
        name, at, window = self.name.partition("@")
        if self.dose is not None and name in INTERVENTIONS:
            text = f"{Dose(name, self.dose, self.sham)}{at}{window}"
        else:
            text = self.name if self.dose is None else f"{self.name}:{self.dose:g}"
        return f"{text} ({self.where})" if self.where else text

    @property
    def key(self) -> ArmKey:
        """The arm, with its dose, as the rows of the tables have it."""
        return self.where, self.name, self.dose, self.sham

    @property
    def of(self) -> tuple[Regime | None, str]:
        """What arms that differ in their dose alone have in common."""
        return self.where, self.name


@dataclass(frozen=True)
class Comparison:
    """The runs of an arm beside their controls."""

    arm: Arm
    pairs: pd.DataFrame
    """One row a pair: the places of `treated` and `control` in the frame of models, `unit` and `cell`."""
    treated: pd.DataFrame
    control: pd.DataFrame
    """The values of each pair: a column for every metric, and the outcome."""

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Arm minus control, a row for each seed: what is independent. Cells that share a seed are averaged."""
        return (self.treated - self.control).groupby(self.pairs["unit"], sort=True).mean()

    def scaled(self, column: str) -> "pd.Series[float]":
        """Arm minus control on the catalogue's scale (the logarithm where it says so), a row for each seed."""
        sides = [self.treated[column], self.control[column]]
        if column in RELATED and RELATED[column].transform == "log":
            sides = [np.log(side.where(side > 0)) for side in sides]
        return (sides[0] - sides[1]).groupby(self.pairs["unit"], sort=True).mean()


def comparisons(models: Models) -> list[Comparison]:
    """Every arm of the table, in the order of its first run, shams after their treatment."""
    frame = models.trained[models.trained["last"]]
    pairs_by_arm: dict[Arm, list[tuple[object, object]]] = {}
    for treated, control, arm in _matched(frame):
        if control is not None and arm is not None:
            pairs_by_arm.setdefault(arm, []).append((treated, control))
    columns = [*(metric for metric in models.metrics if metric not in NOT_TESTED), models.outcome]
    columns += [name for name in FURTHER if name in frame and name not in columns and frame[name].notna().any()]
    return [_comparison(frame, arm, pairs, columns) for arm, pairs in sorted(pairs_by_arm.items(), key=_order)]


def _order(item: tuple[Arm, object]) -> tuple[str, str, bool, float]:
    arm = item[0]
    return str(arm.where or ""), arm.name, arm.sham, arm.dose or 0.0


def _comparison(frame: pd.DataFrame, arm: Arm, pairs: list[tuple[object, object]], columns: list[str]) -> Comparison:
    treated, control = ([pair[side] for pair in pairs] for side in (0, 1))
    controls, units = frame.loc[control], units_of(frame.loc[control])
    cells = controls["cell"].to_numpy()
    table = pd.DataFrame({"treated": treated, "control": control, "unit": units, "cell": cells})
    values = [frame.loc[side, columns].astype(float).reset_index(drop=True) for side in (treated, control)]
    return Comparison(arm, table, *values)


def units_of(frame: pd.DataFrame) -> list[str]:
    """The seeds of every run, as text: what is independent."""
    seeds = [name for name in ("seed", "data_seed") if name in frame]
    return [" ".join(map(_text, row)) for row in frame[seeds].itertuples(index=False, name=None)]


def unpaired(models: Models) -> tuple[dict[Arm, tuple[set[str], set[str]]], Counter[str]]:
    """The runs that are in no pair.

    Of every arm the seeds in which it has no outcome, and those in which its control has none; and the number of runs
    of every arm without a control.
    """
    frame = models.trained[models.trained["last"]]
    failed = frame["run"].isin(models.trained.loc[models.trained["why"].notna(), "run"])
    ended = np.isclose(frame["epoch"], frame["epochs"], rtol=0.01, atol=0)
    unknown = set(frame.index[frame[models.outcome].isna() | (failed & ~ended)])
    units = dict(zip(frame.index, units_of(frame), strict=True))
    lost: dict[Arm, tuple[set[str], set[str]]] = {}
    alone = Counter[str]()
    for treated, control, arm in _matched(frame, at_one_epoch=False):
        if arm is not None and control is None:
            alone[arm.label] += 1
        elif arm is not None and (treated in unknown) != (control in unknown):
            lost.setdefault(arm, (set(), set()))[control in unknown].add(units[treated])
    return lost, alone


def _matched(frame: pd.DataFrame, *, at_one_epoch: bool = True) -> Iterator[tuple[Any, Any, Arm | None]]:
    """Yield the place of every run, that of its control, and its arm; None for a control that is not there, and for
    the arm of a run that is none."""
    further = (name for name in further_settings(frame) if name not in DEFAULTS)
    names = [*ARCHITECTURE, "epochs", *(["epoch"] if at_one_epoch else []), "weight_decay", "lr", "seed", *further]
    keys = {index: tuple(map(_text, row)) for index, *row in frame[names].itertuples(name=None)}
    settings = _arm_settings(frame)
    varying = {name for name in DEFAULTS if len({values[name] for values in settings.values()}) > 1}
    places: dict[Key, object] = {}
    for index, key in keys.items():
        places.setdefault((key, tuple(settings[index].values())), index)
    for index, key in keys.items():
        matched = _control_of(key, settings[index], places)
        if matched is not None:
            control, removed = matched
            yield index, control, _arm_of(removed, settings[control], varying)
        else:
            changed = {
                name: settings[index][name]
                for name in NEEDS_CONTROL
                if settings[index][name] != DEFAULTS[name] and (name in varying or name == "intervene")
            }
            yield index, None, _arm_of(changed, DEFAULTS, set()) if changed else None


def _arm_settings(frame: pd.DataFrame) -> dict[object, dict[str, str]]:
    """Of every run the settings that can be an arm; doses of 0 are none."""
    known = frame.reindex(columns=list(DEFAULTS))
    rows = {}
    for index, *values in known.itertuples(name=None):
        rows[index] = {name: _text(value) or DEFAULTS[name] for name, value in zip(DEFAULTS, values, strict=True)}
        if (doses := _doses(rows[index]["intervene"])) is not None:
            rows[index]["intervene"] = " ".join(str(dose) for dose in doses if dose.dose)
    return rows


def _text(value: Cell) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    try:
        return f"{float(value):g}" if not isinstance(value, bool) else str(value)
    except ValueError:
        return str(value)


def _doses(text: str) -> tuple[Dose, ...] | None:
    """The doses of a cell; None where they are of no intervention that this version knows."""
    try:
        return parse_doses(text.split())
    except ConfigError:
        return None


def _control_of(
    key: tuple[str, ...], settings: Mapping[str, str], places: Mapping[Key, object]
) -> tuple[object, dict[str, str]] | None:
    """The place of a run's control, and the settings that the control does not have."""
    left, removed = dict(settings), dict[str, str]()
    for group in GROUPS:
        changed = {name: left[name] for name in group if left[name] != DEFAULTS[name]}
        if not changed:
            continue
        removed |= changed
        left |= {name: DEFAULTS[name] for name in changed}
        if (place := places.get((key, tuple(left.values())))) is not None:
            return place, removed
    return None


def _arm_of(removed: Mapping[str, str], control: Mapping[str, str], varying: set[str]) -> Arm:
    """The arm of these settings, beside a control that has the others."""
    others = {name: value for name, value in control.items() if name in varying and value != DEFAULTS[name]}
    where = Regime.of(others, others.values()) if others else None
    parts = list(_parts(removed, untied=control["tied"] == "False" or "tied" in removed))
    if len(parts) == 1:
        return replace(parts[0], where=where, targets=() if parts[0].sham else parts[0].targets)
    sham = any(part.sham for part in parts)
    targets = () if sham else tuple(target for part in parts for target in part.targets)
    return Arm(where, " + ".join(part.label for part in parts), None, sham, targets)


def _parts(removed: Mapping[str, str], *, untied: bool) -> Iterator[Arm]:
    """The settings of an arm one by one."""
    of_optimizer = (Target("head_sum", -1),) if untied else ()
    doses = _doses(removed.get("intervene", ""))
    if doses is None:
        yield Arm(None, removed["intervene"], None, ":sham" in removed["intervene"], ())
    for dose in doses or ():
        window = "" if dose.window == (0.0, 1.0) else f"@{dose.window[0]:g}-{dose.window[1]:g}"
        intervention, targets = INTERVENTIONS[dose.name], tuple[Target, ...]()
        if intervention.primary is not None:
            sign = {"rises": 1, "falls": -1, "": 0}[intervention.plus]
            targets = (Target(intervention.primary, sign if dose.dose > 0 else -sign),)
        yield Arm(None, dose.name + window, dose.dose, dose.sham, targets)
    if "head" in removed:
        target = HEAD_TARGETS.get(removed["head"])
        yield Arm(None, removed["head"], None, removed["head"] in SHAM_HEADS, (target,) if target else ())
    if "optimizer" in removed:
        decayed = removed["optimizer"] in ("adam", "coupled-adam")
        yield Arm(None, removed["optimizer"], None, False, of_optimizer if decayed else ())
    if "coupling" in removed:
        yield Arm(None, "coupling", float(removed["coupling"]), False, of_optimizer)
    if "tied" in removed and "head" not in removed:
        yield Arm(None, "untied", None, False, ())


def sham_of(comparison: Comparison, compared: Sequence[Comparison]) -> Comparison | None:
    """The sham of an arm: that of the same dose, else of the nearest size; of a head the one whose rows say nothing."""
    arm = comparison.arm
    if arm.sham:
        return None
    if (name := SHAM_OF.get(arm.name)) is not None:
        return next((other for other in compared if other.arm.of == (arm.where, name)), None)
    shams = [other for other in compared if other.arm.of == arm.of and other.arm.sham]
    dose = arm.dose or 0.0
    return min(shams, key=lambda o: (abs(abs(o.arm.dose or 0.0) - abs(dose)), (o.arm.dose or 0) != dose), default=None)


@dataclass(frozen=True)
class Registered:
    """What a suite of arms is judged by, and whether that was chosen before its first run.

    Without a registration the same tests are made with the defaults, and everything is called exploratory.
    """

    primary: Primary = field(default_factory=Primary)
    beforehand: bool = False

    @property
    def hash(self) -> str | None:
        """Of what was chosen beforehand; None where nothing was."""
        return self.primary.hash if self.beforehand else None

    def covers(self, outcome: str) -> bool:
        """Whether tests of this outcome were registered before the first run."""
        return self.beforehand and outcome == self.primary.outcome


def registered_in(directory: Path) -> Registered:
    """What was registered in a folder; the defaults where nothing was."""
    primary = registered_primary(directory)
    return Registered() if primary is None else Registered(primary, beforehand=True)
