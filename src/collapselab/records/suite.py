"""The records in a suite's folder: suite.json, failed/<run>.json and slurm/jobs.json."""

from typing import Annotated

from pydantic import Field, JsonValue

from collapselab.record import Part, Record

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class SuiteRecord(Record):
    """suite.json: the recipe as it was run, at its scale."""

    name: Name
    """Of the recipe."""
    scale: Name
    """`full` or `small`."""
    recipe: dict[str, JsonValue]
    """Its sections, with what `small` changes in place."""


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
    """Those that identify the run: every setting of the first version, and later ones that are not at their default."""
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
