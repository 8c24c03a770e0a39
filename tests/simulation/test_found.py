"""What simulated seeds, and looking closely because of them, have found: each as small as it can be."""

import asyncio

import pytest

from divebook import Catch, Each, Environment, Retry, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.engine.decide import decide_joins, decide_path
from divebook.engine.evolve import evolve, fold
from divebook.engine.instructions import RunStep
from divebook.engine.state import ExecutionState
from divebook.errors import OperationError, StoreError
from divebook.events import Event, catalog
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.concurrency import Waits
from divebook.runtime.journal import Journal
from divebook.runtime.operations import OperationLog
from divebook.runtime.recorder import Recorder
from divebook.runtime.runner import Runner
from divebook.runtime.step import Services
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import StoppedClock, cut
from tests.runtime.worlds import Calls, environment
from tests.simulation.audit import check_counters
from tests.simulation.process import Inbox


@pytest.fixture(autouse=True)
def forget():
    known = dict(WORKFLOW_FUNCTIONS)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


def last(execution, event_type, name=None):
    """Return the sequence number of the last event of a type."""
    found = [e.sequence for e in execution.history() if e.event_type == event_type and name in (None, e.step)]
    return found[-1]


PAY = Workflow("pay", [Step("pay", action="pay", store="receipt")])


class Bank:
    def __init__(self, *errors):
        self.payments, self.errors = 0, list(errors)

    def action(self):
        async def pay():
            self.payments += 1
            if self.errors:
                raise self.errors.pop(0)
            return self.payments

        return Action("pay", pay)


def test_a_process_that_dies_again_during_a_call_made_again_asks_again():
    bank = Bank()
    whole = environment(PAY, actions=[bank.action()]).start("pay").wait(20)
    world = Environment(store=cut(whole.store, whole, last(whole, "operation_started")), actions=[bank.action()])
    (question,) = world.run_of(whole.id).resume().wait(20).open_questions
    again = world.answer(question.id, "retry").wait(20)
    world = Environment(store=cut(world.store, again, last(again, "operation_started")), actions=[bank.action()])
    assert world.run_of(whole.id).resume().wait(20).status == "waiting"
    assert bank.payments == 2


def test_an_answer_counts_for_one_beginning_of_a_call_also_where_it_failed_in_between():
    bank = Bank()
    whole = environment(PAY, actions=[bank.action()]).start("pay").wait(20)
    bank.errors.append(RuntimeError("refused"))
    world = Environment(store=cut(whole.store, whole, last(whole, "operation_started")), actions=[bank.action()])
    (question,) = world.run_of(whole.id).resume().wait(20).open_questions
    assert world.answer(question.id, "retry").wait(20).status == "failed"
    done = world.run_of(whole.id).resume().wait(20)
    assert (done.status, bank.payments) == ("completed", 3)
    world = Environment(store=cut(world.store, done, last(done, "operation_started")), actions=[bank.action()])
    assert world.run_of(whole.id).resume().wait(20).status == "waiting"
    assert bank.payments == 3


def flaky(failures):
    left = dict.fromkeys(range(9), failures)

    async def act(value):
        left[value] -= 1
        if left[value] >= 0:
            raise ConnectionResetError("broken off") if value == 0 else RuntimeError("once")
        return value

    return Action("act", act, idempotent=True)


def test_items_that_sleep_before_another_attempt_are_one_sleeping_path():
    each, retry = Each([1, 2], as_="i", parallel=2), Retry(2, seconds=0.01)
    steps = [Step("s", action="act", parameters={"value": "$(i)"}, retry=retry, each=each)]
    execution = environment(actions=[flaky(1)]).start(Workflow("w", steps)).wait(20)
    assert execution.status == "completed"
    state = ExecutionState(execution.id)
    for event in execution.history():
        state = evolve(state, event)
        check_counters(state)


def test_a_path_whose_failure_is_caught_sleeps_no_longer():
    steps = [
        Step(
            "s",
            action="act",
            parameters={"value": "$(i)"},
            retry=Retry(2, seconds=30, errors=["ConnectionResetError"]),
            each=Each([0, 1], as_="i", parallel=2),
            catch="rescue",
        ),
        Step("rescue", type="wait", seconds=0),
    ]
    execution = environment(actions=[flaky(1)]).start(Workflow("w", steps)).wait(20)
    assert (execution.status, execution.state.sleeping) == ("completed", 0)


