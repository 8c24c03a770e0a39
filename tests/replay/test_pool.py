"""What a log answers calls with: equal calls in order, that of the same place first, each end once."""

import itertools

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.step import Retry
from divebook.events import Event, catalog
from divebook.replay.recorded_answers import RecordedEnds, content_of
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

ACTION = "action_execution"


def action(arguments):
    return content_of(ACTION, {"action_name": "count", "params": arguments})


class Counting:
    """An action that returns another number each time; fails as often as told."""

    def __init__(self, failures=0):
        self.numbers, self.failures = itertools.count(1), failures

    async def count(self, value=None):
        number = next(self.numbers)
        if number <= self.failures:
            raise ValueError(f"not yet: {number}")
        return number


def run(workflow, counting):
    with Environment(store=MemoryStore(), workflows=[workflow], actions=[Action("count", counting.count)]) as world:
        execution = world.start(workflow).wait(10)
        return execution.status, execution.history()


def places(events):
    return [event.data.operation_id for event in events if isinstance(event.data, catalog.OperationStarted)]


def three_equal_calls():
    names = {"one": ["two"], "two": ["three"], "three": []}
    steps = [Step(name, action="count", parameters={"value": 1}, next=to) for name, to in names.items()]
    return run(Workflow("w", steps), Counting())[1]


def test_equal_calls_with_different_results_are_answered_in_order():
    pool = RecordedEnds("source", three_equal_calls())
    taken = [pool.take(f"elsewhere-{number}", action({"value": 1})).data.result for number in range(3)]
    assert taken == [1, 2, 3]
    assert pool.take("elsewhere", action({"value": 1})) is None


def test_a_call_at_the_same_place_has_its_own_result_whoever_asks_first():
    events = three_equal_calls()
    one, two, three = places(events)
    pool = RecordedEnds("source", events)
    assert [pool.take(place, action({"value": 1})).data.result for place in (three, two, one)] == [3, 2, 1]
    pool = RecordedEnds("source", events)
    assert pool.take("elsewhere", action({"value": 1})).data.result == 1
    assert pool.take(one, action({"value": 1})).data.result == 2, "its own was given away: the oldest that is left"


def test_what_ends_before_the_fork_is_not_given_out_and_what_only_began_before_it_is():
    events = three_equal_calls()
    ends = [event.sequence for event in events if isinstance(event.data, catalog.OperationCompleted)]
    begins = [event.sequence for event in events if isinstance(event.data, catalog.OperationStarted)]
    assert [end.data.result for end in RecordedEnds("source", events, ends[0]).unused()] == [2, 3]
    assert [end.data.result for end in RecordedEnds("source", events, begins[1]).unused()] == [2, 3]


def test_what_was_used_before_is_not_given_out_again():
    events = three_equal_calls()
    pool = RecordedEnds("source", events)
    used = pool.take("elsewhere", action({"value": 1})).sequence
    again = RecordedEnds("source", events)
    again.use({"sequence": used})
    again.use({"sequence": used})
    assert again.take("elsewhere", action({"value": 1})).data.result == 2


def test_arguments_are_the_same_in_any_order_and_one_is_one_point_zero():  # trap 17
    assert action({"a": 1, "b": [2.0, {"c": 3}]}) == action({"b": [2, {"c": 3.0}], "a": 1.0})
    assert action({"a": 1}) != action({"a": True})
    assert action({"a": 1}) != action({"a": "1"})
    assert action({"a": 1.5}) != action({"a": 1})
    assert action({"a": 0.0}) == action({"a": -0.0})
    assert action({"a": 2**60}) != action({"a": 2**60 + 1})


def test_an_argument_that_is_null_is_not_one_that_is_absent():  # trap 17: a function may have another default
    assert action({"a": 1, "b": None}) != action({"a": 1})


def test_a_child_is_the_same_whatever_its_id_and_a_wait_however_long_it_is():
    first = {"workflow": "w", "inputs": {"n": 1}, "signal": "exec_1"}
    assert content_of("child_workflow", first) == content_of("child_workflow", {**first, "signal": "exec_2"})
    assert content_of("child_workflow", first) != content_of("child_workflow", {**first, "inputs": {"n": 2}})
    assert content_of("signal_wait", {"signal": "go", "seconds": 1}) == content_of("signal_wait", {"signal": "go"})


def test_a_request_with_other_instructions_or_tools_is_another_one():  # trap 19
    asked = {"agent": "a", "request": 1}
    assert content_of("agent_response", asked, "one") != content_of("agent_response", asked, "two")


def test_items_of_a_list_that_has_changed_find_their_results_by_their_arguments():  # trap 17: the index shifts
    each = Each([10, 20, 30], as_="item")
    step = Step("a", action="count", parameters={"value": "$(item)"}, each=each, store="l")
    _, events = run(Workflow("w", [step]), Counting())
    first, second, third = places(events)
    pool = RecordedEnds("source", events)
    found = [pool.take(place, action({"value": value})) for place, value in ((first, 20), (second, 30), (third, 40))]
    assert [end and end.data.result for end in found] == [2, 3, None]
    assert [end.data.result for end in pool.unused()] == [1]


def test_a_failure_is_given_out_as_one_and_the_retry_finds_the_success_behind_it():  # trap 17
    retry = Retry(attempts=3, seconds=0)
    steps = [Step("a", action="count", parameters={"value": 1}, retry=retry, store="x")]
    status, events = run(Workflow("w", steps), Counting(failures=2))
    assert status == "completed"
    pool = RecordedEnds("source", events)
    given = [pool.take(f"elsewhere-{attempt}", action({"value": 1})).data for attempt in range(3)]
    assert [type(data).__name__ for data in given] == ["OperationFailed", "OperationFailed", "OperationCompleted"]
    assert given[-1].result == 3


def test_of_a_call_that_was_made_again_after_a_resumption_only_the_last_end_counts():
    workflow = Workflow("w", [Step("a", action="count", parameters={"value": 1}, store="x")])
    counting = Counting(failures=1)
    with Environment(store=MemoryStore(), workflows=[workflow], actions=[Action("count", counting.count)]) as world:
        execution = world.start(workflow).wait(10)
        assert execution.status == "failed"
        execution = world.run_of(execution.id).resume().wait(10)
        events = execution.history()
    (left,) = RecordedEnds("source", events).unused()
    assert left.data.result == 2


def event(sequence, data):
    return Event(f"event-{sequence}", "source", sequence, sequence, data)


def test_signals_that_nobody_took_are_given_out_after_those_that_were_taken():
    events = [
        event(1, catalog.SignalReceived("go", "first")),
        event(2, catalog.SignalReceived("go", "second")),
        event(3, catalog.OperationStarted("op_1", "signal_wait", {"signal": "go", "seconds": None})),
        event(4, catalog.OperationCompleted("op_1", "signal_wait", result="first")),
    ]
    pool = RecordedEnds("source", events)
    wait = content_of("signal_wait", {"signal": "go", "seconds": 3})
    assert [pool.take("elsewhere", wait).data.result for _ in range(2)] == ["first", "second"]
    assert pool.take("elsewhere", wait) is None
