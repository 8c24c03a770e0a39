"""Clock and chance inside script steps are operations: recorded, and the same when the script runs again."""

from divebook import Environment, Step, Workflow
from tests.runtime.test_resuming import FixedChance, StoppedClock, cut
from tests.runtime.worlds import environment, run

SCRIPT = """
import random
import time
[time.time(), random.random(), random.randint(1, 10**9)]
"""


def test_clock_and_chance_are_recorded_once_each():
    history = run(Workflow("w", [Step("a", script=SCRIPT, store="v")])).history()
    types = [e.data.operation_type for e in history if e.event_type == "operation_started"]
    assert types == ["script_execution", "time_access", "random_generation"]


def test_the_engines_clock_answers():
    clock = StoppedClock()
    execution = (
        environment(clock=clock, chance=FixedChance())
        .start(Workflow("w", [Step("a", script=SCRIPT, store="v")]))
        .wait(20)
    )
    assert execution.variables["v"][0] == 1_700_000_000.0


def test_a_script_that_is_run_again_sees_the_recorded_clock_and_chance():
    first = run(Workflow("w", [Step("a", script=SCRIPT, store="v")]))
    length = next(e.sequence for e in reversed(first.history()) if e.event_type == "operation_completed") - 1
    again = Environment(store=cut(first.store, first, length)).run_of(first.id).resume().wait(20)
    assert again.variables == first.variables


def test_scripts_read_documents_through_an_operation():
    from divebook.documents import MemoryDocuments

    world = environment(documents=MemoryDocuments({"a.txt": "hello"}))
    execution = world.start(Workflow("w", [Step("a", script='documents.get("a.txt").content', store="t")])).wait(20)
    assert execution.variables == {"t": "hello"}
    assert "document_read" in [getattr(e.data, "operation_type", None) for e in execution.history()]


def test_what_scripts_print_goes_to_the_printer():
    lines = []
    environment(printer=lines.append).start(Workflow("w", [Step("a", script='print("hi")')])).wait(20)
    assert [line.strip() for line in lines] == ["hi"]


def test_a_long_condition_does_not_hold_up_the_loop_and_is_still_answered():
    slow = "$(sum([n * n for n in range(400000)]) > 0)"
    steps = [Step("a", script="1", next=[("b", slow)]), Step("b", script="2", store="done")]
    assert run(Workflow("w", steps)).variables == {"done": 2}
