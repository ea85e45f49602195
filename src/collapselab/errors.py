"""The errors a user can mend: one message that says what is wrong and what to do, no traceback, exit status 2.

The numerical core raises `ValueError` instead: its callers are programs, and it knows nothing of the command line.

SIGTERM and Ctrl-C stop work where nothing is lost, say so, and the exit status is 128 + the signal's number.
`interruptible` stops at once, with an exception: right wherever files are written whole or not at all. `stop_requests`
lets a loop finish its step and save first.
"""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, final


class UserError(Exception):
    """Something the user must change before the command can continue."""


class CorpusError(UserError):
    """A source that cannot be read, or a corpus that cannot be built or opened."""


class ModelError(UserError):
    """A model that cannot be built, loaded or measured."""


class ConfigError(UserError):
    """A setting that is not one, or a value that it cannot take."""


class RunError(UserError):
    """A run that cannot start, continue or be read."""


class DiskError(UserError):
    """A disk that is full, or a file or folder that may not be read or written."""


class DamagedError(UserError):
    """A file of ours whose contents are not those that were written."""


class Busy(RunError):
    """Another process is working on it."""


class Interrupted(BaseException):
    """Work that a signal stopped, with everything saved.

    As KeyboardInterrupt it is no Exception: code that continues after an error does not catch it.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """A hint at the known name that was probably meant; `otherwise` where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]}?" if near else otherwise


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
