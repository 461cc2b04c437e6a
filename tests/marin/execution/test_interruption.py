"""Signals become one exception, and wait where they must."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from marin.process.interruption import Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_raised_where_the_work_is(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match=number.name), Interruption():
        os.kill(os.getpid(), number)
        signal.sigtimedwait([], 5)  # a point where Python looks
        pytest.fail("the signal did not arrive")
    assert signal.getsignal(number) is before


def test_a_shield_holds_it_back_to_its_end() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), Interruption() as interruption:
        with interruption.shield():
            with interruption.shield():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]


def test_an_error_in_a_shield_comes_first() -> None:
    with pytest.raises(ValueError, match="first"), Interruption() as interruption, interruption.shield():
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("first")


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with Interruption() as interruption, interruption.shield():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
