"""Rollback: what was done is undone once, the latest first, whatever ends the execution, wherever a process dies."""

import threading

import pytest

from divebook import Retry, Step, Workflow
from divebook.definitions.functions import ROLLBACK_FUNCTIONS, step, workflow
from divebook.definitions.reader import read_definitions
from divebook.definitions.step import Rollback
from divebook.errors import DefinitionError
from divebook.steps.actions import Action
from tests.runtime.travelling import ALL, Travel, functions, trip, undone
from tests.runtime.worlds import Failing, environment, event_types

# --- what is undone --------------------------------------------------------------------------------------------------


def test_what_was_done_is_undone_the_latest_first_and_then_it_fails():
    travel = Travel()
    execution = environment(trip(), actions=travel.actions()).start("trip").wait(20)
    assert (execution.status, travel.told) == ("failed", ALL)
    assert "ValueError: no room" in execution.state.error
    assert "rolled back" not in execution.state.error
    assert event_types(execution)[-1] == "execution_failed"


def test_nothing_is_undone_of_what_completes():
    travel = Travel()
    travel.broken = False
    execution = environment(trip(), actions=travel.actions()).start("trip").wait(20)
    assert (execution.status, travel.told) == ("completed", ALL[:3])


def test_items_are_undone_where_their_step_fails_in_the_middle():
    travel = Travel()

    def book(what):
        if what == "rome":
            raise ValueError("full")
        return travel.actions()[0].function(what)

    actions = [Action("book", book), *travel.actions()[1:]]
    assert environment(trip(), actions=actions).start("trip").wait(20).status == "failed"
    assert travel.told == ["book train", "book oslo", "cancel oslo-1", "cancel train-1"]


def test_items_side_by_side_are_each_undone_once():
    travel = Travel()
    environment(trip(parallel=2), actions=travel.actions()).start("trip").wait(20)
    assert sorted(travel.told) == sorted(ALL)
    assert travel.told[-1] == "cancel train-1"


def test_a_failure_that_is_caught_undoes_nothing():
    travel = Travel()
    steps = [Step("flight", action="fly", catch="after", end=True), Step("after", script="1")]
    assert environment(trip(*steps), actions=travel.actions()).start("trip").wait(20).status == "completed"
    assert travel.told == ALL[:3]


def test_paths_side_by_side_are_stopped_before_anything_is_undone():
    travel, reached = Travel(), threading.Event()

    async def slow():
        reached.set()

    def fail():
        assert reached.wait(20)
        raise ValueError("no room")

    steps = [
        Step("train", action="book", parameters={"what": "train"}, rollback=undone(), next=["wait", "fail"]),
        Step("wait", action="slow", next="for ever"),
        Step("for ever", signal="never", end=True),
        Step("fail", action="fail"),
    ]
    actions = [*travel.actions(), Action("slow", slow), Action("fail", fail)]
    execution = environment(Workflow("w", steps), actions=actions).start("w").wait(20)
    assert (execution.status, travel.told) == ("failed", ["book train", "cancel train-1"])
    cancelled = event_types(execution).index("path_cancelled")
    assert cancelled < event_types(execution).index("rollback_started")


def test_it_is_undone_with_what_was_filled_in_when_the_step_had_completed():
    travel = Travel()
    again = Step("again", script="{'id': 'other'}", store="train")
    execution = environment(trip(again, Step("flight", action="fly")), actions=travel.actions()).start("trip").wait(20)
    assert (execution.status, travel.told) == ("failed", ALL)


def test_what_a_result_says_is_no_template():
    told = []

    def note(value):
        told.append(value)

    actions = [Action("note", note), Failing().action()]
    steps = [
        Step("a", script="'${inputs.secret} $(1 + 1)'", rollback=Rollback("note", {"value": "$(result)"})),
        Step("b", action="fail"),
    ]
    environment(Workflow("w", steps, inputs=["secret"]), actions=actions).start("w", {"secret": "x"}).wait(20)
    assert told == ["${inputs.secret} $(1 + 1)"]


# --- functions -------------------------------------------------------------------------------------------------------


