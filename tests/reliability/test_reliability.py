"""The short form of the harness: kills of every stage, damage to every kind of file."""

import os
from pathlib import Path

import pytest

from reliability.damage import REFUSED, damage_all
from reliability.kills import STAGES, artifacts, killed_often
from reliability.world import KINDS, make

LONG = bool(os.environ.get("COLLAPSELAB_RELIABILITY"))
KILLS, FLIPS, EDITS = (10, 20, 40) if LONG else (2, 1, 1)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("reliability") / "world")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_killed_ends_like_one_that_is_not(
    stage: str, world: Path, tmp_path: Path, one_thread: None
) -> None:
    assert killed_often(stage, world, tmp_path, kills=KILLS) == KILLS
    good, found = artifacts(tmp_path / "counted"), artifacts(tmp_path / "killed")
    assert len(good) > 2
    assert [name for name in sorted(good.keys() | found.keys()) if good.get(name) != found.get(name)] == []


def test_damage_to_any_file_is_refused_repaired_or_without_effect(
    world: Path, tmp_path: Path, one_thread: None
) -> None:
    tally = damage_all(world, tmp_path / "copy", flips=FLIPS, edits=EDITS)
    assert tally.findings == []
    assert tally.counts.keys() == {kind.name for kind in KINDS}
    assert sum(counts[REFUSED] for counts in tally.counts.values()) > len(KINDS) // 2
