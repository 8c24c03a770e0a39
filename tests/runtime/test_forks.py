"""A copy of the beginning of an execution goes on live, and does nothing again that it has copied."""

import asyncio

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import OperationError, SetupError
from divebook.events import catalog
from divebook.events.event import to_datetime
from divebook.projections.compare import Side
from divebook.replay.recorded_answers import RecordedEnds
from divebook.runtime.forks import calls_in, reused_calls_of
from divebook.stores import MemoryStore
from divebook.stores.sqlite import SqliteStore
from tests.runtime.test_expiring import Watch
from tests.runtime.worlds import Calls, Failing

MADE = []
MEETING = []


@step
async def fork_note(value):
    MADE.append(value)
    return value


@step
async def fork_fail(value):
    raise ValueError(value)


@step
async def fork_meet(value):
    await MEETING[0].wait()
    return value


@workflow
async def meeting(ctx):
    MEETING[:] = [asyncio.Barrier(2)]
    return [await fork_note(1), *await ctx.gather(fork_meet(1), fork_meet(2))]


@workflow
async def forked(ctx, n: int = 1):
    first = await fork_note(n)
    both = await ctx.gather(fork_note(n + 1), fork_note(n + 2))
    try:
        await fork_fail("caught")
    except OperationError:
        first += 100
    return [first, *both, await fork_note(n + 3)]


@pytest.fixture(params=["memory", "sqlite"])
def world(request, tmp_path):
    MADE.clear()
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    with Environment(store=store) as environment:
        yield environment


def began(events):
    return [event.sequence for event in events if isinstance(event.data, catalog.OperationStarted)]


def test_a_copy_that_is_cut_before_any_call_comes_to_the_same_and_repeats_nothing(world):
    old = world.start("forked", {"n": 1}).wait(20)
    events = old.history()
    for sequence in began(events):
        MADE.clear()
        until = sequence - 1
        copy = world.run_of(old.id).fork(until).wait(20)
        assert (copy.status, copy.outputs) == ("completed", old.outputs)
        reused = sum(isinstance(event.data, catalog.OperationCompleted) for event in events[:until])
        assert len(MADE) == 4 - reused == 4 - calls_in(events[:until])
        record = world.store.record(copy.id)
        assert (record.origin, record.parent) == ("fork", old.id)
        assert world.store.records()[-1].execution_id == old.id
    assert old.refresh().history() == events


def test_calls_that_run_side_by_side_are_made_anew_together(world):
    old = world.start("meeting").wait(20)
    copy = world.run_of(old.id).fork(began(old.history())[2] - 1).wait(20)
    assert (copy.status, copy.outputs, MADE) == ("completed", old.outputs, [1])


def first_call(events, labels):
    return next((sequence for sequence, _ in reused_calls_of(events, labels)), None)


def test_the_first_call_of_a_function_is_found(world):
    events = world.start("forked").wait(20).history()
    assert first_call(events, lambda _: {"step fork_note"}) == began(events)[0]
    assert first_call(events, lambda _: {"step fork_fail"}) == began(events)[3]
    assert first_call(events, lambda _: {"step other", "workflow forked"}) is None


def test_the_call_that_an_execution_failed_with_is_made_again_anyway(world):
    failing, calls = Failing(), Calls()
    world._registry.custom_actions.update(note=calls.action(), fail=failing.action())
    steps = [Step("a", action="note", parameters={"value": 1}), Step("b", action="fail")]
    execution = world.start(Workflow("w", steps)).wait(20)
    assert execution.status == "failed"
    assert first_call(execution.history(), lambda _: {"action fail"}) is None
    assert first_call(execution.history(), lambda _: {"action note", "action fail"}) == began(execution.history())[0]


def test_two_forks_with_one_key_are_one(world):
    old = world.start("forked").wait(20)
    until = began(old.history())[-1] - 1
    MADE.clear()
    ids = {world.run_of(old.id).fork(until, key="once").wait(20).id for _ in range(2)}
    assert (len(ids), MADE) == (1, [4])


def test_a_changed_fork_passes_another_idempotency_key_with_other_arguments(world):
    """A service that has answered a key before would return the answer to the source's call."""
    keys = {}

    @step
    def pay(amount, idempotency_key):
        keys.setdefault(idempotency_key, []).append(amount)
        return amount

    @workflow
    async def paying(ctx, amount: int):
        return [await pay(amount), await pay(10)]

    source = world.start(paying, {"amount": 1}).wait(20)
    assert world.run_of(source.id).fork(1, {"inputs": {"amount": 2}}).wait(20).outputs == {"result": [2, 10]}
    assert world.run_of(source.id).fork(1).wait(20).outputs == {"result": [1, 10]}
    assert list(keys.values()) == [[1, 1], [10, 10, 10], [2]]


@workflow
async def of_two(ctx, amount: int = 1, colour: str = "red"):
    answered = await ctx.ask("How many?", int)
    return [await fork_note(amount), colour, answered]


def test_a_fork_of_a_fork_keeps_what_the_first_one_changed(world):
    run = world.start(of_two).wait(20)
    (question,) = run.open_questions
    run.answer(question, 3).wait(20)
    first = run.fork(change={"inputs": {"amount": 9}}).wait(20)
    first.answer(first.open_questions[0], 4).wait(20)
    assert first.result() == [9, "red", 4]
    second = first.fork(change={"inputs": {"colour": "blue"}}).wait(20)
    assert second.inputs == {"amount": 9, "colour": "blue"}
    second.answer(second.open_questions[0], 5).wait(20)
    third = second.fork(change={"inputs": {"amount": 2}}).wait(20)
    assert third.inputs == {"amount": 2, "colour": "blue"}
    assert third.answer(third.open_questions[0], 6).wait(20).result() == [2, "blue", 6]


