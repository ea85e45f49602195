"""Damage every kind of file, then run the stage that reads it next.

A file has one bit flipped or one value edited; or it is valid but wrong: exchanged with another file of its kind
(swapped), taken from another suite (foreign) or from an earlier state of this one (stale), without its checksum as in
version 0.1.0 (downgraded), there twice (extra), or a link to another file of its kind (linked).

The stage must refuse (an error that the user can mend), repair, give the same as without the damage, or warn that the
records are those of version 0.1.0 and unverified. Anything else (another number, a traceback) is a finding.

    python tests/reliability/damage.py --flips 20 --edits 40 --exchanges 5

`--world DIR` keeps the suite that is damaged, or takes the one that is there; with `--kinds` several processes share the
work. What is damaged in a kind does not depend on the other kinds.
"""

import argparse
import csv
import io
import json
import logging
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from collapselab import disk
from collapselab.errors import UserError
from reliability.world import KINDS, OTHERS, Kind, Refused, make

REFUSED, UNVERIFIED, SAME, WRONG = "refused", "unverified", "same", "wrong"


@dataclass
class Tally:
    """How often damage was refused or made no difference, by kind of file; and where it was not noticed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    sorts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, outcome: str, what: str) -> None:
        self.counts.setdefault(kind, Counter())[outcome] += 1
        if outcome == WRONG:
            self.findings.append(what)


def damage_all(
    world: Path,
    place: Path,
    *,
    flips: int,
    edits: int,
    exchanges: int = 0,
    others: Mapping[str, Path] = {},
    seed: int = 0,
    kinds: Sequence[Kind] = KINDS,
    finished: Callable[[str, Tally], object] = lambda kind, tally: None,
) -> Tally:
    """Damage copies of a world and return what came of it; `finished` is called after each kind of file.

    `flips`, `edits` and `exchanges` (of each sort) are numbers per kind; `others` are the worlds that foreign and stale
    files are taken from.
    """
    tally = Tally()
    expected = {
        read: read(_copy(world, place)) for read in dict.fromkeys(read for kind in kinds for read in kind.reads)
    }
    for kind in kinds:
        chance = random.Random(f"{seed} {kind.name}")
        damages = [
            *_damages(world, kind.files(world), flips, edits, chance),
            *(
                found
                for _ in range(exchanges)
                for found in _exchanges(world, kind, {} if kind.named else others, chance)
            ),
        ]
        for what, relative, apply in damages:
            read = chance.choice(kind.reads)
            copy = _copy(world, place)
            apply(copy)
            tally.add(kind.name, _outcome(read, copy, expected[read]), f"{relative}: {what}, then {read.__name__}")
            tally.sorts[what.split()[0]] += 1
        finished(kind.name, tally)
    return tally


def _outcome(read: Any, copy: Path, expected: Any) -> str:
    disk._note_unverified.cache_clear()
    with _Unverified() as told:
        try:
            found = read(copy)
        except (UserError, Refused):
            return REFUSED
        except Exception as error:  # noqa: BLE001  a traceback is what is looked for
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return WRONG
    return SAME if found == expected else UNVERIFIED if told.heard else WRONG


class _Unverified(logging.Handler):
    """Hears whether a stage says that records are unverified."""

    def __enter__(self) -> Self:
        self.heard = False
        disk.log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        disk.log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.heard |= "unverified" in record.getMessage()


def _copy(world: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world, place)
    return place


Damage = tuple[str, Path, Callable[[Path], object]]
"""What is done, to which file, and a function that does it to a copy of the world."""


def _damages(world: Path, files: list[Path], flips: int, edits: int, chance: random.Random) -> Iterator[Damage]:
    for _ in range(flips):
        relative = chance.choice(files)
        bit = chance.randrange(8 * (world / relative).stat().st_size)
        yield f"flipped bit {bit}", relative, partial(_flip, relative, bit)
    edited = [(relative, *edit) for relative in files for edit in edited_values(world / relative)]
    for relative, what, contents in edited if edits >= len(edited) else chance.sample(edited, edits):
        yield f"edited {what}", relative, partial(_write, relative, contents)


def _write(relative: Path, contents: Callable[[], bytes], copy: Path) -> None:
    (copy / relative).write_bytes(contents())


def _flip(relative: Path, bit: int, copy: Path) -> None:
    raw = bytearray((copy / relative).read_bytes())
    raw[bit // 8] ^= 1 << (bit % 8)
    (copy / relative).write_bytes(raw)


def _exchanges(world: Path, kind: Kind, others: Mapping[str, Path], chance: random.Random) -> Iterator[Damage]:
    """One valid file in a wrong place, for each way that this kind of file allows."""
    relative = chance.choice(kind.files(world))
    unlike = [
        path
        for path in kind.files(world, all_runs=True)
        if (world / path).read_bytes() != (world / relative).read_bytes()
    ]
    if unlike:
        other = chance.choice(unlike)
        yield f"swapped with {other}", relative, partial(_swap, relative, other)
        yield f"linked to {other}", relative, partial(_link, relative, other)
        yield f"extra copy as {other.name}-2", other, partial(_add, other)
    for what, elsewhere in others.items():
        found = {path.name: elsewhere / path for path in kind.files(elsewhere)}
        source = found.get(relative.name) or chance.choice(list(found.values()))
        if source.read_bytes() != (world / relative).read_bytes():
            yield f"{what} file", relative, partial(_write, relative, source.read_bytes)
    if relative.suffix == ".json":
        document = json.loads((world / relative).read_text())
        if disk.CHECKSUM in document:
            claimed = chance.random() < 0.5
            yield (
                f"downgraded{' with its version' * claimed}",
                relative,
                partial(_write, relative, partial(_downgraded, document, chance.random(), claimed)),
            )


def _swap(one: Path, other: Path, copy: Path) -> None:
    first, second = (copy / one).read_bytes(), (copy / other).read_bytes()
    (copy / one).write_bytes(second)
    (copy / other).write_bytes(first)


def _link(one: Path, other: Path, copy: Path) -> None:
    (copy / one).unlink()
    (copy / one).symlink_to((copy / other).resolve())


def _add(relative: Path, copy: Path) -> None:
    path = copy / relative
    shutil.copy(path, path.with_name(f"{path.stem}-2{path.suffix}"))


def _downgraded(document: dict[str, Any], place: float, claimed: bool) -> bytes:
    """A document without its checksum, with one value edited; as if version 0.1.0 had written it, if `claimed`."""
    kept = {key: value for key, value in document.items() if key != disk.CHECKSUM}
    keys = list(_values(kept))
    edited = json.loads(_edited_document(kept, keys[int(place * len(keys))]))
    text = json.dumps({**edited, "format": 1})
    return re.sub(r'"collapselab": "[^"]*"', '"collapselab": "0.1.0"', text).encode() if claimed else text.encode()


def edited_values(path: Path) -> list[tuple[str, Callable[[], bytes]]]:
    """The file with each of its values changed in turn, if it is JSON or a table; each is made when it is called for:
    all versions of a file with many values would not fit in memory."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        return [(f"{_place(keys)} edited", partial(_edited_document, document, keys)) for keys in _values(document)]
    if path.suffix == ".csv":
        header, *lines = list(csv.reader(io.StringIO(path.read_text())))
        return [
            (f"{header[column]} of line {row + 2} edited", partial(_edited_table, [header, *lines], row + 1, column))
            for row, line in enumerate(lines)
            for column in range(len(line))
        ]
    return []


