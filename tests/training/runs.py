"""Small runs, and what they leave behind."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from collapselab.records.run import CheckpointRecord, RunFolder
from collapselab.training.settings import settings_from
from collapselab.training.train import train

SMALL: dict[str, Any] = {"width": 16, "depth": 1, "batch": 4, "steps": 6, "lr": 3e-3}


def run(corpus: Path, out: Path, *, options: dict[str, Any] | None = None, **values: Any) -> list[CheckpointRecord]:
    return train(settings_from({**SMALL, **values}), corpus, out, **{"device": "cpu", **(options or {})})


def logged(out: Path, name: str) -> list[float]:
    return [entry[name] for entry in RunFolder(out).read_log() if name in entry]


def weights(out: Path, *, first: bool = False) -> dict[str, Tensor]:
    names = RunFolder(out).checkpoint_names()
    return load_file(out / "checkpoints" / names[0 if first else -1] / "model.safetensors")


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def run_in_two(corpus: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """A run whose last step is taken again, by another process's trainer, from the state that was saved before it."""

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "drop_states", crash)
        patch.setattr(RunFolder, "rewind_log", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, out, options={"save_minutes": 0}, **values)
    last = RunFolder(out).checkpoint_names()[-1]
    (out / "checkpoints" / last / "model.safetensors").write_bytes(b"")
    run(corpus, out, **values)
