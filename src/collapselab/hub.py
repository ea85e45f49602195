"""Whether the Hugging Face hub can be reached, and how to get along without it.

The library goes on trying for most of a minute. Here the hub is asked once, for a few seconds, looking up its name
included; if it does not answer, only the cache on this machine is searched.
"""

import re
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HUB_SECONDS = 3.0
"""How long the hub may take to show that it is there."""

_IDENTITY = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


def hub_answers() -> bool:
    """Whether the hub can be reached: any answer counts."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answers: list[bool] = []
    # A thread, because the timeout of a request does not limit the time that looking up a name takes.
    asking = threading.Thread(target=lambda: answers.append(_answers(constants.ENDPOINT)), daemon=True)
    asking.start()
    asking.join(HUB_SECONDS)
    return answers == [True]


def hub_id(name: str) -> tuple[str, str | None] | None:
    """Id and revision of a name such as `owner/model@revision`; None if it cannot be a name on the hub."""
    identity, at, revision = name.partition("@")
    if not _IDENTITY.fullmatch(identity) or (at and not revision):
        return None
    return identity, revision or None


def cached_folder(identity: str, revision: str | None = None, *, file: str = "config.json") -> Path | None:
    """The folder of a model in the hub's cache on this machine, None unless it holds the file; nothing is asked."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(identity, file, revision=revision)
    except HFValidationError:  # what the hub does not take for a name was never fetched from it
        return None
    return Path(found).parent if isinstance(found, str) else None


def download_command(identity: str, revision: str | None = None) -> str:
    """The command that fetches a model or tokenizer from the hub into a folder DIR."""
    return f"hf download {identity}{f' --revision {revision}' if revision else ''} --local-dir DIR"


def _answers(address: str) -> bool:
    try:
        with urlopen(Request(address, method="HEAD"), timeout=HUB_SECONDS):
            return True
    except HTTPError:
        return True
    except (OSError, ValueError):  # no network; an address that is none
        return False
