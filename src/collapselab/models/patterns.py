"""Patterns of names: `owner/model@step*` for revisions of the hub, `out/checkpoint-*` for folders, in order of step.

Numbers inside names count as numbers: step2 comes before step10. A folder here wins over the hub.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import final

from collapselab.errors import ModelError
from collapselab.hub import hub_id, hub_revisions

SIGNS = re.compile(r"[*?\[]")


@final
@dataclass(frozen=True)
class Match:
    """A name that a pattern matches; on the hub also its id, revision and commit, and whether its cache said so."""

    name: str
    identity: str | None = None
    revision: str | None = None
    commit: str | None = None
    is_cached: bool = False


def is_pattern(name: str) -> bool:
    """Whether a name has a sign of a pattern: `*`, `?` or `[`."""
    return SIGNS.search(name) is not None


def matches(pattern: str, is_model: Callable[[Path], bool]) -> list[Match]:
    """What a pattern matches: folders and files here that are models, or else revisions on the hub."""
    here = sorted(glob(pattern, recursive=True), key=step_order)
    models = [Match(name) for name in here if is_model(Path(name))]
    if models:
        return models
    identity, at, revision = pattern.partition("@")
    known = hub_id(identity) if at and revision else None
    if here or known is None:
        what = f"matches {first_of(here)}, none of which is a model" if here else "matches no folder or file here"
        raise ModelError(
            f"{pattern}: {what}. A model is a folder with a config.json, a .gguf file or a run; on the hub only a "
            "revision can be a pattern (owner/model@step*)."
        )
    return _on_the_hub(identity, revision)


def step_order(name: str) -> list[tuple[int, float, str]]:
    """What names are sorted by: their parts, of which digits count as a number.

    A folder that is named by a number with decimals, as checkpoints of runs are by their epoch, counts as that number;
    elsewhere a point is none, so that v1.9 is before v1.10.
    """
    parts = re.findall(r"(?:(?<=/)|^)[0-9]+\.[0-9]+(?=/|$)|[0-9]+|[^0-9]+", name)
    return [(0, _number(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts]


def _number(digits: str) -> float:
    return float(digits) if "." in digits else int(digits)


def first_of(names: Sequence[str]) -> str:
    """The first four names, and how many more there are."""
    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _on_the_hub(identity: str, pattern: str) -> list[Match]:
    try:
        revisions = hub_revisions(identity)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{identity}: the hub does not list its revisions: {reason}") from error
    matching = sorted((name for name in revisions.commits if fnmatchcase(name, pattern)), key=step_order)
    if not matching:
        names = sorted(revisions.commits, key=step_order)
        if revisions.from_cache and not names:
            raise ModelError(
                f"{identity}@{pattern}: no such folder here, none of its revisions in the hub's cache, and the hub "
                "cannot be reached. Fetch them where there is a network, or name folders by a pattern."
            )
        where = "in the hub's cache, as the hub cannot be reached" if revisions.from_cache else "on the hub"
        raise ModelError(
            f"{identity}@{pattern}: matches no revision. {len(names):,} are {where}: {first_of(names) or 'none'}."
        )
    if revisions.from_cache:
        many = f"{len(matching):,} revision{'' if len(matching) == 1 else 's'}"
        print(f"{identity}: the hub cannot be reached; {many} in its cache match.", file=sys.stderr)
    known, is_cached = revisions.commits, revisions.from_cache
    return [Match(f"{identity}@{name}", identity, name, known[name], is_cached) for name in matching]
