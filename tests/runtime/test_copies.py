"""A waiting execution under another id: its questions stay answerable, once in each copy."""

import io
from dataclasses import replace

import pytest

from divebook import Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.errors import DivebookError
from divebook.events import catalog
from divebook.stores.transfer import export, import_
from tests.runtime.worlds import Calls, environment

COPY = "exec_01m8000000000000000000000c"
ASKS = Workflow("asks", [Step("ask", ask="Who?", store="who"), Step("note", action="note")], outputs=["who"])


@step(approval=True)
async def pay(amount: int):
    return f"paid {amount}"


@workflow("approves")
async def approves(ctx):
    return await pay(5)


@workflow("bounded")
async def bounded(ctx):
    return [await ctx.ask(f"Number {number}?") for number in range(2)]


@workflow("has_a_child")
async def has_a_child(ctx):
    return (await ctx.run("asks"))["who"]


WORKFLOWS = {"asks": ASKS, "approves": approves, "bounded": bounded}


def copied(world, execution):
    """Put a copy of a log beside it, under another id."""
    events = [
        replace(event, execution_id=COPY, id=f"event_of_the_copy_{event.sequence}") for event in execution.history()
    ]
    world.store.append(COPY, events, 0)
    return world.run_of(COPY)


def started(name):
    world = environment(ASKS, actions=[Calls().action()])
    return world, world.start(WORKFLOWS.get(name, name)).wait(20)


def answer_all(world, execution_id, response):
    execution = world.run_of(execution_id)
    while not execution.state.is_over:
        (question,) = execution.open_questions
        world.answer(question.id, response, execution_id).wait(20)
        execution = world.run_of(execution_id)
    return execution


@pytest.mark.parametrize(("name", "response"), [("asks", "ann"), ("approves", True), ("bounded", "one")])
def test_a_copy_keeps_its_questions_and_each_is_answered_once_in_each(name, response):
    world, execution = started(name)
    copy = copied(world, execution)
    assert [q.id for q in copy.open_questions] == [q.id for q in execution.open_questions]
    for execution_id in (execution.id, COPY):
        done = answer_all(world, execution_id, response)
        asked = [event for event in done.history() if event.event_type == "interrupt_raised"]
        assert (done.status, len(asked)) == ("completed", 2 if name == "bounded" else 1)


def test_different_answers_stay_apart():
    world, execution = started("asks")
    copied(world, execution)
    assert answer_all(world, COPY, "bob").outputs == {"who": "bob"}
    assert world.run_of(execution.id).status == "waiting"
    assert answer_all(world, execution.id, "ann").outputs == {"who": "ann"}


def test_an_answer_that_does_not_say_which_copy_it_is_for_is_refused():
    world, execution = started("asks")
    copied(world, execution)
    (question,) = execution.open_questions
    with pytest.raises(DivebookError, match=r"@exec_.*@exec_"):
        world.answer(question.id, "ann")
    assert {world.run_of(found).status for found in (execution.id, COPY)} == {"waiting"}


def test_two_executions_of_a_workflow_never_share_the_id_of_a_question():
    world, first = started("asks")
    second = world.start(ASKS).wait(20)
    assert first.open_questions[0].id != second.open_questions[0].id
    assert world.answer(second.open_questions[0].id, "bob").wait(20).id == second.id


def without_seed():
    """Return a world with a waiting execution whose log is as logs were before."""
    _, execution = started("asks")
    opening = execution.history()[0]
    old = environment(ASKS, actions=[Calls().action()])
    old.store.append(execution.id, [replace(opening, data=replace(opening.data, seed=None))], 0)
    waiting = old.run_of(execution.id).resume().wait(20)
    assert waiting.open_questions[0].id != execution.open_questions[0].id
    return old, waiting


def test_a_log_without_a_seed_stays_answerable():
    old, waiting = without_seed()
    assert answer_all(old, waiting.id, "ann").status == "completed"


def test_a_log_without_a_seed_keeps_its_questions_under_another_name():
    old, waiting = without_seed()
    file = io.BytesIO()
    export(old.store, waiting.id, file)
    file.seek(0)
    copy = old.run_of(import_(file, old.store, as_fork=True))
    assert copy.open_questions == waiting.open_questions
    for execution_id in (waiting.id, copy.id):
        done = answer_all(old, execution_id, "ann")
        assert (done.status, len(done.state.interrupts)) == ("completed", 1)


def test_a_call_that_was_under_way_has_the_same_key_in_a_copy():
    keys = []

    @step
    async def charge(idempotency_key: str):
        keys.append(idempotency_key)
        raise RuntimeError("the process ends here")

    @workflow("charges")
    async def charges(ctx):
        await charge()

    world = environment()
    execution = world.start("charges").wait(20)
    begun = [event.sequence for event in execution.history() if event.event_type == "operation_started"]
    events = execution.history()[: begun[0]]
    world.store.append(COPY, [replace(event, execution_id=COPY, id=f"copy_{event.sequence}") for event in events], 0)
    world.run_of(COPY).resume().wait(20)
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_child_is_started_once_whatever_its_parent_is_called():
    world, parent = started("has_a_child")
    copy = copied(world, parent)
    ((child, question),) = world.inbox()
    resumed = world.run_of(copy.id).resume().wait(20)
    assert resumed.status == "waiting"
    assert len(world.inbox()) == 1
    world.answer(question.id, "ann", child).wait(20)
    assert parent.wait(20).outputs == {"result": "ann"}
    again = world.run_of(COPY)
    done = again.wait(20) if again.is_live else world.run_of(COPY).resume().wait(20)
    assert done.outputs == {"result": "ann"}


def test_a_child_belongs_to_the_parent_that_started_it():
    """The end of a copy does not stop what the original waits for."""
    world, parent = started("has_a_child")
    copied(world, parent)
    world.run_of(COPY).cancel().wait(20)
    ((child, question),) = world.inbox()
    assert (world.run_of(child).is_live, world.run_of(child).status) == (False, "waiting")
    world.answer(question.id, "ann", child).wait(20)
    assert parent.wait(20).outputs == {"result": "ann"}


def test_the_end_of_a_fork_is_no_signal_to_what_it_was_copied_from():
    world, execution = started("asks")
    opening = catalog.ExecutionStarted("asks", {}, ASKS.to_dict(), origin="fork", parent=execution.id, seed="fork")
    event = replace(execution.history()[0], execution_id=COPY, id="event_of_the_fork", data=opening)
    world.store.append(COPY, [event], 0)
    world.run_of(COPY).resume().wait(20)
    answer_all(world, COPY, "bob")
    assert not world.run_of(execution.id).state.signals
