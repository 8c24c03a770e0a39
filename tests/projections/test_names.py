"""What items, sleeps and waits are called."""

import math

import pytest

from divebook import Each, Step, Workflow
from divebook.definitions.step import Retry
from divebook.projections.spans import Span, item_name, places_in, sleep_name, spans_of
from tests.runtime.worlds import Failing, environment, run


def items_of(items, given=None):
    steps = [Step("rows", script=repr(items), store="rows")] if given else []
    steps += [Step("judge", script="1", each=Each(given or items, "row"))]
    workflow = Workflow("w", steps)
    spans = [span for span in spans_of(run(workflow).history()) if span.iteration is not None]
    return [(span.kind, item_name(span, places_in(workflow)), places_in(workflow)(span)) for span in spans]


def test_an_item_is_called_by_what_tells_it_from_the_others():
    rows = ["pip", {"version": 2, "name": "attrs"}, {"id": 7, "text": "long"}, 12, {"title": "On owls"}]
    assert [name for kind, name, _ in items_of(rows) if kind == "item"] == ["pip", "attrs", "7", "12", "On owls"]


def test_an_item_of_which_nothing_tells_is_called_by_its_place():
    rows = [{"a": 1}, [1, 2], "", None, 10**16]
    assert [name for kind, name, _ in items_of(rows, "$(state.rows)") if kind == "item"] == [
        "rows[0]", "rows[1]", "rows[2]", "rows[3]", "rows[4]",
    ]  # fmt: skip
    assert {name for _, name, _ in items_of([[1]])} == {"judge[0]"}


def test_the_calls_of_an_item_are_called_as_it_is():
    spans = items_of(["pip", "six"], "$(state.rows)")
    assert spans == [
        ("item", "pip", "rows[0]"), ("operation", "pip", "rows[0]"),
        ("item", "six", "rows[1]"), ("operation", "six", "rows[1]"),
    ]  # fmt: skip


def test_an_item_of_a_mapping_is_called_by_its_key():
    spans = items_of({"owl": {"name": "Strix"}}, "$(state.rows)")
    assert {name for _, name, _ in spans} == {"owl"}


def slept(step, **given):
    world = environment(**given)
    execution = world.start(Workflow("w", [step])).wait(20)
    return [sleep_name(span) for span in spans_of(execution.history()) if span.kind == "operation"]


def test_what_a_run_waits_for_has_a_name():
    assert slept(Step("s", type="wait", seconds=0.01)) == ["sleep 10 ms"]
    assert slept(Step("s", type="wait", signal="go on")) == ["signal 'go on'"]
    assert slept(Step("s", type="wait", signal="go", seconds=0.01)) == ["signal 'go', at most 10 ms"]


def test_a_pause_between_attempts_says_which_attempt_follows():
    failing = Failing()
    names = slept(
        Step("s", action="fail", retry=Retry(attempts=3, seconds=0.001, jitter=0)), actions=[failing.action()]
    )
    assert names == [None, "1 ms before attempt 2", None, "2 ms before attempt 3", None]


@pytest.mark.parametrize("parameters", [None, {}, *({"seconds": odd} for odd in ("?", math.nan, math.inf, 10**5000))])
def test_a_forged_timer_has_a_name(parameters):
    assert sleep_name(Span("operation", "main", "s", 1, "timer", 1, parameters=parameters)) == "sleep"
