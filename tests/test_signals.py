"""A signal stops the work where nothing is lost."""

import os
import signal
import threading

import pytest

from collapselab.errors import STOPPING, Interrupted, interruptible, stop_requests


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_becomes_an_exception_with_its_number(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as raised, interruptible():
        os.kill(os.getpid(), number)
    assert raised.value.signal == number
    assert signal.getsignal(number) is before


def test_a_loop_finishes_its_step_at_the_first_signal_and_stops_at_the_second() -> None:
    steps: list[int | None] = []

    def loop() -> None:
        with stop_requests() as request:
            for _ in range(3):
                steps.append(request.number)
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        loop()
    assert steps == [None, signal.SIGTERM]


def test_in_another_thread_signals_are_left_alone() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with interruptible(), stop_requests():
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
