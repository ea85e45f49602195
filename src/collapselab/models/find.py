"""Which models a name means: a folder, a .gguf file, a run or one of its checkpoints, an id on the hub."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collapselab.errors import ModelError, RunError


@dataclass(frozen=True)
class Source:
    """Where one model is: a folder, a .gguf file, or an id on the hub; and its place in a run, if it has one."""

    name: str
    path: str
    revision: str | None = None
    run: str = ""
    checkpoint: str = ""


def find_models(names: Sequence[str]) -> list[Source]:
    """The models behind names, in their order; a run stands for all its checkpoints, from initialisation on.

    A name is a Hugging Face folder, a .gguf file, a run, one checkpoint of a run, or an id on the hub, `id@revision`
    for a revision. What exists here wins over the hub.
    """
    return [source for name in names for source in _found(name)]


def checkpoint_source(path: Path, *, run: str, checkpoint: str, name: str | None = None) -> Source:
    """A checkpoint of a run as a model, called `name`, its path if none is given; ModelError where it is none."""
    _check_folder(path)
    return Source(name or str(path), str(path), None, run, checkpoint)


def _found(name: str) -> list[Source]:
    path = Path(name)
    if name and path.is_dir():
        return _in_folder(name, path)
    if path.is_file():
        if path.suffix == ".gguf":
            return [Source(name, name)]
        raise ModelError(f"{name}: a file. A model is a folder with a config.json, or a .gguf file.")
    identity, _, revision = name.partition("@")
    if path.suffix == ".gguf" or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", identity) or name.endswith("@"):
        raise ModelError(
            f"{name}: no such folder or file, and not an id on the hub (owner/model or owner/model@revision)."
        )
    return [Source(name, identity, revision or None)]


def _in_folder(name: str, path: Path) -> list[Source]:
    place = path.resolve()
    if (path / "run.json").is_file():
        return [
            checkpoint_source(folder, run=place.name, checkpoint=folder.name, name=f"{place.name}/{folder.name}")
            for folder in _checkpoints(path)
        ]
    if place.parent.name == "checkpoints" and (place.parent.parent / "run.json").is_file():
        return [checkpoint_source(path, run=place.parent.parent.name, checkpoint=place.name, name=name)]
    if (gguf := _gguf_in(path)) is not None:
        return [Source(name, str(gguf))]
    _check_folder(path)
    return [Source(name, str(path))]


def _gguf_in(path: Path) -> Path | None:
    """The GGUF file of a folder that holds no weights of another kind, None where there is none; one must be named."""
    files = sorted(path.glob("*.gguf"))
    if not files or any(path.glob("*.safetensors")) or any(path.glob("*.bin")):
        return None
    if len(files) > 1:
        names = first_of([file.name for file in files])
        raise ModelError(f"{path}: holds {len(files):,} GGUF files ({names}). Name one of them.")
    return files[0]


def _checkpoints(run: Path) -> list[Path]:
    """The folders of a run's checkpoints, by number; names that are none come last."""

    def number(folder: Path) -> tuple[float, str]:
        return (float(folder.name) if re.fullmatch(r"\d+(\.\d+)?", folder.name) else float("inf"), folder.name)

    inside = (run / "checkpoints").glob("*") if (run / "checkpoints").is_dir() else ()
    folders = sorted((path for path in inside if path.is_dir() and not path.name.startswith(".")), key=number)
    if not folders:
        raise RunError(f"{run}: a run without checkpoints; nothing is in its checkpoints/ yet. Train it first.")
    return folders


def _check_folder(path: Path) -> None:
    if (path / "config.json").is_file():
        return
    if (path / "adapter_config.json").is_file():
        refuse_adapter(path / "adapter_config.json", name=str(path))
    found = sorted(file.name for file in path.iterdir())
    listed = f"only {first_of(found)}" if found else "nothing: it is empty"
    raise ModelError(f"{path}: not a model; it has no config.json, and holds {listed}.")


def refuse_adapter(config: Path, *, name: str) -> None:
    """ModelError that says what an adapter is of, and how to measure the two together."""
    try:
        facts = json.loads(config.read_text())
        base, kind = facts.get("base_model_name_or_path"), facts.get("peft_type")
    except (ValueError, AttributeError):
        base, kind = None, None
    beside = " beside a whole model" if (config.parent / "config.json").is_file() else ", not a whole model"
    raise ModelError(
        f"{name}: an adapter ({kind or 'of an unknown kind'}) of {base or 'an unnamed model'}{beside}. Merge the two "
        "with the package peft (AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(NEW)) "
        "and name NEW, or load them in Python and call measure(model, corpus)."
    )


def first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
