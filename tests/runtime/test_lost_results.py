"""Calls that took effect and whose result the log cannot hold: asked about on resume, and never made again unasked."""

import uuid

import pytest

from divebook import Each, Environment, Retry, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.step import Catch
from divebook.engine.lifecycle import violations
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore
from tests.odd_results import OPENED, SECRET, UNSTORABLE, Mute

ANSWERS = {
    "done": ({"choice": "done", "result": "seen on the statement"}, "completed", 1),
    "retry": ("retry", "completed", 2),
    "fail": ("fail", "failed", 1),
}
PAID, VALUES = [], []


@pytest.fixture(autouse=True)
def _fresh():
    PAID.clear()
    VALUES.clear()
    with OPENED:
        yield


def paid(number):
    """Pay, and return what cannot be stored the first time."""
    PAID.append(number)
    return VALUES[0]() if len(PAID) == 1 else f"receipt {number}"


async def pay_async(number: int = 1):
    return paid(number)


def pay_in_thread(number: int = 1):
    return paid(number)


@step
async def pay_step(number: int):
    return paid(number)


@workflow
async def settled(ctx, number: int):
    return await pay_step(number)


@workflow
async def settled_by_the_context(ctx, number: int):
    first, second = await ctx.gather(pay_step(number), ctx.now())
    return [first, second.year > 1]


def world(store=None):
    actions = [Action("pay", pay_async), Action("pay_in_thread", pay_in_thread)]
    return Environment(store=store or MemoryStore(), actions=actions, workflows=[*WORKFLOWS.values()])


WORKFLOWS = {
    "action": Workflow("action", [Step("a", action="pay", store="r")]),
    "thread": Workflow("thread", [Step("a", action="pay_in_thread", store="r")]),
    "retried": Workflow("retried", [Step("a", action="pay", store="r", retry=Retry(4, seconds=0.0))]),
    "items": Workflow("items", [Step("a", action="pay", store="r", each=Each([1], as_="i"))]),
    "path": Workflow(
        "path",
        [
            Step("split", script="1", next=["a", "b"]),
            Step("a", action="pay", store="r", end=True),
            Step("b", script="2", store="s", end=True),
        ],
    ),
    "function": settled,
    "gathered": settled_by_the_context,
}


def lost(environment, kind, value="object"):
    """Run a workflow whose call returns what cannot be stored; return the failed execution."""
    VALUES[:] = [UNSTORABLE[value]]
    inputs = {"number": 1} if kind in ("function", "gathered") else {}
    name = {"function": "settled", "gathered": "settled_by_the_context"}.get(kind, kind)
    run = environment.start(name, inputs).wait(20)
    assert (run.status, len(PAID)) == ("failed", 1), run.error
    return run


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", WORKFLOWS)
def test_a_call_whose_result_was_lost_is_asked_about_on_resume(kind, answer, tmp_path):
    given, status, payments = ANSWERS[answer]
    if (kind, answer) == ("retried", "fail"):  # then the policy of the step makes another attempt
        status, payments = "completed", 2
    with SqliteStore(tmp_path / "s.db") as store:
        with world(store) as environment:
            run = lost(environment, kind)
            assert "The call itself returned. When you resume, you are asked for its result" in run.error
        with world(store) as environment:
            assert environment.run_of(run.id).verify().equal
            resumed = environment.run_of(run.id).resume().wait(20)
            (question,) = resumed.open_questions
            assert (resumed.status, question.kind, len(PAID)) == ("waiting", "outcome_unknown", 1)
            assert "it returned {'receipt': <object object at" in question.message
            again = environment.run_of(run.id).resume().wait(20)
            assert (again.open_questions, len(PAID)) == ([question], 1)
            answered = environment.answer(question.id, given, run.id).wait(20)
            assert (answered.status, len(PAID)) == (status, payments), answered.error
            assert list(violations(answered.history())) == []
            verified = environment.run_of(run.id).verify()
            assert verified.equal, str(verified)


@pytest.mark.parametrize("kind", ["action", "thread", "retried", "function"])
@pytest.mark.parametrize("value", UNSTORABLE)
def test_whatever_a_call_returned_it_is_made_once(value, kind):
    with world() as environment:
        run = lost(environment, kind, value)
        (failed,) = [event.data for event in run.history() if event.event_type == "operation_failed"]
        assert failed.lost.keys() == {"type", "text", "digest"}
        assert len(failed.lost["text"]) < 3_000
        assert SECRET not in str(failed.lost)
        resumed = environment.run_of(run.id).resume().wait(20)
        assert (resumed.status, len(resumed.open_questions), len(PAID)) == ("waiting", 1, 1)
        answered = environment.answer(resumed.open_questions[0].id, {"choice": "done", "result": "r"}, run.id).wait(20)
        result = answered.outputs["result"] if kind == "function" else answered.variables["r"]
        assert (answered.status, result, len(PAID)) == ("completed", "r", 1)


def test_a_catch_takes_over_and_nothing_is_asked():
    caught = Step("a", action="pay", store="r", catch=Catch("b", store="problem"))
    VALUES[:] = [UNSTORABLE["object"]]
    with world() as environment:
        run = environment.start(Workflow("w", [caught, Step("b", script="1")])).wait(20)
        assert (run.status, len(PAID)) == ("completed", 1)
        assert run.variables["problem"]["type"] == "UnstorableValueError"


def test_a_call_that_may_be_repeated_is_made_again_without_a_question():
    VALUES[:] = [UNSTORABLE["object"]]
    safe = Action("pay_safely", pay_async, idempotent=True)
    with Environment(store=MemoryStore(), actions=[safe]) as environment:
        run = environment.start(Workflow("w", [Step("a", action="pay_safely", store="r")])).wait(20)
        assert run.status == "failed"
        assert "The call itself returned" not in run.error
        resumed = environment.run_of(run.id).resume().wait(20)
        assert (resumed.status, resumed.variables["r"], len(PAID)) == ("completed", "receipt 1", 2)


@step
def in_another_process(path: str, value: str):
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - counted where it runs
        file.write("x")
    return (number for number in range(3)) if value == "generator" else {"receipt": uuid.UUID(int=1), "o": Mute}


@workflow
async def elsewhere(ctx, path: str, value: str):
    return await in_another_process(path, value)


def test_a_result_that_cannot_leave_its_process_is_lost_as_well(tmp_path):
    path = tmp_path / "calls"
    with Environment(store=MemoryStore(), workflows=[elsewhere], executor="process") as environment:
        run = environment.start("elsewhere", {"path": str(path), "value": "generator"}).wait(60)
        assert run.status == "failed"
        assert "cannot be sent back from its process" in run.error
        resumed = environment.run_of(run.id).resume().wait(60)
        assert (resumed.status, len(resumed.open_questions), path.read_text()) == ("waiting", 1, "x")
        assert "generator object" in resumed.open_questions[0].message
