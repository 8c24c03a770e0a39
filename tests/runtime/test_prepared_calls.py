"""Calls of a function in a step share what is computed once for all of them, and record what each would compute."""

import gc

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


def prepared_in(made):
    return made._control.dependencies.services.prepared_calls


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
        assert len(prepared_in(made)) == 1


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
        assert [prepared.definitions[1].name for prepared in prepared_in(made).values()] == ["s3", "s4"]
        made.start(chain).wait(20, check=True)


def test_parameters_that_code_changes_are_filled_in_and_recorded_as_they_are():
    changing = Workflow("changing", [Step("call", action="noted", parameters={"value": 1}, store="value")])
    with environment(changing) as made:
        made.start(changing).wait(20, check=True)
        changing.steps[0].parameters["value"] = "$(1 + 1)"
        run = made.start(changing).wait(20, check=True)
        (call,) = started_calls(run)
    assert (run.variables["value"], call.parameters["params"]) == (2, {"value": 2})


def test_what_an_environment_has_prepared_is_gone_with_it():
    chain = Workflow("chain", [Step("call", action="noted", parameters={"value": 4711})])

    def count():
        gc.collect()
        prepared = (thing for thing in gc.get_objects() if isinstance(thing, calls.PreparedCall))
        return sum(call.definitions[1].parameters == {"value": 4711} for call in prepared)

    with environment(chain) as made:
        made.start(chain).wait(20, check=True)
        assert count() == 1
    del made
    assert count() == 0
