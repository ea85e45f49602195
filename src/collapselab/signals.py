"""SIGTERM and Ctrl-C: work stops where nothing is lost, says so, and the exit status is 128 + the signal's number.

`interruptible` stops at once, with an exception: right wherever files are written whole or not at all. `stop_requests`
lets a loop finish its step and save first.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, final

from collapselab.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM)
STOPPED = "stopped. What is finished is saved; the same command continues."


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """While the block runs, each of these signals (SIGINT and SIGTERM if none is named) raises Interrupted."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise Interrupted(STOPPED, number)

    with _handled(numbers or STOPPING, stop):
        yield


@final
class StopRequest:
    """Whether a signal has asked the work to stop: `request.number` is the signal, None so far."""

    def __init__(self) -> None:
        self.number: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """While the block runs, a first SIGINT or SIGTERM is noted for the loop to see; a second one stops at once."""
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.number is not None:
            raise Interrupted("stopped at the second signal; what was being saved is not.", number)
        request.number = number

    with _handled(STOPPING, note):
        yield request


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: object) -> Iterator[None]:
    """Handlers belong to the main thread: in another the signals are not ours, and nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
