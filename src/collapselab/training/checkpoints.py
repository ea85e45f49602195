"""A checkpoint: a folder that the library's `from_pretrained` reads, with what is known about it beside the weights."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging

from collapselab.corpus.blocks import Corpus
from collapselab.disk import folder_written_whole, sha256


def write_checkpoint(path: Path, model: PreTrainedModel, corpus: Corpus, facts: dict[str, Any]) -> None:
    """Weights, configuration and tokenizer, and training.json with the facts and the weights' checksum."""
    shutil.rmtree(path, ignore_errors=True)  # it was found damaged
    with folder_written_whole(path) as folder:
        with _quiet_library():
            model.save_pretrained(folder)
        shutil.copytree(corpus.path / "tokenizer", folder, dirs_exist_ok=True)
        facts = facts | {"sha256": sha256(folder / "model.safetensors")}
        (folder / "training.json").write_text(json.dumps(facts, indent=1) + "\n")


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Without a progress bar for every file: there is one for the training."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
