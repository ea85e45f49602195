"""One bit flipped, or one value edited, in every kind of file; then the stage that reads it next.

The stage must refuse (an error that the user can mend), repair, or give the same as without the damage. Anything else
(another number, a traceback) is a finding.

    python tests/reliability/damage.py --flips 20 --edits 40

`--world DIR` keeps the suite that is damaged, or takes the one that is there; with `--kinds` several processes share the
work. What is damaged in a kind does not depend on the other kinds.
"""

import argparse
import csv
import io
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from collapselab.errors import UserError
from reliability.world import KINDS, Kind, Refused, make

REFUSED, SAME, WRONG = "refused", "same", "wrong"


@dataclass
class Tally:
    """How often damage was refused or made no difference, by kind of file; and where it was not noticed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

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
    seed: int = 0,
    kinds: Sequence[Kind] = KINDS,
    finished: Callable[[str, Tally], object] = lambda kind, tally: None,
) -> Tally:
    """Damage copies of a world: so many flips and edits for each kind of file; `finished` is called after each kind."""
    tally = Tally()
    expected = {
        read: read(_copy(world, place)) for read in dict.fromkeys(read for kind in kinds for read in kind.reads)
    }
    for kind in kinds:
        chance = random.Random(f"{seed} {kind.name}")
        for what, relative, contents in _damages(world, kind.files(world), flips, edits, chance):
            read = chance.choice(kind.reads)
            copy = _copy(world, place)
            (copy / relative).write_bytes(contents)
            tally.add(kind.name, _outcome(read, copy, expected[read]), f"{relative}: {what}, then {read.__name__}")
        finished(kind.name, tally)
    return tally


def _outcome(read: Any, copy: Path, expected: Any) -> str:
    try:
        found = read(copy)
    except (UserError, Refused):
        return REFUSED
    except Exception as error:  # noqa: BLE001  a traceback is what is looked for
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return WRONG
    return SAME if found == expected else WRONG


def _copy(world: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world, place)
    return place


def _damages(
    world: Path, files: list[Path], flips: int, edits: int, chance: random.Random
) -> Iterator[tuple[str, Path, bytes]]:
    for _ in range(flips):
        relative = chance.choice(files)
        raw = bytearray((world / relative).read_bytes())
        bit = chance.randrange(8 * len(raw))
        raw[bit // 8] ^= 1 << (bit % 8)
        yield f"bit {bit} flipped", relative, bytes(raw)
    edited = [(relative, *edit) for relative in files for edit in edited_values(world / relative)]
    for relative, what, contents in edited if edits >= len(edited) else chance.sample(edited, edits):
        yield what, relative, contents()


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=Path, help="the suite to damage copies of; it is made if it is not there")
    parser.add_argument(
        "--kinds", nargs="*", choices=[kind.name for kind in KINDS], help="some of the kinds of files; all if none"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    kinds = [kind for kind in KINDS if not chosen.kinds or kind.name in chosen.kinds]
    with tempfile.TemporaryDirectory() as folder:
        world = chosen.world or Path(folder) / "world"
        if not world.exists():
            make(world)
        print("| kind of file | damaged | refused | same result | not noticed |\n|---|---|---|---|---|")
        asked = {"flips": chosen.flips, "edits": chosen.edits, "seed": chosen.seed, "kinds": kinds}
        tally = damage_all(world, Path(folder) / "copy", finished=_print_row, **asked)
    print("\n".join(tally.findings))
    sys.exit(bool(tally.findings))


def _print_row(kind: str, tally: Tally) -> None:
    counts = tally.counts[kind]
    print(f"| {kind} | {sum(counts.values())} | {counts[REFUSED]} | {counts[SAME]} | {counts[WRONG]} |", flush=True)


if __name__ == "__main__":
    main()
