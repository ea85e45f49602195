"""Lost runs: arms whose runs, or whose controls, did not finish, and arms that have no control at all.

An effect is a mean over pairs. A run that diverged has no outcome, and its pair is left out; those that are left are
the runs that the arm did not break. So the lost ones are counted, by arm: what they would have shown is not known.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import (
    DEFAULTS,
    Arm,
    arm_of,
    arm_settings,
    control_of,
    fixed_settings,
    places_of,
    units_of,
    varying_settings,
)
from collapselab.analysis.models import Models

NEEDS_CONTROL = ("intervene", "head", "donor", "optimizer", "coupling")
"""Settings without a control that are named. Whether matrices are tied is a property of many models, and not an arm."""


@final
@dataclass
class Lost:
    """Seeds of an arm in which one of arm and control has no outcome."""

    treated: set[str] = field(default_factory=set)
    control: set[str] = field(default_factory=set)


@final
@dataclass(frozen=True)
class Unpaired:
    """Runs that are in no pair."""

    lost: dict[Arm, Lost]
    alone: dict[str, int]
    """Arms without a control, as they are set, and the number of their runs."""


def unpaired(models: Models) -> Unpaired:
    """The runs of every arm that lack an outcome or a control."""
    frame = models.trained[models.trained["last"]]
    keys, settings = fixed_settings(frame, at_one_epoch=False), arm_settings(frame)
    places, varying = places_of(keys, settings), varying_settings(settings)
    unknown, units = _without_outcome(models, frame), dict(zip(frame.index, units_of(frame), strict=True))
    lost: dict[Arm, Lost] = {}
    alone: dict[str, int] = {}
    for index, key in keys.items():
        matched = control_of(key, settings[index], places)
        if matched is not None:
            control, removed = matched
            of_arm = lost.setdefault(arm_of(removed, settings[control], varying), Lost())
            if index in unknown and control not in unknown:
                of_arm.treated.add(units[index])
            elif control in unknown and index not in unknown:
                of_arm.control.add(units[index])
        elif label := _label_without_control(settings[index], varying):
            alone[label] = alone.get(label, 0) + 1
    return Unpaired({arm: counts for arm, counts in lost.items() if counts.treated or counts.control}, alone)


def _without_outcome(models: Models, frame: pd.DataFrame) -> set[object]:
    """The places of runs that failed before their end, or whose outcome is missing there."""
    failed = frame["run"].isin(models.trained.loc[models.trained["why"].notna(), "run"])
    ended = np.isclose(frame["epoch"], frame["epochs"], rtol=0.01, atol=0)
    return set(frame.index[frame[models.outcome].isna() | (failed & ~ended)])


def _label_without_control(settings: dict[str, str], varying: set[str]) -> str | None:
    """The arm of a run that has no control; None where it is no arm."""
    changed = {
        name: settings[name]
        for name in NEEDS_CONTROL
        if settings[name] != DEFAULTS[name] and (name in varying or name == "intervene")
    }
    return arm_of(changed, DEFAULTS, set()).label if changed else None