def test_an_answered_path_that_frees_a_join_does_not_have_it_run_twice():
    calls = Calls()

    async def pay():
        await asyncio.sleep(0.02)
        return 1

    async def count():
        calls.append("j")
        await asyncio.sleep(0.01)
        return 1

    actions = [Action("pay", pay), Action("count", count, idempotent=True)]
    steps = [
        Step("a", type="wait", seconds=0, next=["x", "b", "c"]),
        Step("x", action="pay", next=[("j", "$(false)")]),
        Step("b", type="wait", seconds=0, next="j"),
        Step("c", type="wait", seconds=0, next="j"),
        Step("j", action="count", join=True),
    ]
    whole = environment(actions=actions).start(Workflow("w", steps)).wait(20)
    store = cut(whole.store, whole, last(whole, "operation_completed", "x") - 1)
    calls.clear()
    world = Environment(store=store, actions=actions)
    (question,) = world.run_of(whole.id).resume().wait(20).open_questions
    other = Environment(store=store, actions=actions)
    execution = other.answer(question.id, {"choice": "done", "result": 1}).wait(20)
    assert (execution.status, execution.error, calls) == ("completed", None, ["j"])


def test_gathered_calls_in_doubt_can_be_answered_one_by_one():
    @step
    async def slow(n):
        await asyncio.sleep(0.01)
        return n

    @workflow
    async def fan(ctx):
        return await ctx.gather(slow(1), slow(2), slow(3))

    whole = environment().start("fan").wait(20)
    begun = [e.sequence for e in whole.history() if e.event_type == "operation_started"]
    assert begun == list(range(begun[0], begun[0] + 3))
    world = Environment(store=cut(whole.store, whole, begun[-1]))
    execution = world.run_of(whole.id).resume().wait(20)
    answers = 0
    while execution.status == "waiting" and answers < 10:
        execution = world.answer(execution.open_questions[0].id, "retry").wait(20)
        answers += 1
    assert (execution.status, answers) == ("completed", 3)


def test_an_answer_that_comes_while_the_execution_ends_is_not_recorded_behind_its_end():
    async def main():
        store, clock = MemoryStore(), SystemClock()
        ids = Ids(clock, SystemChance())
        steps = [
            Step("a", type="wait", seconds=0, next=["x", "y"]),
            Step("x", action="x", retry=2, end=True),
            Step("y", action="y", end=True),
        ]
        made = Workflow("w", steps)

        async def ask(context):
            async def lost():
                raise TimeoutError("no answer")

            async def refused():
                await asyncio.sleep(0.02)
                raise RuntimeError("refused")

            await context.operation("call", {}, lost if context.step.name == "x" else refused)

        async def nothing(context):
            from divebook.runtime.step import Outcome

            return Outcome()

        journal = Journal(ExecutionState(ids.execution()), GroupCommit(StoreCalls(store)), clock, ids)
        inbox = Inbox()
        services = Services({"action": ask, "wait": nothing}, None, None, None, inbox.above, None)
        waits = Waits(journal)
        once = OperationLog(journal, waits)
        recorder = Recorder(once, waits, SystemChance(), services.texts, services.policy)
        runner = Runner(journal, recorder, made, services)
        accepted = []

        def at_the_end(execution_id, events):
            if events[-1].event_type == "execution_failed":
                (question,) = journal.state.pending_interrupts()
                inbox.answer(journal.state, question.id, {"choice": "retry"})
                with pytest.raises(StopIteration) as taken:  # it looks at once, without waiting for anything
                    runner.take().send(None)
                accepted.append(taken.value.value)

        store.subscribe(at_the_end)
        journal.record(catalog.ExecutionStarted("w", {}, made.to_dict(), made.fingerprint))
        await runner.run()
        assert accepted == [False]
        assert store.read(journal.execution_id)[-1].event_type == "execution_failed"

    asyncio.run(main())


def logged(*facts):
    """Return the state after facts ``(payload, path, step)``."""
    opening = (catalog.ExecutionStarted("w", {}), "", "")
    entries = enumerate((opening, *facts), start=1)
    return fold("exec_1", [Event(f"event_{n}", "exec_1", n, n, *fact) for n, fact in entries])


