"""Messages: under the names of the modules, on stderr, more or fewer as asked for."""

import logging
from collections.abc import Iterator

import pytest

from collapselab.messages import is_quiet, logger, progress, set_verbosity


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    set_verbosity()
    yield
    set_verbosity()


def test_a_message_is_shown_as_it_is_and_has_the_name_of_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    log = logger("collapselab.training.train")
    log.info("%s: seen", "run")
    log.debug("hidden")
    assert log.name == "collapselab.training.train"
    assert capsys.readouterr().err == "run: seen\n"


def test_quiet_leaves_warnings_alone_and_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    set_verbosity(quiet=True)
    logger("collapselab.x").info("hidden")
    logger("collapselab.x").warning("shown")
    with progress("working", total=1, unit="steps") as advance:
        advance(1)
    assert is_quiet()
    assert capsys.readouterr().err == "shown\n"


def test_verbose_shows_everything_with_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    set_verbosity(verbose=True)
    logger("collapselab.x").debug("detail")
    shown = capsys.readouterr().err
    assert shown.endswith(" DEBUG collapselab.x: detail\n")
    assert shown[:8].count(":") == 2


def test_an_application_can_take_the_messages_over(caplog: pytest.LogCaptureFixture) -> None:
    package = logging.getLogger("collapselab")
    handlers = package.handlers[:]
    package.handlers.clear()
    package.propagate = True
    try:
        package.addHandler(logging.NullHandler())
        logger("collapselab.x").info("taken over")
    finally:
        package.handlers[:], package.propagate = handlers, False
    assert "taken over" in caplog.text
