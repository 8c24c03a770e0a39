"""What happens when a step fails, is cancelled, or the log cannot be written."""

import asyncio
from dataclasses import replace

import pytest

from divebook import Each, Rollback, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.errors import ExecutionCancelledError, ExecutionError, ExecutionFailedError, StoreError
from divebook.runtime.journal import MOST_EARLY_CALLS
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from divebook.stores.append import Batch, records_of
from tests.runtime.worlds import Calls, Failing, Gate, environment, event_types, run


def test_a_failed_operation_fails_step_path_and_execution_in_this_order():
    execution = run(Workflow("w", [Step("a", action="fail")]), actions=[Failing().action()])
    assert event_types(execution)[-5:] == [
        "operation_started",
        "operation_failed",
        "step_failed",
        "path_failed",
        "execution_failed",
    ]
    assert execution.error.startswith("RuntimeError: boom (step a, tests/runtime/worlds.py:")


def test_waiting_with_check_raises_what_happened():
    execution = run(Workflow("w", [Step("a", action="fail")]), actions=[Failing().action()])
    with pytest.raises(ExecutionFailedError, match="boom"):
        execution.wait(check=True)


def test_siblings_of_a_failed_path_are_cancelled_and_awaited():
    gate, calls, store = Gate(), Calls(), MemoryStore()
    steps = [
        Step("a", script="1", next=["slow", "bad"]),
        Step("slow", action="gate", next="never"),
        Step("never", action="note", end=True),
        Step("bad", action="fail_once_reached", end=True),
    ]

    def fail_once_reached():
        assert gate.reached.wait(20)
        raise RuntimeError("boom")

    def open_after_failure(_, events):
        if any(event.event_type == "path_failed" for event in events):
            gate.opened.set()

    store.subscribe(open_after_failure)
    actions = [gate.action(), calls.action(), Action("fail_once_reached", fail_once_reached)]
    execution = run(Workflow("w", steps), actions=actions, store=store)
    assert (execution.status, calls) == ("failed", [])
    assert {path.status for path in execution.internals.paths.values()} == {"completed", "failed", "cancelled"}
    assert event_types(execution)[-1] == "execution_failed"


def test_siblings_finish_where_failure_is_tolerated():
    calls = Calls()
    steps = [
        Step("a", script="1", next=["bad", "good"]),
        Step("bad", action="fail", end=True),
        Step("good", action="note", end=True),
    ]
    workflow = Workflow("w", steps, continue_on_failure=True)
    execution = run(workflow, actions=[Failing().action(), calls.action()])
    assert (execution.status, calls) == ("failed", [None])


def test_a_join_does_not_wait_for_a_path_that_failed():
    calls = Calls()
    steps = [
        Step("a", script="1", next=["bad", "good"]),
        Step("bad", action="fail", next="j"),
        Step("good", script="2", next="j"),
        Step("j", action="note", join=True),
    ]
    run(Workflow("w", steps, continue_on_failure=True), actions=[Failing().action(), calls.action()])
    assert calls == [None]


def test_a_failing_item_stops_the_loop_and_leaves_its_variable():
    steps = [Step("a", script='error("bad " + i) if i == "b" else i', each=Each(["a", "b", "c"], as_="i"), store="r")]
    execution = run(Workflow("w", steps))
    assert execution.variables == {"i": "b"}
    assert "bad b" in execution.error


def test_cancelling_stops_and_records_it():
    gate = Gate()
    execution = environment(actions=[gate.action()]).start(
        Workflow("w", [Step("a", action="gate"), Step("b", script="1")])
    )
    assert gate.reached.wait(20)
    execution.cancel("enough")
    gate.opened.set()
    execution.wait(20)
    assert (execution.status, execution.error) == ("cancelled", "enough")
    assert event_types(execution)[-2:] == ["path_cancelled", "execution_cancelled"]
    with pytest.raises(ExecutionCancelledError):
        execution.wait(check=True)


def test_a_wait_step_is_cancelled_at_once():
    execution = environment().start(Workflow("w", [Step("a", type="wait", seconds=3600)]))
    while execution.status != "waiting":
        execution.store.read(execution.id) if execution.store.records() else None
    execution.cancel()
    assert execution.wait(20).status == "cancelled"


