import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from collapselab.core.moments import ClassMoments
from collapselab.core.storage import load_tensors, save_tensors, written_whole


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
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


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