def _values(document: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value that is no object and no array."""
    if isinstance(document, dict | list):
        inner = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in inner:
            yield from _values(value, (*keys, key))
    else:
        yield keys


def _place(keys: tuple[str | int, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def _edited_document(document: Any, keys: tuple[str | int, ...]) -> bytes:
    edited = deepcopy(document)
    holder: Any = reduce(lambda value, key: value[key], keys[:-1], edited)
    holder[keys[-1]] = _edited(holder[keys[-1]])
    return json.dumps(edited).encode()


def _edited(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return value + "x"
    return value * 1.5 + 1 if isinstance(value, float) else value + 1


def _edited_table(lines: list[list[str]], row: int, column: int) -> bytes:
    changed = [list(line) for line in lines]
    changed[row][column] = _edited_cell(changed[row][column])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(changed)
    return out.getvalue().encode()


def _edited_cell(cell: str) -> str:
    try:
        return repr(float(cell) * 1.5 + 1) if "." in cell or "e" in cell else str(int(cell) + 1)
    except ValueError:
        return cell + "x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=20, help="bits to flip in each kind of file")
    parser.add_argument("--edits", type=int, default=40, help="values to edit in each kind of file, at most")
    parser.add_argument("--exchanges", type=int, default=5, help="valid but wrong files in each kind, of each sort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=Path, help="where the suites to damage are, or are made")
    parser.add_argument(
        "--kinds", nargs="*", choices=[kind.name for kind in KINDS], help="some of the kinds of files; all if none"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    kinds = [kind for kind in KINDS if not chosen.kinds or kind.name in chosen.kinds]
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.world or Path(temporary)
        worlds = {name: folder / name for name in ("world", *OTHERS)}
        for name, path in worlds.items():
            if not path.exists():
                make(path, **OTHERS.get(name, {}))
        world = worlds.pop("world")
        print(f"seed {chosen.seed}")
        print(
            "| kind of file | damaged | refused | unverified | same result | not noticed |\n|---|---|---|---|---|---|"
        )
        asked = {"flips": chosen.flips, "edits": chosen.edits, "exchanges": chosen.exchanges, "seed": chosen.seed}
        with tempfile.TemporaryDirectory() as copies:
            place = Path(copies) / "copy"
            tally = damage_all(world, place, others=worlds, kinds=kinds, finished=_print_row, **asked)
    print(", ".join(f"{count} {sort}" for sort, count in sorted(tally.sorts.items())))
    print("\n".join(tally.findings))
    sys.exit(bool(tally.findings))


def _print_row(kind: str, tally: Tally) -> None:
    counts = tally.counts.get(kind, Counter())
    cells = (kind, counts.total(), *(counts[outcome] for outcome in (REFUSED, UNVERIFIED, SAME, WRONG)))
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