def test_there_is_nothing_to_cancel_in_the_end():
    execution = run(Workflow("w", [Step("a", script="1")]))
    with pytest.raises(ExecutionError, match="nothing to cancel"):
        execution.cancel()


class FullStore(MemoryStore):
    """A store that runs out of room."""

    room = 2

    def append_all(self, batches):
        self.room -= 1
        if self.room < 0:
            raise StoreError("no space left on device; free some and resume")
        return super().append_all(batches)


def test_a_log_that_cannot_be_written_ends_the_run_with_the_stores_error_and_keeps_what_was_acknowledged():
    calls = Calls()
    store = FullStore()
    world = environment(store=store, actions=[calls.action()])
    steps = 3 * MOST_EARLY_CALLS  # more than two commits
    execution = world.start(
        Workflow("w", [Step(f"s{n}", action="note", parameters={"value": n}) for n in range(steps)])
    )
    with pytest.raises(StoreError, match="no space left"):
        execution.wait(20)
    done = [e for e in store.read(execution.id) if e.event_type == "operation_completed"]
    store.room = 10**6
    assert world.run_of(execution.id).resume().wait(20).status == "completed"
    assert len(done) >= 1
    assert set(calls) == set(range(steps))
    assert all(calls.count(n) == 1 for n in range(len(done)))


def test_an_unexpected_error_of_the_store_reaches_whoever_starts_and_whoever_waits():
    class Broken(MemoryStore):
        def append_all(self, batches):
            raise ZeroDivisionError("a fault in the store")

    execution = environment(store=Broken()).create(Workflow("w", [Step("a", script="1")]))
    with pytest.raises(ZeroDivisionError, match="a fault in the store"):
        execution.start()
    with pytest.raises(ZeroDivisionError, match="a fault in the store"):
        execution.wait(20)


def test_a_result_that_cannot_be_stored_fails_the_step_with_its_path():
    async def rows():
        return {"rows": [1, {"when": object()}]}

    execution = run(Workflow("w", [Step("a", action="rows")]), actions=[Action("rows", rows)])
    assert "result.rows[1].when" in execution.error


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("1 +", "ScriptSyntaxError: invalid syntax (step a, "),
        ("nope", 'undefined variable "nope"'),
        ("1 / 0", "ZeroDivisionError"),
        ("open('/etc/passwd').read()", "PermissionError: scripts are sandboxed: "),
    ],
)
def test_errors_in_scripts_are_told(script, message):
    assert message in run(Workflow("w", [Step("a", script=script)])).error


def test_missing_and_surplus_parameters_of_an_action_are_told():
    calls = Calls()
    execution = run(Workflow("w", [Step("a", action="note", parameters={"valeu": 1})]), actions=[calls.action()])
    assert "unexpected keyword argument 'valeu'" in execution.error
    assert "it takes: value" in execution.error


