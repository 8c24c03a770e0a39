"""What a run waited for and spent."""

from datetime import timedelta

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis.lists import PART_COLUMNS, RETRY_COLUMNS, TIME_COLUMNS
from divebook.definitions.step import Retry
from divebook.errors import SetupError
from divebook.steps.actions import Action

CALLS = []


async def shaky() -> int:
    """Fail the first time."""
    CALLS.append(1)
    if len(CALLS) % 2:
        raise ConnectionError("gone")
    return 1


@pytest.fixture
def inspected():
    CALLS.clear()
    usage = {"input_tokens": 30, "output_tokens": 12}
    poet = Agent("poet", model=ScriptedModel(["roses"], usage=usage))
    steps = [
        Step("ask", prompt="Write of ${inputs.of}", agent="poet", store="text"),
        Step("try", action="shaky", retry=Retry(2, seconds=0.001)),
        Step("count", script="len(state.text)", store="n"),
    ]
    environment = Environment(store="memory:", agents=[poet], actions=[Action("shaky", shaky, idempotent=True)])
    return environment.start(Workflow("poem", steps, inputs=["of"]), {"of": "love"}).wait(10).inspect()


def test_the_times_of_the_kinds_add_up_to_the_duration(inspected):
    log = inspected.log
    assert sum(inspected.spent.values(), timedelta()) == timedelta(
        microseconds=log[-1].recorded_at - log[0].recorded_at
    )
    assert {"model", "actions", "scripts", "asleep"} <= inspected.spent.keys()
    assert inspected.times["share"].sum() == pytest.approx(1)
    assert inspected.critical_path["duration"].sum() == inspected.duration


def test_what_was_tried_again_is_told_with_its_error(inspected):
    (tried,) = inspected.retries.to_dict("records")
    assert (tried["step"], tried["attempt"], "gone" in tried["error"]) == ("try", 1, True)


@pytest.mark.parametrize(("by", "name"), [("agent", "poet"), ("model", "scripted"), ("step", "ask")])
def test_costs_by_agent_model_and_step_are_those_of_the_frames(inspected, by, name):
    (row,) = inspected.costs(by).to_dict("records")
    assert (row["name"], row["requests"], row["input_tokens"]) == (name, 1, 30)
    assert f"cost by {by}:" in str(inspected)


def test_costs_by_something_else_are_refused(inspected):
    with pytest.raises(SetupError, match="by agent, model, tool or step, not by 'day'"):
        inspected.costs("day")


def test_frames_have_the_same_columns_full_or_empty(inspected):
    for frame, columns in [
        (inspected.critical_path, PART_COLUMNS),
        (inspected.times, TIME_COLUMNS),
        (inspected.retries, RETRY_COLUMNS),
        (inspected.retries.head(0), RETRY_COLUMNS),
    ]:
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {k: c.dtype for k, c in columns.items()}


def test_it_is_told_in_words_and_as_tables_without_secrets():
    action = Action("leaky", leaky, idempotent=True)
    steps = [Step("a", action="leaky", parameters={"key": "$(inputs.api_key)"}, retry=Retry(2, seconds=0.001))]
    environment = Environment(store="memory:", actions=[action])
    run = environment.start(Workflow("<w>", steps, inputs=["api_key"]), {"api_key": "sk-12345-very-secret"}).wait(10)
    found = run.inspect()
    assert str(found).startswith("<w> took ")
    assert "&lt;w&gt; took" in found._repr_html_()
    assert "retried calls" in str(found)
    assert "very-secret" not in str(found) + found._repr_html_()


async def leaky(key: str) -> int:
    """Say what it should not."""
    raise ConnectionError(f"refused for {key}")


def test_a_run_that_waits_for_a_person_has_waited_for_people():
    environment = Environment(store="memory:")
    execution = environment.start(Workflow("w", [Step("q", ask="How many?", store="n")])).wait()
    assert "w has taken" in str(execution.inspect())
    execution.answer(execution.open_questions[0].id, "three").wait()
    found = environment.run_of(execution.id).inspect()
    assert "people" in found.spent
    assert "w took" in str(found)
