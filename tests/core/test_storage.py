import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from collapselab.core import storage
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows, load_tensors, save_tensors
from collapselab.disk import written_whole


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    moments = ClassMoments.empty(7, 3)
    moments.update(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 7)
    moments.save(tmp_path / "moments.safetensors")
    return tmp_path / "moments.safetensors"


def test_a_truncated_file_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"moments\.safetensors: damaged, or not a safetensors file"):
        ClassMoments.load(saved)


def test_every_flipped_byte_is_refused(saved: Path) -> None:
    good = saved.read_bytes()
    for position in range(0, len(good), 5):
        bad = bytearray(good)
        bad[position] ^= 0x10
        saved.write_bytes(bytes(bad))
        with pytest.raises(ValueError, match=r"moments\.safetensors: (damaged|holds)"):
            ClassMoments.load(saved)


def test_an_empty_file_is_refused(saved: Path) -> None:
    saved.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        ClassMoments.load(saved)


def test_tensors_of_another_kind_are_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="holds unknown tensors, not class moments"):
        ClassMoments.load(tmp_path / "x.safetensors")
    save_tensors(tmp_path / "y.safetensors", {"x": torch.zeros(2)}, kind="decisions", facts={})
    with pytest.raises(ValueError, match="holds decisions, not class moments"):
        ClassMoments.load(tmp_path / "y.safetensors")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ClassMoments.load(tmp_path / "nowhere")


def test_tensors_and_facts_come_back(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6).view(2, 3).T,
        "empty": torch.zeros(0, 4),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    save_tensors(tmp_path / "t", tensors, kind="test", facts={"n": 3, "none": None})
    loaded, facts = load_tensors(tmp_path / "t", kind="test")
    assert facts == {"n": 3, "none": None}
    assert set(loaded) == set(tensors)
    assert "b" not in loaded
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert {name: tensor.shape for name, tensor in load_file(tmp_path / "t").items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("written", [1, 50, 1 << 20])
def test_rows_are_stored_as_if_they_had_been_chosen_before(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "WRITTEN_BYTES", written)
    tables = {
        "a": torch.randn(30, 4, dtype=torch.float64),
        "b": torch.arange(30) % 3 > 0,
        "none": torch.zeros(30, 0),
        "one": torch.randn(30).bfloat16(),
    }
    for chosen in (torch.tensor([1, 7, 8, 29]), torch.arange(30), torch.zeros(0, dtype=torch.int64)):
        save_tensors(tmp_path / "rows", {n: Rows(t, chosen) for n, t in tables.items()}, kind="test", facts={})
        save_tensors(tmp_path / "chosen", {n: t[chosen] for n, t in tables.items()}, kind="test", facts={})
        assert (tmp_path / "rows").read_bytes() == (tmp_path / "chosen").read_bytes()
        loaded, _ = load_tensors(tmp_path / "rows", kind="test")
        assert all(torch.equal(loaded[name], table[chosen]) for name, table in tables.items())


@pytest.mark.slow
def test_saving_moments_does_not_hold_them_twice(tmp_path: Path) -> None:
    """A table of 164 MB; in a process of its own, whose peak nobody else has raised."""
    code = """
import resource, sys, torch
from collapselab.core.moments import ClassMoments
moments = ClassMoments.empty(40_000, 512)
moments.update(torch.randn(40_000, 512), torch.arange(40_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
moments.save(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = [sys.executable, "-c", code, str(tmp_path / "moments")]
    added = 1024 * int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert (tmp_path / "moments").stat().st_size > 160e6
    assert added < 50e6


def test_numbers_in_the_file_stand_where_a_processor_likes_them(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(3, dtype=torch.bool), "b": torch.randn(5), "c": torch.randn(7, dtype=torch.float64)}
    save_tensors(tmp_path / "t", tensors, kind="test", facts={"odd": "x"})
    loaded, _ = load_tensors(tmp_path / "t", kind="test")
    for name, tensor in tensors.items():
        assert loaded[name].data_ptr() % tensor.element_size() == 0


def test_what_was_loaded_is_ours_to_change(tmp_path: Path) -> None:
    save_tensors(tmp_path / "t", {"x/a": torch.zeros(3), "y/a": torch.ones(3)}, kind="test", facts={})
    loaded, _ = load_tensors(tmp_path / "t", kind="test")
    loaded["x/a"].add_(5)
    again, _ = load_tensors(tmp_path / "t", kind="test")
    assert list(again) == ["x/a", "y/a"]
    assert again["x/a"].tolist() == [0, 0, 0]
    with pytest.raises(KeyError, match="x/b"):
        again["x/b"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def fail_half_way() -> None:
        with written_whole(target) as temporary:
            temporary.write_text("half of the new")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        fail_half_way()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_moments_keep_the_names_that_earlier_versions_gave_their_tensors(tmp_path: Path) -> None:
    moments = ClassMoments.empty(7, 3, covariance=True)
    moments.update(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 7)
    moments.save(tmp_path / "moments.safetensors")
    names = {"seen", "counts", "sums", "squares", "point", "second"}
    assert set(load_file(tmp_path / "moments.safetensors")) == names | {"directions"}  # which came with dispersion
