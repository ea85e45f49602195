"""The records in a suite's folder: suite.json, failed/<run>.json and slurm/jobs.json."""

import hashlib
import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, Strict

from collapselab.disk import Part, Record
from collapselab.errors import DamagedError

Name = Annotated[str, Field(min_length=1, max_length=1000)]

DEFAULT_METRICS = ("cdnv_log", "logdist_std", "duality_cos_mean", "duality_cos_std", "agreement")
"""One metric for each property: NC1, GNC2, NC3, UNC3, NC4."""

FIRST = ("metrics", "outcome", "smallest_effect", "smallest_effect_tokens", "seeds")
"""The fields of the first `Primary`. A later one takes part in the hash only where it is not the default."""


class Primary(Part):
    """What a suite of arms is judged by, chosen before its first run; everything else in it is exploratory."""

    metrics: Annotated[tuple[Name, ...], Strict(False), Field(min_length=1, max_length=100)] = DEFAULT_METRICS
    """Ids of the catalogue, one for each property; p values are adjusted over these."""
    outcome: Name = "val_loss"
    """What an intervention may help or harm."""
    smallest_effect: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The smallest difference of the outcome that is of interest, in its unit (nats); None: from the next one."""
    smallest_effect_tokens: float = Field(0.05, gt=0, le=10, allow_inf_nan=False)
    """The same as a share of training tokens: what this share more tokens would change in the control."""
    seeds: int | None = Field(None, ge=2, le=10**6)
    """Seeds of each arm, so pairs; None where that was left open."""
    outcomes: Annotated[tuple[Name, ...], Strict(False), Field(max_length=100)] = ()
    """Further outcomes that are tested, such as `gap`; p values are adjusted over arms and outcomes."""

    @property
    def hash(self) -> str:
        """What a report quotes: the same for the same choices in every version."""
        fields = type(self).model_fields
        chosen = {name for name in fields if name in FIRST or getattr(self, name) != fields[name].default}
        text = json.dumps(self.model_dump(mode="json", include=chosen), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class SuiteRecord(Record):
    """suite.json: the recipe as it was run, at its scale."""

    name: Name
    """Of the recipe."""
    scale: Name
    """`full` or `small`."""
    recipe: dict[str, JsonValue]
    """Its sections, with what `small` changes in place."""
    primary: Primary | None = None
    """What was registered before the first run: metrics, outcome, smallest effect, seeds; empty where nothing was."""
    primary_hash: str | None = None
    """Of `primary`; it never changes once a run exists."""


def registered_primary(directory: str | Path) -> Primary | None:
    """What a suite's effects are judged by, if that was chosen before its first run; None where it was not."""
    record = SuiteRecord.find(Path(directory) / "suite.json")
    if record is None or record.primary is None:
        return None
    if record.primary.hash != record.primary_hash:
        raise DamagedError(
            f"{Path(directory) / 'suite.json'}: its primary has the hash {record.primary.hash}, but "
            f"{record.primary_hash} was registered. Put back what was changed."
        )
    return record.primary


class CorpusOfRun(Part):
    """The corpus that a run was to be trained on; without a hash it was not built."""

    path: Name
    hash: str | None


class FailureRecord(Record):
    """failed/<run>.json: why a run could not be finished, and what its row in runs.csv needs."""

    run: Name
    """Its name."""
    stage: Name
    """`training` or `measuring`."""
    checkpoint: Name
    """The one that could not be finished."""
    why: str
    """The reason."""
    when: str
    """UTC."""
    settings: dict[str, JsonValue]
    """Those that identify the run."""
    corpus: CorpusOfRun
    """Its path and hash."""
    parameters: int = Field(ge=0, lt=2**63)
    """Of the model."""
    epochs: float = Field(ge=0, allow_inf_nan=False)
    """That were planned."""


class JobsRecord(Record):
    """slurm/jobs.json: the last job of each run."""

    jobs: dict[str, Name]

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if document["format"] == 1 and "jobs" not in document:  # the first version wrote the jobs alone
            return {"format": 1, "jobs": {run: job for run, job in document.items() if run != "format"}}
        return document
