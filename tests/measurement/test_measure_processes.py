"""Several processes measure what one does; sharded by class, each holds its share of the moments."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collapselab.core.catalogue import METRICS, Need
from collapselab.corpus.blocks import Corpus
from collapselab.records.measurement import Result

pytestmark = pytest.mark.slow

LARGE = 262_144
PLAIN: dict[str, Any] = {"tokens": 700, "batch": 3, "layers": "all", "bins": 2}
SHARDED: dict[str, Any] = {"tokens": 700, "batch": 3, "shard_classes": True}
WIDE: dict[str, Any] = {"tokens": 200, "batch": 2, "vocabulary": LARGE, "null": False}


@pytest.fixture(scope="module")
def worlds(corpus: Corpus, documents: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs in one go, so that the libraries are imported once."""
    out = tmp_path_factory.mktemp("worlds")
    state = {"state": str(out / "state")}
    # Classes seen once after the same beginning of two sentences coincide, and rounding decides between them.
    ragged = PLAIN | {"corpus": str(documents.path), "min_count": 4}
    jobs = [
        ("one", 1, PLAIN),
        ("two", 2, PLAIN),
        ("two in float32", 2, PLAIN | {"dtype": "float32"}),
        ("one in float32", 1, PLAIN | {"dtype": "float32"}),
        ("three resampled", 3, {"tokens": 700, "batch": 3, "bootstrap": 3}),
        ("one resampled", 1, {"tokens": 700, "batch": 3, "bootstrap": 3}),
        ("two sharded", 2, PLAIN | {"shard_classes": True}),
        ("two sharded in float32", 2, PLAIN | {"shard_classes": True, "dtype": "float32"}),
        ("two sharded, to be killed", 2, SHARDED | {"die_at": 3} | state),
        ("two sharded, going on", 2, SHARDED | state),
        ("two sharded, stopped, to be killed", 2, SHARDED | {"die_at": 4, "signal": 15, "state": str(out / "stopped")}),
        ("two sharded, stopped, going on", 2, SHARDED | {"state": str(out / "stopped")}),
        ("two sharded, never killed", 2, SHARDED),
        ("one on documents", 1, ragged),
        ("two on documents", 2, ragged),
        ("two sharded on documents", 2, ragged | {"shard_classes": True}),
        ("one on documents in float32", 1, ragged | {"dtype": "float32"}),
        ("two sharded on documents in float32", 2, ragged | {"shard_classes": True, "dtype": "float32"}),
        ("wide", 1, WIDE),
        ("wide on two", 2, WIDE | {"shard_classes": True}),
        ("wide on four", 4, WIDE | {"shard_classes": True}),
    ]
    script = Path(__file__).parent / "worlds.py"
    done = subprocess.run(
        [sys.executable, script, out, corpus.path, json.dumps(jobs)], capture_output=True, text=True, timeout=240
    )
    for name, _, _ in jobs:
        statuses = json.loads((out / f"{name}.status").read_text())
        assert any(statuses) == name.endswith("to be killed"), f"{name}: {statuses}\n{done.stderr}"
    return out


def assert_same(one: Result, other: Result, *, rel: float) -> None:
    assert [row.key for row in one.rows] == [row.key for row in other.rows]
    for left, right in zip(one.rows, other.rows, strict=True):
        if left.metric == "ncc_loss" and other.facts["options"].get("shard_classes"):
            assert right.why is not None
            assert "spread over processes" in right.why
            continue
        assert (left.classes, left.tokens, left.left_out) == (right.classes, right.tokens, right.left_out), left
        assert (left.value is None, left.null is None) == (right.value is None, right.null is None), left
        # Below the last layer, products in float32 are of other rows in each process.
        of_products = left.layer != "last" and Need.SPECTRUM in METRICS[left.metric].needs
        close = max(rel, 1e-6) if of_products else rel
        assert right.value is None or right.value == pytest.approx(left.value, rel=close, abs=1e-12), left
        assert right.null is None or right.null == pytest.approx(left.null, rel=close, abs=1e-12), left


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("one", "two"),
        ("one in float32", "two in float32"),
        ("one resampled", "three resampled"),
        ("one", "two sharded"),
        ("one in float32", "two sharded in float32"),
        ("one on documents", "two on documents"),
        ("one on documents", "two sharded on documents"),
        ("wide", "wide on two"),
        ("wide", "wide on four"),
    ],
)
def test_several_processes_agree_with_one(worlds: Path, one: str, several: str) -> None:
    # In float32 too: every batch has the same shape, so a block's features are the same bits wherever it runs.
    alone, together = (Result.load(worlds / f"{name}.json") for name in (one, several))
    assert_same(alone, together, rel=1e-9)
    losses = [result.facts["splits"]["validation"]["loss"] for result in (alone, together)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


def test_decisions_from_logits_of_padded_blocks_are_those_of_one_process(worlds: Path) -> None:
    alone, together = (Result.load(worlds / f"{name} on documents in float32.json") for name in ("one", "two sharded"))
    for metric in ("agreement", "model_accuracy", "ncc_accuracy"):
        left, right = alone.row(metric), together.row(metric)
        assert left.tokens == right.tokens
        assert left.value is not None
        assert (left.value, left.null, left.left_out) == (right.value, right.null, right.left_out)


def test_intervals_do_not_depend_on_the_number_of_processes(worlds: Path) -> None:
    alone, together = (Result.load(worlds / f"{name} resampled.json") for name in ("one", "three"))
    for left, right in zip(alone.rows, together.rows, strict=True):
        if left.low is None:
            assert right.low is None
            continue
        assert (right.low, right.high) == pytest.approx((left.low, left.high), rel=1e-6, abs=1e-9), left


def test_sharded_by_class_the_memory_of_a_process_falls_in_proportion(worlds: Path) -> None:
    """And a class that does not occur takes none: the vocabulary has 262,144."""
    kept = Result.load(worlds / "wide.json").row("cdnv", split="train").classes or 0
    later = Result.load(worlds / "wide.json").row("cdnv", split="validation").classes or 0
    assert 50 < max(kept, later) < 200, "tokens of the sample"
    for name, world in (("wide", 1), ("wide on two", 2), ("wide on four", 4)):
        held = [json.loads((worlds / f"{name}-{rank}.json").read_text())["held"] for rank in range(world)]
        assert held == [len(range(rank, max(kept, later), world)) * 8 * 8 for rank in range(world)]


def test_sharded_processes_go_on_together_after_one_was_killed(worlds: Path) -> None:
    going_on, never = (Result.load(worlds / f"two sharded, {how}.json") for how in ("going on", "never killed"))
    assert going_on.rows == never.rows


def test_a_signal_to_one_of_the_sharded_processes_stops_all_at_the_same_batch(worlds: Path) -> None:
    assert json.loads((worlds / "two sharded, stopped, to be killed.status").read_text()) == [143, 143]
    going_on, never = (
        Result.load(worlds / f"two sharded, {how}.json") for how in ("stopped, going on", "never killed")
    )
    assert going_on.rows == never.rows
