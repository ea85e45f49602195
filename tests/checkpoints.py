"""Checkpoints of a run, without training one."""

from pathlib import Path
from typing import Any

from collapselab.disk import sha256, write_document
from collapselab.records.run import CheckpointRecord


def save_checkpoint(model: Any, run: Path, name: str) -> None:
    """Save a model as a checkpoint of a run, with the hashes that its readers verify."""
    folder = run / "checkpoints" / name
    model.save_pretrained(folder)
    files = {path.name: sha256(path) for path in folder.iterdir()}
    known = CheckpointRecord(
        checkpoint=name, step=0, epoch=0.0, tokens=0, train_loss=None, val_loss=None, val_accuracy=None,
        perplexity=None, seconds=0.0, files=files,
    )  # fmt: skip
    known.write(folder / "training.json")
    write_document(run / "run.json", {})
