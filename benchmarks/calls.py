"""``python -m benchmarks.calls``: how many Python functions are called to start, to take a step, to answer, to record a
request to a model.

Unlike a time, such a count does not depend on what else the machine does. Two versions can be compared on a busy one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from types import FrameType
from typing import Any

from benchmarks.going_on import asks
from benchmarks.reporting import lines_of
from benchmarks.sequence import calling
from benchmarks.turns import ASK, durably, plainly
from benchmarks.turns import environment as environment_of_turns
from benchmarks.worlds import ACTIONS, STORES, Kind, chain, items, opened
from divebook import Environment

ROUNDS = 9
FEW, MANY = 100, 200
"""Lengths of two runs; their difference leaves out what a run costs beside its steps."""
say = lines_of("calls")


class Counter:
    """Counter of the Python functions that all threads call while `is_on` is set."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls = 0

    def count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        """Count a call. The interpreter calls this method for each call and return."""
        if self.is_on and event == "call":
            self.calls += 1

    def of(self, work: Callable[[], object]) -> int:
        """Return the number of calls that a function makes, in all threads."""
        self.calls = 0
        self.is_on = True
        work()
        self.is_on = False
        return self.calls


def counted(kind: Kind, counter: Counter) -> Iterator[tuple[str, float]]:
    """Yield each kind of work with the number of calls that it takes."""
    with opened(kind) as store, Environment(store=store, actions=ACTIONS) as environment:
        three = chain(3)
        environment.start(three).wait(check=True)
        yield (
            "an execution of three steps",
            median(counter.of(lambda: environment.start(three).wait()) for _ in range(ROUNDS)),
        )
        chains, groups = ({length: make(length, "one") for length in (FEW, MANY)} for make in (chain, items))
        works: dict[str, Callable[[int], object]] = {
            "a step": lambda length: environment.start(chains[length]).wait(check=True),
            "a call of a function": lambda length: environment.start(calling, {"steps": length}).wait(check=True),
            "an item": lambda length: environment.start(groups[length]).wait(check=True),
        }
        for name, work in works.items():
            for length in (FEW, MANY):  # what is worked out once for a definition does not count
                work(length)
            few, many = (counter.of(partial(work, length)) for length in (FEW, MANY))
            yield name, (many - few) / (MANY - FEW)
        yield "an answer, until the end", median(answer(environment, counter) for _ in range(ROUNDS))
    yield "recording a request to a model and its call", per_request(counter, kind) - per_request(counter)
    with opened(kind) as store, environment_of_turns(1, store) as environment:
        environment.start(ASK).wait(check=True)
        turns = median(counter.of(lambda: environment.start(ASK).wait(check=True)) for _ in range(ROUNDS))
        yield "an execution with a turn of one call, not the first", turns


def per_request(counter: Counter, kind: Kind | None = None) -> float:
    """Return the number of calls for a request to a model and the call that it asks for, with or without divebook."""
    turn = plainly if kind is None else partial(durably, kind=kind)
    turn(FEW)
    few, many = (counter.of(partial(turn, calls)) for calls in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def answer(environment: Environment, counter: Counter) -> int:
    """Return the number of calls from an answer to the end of its execution."""
    execution = environment.start(asks, {"earlier": 0}).wait()
    (question,) = execution.open_questions
    return counter.of(lambda: environment.answer(question, "yes").wait(check=True))


def main() -> None:
    """Print the counts for a store in memory and one in a file."""
    counter = Counter()
    # Before the first execution, so that the engine's thread counts as well.
    threading.setprofile(counter.count)
    sys.setprofile(counter.count)
    for kind in STORES[:2]:
        for name, calls in counted(kind, counter):
            say(name, store=kind, count=round(calls))
    sys.setprofile(None)


if __name__ == "__main__":
    main()
