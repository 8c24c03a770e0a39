"""The three ways to try again what has failed, by their names."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import SetupError
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

MADE = []


async def note(x: object = 0) -> object:
    MADE.append(x)
    return x


async def refuse(x: object = 0) -> object:
    raise ValueError("boom")


def call(name, x, *after, action="note"):
    return Step(name, action=action, parameters={"x": x}, store=name, next=list(after))


@pytest.fixture
def world():
    actions = [Action("note", note), Action("refuse", refuse)]
    with Environment(store=MemoryStore(), actions=actions) as made:
        yield made


@pytest.fixture
def failed(world):
    steps = [call("a", "$(inputs.n)", "b"), call("b", 2, "c", action="refuse"), call("c", 3)]
    world.add_workflow(Workflow("row", steps, inputs=["n"], outputs=["c"]))
    source = world.start("row", {"n": 7}, tags=["mine"]).wait(20)
    assert source.status == "failed"
    MADE.clear()
    return source


def test_from_failure_is_the_same_execution_at_the_step_that_failed(world, failed):
    again = world.run_of(failed.id).retry().wait(20)
    assert (again.id, MADE) == (failed.id, [])


def test_from_start_is_a_new_execution_with_the_same_inputs_and_all_that_was_said_of_it(world, failed):
    again = world.run_of(failed.id).retry("from_start").wait(20)
    record = world.store.record(again.id)
    assert (again.id != failed.id, MADE, record.tags, record.parent) == (True, [7], ("mine",), None)


def test_skip_failed_goes_on_behind_what_failed_with_its_error_as_output(world, failed):
    again = world.run_of(failed.id).retry("skip_failed").wait(20)
    assert (again.status, MADE, again.outputs) == ("completed", [3], {"c": 3})
    assert again.state.paths["main"].step_outputs["b"].startswith("SKIPPED: ValueError: boom")
    assert "b" not in again.variables
    assert failed.refresh().status == "failed"
    assert world.run_of(again.id).verify().equal


def test_each_branch_that_failed_is_skipped(world):
    steps = [
        Step("split", script="1", next=["left", "right"]),
        call("left", 1, "after", action="refuse"),
        call("after", 2),
        call("right", 3),
    ]
    source = world.start(Workflow("sides", steps)).wait(20)
    assert source.status == "failed"
    MADE.clear()
    again = world.run_of(source.id).retry("skip_failed").wait(20)
    assert again.status == "completed"
    assert 2 in MADE


@pytest.mark.parametrize(
    ("strategy", "told"),
    [("from_begin", "unsupported retry strategy: from_begin"), ("skip_failed", "has no failed steps to skip")],
)
def test_what_cannot_be_tried_says_why(world, failed, strategy, told):
    done = world.start(Workflow("done", [call("a", 1)])).wait(20)
    with pytest.raises(SetupError, match=told):
        world.run_of(done.id).retry(strategy)
