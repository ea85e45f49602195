"""How many threads a process may use, when several share the processors of a machine."""

import os
import re

from collapselab.errors import ConfigError


def threads_each(jobs: int) -> int:
    """The processors that this process may use, divided among this many jobs."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, requested_threads() or allowed) // jobs)


def requested_threads() -> int | None:
    """OMP_NUM_THREADS as OpenMP reads it: in a list such as 4,2 the first number is that of the outermost level."""
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}\s*(,\s*[0-9]{1,9}\s*)*", text):
        raise ConfigError(
            f"OMP_NUM_THREADS: {text!r} is not a number of threads. Set it to a whole number from 1 on, or unset it."
        )
    return int(text.partition(",")[0])
