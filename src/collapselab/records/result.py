"""What a measurement gives: rows in the long form, and the facts without which they mean nothing."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from collapselab.disk import document_text, read_document, sha256, write_document, written_whole
from collapselab.errors import ConfigError, DamagedError
from collapselab.records.tables import RESULTS, Row, to_frame

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".json", ".parquet")


@final
@dataclass(frozen=True)
class Result:
    """One model's rows. `facts` holds hashes, options, counts, dtype, versions, scores of the splits and seconds."""

    rows: list[Row]
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.facts["model"])

    def row(self, metric: str, *, split: str = "train", layer: str = "last", bin: str = "all") -> Row:
        """The row of a metric; KeyError if it was not measured."""
        key = (split, layer, bin, metric)
        for row in self.rows:
            if (row.split, row.layer, row.bin, row.metric) == key:
                return row
        raise KeyError(" / ".join(key))

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas table with the columns of results.csv."""
        return to_frame(self.rows)

    def to_json(self) -> str:
        """One JSON document with a checksum; what cannot be said in JSON (an infinite perplexity) is null."""
        return document_text(self._document(), compact=True).rstrip("\n")

    def save(self, path: str | Path) -> None:
        """Write the JSON document, whole or not at all."""
        write_document(path, self._document(), compact=True)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """What `save` wrote; DamagedError if it was changed since, or is something else."""
        document = read_measurement(path)
        try:
            return cls([Row(**row) for row in document["rows"]], document["facts"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{path}: not a measurement ({error}). Delete it and measure again.") from error

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = _sayable(
            {"format": 2, "facts": self.facts, "rows": [asdict(row) for row in self.rows]}
        )
        return document


def read_measurement(path: str | Path) -> dict[str, Any]:
    """The document of a measurement, verified: `facts` is a mapping, `rows` a list. Read again only if it changed."""
    path = Path(path)
    found = path.stat()
    stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
    if path not in _read or _read[path][0] != stamp:
        document = read_document(path, unchecked=True)
        if not isinstance(document.get("facts"), dict) or not isinstance(document.get("rows"), list):
            raise DamagedError(f"{path}: not a measurement. Delete it and measure again.")
        _read[path] = (stamp, document)
    return _read[path][1]


_read: dict[Path, tuple[tuple[int, int, int], dict[str, Any]]] = {}


@final
@dataclass(frozen=True)
class Results:
    """Several models side by side, and those that could not be measured with the reason."""

    results: list[Result]
    failures: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    @property
    def rows(self) -> list[Row]:
        return [row for result in self.results for row in result.rows]

    def initial(self, result: Result) -> Result | None:
        """The measurement of the same run at its initialisation."""
        run = result.facts["run"]
        same = (one for one in self.results if one.facts["run"] == run and one.facts["checkpoint"] == "0")
        return next((one for one in same if one is not result), None) if result.facts["in_a_run"] else None

    def to_frame(self) -> "pd.DataFrame":
        """The rows of all models as one pandas table."""
        return to_frame(self.rows)

    def to_json(self) -> str:
        """One JSON document with all results."""
        whole = {"results": [json.loads(result.to_json()) for result in self.results], "failures": self.failures}
        return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def check_suffix(path: str | Path) -> None:
    """ConfigError unless the file's name says what to write."""
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(f"{path}: ends with {Path(path).suffix!r}; {', '.join(SUFFIXES)} can be written.")


def write(path: str | Path, found: Result | Results) -> None:
    """Write rows as .csv or .parquet with the facts in a file beside it, or both as .json; whole or not at all."""
    check_suffix(path)
    path = Path(path)
    if path.suffix == ".csv":
        RESULTS.write(path, found.rows)
    else:
        with written_whole(path) as temporary:
            if path.suffix == ".json":
                temporary.write_text(found.to_json() + "\n")
            else:
                found.to_frame().to_parquet(temporary, index=False)
    if path.suffix != ".json":
        write_document(facts_path(path), _facts_beside(path, found))


def facts_path(path: str | Path) -> Path:
    """Where the facts of a table's rows are: `results.facts.json` beside `results.csv`."""
    return Path(path).with_suffix(".facts.json")


def _facts_beside(path: Path, found: Result | Results) -> dict[str, Any]:
    """The facts of all models of a table, and the hash of the table that they belong to."""
    results, failures = (found.results, found.failures) if isinstance(found, Results) else ([found], {})
    document: dict[str, Any] = _sayable(
        {
            "format": 2,
            "table": {"name": path.name, "sha256": sha256(path)},
            "facts": [result.facts for result in results],
            "failures": failures,
        }
    )
    return document


def _sayable(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {key: _sayable(value) for key, value in thing.items()}
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return [_sayable(value) for value in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
