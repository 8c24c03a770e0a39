"""Questions that expire: with a default or with a failure, whoever drives the execution then, if anybody does."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from divebook import Each, Environment, Retry, Step, Workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, step, workflow
from divebook.errors import DefinitionError, ExecutionFailedError, InterruptError, InterruptExpiredError
from divebook.projections.summary import Overview
from divebook.queues import Worker
from divebook.runtime.runner import PARKED_RUNS
from divebook.stores import MemoryStore
from divebook.text.format import plural
from tests.runtime.worlds import Calls, becomes, environment

HOUR = 3_600_000_000


class Watch:
    """A clock that stands still until it is set; whoever sleeps on it looks again all the time."""

    def __init__(self):
        self.at = 1_700_000_000_000_000

    def now(self):
        return self.at

    async def sleep(self, seconds):
        end = self.at + seconds * 1e6
        while self.at < end:  # noqa: ASYNC110 - what moves it is the test
            await asyncio.sleep(0.005)


def expiring(**ask):
    question = {"question": "Who?", "expires_in": "1h", **ask}
    steps = [
        Step("ask", type="interrupt", ask=question, store="who", catch="none", next=["end"]),
        Step("none", script="'nobody'", store="who", next=["end"]),
        Step("end", action="note"),
    ]
    return Workflow("w", steps)


def asked(workflow_, clock):
    calls = Calls()
    world = environment(workflow_, actions=[calls.action()], clock=clock)
    return world, calls, world.start("w").wait(20)


def settled(world, execution):
    """Return the execution once it has ended, whoever drives it."""
    found = world.run_of(execution.id)
    for _ in range(1000):
        if found.state.is_over:
            break
        asyncio.run(asyncio.sleep(0.01))
        found = world.run_of(execution.id)
    return found


@pytest.mark.parametrize(("ask", "who"), [({"default": "ann"}, "ann"), ({}, "nobody")])
def test_a_live_process_lets_a_question_expire_though_nobody_drives_the_execution(ask, who):
    clock = Watch()
    world, calls, execution = asked(expiring(**ask), clock)
    assert (execution.status, execution.is_live) == ("waiting", False)
    clock.at += HOUR + 1
    done = settled(world, execution)
    assert (done.status, done.variables["who"], len(calls)) == ("completed", who, 1)
    (question,) = done.state.interrupts.values()
    assert (question.status, question.answered_by) == ("expired", None)


@pytest.mark.parametrize(("ask", "who"), [({"default": "ann"}, "ann"), ({}, "nobody")])
def test_a_later_process_finds_that_it_has_expired(ask, who):
    clock = Watch()
    first, calls, execution = asked(expiring(**ask), clock)
    later = Watch()
    later.at = clock.at + HOUR + 1
    world = Environment(store=first.store, actions=[calls.action()], clock=later)
    done = world.run_of(execution.id).resume().wait(20)
    assert (done.status, done.variables["who"], len(calls)) == ("completed", who, 1)


def test_an_answer_in_time_counts_and_the_alarm_changes_nothing():
    clock = Watch()
    world, calls, execution = asked(expiring(default="ann"), clock)
    done = execution.answer(execution.open_questions[0].id, "bob").wait(20)
    clock.at += 2 * HOUR
    asyncio.run(asyncio.sleep(0.05))
    assert (done.variables["who"], len(calls)) == ("bob", 1)
    assert len(world.run_of(execution.id).history()) == done.state.last_sequence


def test_a_late_answer_is_refused():
    clock = Watch()
    first, calls, execution = asked(expiring(default="ann"), clock)
    later = Watch()
    later.at = clock.at + HOUR + 1
    world = Environment(store=first.store, actions=[calls.action()], clock=later)
    question = execution.open_questions[0].id
    with pytest.raises(InterruptError, match="it has expired"):
        world.answer(question, "bob")
    world.run_of(execution.id).resume().wait(20)
    with pytest.raises(InterruptError, match="it has expired"):
        world.answer(question, "bob", execution.id)
    assert world.run_of(execution.id).variables["who"] == "ann"


def test_a_clock_that_is_set_back_only_makes_the_wait_longer():
    clock = Watch()
    world, _, execution = asked(expiring(default="ann"), clock)
    clock.at -= 5 * HOUR
    asyncio.run(asyncio.sleep(0.03))
    assert world.run_of(execution.id).resume().wait(20).status == "waiting"
    assert execution.answer(execution.open_questions[0].id, "bob").wait(20).variables["who"] == "bob"


def test_a_confirmation_that_expires_releases_nothing():
    clock = Watch()
    world, _, execution = asked(expiring(kind="confirmation"), clock)
    clock.at += HOUR + 1
    assert settled(world, execution).variables["who"] == "nobody"


def test_a_default_must_fit_the_question():
    question = {"question": "Sure?", "kind": "confirmation", "expires_in": 5, "default": "perhaps"}
    with pytest.raises(DefinitionError, match="Default is not a valid answer: answer with yes or no, not 'perhaps'"):
        Workflow("w", [Step("ask", type="interrupt", ask=question)])


def test_a_default_of_a_function_must_fit_its_question():
    @workflow("unfit_default")
    async def unfit_default(ctx):
        return await ctx.confirm("Sure?", expires_in=5, default="perhaps")

    done = environment().start(unfit_default).wait(20)
    assert done.status == "failed"
    assert "answer with yes or no" in done.error


def test_functions_meet_an_error_they_can_catch():
    from divebook.errors import InterruptExpiredError

    @workflow("expires")
    async def expires(ctx):
        first = await ctx.ask("Who?", expires_in=60, default="ann")
        try:
            await ctx.confirm("Sure?", expires_in=60)
        except InterruptExpiredError:
            return f"{first}, unsure"

    clock = Watch()
    world = environment(clock=clock)
    execution = world.start(expires).wait(20)
    clock.at += 61_000_000
    for _ in range(1000):
        if len(world.run_of(execution.id).state.interrupts) == 2:
            break
        asyncio.run(asyncio.sleep(0.01))
    clock.at += 61_000_000
    assert settled(world, execution).outputs == {"result": "ann, unsure"}


def test_a_question_without_a_time_never_expires():
    clock = Watch()
    question = {"question": "Who?"}
    world = environment(Workflow("w", [Step("ask", type="interrupt", ask=question, store="who")]), clock=clock)
    execution = world.start("w").wait(20)
    clock.at += 24 * 365 * HOUR
    assert execution.state.wake_at is None
    assert execution.answer(execution.open_questions[0].id, "ann").wait(20).status == "completed"


class Hurrying(Watch):
    """A clock on which a second has passed whenever it is read."""

    def now(self):
        self.at += 1_000_000
        return self.at

    async def sleep(self, seconds):
        end = self.at + seconds * 1e6
        while self.now() < end:  # noqa: ASYNC110 - reading it is what moves it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("seconds", range(1, 9))
def test_a_question_whose_time_is_up_while_its_execution_comes_to_rest_expires(seconds):
    world, _, execution = asked(expiring(expires_in=seconds, default="ann"), Hurrying())
    done = settled(world, execution)
    assert (done.status, done.variables) == ("completed", {"who": "ann"})


def test_an_execution_has_one_timer_however_often_it_waits():
    steps = [Step(name, ask={"question": "Who?", "expires_in": "1h"}, store=name) for name in ("a", "b")]
    world, _, execution = asked(Workflow("w", steps), Watch())
    timers = world._control._timers
    first = timers[execution.id]
    assert execution.answer(execution.open_questions[0].id, "ann").wait(20).status == "waiting"
    assert becomes(first.cancelled)
    assert becomes(lambda: execution.id in timers and not timers[execution.id].done())


@pytest.fixture
def abandons_waits():
    @step(name="abandons_waits_fails", retry=Retry(3, seconds=3600))
    async def fails():
        raise ValueError("tried again in an hour")

    @workflow("abandons_waits")
    async def abandons_waits(ctx):
        async def fail():
            await ctx.now()
            await ctx.now()
            raise ValueError("at once")

        tried = fails()  # has its place in the log from outside of the gather
        waits = [ctx.sleep(3600), ctx.wait_signal("go", within=3600), ctx.wait_signal("next")]
        try:
            await ctx.gather(ctx.gather(*waits), tried, fail())
        except ValueError:
            first = await ctx.wait_signal("next")
            return [first, await ctx.wait_signal("next")]

    return abandons_waits


def abandoned(events):
    return [event.data for event in events if event.event_type == "operations_abandoned"]


@pytest.mark.parametrize("is_parked", [True, False])
def test_a_run_that_has_abandoned_waits_does_not_continue_at_their_end(abandons_waits, is_parked, monkeypatch):
    if not is_parked:
        monkeypatch.setattr(PARKED_RUNS, "most", 0)
    clock = Watch()
    with environment(abandons_waits, clock=clock) as made:
        run = made.start(abandons_waits).wait(20)
        assert (run.status, run.state.wake_at, run.state.is_asleep) == ("waiting", None, False)
        (recorded,) = abandoned(run.history())
        assert len(recorded.operation_ids) == 4
        last = len(run.history())
        clock.at += 2 * HOUR
        assert run.resume().wait(20).status == "waiting"
        assert len(run.history()) == last + 1, "the resumption alone is recorded"
        # A signal for a later wait is not taken by the one that was abandoned, live or replayed.
        run.signal("next", 1).wait(20)
        assert run.resume().wait(20).status == "waiting"
        assert run.signal("next", 2).result(20) == [1, 2]
        assert len(abandoned(run.history())) == 1
        verification = run.verify()
        assert verification.equal, str(verification)
    rows = {row.name: row.status for row in run.operations.itertuples() if row.type in ("timer", "signal_wait")}
    assert "cancelled" in rows.values(), rows


def test_a_run_that_has_abandoned_a_wait_before_that_was_recorded_records_it_when_it_is_resumed(abandons_waits):
    """Older versions have recorded nothing: the log is the same without the event, and the numbers after it."""
    first = environment(abandons_waits, clock=Watch())
    run = first.start(abandons_waits).wait(20)
    events = [event for event in run.history() if event.event_type != "operations_abandoned"]
    numbered = [replace(event, sequence=number) for number, event in enumerate(events, 1)]
    store = MemoryStore()
    store.append(run.id, numbered, 0)
    clock = Watch()
    clock.at = numbered[-1].recorded_at + HOUR // 2
    with environment(abandons_waits, clock=clock, store=store) as made:
        old = made.run_of(run.id)
        assert old.state.is_asleep
        assert old.verify().equal
        assert old.resume().wait(20).status == "waiting"
        assert (old.state.wake_at, len(abandoned(old.history()))) == (None, 1)


def test_workers_leave_a_run_alone_that_has_abandoned_a_wait(abandons_waits):
    with environment(abandons_waits, clock=Watch()) as made:
        run = made.enqueue(abandons_waits)
        with Worker(made) as worker:
            assert run.wait(20).status == "waiting"
            for _ in range(5):
                assert worker.wait_until_idle(20)
            assert worker.taken == 1


# --- a run that has failed because a question expired -------------------------------------------------------------


ASKING_ITEMS = Workflow(
    "items", [Step("ask", each=Each([1, 2], parallel=2), ask={"question": "Who?", "expires_in": "1h"}, store="who")]
)
ASKING_STEP = Workflow("plain", [Step("ask", ask={"question": "Who?", "expires_in": "1h"}, store="who")])


@step
async def noted(text: str) -> str:
    return f"noted {text}"


@workflow
async def asks_in_code(ctx):
    first = await noted("before")
    try:
        await ctx.ask("Anybody?", expires_in=3600)
    except InterruptExpiredError:
        first += " alone"
    return first, await ctx.ask("Who?", expires_in=3600)


@pytest.mark.parametrize("flow", [ASKING_STEP, asks_in_code], ids=["a step", "a function"])
def test_a_run_that_failed_because_a_question_expired_asks_again_when_it_is_resumed(flow, tmp_path, monkeypatch):
    monkeypatch.setitem(WORKFLOW_FUNCTIONS, asks_in_code.name, asks_in_code)  # other tests clear the registry
    clock = Watch()
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.start(flow)
        if flow is asks_in_code:
            assert run.wait(20).open_questions[0].question == "Anybody?"
            clock.at += HOUR
        assert becomes(lambda: [question.question for question in run.open_questions] == ["Who?"])
        clock.at += HOUR
        assert becomes(lambda: run.state.is_over)
        assert run.status == "failed"
        assert "When you resume the run, it asks the question again." in str(run)
        with pytest.raises(ExecutionFailedError, match=r"When you resume the run, it asks the question again\."):
            run.result()
        first = run.questions["question_id"].to_list()
    # Another process resumes it, and is too late once more.
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.run_of(run.id).resume()
        assert run.wait(20).status == "waiting"
        (question,) = run.open_questions
        assert question.id not in first
        assert (question.question, question.expires_us) == ("Who?", clock.at + HOUR)
        with pytest.raises(InterruptError, match="resume the run: it uses the default, or asks again"):
            run.answer(first[-1], "late")
        clock.at += HOUR
        assert becomes(lambda: run.state.is_over)
        assert run.resume().wait(20).status == "waiting"
        run.answer(run.open_questions[0], "ann")
        assert run.wait(20).status == "completed"
        assert [*run.questions["status"]] == ["expired"] * (len(first) + 1) + ["resolved"]
        assert run.verify()
        if flow is asks_in_code:
            assert run.result() == ("noted before alone", "ann")
        assert run.fork(at=run.state.last_sequence - 1).wait(20).outputs == run.outputs


def test_a_resumption_asks_all_questions_of_items_again(tmp_path):
    clock = Watch()
    with Environment(store=str(tmp_path / "runs.db"), workflows=[ASKING_ITEMS], clock=clock) as world:
        run = world.start(ASKING_ITEMS).wait(20)
        clock.at += HOUR
        assert becomes(lambda: run.state.is_over)
        assert run.status == "failed"
        assert becomes(lambda: not run.is_live)
        run.resume().wait(20)
        assert [question.question for question in run.open_questions] == ["Who?", "Who?"]
        for question in run.open_questions:
            run.answer(question, "ann")
        assert run.wait(20).variables == {"who": ["ann", "ann"]}
        assert run.verify()


@pytest.mark.parametrize("flow", [ASKING_STEP, asks_in_code, ASKING_ITEMS], ids=["a step", "a function", "items"])
def test_a_question_that_expires_while_no_process_drives_its_run_is_asked_again_by_one_resumption(
    flow, tmp_path, monkeypatch
):
    monkeypatch.setitem(WORKFLOW_FUNCTIONS, asks_in_code.name, asks_in_code)  # other tests clear the registry
    clock = Watch()
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.start(flow).wait(20)
        if flow is asks_in_code:
            clock.at += HOUR
            assert becomes(lambda: [question.question for question in run.open_questions] == ["Who?"])
            assert becomes(lambda: not run.is_live)
        question_ids = [question.id for question in run.open_questions]
    clock.at += HOUR
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.run_of(run.id)
        assert (run.status, run.open_questions, world.inbox()) == ("waiting", [], [])
        assert str(run).count("answered: expired without an answer") == len(run.questions)
        assert "to continue: " in str(run)
        assert {*run.questions["status"]} == {"expired"}
        (line,) = Overview(world.store).lines([world.store.record(run.id)])
        assert line.stand == f"{plural(len(question_ids), 'question')} expired"
        with pytest.raises(InterruptError, match="resume the run: it uses the default, or asks again"):
            run.answer(question_ids[0], "late")
        run.resume().wait(20)
        assert (run.status, len(run.open_questions)) == ("waiting", len(question_ids))
        for question in run.open_questions:
            assert question.id not in question_ids
            run.answer(question, "ann")
        assert run.wait(20).status == "completed"
        assert run.verify()


def above(name, levels):
    """Return workflows of which each runs the next, the last one the workflow with this name."""
    names = [*(f"level {level}" for level in range(levels)), name]
    return [Workflow(one, [Step("below", workflow=below, store="below")]) for one, below in pairwise(names)]


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_one_resumption_of_an_ancestor_asks_the_expired_question_below_it_again(levels, tmp_path):
    clock = Watch()
    flows = [*above("plain", levels), ASKING_STEP]
    with Environment(store=str(tmp_path / "runs.db"), workflows=flows, clock=clock) as world:
        run = world.start("level 0").wait(20)
        assert len(world.inbox()) == 1
    clock.at += HOUR
    with Environment(store=str(tmp_path / "runs.db"), workflows=flows, clock=clock) as world:
        run = world.run_of(run.id).resume().wait(20)
        assert becomes(lambda: len(world.inbox()) == 1)
        assert run.refresh().status == "waiting"
        ((child_id, question),) = world.inbox()
        assert question.expires_us == clock.at + HOUR
        # Nobody has asked for another question after this one.
        clock.at += HOUR
        assert becomes(lambda: run.refresh().status == "failed" and not run.is_live)
        assert not world.inbox()
        run.resume().wait(20)
        assert becomes(lambda: len(world.inbox()) == 1)
        ((child_id, question),) = world.inbox()
        world.run_of(child_id).answer(question.id, "ann")
        assert becomes(lambda: run.refresh().status == "completed")
        assert all(world.run_of(record.execution_id).verify() for record in world.store.records())


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_one_resumption_of_an_ancestor_takes_the_default_of_a_question_below_it(levels, tmp_path):
    clock = Watch()
    ask = {"question": "Who?", "expires_in": "1h", "default": "ann"}
    flows = [*above("asks", levels), Workflow("asks", [Step("ask", ask=ask, store="who")])]
    with Environment(store=str(tmp_path / "runs.db"), workflows=flows, clock=clock) as world:
        run = world.start("level 0").wait(20)
    clock.at += HOUR
    with Environment(store=str(tmp_path / "runs.db"), workflows=flows, clock=clock) as world:
        run = world.run_of(run.id).resume()
        assert becomes(lambda: run.refresh().status == "completed")


@workflow
async def asks_beside_a_sleep(ctx):
    with suppress(InterruptExpiredError):
        await ctx.ask("Anybody?", expires_in=3600)
    # The code sleeps, so that one drive lasts until the second question has expired.
    await ctx.gather(ctx.sleep(7200), ctx.ask("Who?", expires_in=3600))


def test_a_question_that_expires_after_a_resumption_is_not_asked_again(tmp_path, monkeypatch):
    monkeypatch.setitem(WORKFLOW_FUNCTIONS, asks_beside_a_sleep.name, asks_beside_a_sleep)
    clock = Watch()
    flow = asks_beside_a_sleep
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.start(flow).wait(20)
    clock.at += HOUR
    with Environment(store=str(tmp_path / "runs.db"), workflows=[flow], clock=clock) as world:
        run = world.run_of(run.id).resume()
        assert becomes(lambda: [question.question for question in run.open_questions] == ["Who?"])
        assert run.is_live
        clock.at += HOUR
        assert becomes(lambda: run.state.is_over and not run.is_live)
        assert run.status == "failed"
        assert [*run.questions["question"]] == ["Anybody?", "Who?"]


def test_a_recovery_lets_a_question_expire_and_asks_nobody_again(tmp_path):
    clock = Watch()
    with Environment(store=str(tmp_path / "runs.db"), workflows=[ASKING_STEP], clock=clock) as world:
        run = world.start(ASKING_STEP).wait(20)
    clock.at += HOUR
    with Environment(store=str(tmp_path / "runs.db"), workflows=[ASKING_STEP], clock=clock) as world:
        world.queues.recover(run.id)
        run = world.run_of(run.id)
        assert becomes(lambda: run.refresh().state.is_over)
        assert run.status == "failed"


def _wrapped(error, way):
    """Raise another error for that of a question, as code of users does."""
    if way == "with a cause":
        raise LookupError("the desk is empty") from error
    if way == "without a cause":
        raise LookupError(str(error)) from None
    raise LookupError("the desk is empty")


@workflow
async def wraps_expiry(ctx, way: str):
    try:
        return await ctx.ask("Who?", expires_in=3600)
    except InterruptExpiredError as error:
        _wrapped(error, way)


@workflow
async def wraps_in_items(ctx, way: str):
    async def asking(name):
        try:
            return await ctx.ask(name, expires_in=3600)
        except InterruptExpiredError as error:
            _wrapped(error, way)

    return await ctx.gather(asking("Who?"), asking("And who else?"))


@pytest.mark.parametrize("way", ["with a cause", "without a cause", "in its place"])
@pytest.mark.parametrize("flow", [wraps_expiry, wraps_in_items])
def test_a_question_is_asked_again_though_the_code_wraps_the_error_of_its_expiry(flow, way, monkeypatch):
    monkeypatch.setitem(WORKFLOW_FUNCTIONS, flow.name, flow)
    clock = Watch()
    with Environment(store="memory:", clock=clock) as world:
        run = world.start(flow, {"way": way}).wait(20)
        questions = sorted(question.question for question in run.open_questions)
        clock.at += HOUR
        assert becomes(lambda: run.state.is_over)
        assert "LookupError" in run.error
        assert becomes(lambda: not run.is_live)
        run.resume().wait(20)
        assert sorted(question.question for question in run.open_questions) == questions
        assert run.verify()