def test_calls_of_step_functions_are_undone():
    told = []
    execution = environment(functions(told)).start("journey").wait(20)
    assert execution.status == "failed"
    assert told[:1] == ["book train"]
    assert sorted(told[1:3]) == ["book oslo", "book rome"]
    assert sorted(told[3:5]) == ["undo oslo 20", "undo rome 30"]
    assert told[5:] == ["undo train 10"]


def test_code_that_stands_still_is_cancelled_and_its_calls_undone():
    told = []
    execution = environment(functions(told, fails=False)).start("journey").wait(20)
    assert execution.status == "waiting"
    execution.cancel("enough")
    assert execution.wait(20).status == "cancelled"
    assert (execution.state.error, len(told), told[-1]) == ("enough", 6, "undo train 10")


def test_a_rollback_with_step_has_its_own_retry():
    tries = []

    @step(retry=Retry(3, seconds=0))
    def mend(result):
        tries.append(result)
        if len(tries) < 3:
            raise OSError("busy")

    @step(rollback=mend)
    def make():
        return 7

    @workflow
    async def making(ctx):
        await make()
        raise ValueError("no")

    execution = environment(making).start("making").wait(20)
    assert (tries, execution.state.is_rolled_back) == ([7, 7, 7], True)


def test_a_function_that_takes_what_a_call_lacks_is_refused():
    def undo(room):
        return room

    with pytest.raises(DefinitionError, match="undo, the rollback function of step book, has the parameter 'room'"):
        step("book", rollback=undo)(lambda what: what)


def test_a_function_that_is_not_defined_here_is_named_and_what_is_left_resumed():
    told = []
    world = environment(functions(told, fails=False))
    execution = world.start("journey").wait(20)
    place = "tests.runtime.travelling:functions.<locals>.unbook"
    known = ROLLBACK_FUNCTIONS.pop(place)
    execution.cancel("enough")
    execution.wait(20)
    assert "run the cell that contains @step(rollback=unbook)" in execution.state.error
    ROLLBACK_FUNCTIONS[place] = known
    assert world.run_of(execution.id).resume().wait(20).status == "cancelled"
    assert (len(told), execution.refresh().state.is_rolled_back) == (6, True)


# --- definitions -----------------------------------------------------------------------------------------------------


def test_it_is_read_from_a_definition():
    text = """
    Workflows:
      - Name: trip
        Steps:
          - Name: a
            Script: "{'id': 1}"
            Rollback: {Action: cancel, Parameters: {booking: "$(result.id)"}, Retry: {Attempts: 5}}
          - {Name: b, Script: "1", Rollback: cancel}
    """
    first, second = read_definitions(text).workflows[0].steps
    assert first.rollback == Rollback("cancel", {"booking": "$(result.id)"}, Retry(5))
    assert second.rollback == Rollback("cancel")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rollback": {"parameters": {}}, "script": "1"}, "action is required in Rollback"),
        ({"rollback": "cancel", "type": "continue_as_new"}, "Rollback has no effect on a step of type continue_as_new"),
        ({"rollback": "cancel", "action": "a", "each": {"rows": "$(inputs.f)"}}, "no effect on a step with Rows"),
    ],
)
def test_what_cannot_be_is_refused(given, told):
    with pytest.raises(DefinitionError, match=told):
        Workflow("w", [Step("s", **given)])


def test_an_action_that_is_not_there_is_named_before_it_starts():
    with pytest.raises(Exception, match='action "cancel" of step "a" not found'):
        environment(Workflow("w", [Step("a", script="1", rollback="cancel")])).start("w")


def test_parameters_that_cannot_be_filled_in_fail_the_step_at_once():
    travel = Travel()
    made = Workflow("w", [Step("a", action="book", parameters={"what": "a"}, rollback=undone("$(result.nothing)"))])
    execution = environment(made, actions=travel.actions()).start("w").wait(20)
    assert (execution.status, travel.told) == ("failed", ["book a"])
    assert "the parameters of its Rollback cannot be filled in" in execution.state.error
