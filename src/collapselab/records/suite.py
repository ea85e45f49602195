"""The records in a suite's folder: suite.json, failed/<run>.json and slurm/jobs.json, typed, each with its checksum.

Format 2 has a checksum. Format 1, of earlier versions, has none and still opens.
"""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collapselab.disk import read_document, write_document
from collapselab.errors import DamagedError, RunError

FORMAT = 2
FORMATS = (1, FORMAT)

Name = Annotated[str, Field(min_length=1, max_length=1000)]


class SuiteRecord(BaseModel):
    """suite.json: the recipe as it was run, at its scale."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: Name
    scale: Name
    recipe: dict[str, Any]


class CorpusRecord(BaseModel):
    """The corpus of a run that failed."""

    model_config = ConfigDict(strict=True, frozen=True)

    path: Name
    hash: str | None


class FailureRecord(BaseModel):
    """failed/<run>.json: why a run could not be finished, and what its row in runs.csv needs."""

    model_config = ConfigDict(strict=True, frozen=True)

    run: Name
    stage: Name
    checkpoint: Name
    why: str
    when: str
    settings: dict[str, Any]
    corpus: CorpusRecord
    parameters: int = Field(ge=0, lt=2**63)
    epochs: float = Field(ge=0, allow_inf_nan=False)


class JobsRecord(BaseModel):
    """slurm/jobs.json: the last job of each run."""

    model_config = ConfigDict(strict=True, frozen=True)

    jobs: dict[str, Name]


T = TypeVar("T", bound=BaseModel)


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record in today's format, whole or not at all."""
    write_document(path, {"format": FORMAT, **record.model_dump()})


def read_record(kind: type[T], path: Path, *, remedy: str) -> T | None:
    """The record of a file, None where there is none; DamagedError with the remedy if it is damaged or foreign."""
    try:
        document = read_document(path, unchecked=True)
        form = document.get("format", 1)
        if form != 1:
            document = read_document(path)
    except FileNotFoundError:
        return None
    except DamagedError as error:
        raise DamagedError(f"{error} {remedy}") from error
    if form not in FORMATS or isinstance(form, bool):
        raise RunError(f"{path}: its format is {str(form)[:80]}, not one that this version reads. Name another folder.")
    if kind is JobsRecord and "format" not in document:  # format 1 was the jobs alone
        document = {"jobs": document}
    try:
        return kind(**{key: value for key, value in document.items() if key in kind.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DamagedError(f"{path}: damaged or not ours ({place}: {first['msg'].lower()}). {remedy}") from error
