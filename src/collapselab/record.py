"""A record: a JSON document of ours with named, typed fields and a checksum, read and written in one place.

    class Note(Record):
        text: str

    Note(text="seen").write(path)
    Note.read(path).text

A field added later needs a default: records of earlier versions then open as they are. Fields that this version does
not know are ignored; a field of another type, a missing one or a changed checksum is a DamagedError.
"""

import math
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from collapselab.disk import read_document, write_document
from collapselab.errors import DamagedError


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


FiniteOrNone = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A number, or None where there is none; what is not finite (the perplexity of a huge loss) is None."""


class Part(BaseModel):
    """Base of what a record is made of: named, typed fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Record(Part):
    """Base of every document that a folder of ours holds. `format` 1 was written without a checksum."""

    compact: ClassVar[bool] = False

    format: Literal[1, 2] = 2

    def write(self, path: str | Path) -> None:
        """Write the record, whole or not at all."""
        write_document(path, self.model_dump(mode="json") | {"format": 2}, compact=self.compact)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The record in a file; FileNotFoundError if there is none, DamagedError if it is not one, or was changed."""
        return cls.parsed(read_document(path, unchecked=True), path)

    @classmethod
    def find(cls, path: str | Path, *, remedy: str = "") -> Self | None:
        """The record in a file, None where there is none; DamagedError with the remedy if it was changed."""
        try:
            return cls.read(path)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            raise DamagedError(f"{error} {remedy}".rstrip()) from error

    @classmethod
    def parsed(cls, document: dict[str, JsonValue], where: str | Path) -> Self:
        """The record that a document holds."""
        try:
            return cls.model_validate(cls.upgraded({"format": 1} | document))
        except ValidationError as error:
            raise DamagedError(f"{where}: not a {cls.__name__} of this version; {first_error(error)}.") from error

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The document in the present form; a record whose form has changed says how."""
        return document


def first_error(error: ValueError) -> str:
    """Return the first problem that a validation found, after the name of its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    field, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{field}: {problem}" if field else problem
