"""What the package says while it works: `logging`, under the names of its modules, shown on stderr.

    logging.getLogger("collapselab").setLevel(logging.WARNING)      # as `collapselab --quiet`
    logging.getLogger("collapselab").setLevel(logging.DEBUG)        # as `collapselab -v`

An application that handles logs itself removes the handler, `logging.getLogger("collapselab").handlers.clear()`, and
sets `propagate`.
"""

import logging
import sys

PACKAGE = "collapselab"


class _ToStderr(logging.Handler):
    """Prints to whatever `sys.stderr` is at that moment: tests, notebooks and workers replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


class _Format(logging.Formatter):
    """The message alone; with debugging on, the time and the module before it."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not logging.getLogger(PACKAGE).isEnabledFor(logging.DEBUG):
            return text
        return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname} {record.name}: {text}"


def logger(name: str) -> logging.Logger:
    """The logger of a module of the package."""
    package = logging.getLogger(PACKAGE)
    if not package.handlers and package.propagate:
        handler = _ToStderr()
        handler.setFormatter(_Format())
        package.addHandler(handler)
        package.propagate = False
        package.setLevel(logging.INFO if package.level == logging.NOTSET else package.level)
    return logging.getLogger(name)


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Warnings and errors alone, without progress; or everything, with the time and the module."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logger(PACKAGE).setLevel(level)


def is_quiet() -> bool:
    """Whether progress should not be shown."""
    return logger(PACKAGE).getEffectiveLevel() > logging.INFO
