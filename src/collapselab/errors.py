"""The errors a user can mend: one message that says what is wrong and what to do, no traceback, exit status 2.

The numerical core raises `ValueError` instead: its callers are programs, and it knows nothing of the command line.
"""

from collections.abc import Iterable


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