def test_a_join_is_not_released_because_a_path_failed_and_the_others_are_being_stopped():
    steps = [
        Step("a", type="wait", seconds=0, next=["b", "c"]),
        Step("b", type="wait", seconds=0, next="j"),
        Step("c", type="wait", seconds=0, next="j"),
        Step("j", type="wait", seconds=0, join=True),
    ]
    new_paths = tuple({"id": f"main-{n}", "current_step": name} for n, name in ((1, "b"), (2, "c")))
    state = logged(
        (catalog.PathStarted("a"), "main", ""),
        (catalog.PathBranched(new_paths), "main", "a"),
        (catalog.PathCompleted("a"), "main", ""),
        (catalog.PathStarted("b"), "main-1", ""),
        (catalog.PathStarted("c"), "main-2", ""),
        (catalog.PathFailed("boom"), "main-1", ""),
        (catalog.PathWaiting("j"), "main-2", ""),
    )
    assert decide_joins(Workflow("w", steps), state) == ()
    assert decide_joins(Workflow("w", steps, continue_on_failure=True), state) != ()


def test_a_step_that_a_caught_failure_leads_back_to_is_entered_after_a_cancellation():
    steps = [Step("a", type="wait", seconds=0), Step("b", type="wait", seconds=0, catch="a")]
    state = logged(
        (catalog.PathStarted("a"), "main", ""),
        (catalog.StepStarted("wait"), "main", "a"),
        (catalog.StepCompleted(), "main", "a"),
        (catalog.StepStarted("wait"), "main", "b"),
        (catalog.StepFailed("boom"), "main", "b"),
        (catalog.StepCaught("a", "boom"), "main", "b"),
        (catalog.PathCancelled("stop"), "main", ""),
        (catalog.ExecutionCancelled("stop"), "", ""),
        (catalog.ExecutionResumed("cancelled"), "", ""),
    )
    assert decide_path(Workflow("w", steps), state, "main") == RunStep("main", "a", 2)


def test_the_call_that_failed_last_is_made_again_also_where_the_clock_was_set_back():
    clock, broken = StoppedClock(), [True]

    @step(idempotent=True)
    def first():
        raise ValueError("handled")

    @step(idempotent=True)
    def second():
        if broken:
            raise ValueError("no luck")
        return 2

    @workflow
    async def careful(ctx):
        try:
            await first()
        except OperationError:
            clock.time -= 3_600_000_000
        return await second()

    world = environment(clock=clock)
    execution = world.start("careful").wait(20)
    assert execution.status == "failed"
    broken.clear()
    assert world.run_of(execution.id).resume().wait(20).outputs == {"result": 2}


def test_the_class_of_an_error_survives_the_process():
    steps = [
        Step("a", action="fail", each=Each([1], parallel=2), catch=Catch("rescue", ["RuntimeError"], store="e")),
        Step("never", type="wait", seconds=0, end=True),
        Step("rescue", type="wait", seconds=0),
    ]

    async def fail():
        raise RuntimeError("boom")

    actions = [Action("fail", fail)]
    whole = environment(actions=actions).start(Workflow("w", steps)).wait(20)
    assert whole.variables["e"]["type"] == "RuntimeError"
    store = cut(whole.store, whole, last(whole, "operation_failed"))
    resumed = Environment(store=store, actions=actions).run_of(whole.id).resume().wait(20)
    assert (resumed.status, resumed.variables) == ("completed", whole.variables)


def test_a_step_that_reads_what_it_stores_is_finished_after_a_torn_write():
    calls = Calls()
    steps = [
        Step("one", action="note", parameters={"value": "1"}, store="n"),
        Step("two", action="note", parameters={"value": "${state.n}1"}, store="n"),
    ]
    whole = environment(actions=[calls.action()]).start(Workflow("w", steps)).wait(20)
    store = cut(whole.store, whole, last(whole, "state_mutated"))
    resumed = Environment(store=store, actions=[calls.action()]).run_of(whole.id).resume().wait(20)
    assert (resumed.status, resumed.variables, calls) == ("completed", {"n": "11"}, ["1", "11"])


class OnceBroken(MemoryStore):
    broken = False

    def append_all(self, batches):
        if self.broken:
            self.broken = False
            raise StoreError("the disk is full")
        return super().append_all(batches)


def test_an_execution_whose_first_write_failed_can_be_resumed_at_once():
    bank, store = Bank(RuntimeError("refused")), OnceBroken()
    world = environment(PAY, actions=[bank.action()], store=store)
    execution = world.start("pay").wait(20)
    store.broken = True
    with pytest.raises(StoreError, match="disk is full"):
        world.run_of(execution.id).resume().wait(20)
    assert world.run_of(execution.id).resume().wait(20).status == "completed"
