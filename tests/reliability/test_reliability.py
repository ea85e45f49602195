"""The short form of the harness: kills of every stage, damage to every kind of file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.damage import REFUSED, damage_all
from reliability.kills import STAGES
from reliability.world import KINDS, OTHERS, make

LONG = bool(os.environ.get("COLLAPSELAB_RELIABILITY"))
KILLS, FLIPS, EDITS, EXCHANGES = (10, 20, 40, 5) if LONG else (2, 1, 1, 1)


@pytest.mark.slow
def test_a_stage_that_is_killed_ends_like_one_that_is_not(one_thread: None) -> None:
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), "--kills", str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600 * KILLS)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[3:]]
    assert [(stage, kills, differ) for stage, kills, _, differ in rows] == [(name, str(KILLS), "0") for name in STAGES]
    assert all(int(compared) > 2 for _, _, compared, _ in rows)


@pytest.mark.slow
def test_damage_to_any_file_is_refused_repaired_or_without_effect(tmp_path: Path, one_thread: None) -> None:
    others = {name: make(tmp_path / name, **changes) for name, changes in OTHERS.items() if LONG}
    world, counts = make(tmp_path / "world"), {"flips": FLIPS, "edits": EDITS, "exchanges": EXCHANGES}
    tally = damage_all(world, tmp_path / "copy", others=others, **counts)
    assert tally.findings == []
    assert tally.sorts.keys() >= {"flipped", "edited", "swapped", "linked", "extra", "downgraded"}
    assert tally.counts.keys() == {kind.name for kind in KINDS}
    assert sum(counts[REFUSED] for counts in tally.counts.values()) > len(KINDS) // 2
