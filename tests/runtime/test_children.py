"""Executions that others start: begun once, waited for without cost, cancelled and counted with their parent."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, step, workflow
from divebook.engine.bounds import bounds_for_resumption
from divebook.engine.state import Usage
from divebook.errors import NotFoundError
from divebook.questions.bounds import Bounds
from divebook.stores.leases import Owner
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import Calls, Gate, environment, event_types

ASKS = Workflow(
    "asks",
    [Step("note", action="note"), Step("ask", type="interrupt", ask="Who?", store="who")],
    outputs=["who"],
)
TALKS = Workflow("talks", [Step("talk", prompt="hello", store="said")], outputs=["said"])


@pytest.fixture
def parent_of_asks():
    @workflow("parent_of_asks")
    async def parent_of_asks(ctx):
        first = await ctx.run("asks")
        second = await ctx.run("asks")
        return [first["who"], second["who"]]

    return parent_of_asks


@pytest.fixture
def has_asked():
    """Have asked a model: the first to do so in a process loads what that needs, and can be stopped meanwhile."""
    environment(TALKS, agents=[Agent("ann", model=ScriptedModel(["hi"]))]).start("talks").wait(20)


def family(calls, *more, store=None, **settings):
    chosen = {} if store is None else {"store": store}
    return environment(ASKS, TALKS, *more, actions=[calls.action()], **chosen, **settings)


def children_of(world, parent):
    return [found for found in map(world.run_of, _ids(world)) if found.state.parent == parent.id]


def _ids(world):
    return [record.execution_id for record in world.store.records()][::-1]


def answer_next(world, text):
    ((_, question),) = world.inbox()
    return world.answer(question.id, text).wait(20)


def test_a_child_that_asks_makes_its_parent_wait_and_both_go_on(parent_of_asks):
    calls = Calls()
    world = family(calls)
    parent = world.start(parent_of_asks).wait(20)
    (child,) = children_of(world, parent)
    assert (parent.status, child.status, parent.open_questions) == ("waiting", "waiting", [])
    answer_next(world, "ann")
    assert parent.wait(20).status == "waiting"
    answer_next(world, "bob")
    done = parent.wait(20)
    assert (done.status, done.outputs) == ("completed", {"result": ["ann", "bob"]})
    assert (len(calls), len(children_of(world, parent))) == (2, 2)
    assert event_types(done).count("operation_started") == 2


def test_an_answer_in_a_later_process_lets_both_go_on(parent_of_asks):
    calls = Calls()
    world = family(calls)
    parent = world.start(parent_of_asks).wait(20)
    for text in ("ann", "bob"):
        later = family(calls, store=world.store)
        answer_next(later, text)
        found = later.run_of(parent.id)
        if found.is_live:
            found.wait(20)
    assert world.run_of(parent.id).outputs == {"result": ["ann", "bob"]}
    assert (len(calls), len(world.store.records())) == (2, 3)


@pytest.mark.parametrize("length", range(3, 8))
def test_wherever_the_parent_died_the_child_is_started_once(length, parent_of_asks):
    calls = Calls()
    world = family(calls)
    parent = world.start(parent_of_asks).wait(20)
    if length > parent.state.last_sequence:
        length = parent.state.last_sequence
    answer_next(world, "ann")
    store = cut(world.store, world.run_of(parent.id).wait(20), length)
    later = family(calls, store=store)
    resumed = later.run_of(parent.id).resume().wait(20)
    while resumed.status == "waiting":
        answer_next(later, "ann")
        resumed = later.run_of(parent.id).wait(20)
    assert (resumed.status, resumed.outputs) == ("completed", {"result": ["ann", "ann"]})
    assert len(children_of(later, resumed)) == 2


def test_children_side_by_side_wait_side_by_side():
    @workflow("two_children")
    async def two_children(ctx):
        found = await ctx.gather(ctx.run("asks"), ctx.run("asks"))
        return [child["who"] for child in found]

    calls = Calls()
    world = family(calls)
    parent = world.start(two_children).wait(20)
    asked = dict(world.inbox())
    assert (parent.status, len(asked)) == ("waiting", 2)
    for number, question in enumerate(asked.values()):
        world.answer(question.id, f"n{number}").wait(20)
    done = parent.wait(20)
    assert (done.status, sorted(done.outputs["result"]), len(calls)) == ("completed", ["n0", "n1"], 2)


def test_a_child_that_fails_fails_the_call_and_is_taken_up_with_its_parent():
    broken = [True]

    @step
    async def flaky() -> str:
        if broken:
            raise ValueError("not today")
        return "fine"

    @workflow("frail")
    async def frail(ctx):
        return await flaky()

    @workflow("parent_of_frail")
    async def parent_of_frail(ctx):
        return (await ctx.run("frail"))["result"]

    world = environment()
    failed = world.start(parent_of_frail).wait(20)
    assert (failed.status, "in child execution" in failed.error, "not today" in failed.error) == ("failed", True, True)
    broken.clear()
    done = world.run_of(failed.id).resume().wait(20)
    assert (done.status, done.outputs) == ("completed", {"result": "fine"})
    assert len(world.store.records()) == 2


def test_cancelling_the_parent_cancels_the_child_and_resuming_takes_both_up(parent_of_asks):
    calls = Calls()
    world = family(calls)
    parent = world.start(parent_of_asks).wait(20)
    (child,) = children_of(world, parent)
    world.run_of(parent.id).cancel().wait(20)
    world.run_of(child.id).wait(20)
    assert {record.status for record in world.store.records()} == {"cancelled"}
    assert world.run_of(parent.id).resume().wait(20).status == "waiting"
    answer_next(world, "ann")
    answer_next(world, "bob") if parent.wait(20).status == "waiting" else None
    assert world.run_of(parent.id).wait(20).outputs == {"result": ["ann", "bob"]}
    assert len(calls) == 2


def test_a_running_child_stops_with_its_parent():
    gate = Gate()

    @workflow("parent_of_slow")
    async def parent_of_slow(ctx):
        await ctx.run("slow")

    slow = Workflow("slow", [Step("gate", action="gate"), Step("after", action="note")])
    calls = Calls()
    world = environment(slow, actions=[gate.action(), calls.action()])
    parent = world.start(parent_of_slow)
    assert gate.reached.wait(20)
    parent.cancel().wait(20)
    gate.opened.set()
    (child,) = children_of(world, parent)
    assert (parent.status, child.wait(20).status, len(calls)) == ("cancelled", "cancelled", 0)


def test_what_a_child_consumes_counts_in_the_bounds_of_its_parent():
    @workflow("talkative")
    async def talkative(ctx, n: int):
        for _ in range(n):
            await ctx.run("talks")

    script = ScriptedModel(["hi"], usage={"input_tokens": 5}, price=0.5)
    world = environment(TALKS, agents=[Agent("ann", model=script)])
    done = world.start(talkative, {"n": 3}).wait(20)
    envelope = done.envelope
    assert (done.status, envelope.llm_call_count, envelope.token_count, str(envelope.cost)) == (
        "completed",
        3,
        15,
        "1.5",
    )
    bounded = world.start(talkative, {"n": 3}, bounds={"max_llm_calls": 2, "on_exhausted": "fail"}).wait(20)
    assert (bounded.status, bounded.envelope.llm_call_count, script.calls) == ("failed", 2, 5)
    asked = world.start(talkative, {"n": 3}, bounds={"max_tokens": 12}).wait(20)
    ((asking, question),) = world.inbox()
    assert (asked.status, question.data["limit"], script.calls) == ("waiting", 2, 7)
    world.answer(question.id, 10, asking).wait(20)
    assert (asked.wait(20).status, asked.envelope.token_count) == ("completed", 15)


@pytest.mark.parametrize(
    ("bounds", "calls"), [({"max_llm_calls": 7}, 7), ({"max_tokens": 37}, 5), ({"max_cost": "3.7"}, 4)]
)
def test_children_side_by_side_never_overshoot(bounds, calls):
    @workflow("crowd")
    async def crowd(ctx):
        return len(await ctx.gather(*(ctx.run("chats") for _ in range(4)), return_exceptions=True))

    chats = Workflow("chats", [Step("talk", prompt="hello", each=Each(list(range(5)), parallel=5))])
    script = ScriptedModel(["hi"], usage={"input_tokens": 5}, price=0.5)
    world = environment(chats, agents=[Agent("ann", model=script)])
    parent = world.start(crowd, bounds={**bounds, "on_exhausted": "fail"}).wait(20)
    begun = [child.state.bounds for child in children_of(world, parent)]
    assert (parent.status, len(begun), script.calls) == ("completed", 4, calls)
    (name,) = bounds
    shares = [float(getattr(found, name)) for found in begun]
    assert sum(shares) == pytest.approx(float(bounds[name]))
    assert max(shares) - min(shares) <= 1
    ledger = parent.state.ledger
    assert (ledger.reserved_tokens, ledger.reserved_cost, ledger.reserved_calls) == (0, 0, 0)


def test_what_a_child_did_not_spend_is_free_for_the_next_one():
    @workflow("in_turn")
    async def in_turn(ctx):
        await ctx.gather(ctx.run("talks"), ctx.run("talks"))
        return [(await ctx.run("talks"))["said"], (await ctx.run("talks"))["said"]]

    world = environment(TALKS, agents=[Agent("ann", model=ScriptedModel(["hi"]))])
    done = world.start(in_turn, bounds={"max_llm_calls": 5, "on_exhausted": "fail"}).wait(20)
    assert (done.status, [child.state.bounds.max_llm_calls for child in children_of(world, done)]) == (
        "completed",
        [3, 2, 3, 2],
    )


@pytest.mark.parametrize(("bounds", "more"), [("max_llm_calls", 4), ("max_tokens", 45), ("max_cost", "4.5")])
def test_a_child_that_is_resumed_may_spend_what_its_parent_has_then(bounds, more):
    """It kept the bounds with which it had begun, so that who raised those of the parent had raised nothing."""
    world, parent = of_two_children(**{bounds: {"max_llm_calls": 2, "max_tokens": 25, "max_cost": "2.5"}[bounds]})
    assert parent.status == "failed"
    done = world.run_of(parent.id).resume({bounds: more, "on_exhausted": "fail"}).wait(20)
    assert (done.status, done.envelope.llm_call_count) == ("completed", 4)
    assert all(child.state.bounds.to_dict()["on_exhausted"] == "fail" for child in children_of(world, done))


def test_what_a_child_spends_after_it_was_resumed_counts_as_well():
    """Of a child that had failed before, only its calls counted."""
    world, parent = of_two_children(max_llm_calls=2)
    done = world.run_of(parent.id).resume({}).wait(20)
    spent = [child.state.usage for child in children_of(world, done)]
    assert (done.status, len(spent)) == ("completed", 2)
    assert done.state.usage.input_tokens == sum(usage.input_tokens for usage in spent) == 40
    assert done.state.usage.cost == sum(usage.cost for usage in spent)


def test_a_child_that_is_resumed_stays_within_its_own_bounds_and_what_a_person_raised_in_it():
    world, parent = of_two_children(own={"max_llm_calls": 1, "on_exhausted": "fail"})
    assert world.run_of(parent.id).resume({"max_llm_calls": 100}).wait(20).status == "failed"
    own = Bounds(max_llm_calls=3, max_seconds=9.0, max_iterations=4)
    state = SimpleNamespace(bounds=replace(own, max_llm_calls=5, max_iterations=6), running_us=2_000_000)
    again = bounds_for_resumption(state, own, Bounds(max_llm_calls=2, max_seconds=1.0), Usage(requests=2))
    assert again == Bounds(max_llm_calls=4, max_seconds=3.0, max_iterations=6)
    assert bounds_for_resumption(state, own, Bounds(), Usage(requests=2)).max_llm_calls == 5


@pytest.mark.usefixtures("has_asked")
@pytest.mark.parametrize(
    ("name", "raises", "size"),
    [("max_llm_calls", [1, 3, 5, 6], 1), ("max_tokens", [25, 45, 60], 10), ("max_cost", ["1.5", "3.5", "6"], 1)],
)
def test_children_side_by_side_never_overshoot_however_often_they_are_resumed(name, raises, size):
    """What one had that was under way as its parent failed was given to another, and it had nothing itself."""

    @workflow("upper")
    async def upper(ctx):
        await ctx.gather(*(ctx.run("chats") for _ in range(3)))

    chats = Workflow("chats", [Step(step, prompt="hello") for step in ("first", "second")])
    script = ScriptedModel(["hi"], usage={"input_tokens": 10}, price=1)
    world = environment(chats, agents=[Agent("ann", model=script)])
    found = world.start(upper, bounds={name: raises[0], "on_exhausted": "fail"}).wait(20)
    for most in raises:
        for _ in range(4):  # each resumption makes one failure again
            if found.status == "failed":
                found = world.run_of(found.id).resume({name: most, "on_exhausted": "fail"}).wait(20)
            assert script.calls * size <= float(most)
    for _ in range(4):
        found = world.run_of(found.id).resume({}).wait(20) if found.status == "failed" else found
    ledger = found.state.ledger
    assert (found.status, script.calls, ledger.llm_calls) == ("completed", 6, 6)
    assert (ledger.reserved_calls, ledger.reserved_tokens, ledger.reserved_cost) == (0, 0, 0)


@pytest.mark.usefixtures("has_asked")
@pytest.mark.parametrize("raises", [[1, 3, 5, 6, 8], [2, 4, 6, 7], [3, 5, 6]])
@pytest.mark.parametrize("bound", [("max_llm_calls", 1), ("max_tokens", 10), ("max_cost", 1)])
def test_children_of_children_never_overshoot_however_often_they_are_resumed(bound, raises):
    """What a child of one spent that was under way as that one failed was counted nowhere, and given to another."""

    @workflow("middle")
    async def middle(ctx):
        await ctx.gather(ctx.run("chats"), ctx.run("chats"))

    @workflow("upper")
    async def upper(ctx):
        await ctx.gather(*(ctx.run("middle") for _ in range(3)))

    (name, size), script = bound, ScriptedModel(["hi"], usage={"input_tokens": 10}, price=1)
    chats = Workflow("chats", [Step(step, prompt="hello") for step in ("first", "second")])
    world = environment(chats, agents=[Agent("ann", model=script)])
    found = world.start(upper, bounds={name: raises[0] * size, "on_exhausted": "fail"}).wait(20)
    for most in raises:
        for _ in range(6):  # each resumption makes one failure again
            if found.status == "failed":
                found = world.run_of(found.id).resume({name: most * size, "on_exhausted": "fail"}).wait(20)
            assert script.calls <= most
    for _ in range(12):
        found = world.run_of(found.id).resume({}).wait(20) if found.status == "failed" else found
    ledger = found.state.ledger
    assert (found.status, script.calls, ledger.llm_calls) == ("completed", 12, 12)
    assert (ledger.reserved_calls, ledger.reserved_tokens, ledger.reserved_cost) == (0, 0, 0)


def of_two_children(own=None, **bounds):
    """Return a world, and a parent in it whose bounds do not suffice for two children with two calls each."""

    @workflow("two")
    async def two(ctx):
        for _ in range(2):
            await ctx.run("chats")

    steps = [Step(name, prompt="hello") for name in ("first", "second")]
    script = ScriptedModel(["hi"], usage={"input_tokens": 10}, price=1)
    world = environment(Workflow("chats", steps, bounds=own), agents=[Agent("ann", model=script)])
    return world, world.start(two, bounds={**bounds, "on_exhausted": "fail"}).wait(20)


def test_a_process_that_finds_no_parent_definition_leaves_it_recoverable(parent_of_asks):
    calls = Calls()
    world = family(calls)
    parent = world.start(parent_of_asks).wait(20)
    other = Environment(store=world.store)
    ((_, question),) = world.inbox()
    WORKFLOW_FUNCTIONS.clear()
    assert other.answer(question.id, "ann").wait(20).status == "completed"
    assert [record.execution_id for record in other.queues.recoverable()] == [parent.id]


def interrupted_family(parent_of_asks, keeps_child):
    """Return a store in which a parent, or a parent and its child, were left by a process that died, and their ids."""
    world = family(Calls())
    parent = world.start(parent_of_asks).wait(20)
    (child,) = children_of(world, parent)
    store = cut(world.store, parent, event_types(parent).index("operation_started") + 1)
    store.acquire(parent.id, Owner.current(), now=0)
    if keeps_child:
        begun = event_types(child).index("step_started")
        store.append(child.id, world.store.read(child.id)[: begun + 1], 0)
    return store, parent.id, child.id


def rested(world, execution_id):
    found = world.run_of(execution_id)
    return found.wait(20) if found.is_live else found


def test_a_parent_whose_child_cannot_begin_here_is_left_to_another_process(parent_of_asks):
    store, parent, _ = interrupted_family(parent_of_asks, keeps_child=False)
    other = Environment(store=store)
    with pytest.raises(NotFoundError, match="workflow not found: asks"):
        other.run_of(parent).resume()
    assert [record.execution_id for record in other.queues.recoverable()] == [parent]
    assert family(Calls(), store=store).run_of(parent).resume().wait(20).status == "waiting"


def test_a_parent_rests_while_its_child_can_go_on_in_another_process_only(parent_of_asks, caplog):
    store, parent, child = interrupted_family(parent_of_asks, keeps_child=True)
    other = Environment(store=store)
    assert other.run_of(parent).resume().wait(20).status == "waiting"
    assert f"execution {child} is parked until another process resumes it" in caplog.text
    assert [record.execution_id for record in other.queues.recoverable()] == [child]
    world = family(Calls(), store=store)
    assert world.run_of(child).resume().wait(20).status == "waiting"
    answer_next(world, "ann")
    assert rested(world, parent).status == "waiting"
    answer_next(world, "bob")
    assert rested(world, parent).outputs == {"result": ["ann", "bob"]}


def gated_child():
    """Return a running parent, its child, which waits at a gate, and the gate."""

    @workflow("parent_of_gated")
    async def parent_of_gated(ctx):
        return (await ctx.run("gated"))["n"]

    gate = Gate()
    gated = Workflow("gated", [Step("wait", action="gate"), Step("then", script="7", store="n")], outputs=["n"])
    world = environment(gated, actions=[replace(gate.action(), idempotent=True)])
    parent = world.start(parent_of_gated)
    assert gate.reached.wait(20)
    children = []
    while not children:  # an idempotent call may begin before the child is in the store
        children = [record.execution_id for record in world.store.records() if record.execution_id != parent.id]
    (child,) = children
    return world, parent, world.run_of(child), gate


def test_a_parent_waits_on_for_a_child_that_another_process_has_taken_over():
    world, parent, child, gate = gated_child()
    other = world.store.acquire(child.id, Owner("elsewhere", 1, 1, "worker"), instead_of=world.store.lease_of(child.id))
    gate.opened.set()
    assert parent.wait(20).status == "waiting"
    world.store.release(other)
    assert world.run_of(child.id).resume().wait(20).status == "completed"
    assert world.run_of(parent.id).wait(20).outputs == {"result": 7}


def test_a_parent_waits_on_for_a_child_that_was_left():
    world, parent, child, gate = gated_child()
    child.internals.leave()
    gate.opened.set()
    assert parent.wait(20).status == "waiting"
    assert world.run_of(child.id).resume().wait(20).status == "completed"
    assert world.run_of(parent.id).wait(20).outputs == {"result": 7}
