"""What all calls of a function in a step have in common is computed once, and is what each call would compute."""

import pytest

from divebook import Each, Step, Workflow, action, step, workflow
from divebook.events import catalog
from divebook.events.codec import short_hash
from divebook.events.values import normalize
from divebook.runtime import calls
from tests.runtime.worlds import environment

LITERALS = [{}, {"value": 1}, {"value": "a text"}, {"value": [1, {"b": None}]}, {"value": 1.5}]


@action
async def noted(value=None):
    return value


def started_calls(run):
    return [event.data for event in run.history() if isinstance(event.data, catalog.OperationStarted)]


@pytest.fixture(autouse=True)
def no_prepared_calls(monkeypatch):
    monkeypatch.setattr(calls, "_prepared_calls", {})


@pytest.mark.parametrize("literal", LITERALS, ids=str)
def test_literal_parameters_are_recorded_like_parameters_that_are_filled_in(literal):
    templates = {name: f"$(inputs.{name})" for name in literal}
    written = Workflow("written", [Step("call", action="noted", parameters=literal)])
    filled = Workflow("filled", [Step("call", action="noted", parameters=templates)], inputs=list(literal))
    with environment(written, filled) as made:
        first, second = (made.start(written).wait(20, check=True) for _ in range(2))
        third = made.start(filled, literal).wait(20, check=True)
        (call,), (again,), (other,) = map(started_calls, (first, second, third))
    assert call.parameters == again.parameters == other.parameters
    assert call.parameters_hash == again.parameters_hash == other.parameters_hash
    assert call.parameters_hash == short_hash(normalize({"action_name": "noted", "params": literal}))


def test_calls_are_prepared_once_for_all_runs_and_items():
    each = Workflow("each", [Step("call", action="noted", each=Each([1, 2, 3]))])
    with environment(each) as made:
        for _ in range(3):
            made.start(each).wait(20, check=True)
    assert len(calls._prepared_calls) == 1


def test_a_function_that_is_defined_again_is_prepared_again():
    @workflow
    async def doubles(ctx):
        return await double(2)

    def defined(factor):
        @step(name="double")
        async def double(number):
            return number * factor

        return double

    results = []
    with environment(doubles) as made:
        for factor in (2, 3):
            double = defined(factor)
            results.append(made.start(doubles).wait(20, check=True).outputs["result"])
    assert results == [4, 6]


def test_the_number_of_prepared_calls_is_limited(monkeypatch):
    monkeypatch.setattr(calls, "MOST_PREPARED", 2)
    chain = Workflow("chain", [Step(f"s{number}", action="noted") for number in range(5)])
    with environment(chain) as made:
        made.start(chain).wait(20, check=True)
        assert [prepared.definitions[1].name for prepared in calls._prepared_calls.values()] == ["s3", "s4"]
        made.start(chain).wait(20, check=True)
