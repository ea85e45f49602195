"""A suite whose processes are killed again and again, from one process that has imported everything.

    python faults.py RECIPE FOLDER KILLS SEED

Prints how often processes were killed at work, and how many there were each time.
"""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

from collapselab.measurement import measure as stage  # noqa: F401  imported before the fork, as are the next two
from collapselab.models import load  # noqa: F401
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.recipe import load_suite
from collapselab.training import train  # noqa: F401

WHOLE_KILLS, FAMILY, FAMILY_SECONDS = 3, 3, 60.0
"""The first kills wait, at most this long, until the process that leads and its two workers are there.

The others come at any moment, while processes start too, which on a busy machine takes longer than they wait.
"""


def main(recipe: Path, folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    chance, killed = random.Random(seed), []
    while len(killed) < kills:
        child = started(recipe, folder)
        if len(killed) < WHOLE_KILLS:
            wait_for_family(child)
        time.sleep(chance.uniform(0.05, 0.35))
        family = [child, *descendants(child)]
        if os.waitpid(child, os.WNOHANG)[0]:
            break  # it was faster
        for process in family:
            with suppress(ProcessLookupError):  # one that ended by itself meanwhile
                os.kill(process, signal.SIGKILL)
        os.waitpid(child, 0)
        killed.append(len(family))
    os.waitpid(started(recipe, folder), 0)
    print(json.dumps(killed))


def started(recipe: Path, folder: Path) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            report = suites.run(load_suite(recipe), SuiteFolder(folder), jobs=2, start_method="fork")
            status = int(bool(report.failed or report.refused))
        finally:
            os._exit(status)
    return child


def wait_for_family(child: int) -> None:
    deadline = time.monotonic() + FAMILY_SECONDS
    while 1 + len(descendants(child)) < FAMILY:
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {FAMILY} processes after {FAMILY_SECONDS:.0f} s")
        time.sleep(0.01)


def descendants(process: int) -> list[int]:
    children = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # a thread that ended meanwhile
            children += [int(child) for child in path.read_text().split()]
    return [one for child in children for one in (child, *descendants(child))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
