"""Interrupts of the main thread are kept back while they would do harm, and heeded where they can be."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from divebook import interrupts
from divebook.interrupts import (
    INTERRUPTS,
    SECOND_INTERRUPT_AFTER,
    DeferredInterrupts,
    interruptible_result,
    interruptible_wait,
)


@pytest.fixture
def keyboard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield DeferredInterrupts()
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


@contextmanager
def heard_by(handler):
    """Have a handler hear of them in the block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch):
    """Return a list with the time, which stands still."""
    times = [100.0]
    monkeypatch.setattr("divebook.interrupts.time.monotonic", lambda: times[0])
    return times


def press():
    signal.raise_signal(signal.SIGINT)


def interrupted(act):
    try:
        act()
    except KeyboardInterrupt:
        return True
    return False


def test_one_that_comes_in_the_block_is_raised_at_its_end(keyboard):
    done = []

    def act():
        with keyboard.deferred() as is_deferred:
            press()
            done.append(is_deferred)

    assert interrupted(act)
    assert done == [True]


def test_one_is_raised_where_the_block_heeds_it(keyboard):
    done = []

    def act():
        with keyboard.deferred():
            keyboard.raise_pending()
            press()
            done.append("kept back")
            keyboard.raise_pending()
            done.append("not heeded")

    assert interrupted(act)
    assert done == ["kept back"]


def test_what_comes_after_one_was_heeded_is_dropped_at_the_end(keyboard):
    with keyboard.deferred():
        press()
        assert interrupted(keyboard.raise_pending)
        press()


def test_a_block_in_a_block_leaves_it_to_the_outer_one(keyboard):
    done = []

    def act():
        with keyboard.deferred():
            with keyboard.deferred() as is_deferred:
                press()
            done.append(is_deferred)

    assert interrupted(act)
    assert done == [True]


def test_one_that_is_not_heeded_is_followed_by_one_that_is_raised_at_once(keyboard, clock):
    with keyboard.deferred():
        press()
        clock[0] += SECOND_INTERRUPT_AFTER / 2
        assert not interrupted(press)
        clock[0] += SECOND_INTERRUPT_AFTER
        assert interrupted(press)


def test_where_a_person_is_asked_they_come_at_once(keyboard):
    def asked(answer):
        with keyboard.allowed():
            answer()

    with keyboard.deferred():
        assert interrupted(lambda: asked(press))
        assert not interrupted(press)
        assert interrupted(lambda: asked(lambda: None))  # that which was kept back


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_hears_of_none_is_left_as_it_is(keyboard, handler):
    with heard_by(handler), keyboard.deferred() as is_deferred:
        assert not is_deferred
        assert signal.getsignal(signal.SIGINT) == handler


def test_a_handler_of_ones_own_is_called_where_they_are_heeded(keyboard):
    heard = []
    with heard_by(lambda number, _: heard.append(number)), keyboard.deferred():
        press()
        assert heard == []
        keyboard.raise_pending()
        assert heard == [signal.SIGINT]


def in_a_thread(function):
    outcome = Future()
    thread = threading.Thread(target=lambda: outcome.set_result(function()))
    thread.start()
    thread.join()
    return outcome.result()


def test_other_threads_keep_nothing_back(keyboard):
    def deferred():
        with keyboard.deferred() as is_deferred, keyboard.allowed():
            keyboard.raise_pending()
            return is_deferred

    assert in_a_thread(deferred) is False
    with keyboard.deferred():
        assert in_a_thread(deferred) is False


def press_elsewhere():
    """Have one come that wakes nobody, as one does just before a thread waits for a lock."""
    in_a_thread(press)


class PressedEvent(threading.Event):
    def wait(self, timeout=None):
        press_elsewhere()
        return super().wait(timeout)


class Pressed(Future):
    """One comes as soon as it is waited for, and before that what settles it, if that is given."""

    def __init__(self, settled_with=None):
        super().__init__()
        self.settled_with = settled_with

    def result(self, timeout=None):
        if self.settled_with is not None:
            self.set_result(self.settled_with)
        press_elsewhere()
        return super().result(timeout)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize(
    "wait", [lambda: interruptible_result(Pressed()), lambda: interruptible_wait(PressedEvent(), 60)]
)
def test_a_thread_that_waits_hears_of_one_that_does_not_wake_it(wait):
    with pytest.raises(KeyboardInterrupt):
        wait()


@pytest.mark.usefixtures("keyboard")
def test_one_is_not_heeded_before_what_takes_a_moment_has_had_it():
    with INTERRUPTS.deferred():
        assert interruptible_result(Pressed("begun"), patience=60) == "begun"
        assert interrupted(INTERRUPTS.raise_pending)


class SettledLate(Future):
    """It is settled between the end of a look and the question whether it is."""

    def done(self):
        if not super().done():
            self.set_result("fine")
        return super().done()


def test_what_is_settled_as_a_look_ends_has_its_result():
    assert interruptible_result(SettledLate()) == "fine"


class Alarming(Future):
    """Somebody's signal handler has a time limit of its own."""

    def result(self, timeout=None):
        raise TimeoutError("my deadline")


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_time_limit_of_somebodys_signal_handler_ends_the_waiting(timeout):
    with pytest.raises(TimeoutError, match="my deadline"):
        interruptible_result(Alarming(), timeout)


def test_one_that_comes_as_a_block_begins_leaves_nothing_behind(keyboard, monkeypatch):
    install = interrupts.set_handler

    def interrupted_install(number, handler):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("divebook.interrupts.set_handler", interrupted_install)
    with pytest.raises(KeyboardInterrupt):
        keyboard.deferred().__enter__()
    assert interrupts.set_handler is install
    with keyboard.deferred():
        assert not interrupted(press)
        assert interrupted(keyboard.raise_pending)


def test_a_handler_that_makes_room_for_another_one_is_taken_at_its_word(keyboard):
    def polite(number, frame):
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with heard_by(polite):
        with keyboard.deferred():
            press()
            keyboard.raise_pending()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_each_one_is_told_to_a_handler_that_breaks_nothing_off(keyboard):
    heard = []
    with heard_by(lambda number, frame: heard.append(number)):
        with keyboard.deferred():
            press()
            keyboard.raise_pending()
            press()
        assert len(heard) == 2


FORKING = """
import os, signal, sys, threading
from divebook.interrupts import INTERRUPTS

# Processes of a background job inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def fork():
    if os.fork() == 0:
        signal.raise_signal(signal.SIGINT)  # in the only thread, which is its main thread
        os._exit(3)

with INTERRUPTS.deferred():
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    _, status = os.wait()
print("the child went on" if os.waitstatus_to_exitcode(status) == 3 else "the child was interrupted")
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_meanwhile_hears_of_them():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "the child was interrupted\n"


def test_results_errors_and_time_limits_are_those_of_the_future():
    future, failed = Future(), Future()
    with pytest.raises(TimeoutError):
        interruptible_result(future, 0.01)
    with pytest.raises(TimeoutError):
        interruptible_result(future, 0)
    future.set_result(3)
    failed.set_exception(TimeoutError("of its own"))
    assert interruptible_result(future) == interruptible_result(future, 0) == 3
    with pytest.raises(TimeoutError, match="of its own"):
        interruptible_result(failed)
    assert in_a_thread(lambda: interruptible_result(future, 5)) == 3


def test_an_event_is_waited_for_as_long_as_it_is_told():
    event = threading.Event()
    assert interruptible_wait(event, 0.01) is False
    assert in_a_thread(lambda: interruptible_wait(event, 0.01)) is False
    event.set()
    assert interruptible_wait(event, 60) is True
