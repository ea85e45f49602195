"""Where the files of a model are: a folder, a GGUF file, the cache of the hub, or the hub if it answers.

All that can be refused by the files alone is refused here, before the library is loaded, which takes seconds.
"""

import importlib.util
from pathlib import Path
from typing import Any

from collapselab.errors import ModelError
from collapselab.hub import cached_folder, download_command, hub_answers
from collapselab.models.find import Source, refuse_adapter
from collapselab.models.stored import StoredWeights, stored_weights


def place_of(source: Source) -> dict[str, Any]:
    """What the library calls the place. Without an answer of the hub it is the folder in the cache, or an error."""
    path = Path(source.path)
    if path.suffix == ".gguf":
        if importlib.util.find_spec("gguf") is None:
            raise ModelError(f"{source.name}: GGUF files need the package gguf. Install collapselab[gguf].")
        folder = str(path.parent)
        return {"pretrained_model_name_or_path": folder, "gguf_file": path.name, "local_files_only": True}
    if path.is_dir():
        return {"pretrained_model_name_or_path": source.path, "local_files_only": True}
    if hub_answers():
        return {
            "pretrained_model_name_or_path": source.path,
            "revision": source.revision,
            "local_files_only": False,
        }
    cached = cached_folder(source.path, source.revision)
    if cached is None:
        raise ModelError(
            f"{source.name}: no such folder here, not in the hub's cache, and the hub cannot be reached. Fetch it "
            f"where there is a network ({download_command(source.path, source.revision)}) and name that folder."
        )
    return {"pretrained_model_name_or_path": str(cached), "local_files_only": True}


def local_weights(source: Source, where: dict[str, Any]) -> StoredWeights | None:
    """The weights on this machine, None where they are on the hub still; and no adapter that the library would add."""
    folder = Path(where["pretrained_model_name_or_path"])
    if not where["local_files_only"]:
        from transformers.utils.peft_utils import find_adapter_config_file

        adapter = find_adapter_config_file(source.path, revision=source.revision)
        if adapter is not None:
            refuse_adapter(Path(adapter), name=source.name)
        return None
    if "gguf_file" not in where and (folder / "adapter_config.json").is_file():
        refuse_adapter(folder / "adapter_config.json", name=source.name)
    return weights_on_disk(source, where)


def weights_on_disk(source: Source, place: dict[str, Any]) -> StoredWeights | None:
    """The weights of a loaded model where they are kept, those of the hub in its cache; None if they are not found."""
    folder = Path(place["pretrained_model_name_or_path"])
    if "gguf_file" in place:
        return stored_weights(folder / place["gguf_file"], name=source.name)
    if not place["local_files_only"]:
        cached = cached_folder(source.path, source.revision)
        return None if cached is None else stored_weights(cached, name=source.name)
    return stored_weights(folder, name=source.name)
