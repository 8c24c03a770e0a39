"""Small environments over a memory store, with actions that can be watched and held up."""

import threading
from contextlib import contextmanager, suppress

from divebook import Environment, Step, Workflow
from divebook.errors import StoreBusyError
from divebook.runtime.loop import ENGINE
from divebook.runtime.runner import PARKED_RUNS
from divebook.steps.actions import Action
from divebook.stores import MemoryStore


class Calls(list):
    """The calls of an action, in order; as an action it records and returns its argument."""

    def action(self, name="note"):
        async def note(value=None):
            self.append(value)
            return value

        return Action(name, note, idempotent=True)


class Gate:
    """An action that waits until it is opened, and tells when it was reached."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def action(self, name="gate"):
        def wait(value=None):
            self.reached.set()
            assert self.opened.wait(20), "nobody opened the gate"
            return value

        return Action(name, wait)


class Failing:
    """An action that raises until it is repaired."""

    def __init__(self, message="boom"):
        self.message, self.broken, self.calls = message, True, 0

    def action(self, name="fail"):
        async def fail(value=None):
            self.calls += 1
            if self.broken:
                raise RuntimeError(self.message)
            return value

        return Action(name, fail)


class Busy(MemoryStore):
    """Refuses everything that writes while `refusals` last."""

    def __init__(self):
        super().__init__()
        self.refusals, self.refused = 0, threading.Event()

    def _refuse(self):
        if self.refusals:
            self.refusals -= 1
            self.refused.set()
            raise StoreBusyError("the disk is full. Free some space")

    def _write(self, batches):
        self._refuse()
        return super()._write(batches)

    def _renew(self, held, until):
        self._refuse()
        return super()._renew(held, until)

    def _release(self, lease):
        self._refuse()
        return super()._release(lease)

    def _acquire(self, *given):
        self._refuse()
        return super()._acquire(*given)


class HeldEnd(MemoryStore):
    """Holds up the commit that ends an execution until it is opened. Others can read meanwhile."""

    def __init__(self):
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def append_all(self, batches):
        if any(event.event_type == "execution_completed" for batch in batches for event in batch.events()):
            self.reached.set()
            assert self.opened.wait(20), "the store was not opened"
        return super().append_all(batches)


def becomes(condition, seconds=20):
    """Return whether a condition comes true in time, where nothing tells of it: it is looked at again and again."""
    ticks = threading.Event()
    return any(condition() or ticks.wait(0.02) for _ in range(seconds * 50))


def unwind():
    """Let go all code that stands still in this process, as other tests have left it; return once it is gone."""
    for left in ENGINE.call(PARKED_RUNS.unwind_all):
        ENGINE.submit(left.wait_end()).result(20)


@contextmanager
def held_up():
    """An execution that cannot write the result of its first step."""
    gate = Gate()
    world = environment(store=Busy(), actions=[gate.action()])
    execution = world.start(Workflow("w", [Step("pay", action="gate", store="paid")]))
    assert gate.reached.wait(20)
    world.store.refusals = 10**9
    gate.opened.set()
    assert world.store.refused.wait(20)
    while execution.internals.held_up is None:
        with suppress(TimeoutError):
            execution.wait(0.01)
    try:
        yield execution
    finally:
        world.store.refusals = 0
        execution.wait(20)


def environment(*workflows, actions=(), **settings):
    settings.setdefault("store", MemoryStore())
    return Environment(workflows=workflows, actions=actions, **settings)


def run(workflow, inputs=None, actions=(), **settings):
    """Run a workflow to its end and return the execution."""
    return environment(actions=actions, **settings).start(workflow, inputs).wait(30)


def event_types(execution, path=None):
    return [e.event_type for e in execution.history() if path is None or e.path == path]


def question_of(execution):
    (question,) = execution.open_questions
    return question