def test_a_fork_before_the_question_that_the_first_one_answered_otherwise_asks_again(world):
    run = world.start(of_two).wait(20)
    run.answer(run.open_questions[0], 3).wait(20)
    (question_id,) = run.state.interrupts
    first = run.fork(change={"answers": {question_id: 7}}).wait(20)
    assert first.result() == [1, "red", 7]
    second = first.fork(change={"inputs": {"colour": "blue"}}).wait(20)
    assert second.answer(second.open_questions[0], 8).wait(20).result() == [1, "blue", 8]


def test_a_what_if_of_a_fork_without_a_change_gives_what_the_fork_gave(world):
    run = world.start(of_two).wait(20)
    run.answer(run.open_questions[0], 3).wait(20)
    first = run.fork(change={"inputs": {"amount": 9}}).wait(20)
    first.answer(first.open_questions[0], 4).wait(20)
    same = first.what_if()
    assert same.outputs == first.outputs
    changed = first.what_if({"inputs": {"colour": "blue"}}).run
    assert changed.inputs == {"amount": 9, "colour": "blue"}


def test_a_prompt_that_a_fork_changed_stays_changed_in_a_fork_of_it(world):
    model = ScriptedModel(lambda prompt, _messages: f"said {prompt}")
    with Environment(store="memory:", agents=[Agent("a", model=model)]) as talking:
        flow = Workflow("talk", [Step("say", prompt="N ${inputs.n}", store="said")], inputs=["n"])
        first = talking.start(flow, {"n": 5}).wait(20).fork(change={"prompts": {"say": "changed ${inputs.n}"}}).wait(20)
        second = first.fork(change={"inputs": {"n": 6}}).wait(20)
        assert (first.variables["said"], second.variables["said"]) == ("said changed 5", "said changed 6")


def test_a_variable_that_a_fork_changed_is_not_lost_silently():
    flow = Workflow(
        "w", [Step("a", script="1", store="v"), Step("b", script="state.v + inputs.n", store="w")], inputs=["n"]
    )
    with Environment(store="memory:") as world:
        first = world.start(flow, {"n": 1}).wait(20).fork(change={"variables": {"v": 10}}).wait(20)
        assert first.variables["w"] == 11
        with pytest.raises(SetupError, match=r"was forked at event \d+ with another change \(variable 'v'\)"):
            first.fork(change={"inputs": {"n": 2}})
        again = first.fork(change={"variables": {"v": 20}}).wait(20)
        assert again.variables["w"] == 21


@workflow
async def of_two_questions(ctx, amount: int = 1, colour: str = "red"):
    noted = await fork_note(amount)
    answers = [await ctx.ask("How many?", int), await ctx.ask("How much?", int)]
    return [noted, *answers, await fork_note(7)]


CHANGES = {
    "an answer": (lambda questions, _calls: {"answers": {questions[0]: 30}}, [1, 30, 4, 7]),
    "two answers": (lambda questions, _calls: {"answers": dict.fromkeys(questions, 30)}, [1, 30, 30, 7]),
    "a result": (lambda _questions, calls: {"results": {calls[1]: 70}}, [1, 3, 4, 70]),
    "both": (lambda questions, calls: {"answers": {questions[1]: 30}, "results": {calls[1]: 70}}, [1, 3, 30, 70]),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_a_fork_changed_is_known_to_all_readers_of_its_log(world, changed):
    """Only `execution_forked` has the answers and results of a change, which have events of their own elsewhere."""
    run = world.start(of_two_questions).wait(20)
    for answer in (3, 4):
        run.answer(run.open_questions[0], answer).wait(20)
    change_of, expected = CHANGES[changed]
    started = [event for event in run.history() if isinstance(event.data, catalog.OperationStarted)]
    questions = [e.data.interrupt_id for e in run.history() if isinstance(e.data, catalog.InterruptRaised)]
    change = change_of(questions, [event.data.operation_id for event in started])
    # The default fork point of one answer lies before it, so that the question is open there.
    fork = run.fork(None if changed == "an answer" else started[-1].sequence, change).wait(20)
    if fork.open_questions:
        fork.answer(fork.open_questions[0], 4).wait(20)
    assert fork.result() == expected

    same = fork.what_if({"inputs": {"colour": "blue"}})
    assert (same.outputs, same.live, same.blocked, same.unused) == (fork.outputs, 0, 0, 0)
    pool = RecordedEnds(fork.id, fork.history())
    served = [event.data.served for event in same.run.history() if getattr(event.data, "served", None)]
    assert all(pool.use(each) for each in served), "each answer names an end of its own, also after a restart"

    (step_node,) = (node for node in Side.of(fork.history()).root.inside if node.kind == "step")
    answered = [node.answered["data"] for node in step_node.inside if node.kind == "question"]
    assert answered == expected[1:3]
    inspection = fork.inspect()
    why = str(inspection.why("result"))
    assert "not answered" not in why
    assert "not ended" not in why
    assert why.count("by change") == len(change.get("answers", ()))


def test_a_comparison_shows_when_the_fork_began_and_not_its_source():
    clock = Watch()
    with Environment(store="memory:", clock=clock) as world:
        run = world.start("forked").wait(20)
        clock.at += 3_600_000_000
        fork = run.fork(began(run.history())[-1] - 1).wait(20)
        assert Side.of(fork.history()).began_us - Side.of(run.history()).began_us == 3_600_000_000
        assert fork.started_at == to_datetime(Side.of(fork.history()).began_us)
