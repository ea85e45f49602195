"""Errors that the user can fix: a message that says what is wrong and what to do, no traceback, exit status 2.

The numerical core raises `ValueError` instead, since it is called by programs.

SIGTERM and Ctrl-C stop work without losing results; the exit status is 128 + the number of the signal. `interruptible`
stops immediately with an exception, which is safe where files are written atomically. `stop_requests` lets a loop
finish its step and save first.
"""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class UserError(Exception):
    """Something the user must change before the command can continue."""


class CorpusError(UserError):
    """A source that cannot be read, or a corpus that cannot be built or opened."""


class ModelError(UserError):
    """A model that cannot be built, loaded or measured."""


class ConfigError(UserError):
    """An unknown setting, or an invalid value of a setting."""


class RunError(UserError):
    """A run that cannot start, continue or be read."""


class DiskError(UserError):
    """A full disk, or a file or folder that cannot be read or written."""


class DamagedError(UserError):
    """A file whose contents are not those that we wrote."""


class Busy(RunError):
    """Another process holds the lock."""


class Interrupted(BaseException):
    """Work that was stopped by a signal, with everything saved.

    Like KeyboardInterrupt it is not an Exception, so that code that continues after errors does not catch it.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return a hint at the most similar known name; `otherwise` if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]}?" if near else otherwise


STOPPING = (signal.SIGINT, signal.SIGTERM)
STOPPED = "stopped. Finished work is saved; the same command continues."


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """Raise Interrupted on these signals (default SIGINT and SIGTERM) while the block runs."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise Interrupted(STOPPED, number)

    with _handled(numbers or STOPPING, stop):
        yield


class StopRequest:
    """The signal that asked the work to stop: `number` is None until there is one."""

    def __init__(self) -> None:
        self.number: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Record a first SIGINT or SIGTERM for the loop in the block to check; a second one raises Interrupted."""
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.number is not None:
            raise Interrupted("stopped at the second signal, before the current state was saved.", number)
        request.number = number

    with _handled(STOPPING, note):
        yield request


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: object) -> Iterator[None]:
    """Install signal handlers; only the main thread can, and in other threads nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