class OwnError(BaseException):
    """What some libraries use to get past `except Exception`."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        OwnError("out"),
        BaseExceptionGroup("several", [ValueError("x"), KeyboardInterrupt()]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_async", [True, False])
def test_what_would_end_the_engine_is_an_ordinary_failure(error, is_async):
    async def bad_async():
        raise error

    def bad():
        raise error

    execution = run(Workflow("w", [Step("a", action="bad")]), actions=[Action("bad", bad_async if is_async else bad)])
    assert (execution.status, event_types(execution)[-1]) == ("failed", "execution_failed")
    assert run(Workflow("after", [Step("a", script="1")])).status == "completed"


@step
async def raises_bare():
    raise BaseException("boom")  # noqa: TRY002 - what no library should raise


@workflow("bare_in_step")
async def bare_in_step(ctx):
    await raises_bare()


@workflow("bare_in_workflow")
async def bare_in_workflow(ctx):
    raise BaseException("boom")  # noqa: TRY002 - what no library should raise


@pytest.mark.parametrize("raising", [bare_in_step, bare_in_workflow, "action", "items"])
def test_a_bare_base_exception_fails_its_run_and_no_other(raising):
    def act():
        raise BaseException("boom")  # noqa: TRY002 - what no library should raise

    world = environment(actions=[Action("act", act)])
    each = Each([1, 2], parallel=2) if raising == "items" else None
    bare = Workflow("w", [Step("a", action="act", each=each)]) if isinstance(raising, str) else raising
    execution = world.start(bare).wait(30)
    assert (execution.status, event_types(execution)[-1]) == ("failed", "execution_failed")
    assert "BaseException(boom), which would end the engine" in execution.error
    assert world.start(Workflow("after", [Step("a", script="1")])).wait(30).status == "completed"
    assert world.store.leases() == []


def test_an_error_whose_text_cannot_be_stored_is_told_all_the_same():
    async def bad():
        raise ValueError("half a letter: \ud800" + "x" * 100_000)

    execution = run(Workflow("w", [Step("a", action="bad")]), actions=[Action("bad", bad)])
    assert "half a letter: \\ud800x" in execution.error
    assert len(execution.error) < 21_000


def test_a_missing_key_is_told_as_such():
    async def bad():
        return {}["total"]

    execution = run(Workflow("w", [Step("a", action="bad")]), actions=[Action("bad", bad)])
    assert execution.error.startswith("KeyError: 'total' (step a, tests/runtime/test_failing.py:")


def test_a_failed_step_is_not_repeated_when_an_answer_continues_another_path():
    calls, failing = Calls(), Failing()
    ask = [Step("ask", type="interrupt", ask="Who?", next="again"), Step("again", type="interrupt", ask="What?")]
    steps = [Step("a", script="1", next=["bad", "ask"]), Step("bad", action="fail", end=True), *ask, Step("note")]
    steps[-1] = Step("note", action="note")
    world = environment(Workflow("w", steps, continue_on_failure=True), actions=[failing.action(), calls.action()])
    execution = world.start("w")
    for _ in range(2):
        assert execution.wait(20).status == "waiting"
        world.answer(execution.open_questions[0].id, "x")
    assert execution.wait(20).status == "failed"
    assert (failing.calls, calls) == (1, [None])
    # A person who resumes the ended execution has the failed step repeated.
    failing.broken = False
    assert world.run_of(execution.id).resume().wait(20).status == "completed"
    assert (failing.calls, calls) == (2, [None])


@pytest.mark.parametrize("is_tolerated", [False, True])
def test_a_failed_step_is_not_repeated_after_the_process_died_before_the_end(is_tolerated):
    """The log ends with the failure of one path, while the other one is active."""
    calls, failing, gate = Calls(), Failing(), Gate()
    steps = [
        Step("a", script="1", next=["bad", "slow"]),
        Step("bad", action="fail", end=True),
        Step("slow", action="gate", next="note"),
        Step("note", action="note"),
    ]
    workflow = Workflow("w", steps, continue_on_failure=is_tolerated)
    actions = [failing.action(), replace(gate.action(), idempotent=True), calls.action()]
    world = environment(workflow, actions=actions)
    execution = world.start("w")
    assert not is_tolerated or gate.reached.wait(20)
    gate.opened.set()
    assert execution.wait(20).status == "failed"
    events = execution.history()
    failed = next(number for number, event in enumerate(events, 1) if event.event_type == "path_failed")
    calls.clear()
    later = environment(workflow, actions=actions, store=MemoryStore())
    later.store.append_all([Batch(execution.id, 0, records_of(events[:failed]))])
    assert later.queues.recover(execution.id).wait(20).status == "failed"
    assert (failing.calls, calls) == (1, [None] if is_tolerated else [])


def test_a_failed_rollback_is_not_repeated_after_the_process_died_during_another_one():
    failing, calls = Failing(), Calls()
    steps = [
        Step("first", action="book", rollback=Rollback("note")),
        Step("second", action="book", rollback=Rollback("fail")),
        Step("third", script='error("late")'),
    ]
    workflow = Workflow("w", steps)
    actions = [Action("book", lambda: None, idempotent=True), failing.action(), calls.action()]
    execution = run(workflow, actions=actions)
    events = execution.history()
    # The failures are that of step "third" and that of the rollback of step "second".
    *_, failed = [number for number, event in enumerate(events, 1) if event.event_type == "path_failed"]
    calls.clear()
    later = environment(workflow, actions=actions, store=MemoryStore())
    later.store.append_all([Batch(execution.id, 0, records_of(events[:failed]))])
    assert later.queues.recover(execution.id).wait(20).status == "failed"
    assert (failing.calls, calls) == (1, [None])
