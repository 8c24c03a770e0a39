"""The value of a run, and the error of one that has none."""

import pytest

from divebook import Environment, Run, Step, Workflow, workflow
from divebook.errors import (
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionWaitingError,
    StepError,
)

PATIENCE = 20


@pytest.fixture
def world():
    with Environment(store="memory:") as environment:
        yield environment


def flow(script: str, *outputs: str) -> Workflow:
    return Workflow("w", [Step("a", script=script, store="n")], outputs=list(outputs))


def test_the_value_is_the_only_output_or_all_of_them(world):
    assert world.start(flow("1 + 1", "n")).result(PATIENCE) == 2
    assert world.start(flow("1 + 1")).result(PATIENCE) == {}
    both = Workflow("two", [Step("a", script="1", store="n"), Step("b", script="2", store="m")], outputs=["n", "m"])
    assert world.run(both).result() == {"n": 1, "m": 2}


def test_a_run_that_continues_as_another_has_the_result_of_that(world):
    @workflow("counts down")
    async def counts(ctx, n: int):
        if n:
            await ctx.continue_as_new({"n": n - 1})
        return "done"

    assert world.start("counts down", {"n": 2}).result(PATIENCE) == "done"


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        ("{}['b']", KeyError, "'b'"),
        ("1 / 0", ZeroDivisionError, "division by zero"),
        ("[][3]", IndexError, "list index out of range"),
    ],
)
def test_the_error_of_a_failed_run_has_that_of_its_step_as_its_cause(world, script, kind, text):
    with pytest.raises(ExecutionFailedError) as raised:
        world.start(flow(script, "n")).result(PATIENCE)
    assert type(raised.value.__cause__) is kind
    assert str(raised.value.__cause__) == text
    assert "step a" in raised.value.__cause__.__notes__[0]


class OddError(Exception):
    pass


def test_an_error_of_a_class_of_a_user_is_the_text_of_it(world):
    @workflow("odd")
    async def odd(ctx):
        raise OddError("strange")

    with pytest.raises(ExecutionFailedError) as raised:
        world.start("odd").result(PATIENCE)
    assert isinstance(raised.value.__cause__, StepError)
    assert str(raised.value.__cause__) == "OddError: strange"


def test_a_run_without_a_value_says_why(world):
    asking = world.start(Workflow("asks", [Step("a", ask="Which one?", store="it")], outputs=["it"]))
    with pytest.raises(ExecutionWaitingError, match="Which one"):
        asking.result(PATIENCE)
    assert asking.answer(asking.open_questions[0].id, "this").result(PATIENCE) == "this"
    waits = world.start(Workflow("waits", [Step("a", type="wait", signal="go")])).wait(PATIENCE)
    with pytest.raises(ExecutionCancelledError):
        waits.cancel().result(PATIENCE)


def test_each_verb_that_begins_another_run_returns_it_and_leaves_the_handle(world):
    run = world.run(flow("1 + 1", "n"))
    others = [run.fork(1), run.again(), run.retry("from_start") if run.status == "failed" else run.fork(1)]
    assert len({run, *others}) == 4
    assert all(isinstance(other, Run) and other.wait(PATIENCE).status == "completed" for other in others)
    assert world.run_of(run) == world.run_of(run.id) == run == run.resume()
