"""An error is the same live, and read from the log after a crash: for policies, in what is kept, and in frames."""

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions import Catch
from divebook.steps import Action
from divebook.stores import MemoryStore


def deep(value=None):
    raise KeyError("above") from ValueError("below")


ACTIONS = [Action("deep", deep, idempotent=True)]
FAILING = {
    "script": ({"script": "1 / 0"}, "ZeroDivisionError"),
    "own error of a script": ({"script": "error('no')"}, "ScriptError"),
    "action": ({"action": "deep"}, "KeyError"),
    "item": ({"action": "deep", "each": Each([1], as_="i")}, "KeyError"),
    "item of a script": ({"script": "[1][state.i]", "each": Each([0, 5], as_="i")}, "IndexError"),
}


def program(given, errors):
    caught = Catch("after", errors=errors, store="why")
    return Workflow("w", [Step("fails", **given, catch=[caught]), Step("after", script="1", store="done")])


def went(execution):
    """Return how it ended and what it kept, and the types in its frame."""
    failed = execution.operations.query("status == 'failed'").error_type
    return execution.status, execution.variables, list(failed)


@pytest.mark.parametrize(("given", "kind"), FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("errors", ["kind", "ValueError", "MontyRuntimeError"])
def test_an_error_is_the_same_after_a_crash(given, kind, errors):
    workflow = program(given, [kind if errors == "kind" else errors])
    live = Environment(store="memory:", actions=ACTIONS).start(workflow).wait(20)
    assert live.status == ("completed" if errors == "kind" else "failed")
    if errors == "kind":
        assert live.variables["why"]["type"] == kind
    names = [event.event_type for event in live.history()]
    for end in range(names.index("operation_failed") + 1, len(names)):
        store = MemoryStore()
        store.append(live.id, live.history()[:end], expected_sequence=0)
        assert went(Environment(store=store, actions=ACTIONS).run_of(live.id).resume().wait(20)) == went(live), end
