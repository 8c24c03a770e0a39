"""An execution goes on with a corrected definition: the plan says what then happens, and nothing done is done again."""

import asyncio
from dataclasses import replace

import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.step import Retry
from divebook.errors import ExecutionError, NotFoundError, SetupError
from divebook.events import catalog
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from divebook.stores.sqlite import SqliteStore
from tests.replay.carried_out import live_in
from tests.runtime.worlds import Gate

MADE = []


async def note(x: object = 0) -> object:
    MADE.append(x)
    return x


async def refuse(x: object = 0) -> object:
    raise ValueError(f"refused {x}")


async def odd(x: int = 0) -> int:
    if x == 7:
        raise ValueError("seven")
    MADE.append(x)
    return x


async def pair(x: int, y: int) -> int:
    MADE.append((x, y))
    return x + y


async def slow(x: object = 0) -> object:
    while len(MADE) < 2:  # noqa: ASYNC110 - the other branch is to come further first
        await asyncio.sleep(0)
    raise ValueError(x)


ACTIONS = [Action(function.__name__, function) for function in (note, refuse, odd, pair, slow)]


@pytest.fixture(autouse=True)
def _fresh():
    MADE.clear()


@pytest.fixture
def world():
    with Environment(store=MemoryStore(), actions=ACTIONS) as made:
        yield made


def call(name, x, *after, action="note", **more):
    return Step(name, action=action, parameters={"x": x}, store=name, next=list(after), **more)


def pay(third="note", front=(), second="b", **more):
    """Return four calls in a row, of which the third one is another."""
    steps = [*front, call("a", 1, second), call(second, 2, "c"), call("c", 3, "d", action=third, **more), call("d", 4)]
    return Workflow("pay", steps, outputs=["d"])


def failed(world, definition, inputs=None):
    world.add_workflow(definition, replace=True)
    source = world.start(definition, inputs or {}).wait(20)
    assert source.status == "failed", source.status
    MADE.clear()
    return source


def gone_on(world, source, definition="new"):
    """Go on as planned; return the plan and the new execution."""
    log = source.history()
    plan = world.run_of(source.id).resume(definition=definition, plan=True)
    assert not MADE, "a plan makes no call"
    again = world.run_of(source.id).resume(definition=definition).wait(20)
    assert source.refresh().history()[: len(log)] == log
    return plan, again


# --- what was corrected ----------------------------------------------------------------------------------------------


def test_only_the_failing_step_was_changed(world):
    source = failed(world, pay("refuse"))
    plan, again = gone_on(world, source, pay())
    assert (again.status, again.outputs, MADE) == ("completed", {"d": 4}, [3, 4])
    assert (plan.reused, [call.step for call in plan.live], plan.behind) == (2, ["c"], ("d",))
    assert plan.summary == "2 operations reused, 1 live, then unknown: d"
    record = world.store.record(again.id)
    assert (record.origin, record.parent) == ("resume", source.id)
    assert source.refresh().status == "failed"


def test_all_that_is_kept_is_shared_and_not_copied(tmp_path):
    with Environment(store=SqliteStore(tmp_path / "s.db"), actions=ACTIONS) as world:
        source = failed(world, pay("refuse"))
        plan, again = gone_on(world, source, pay())
        assert MADE == [3, 4]
        assert again.history()[: plan.at] == [
            replace(event, execution_id=again.id) for event in source.history()[: plan.at]
        ]
        world.store.delete(source.id)
        assert world.run_of(again.id).outputs == {"d": 4}


def test_reordered_keys_of_parameters_are_the_same_parameters(world):
    two = {"x": 1, "y": 2}

    def definition(given, last):
        steps = [
            Step("a", action="pair", parameters=given, store="a", next=["c"]),
            call("c", 3, action=last),
        ]
        return Workflow("pair", steps)

    source = failed(world, definition(two, "refuse"))
    plan, _ = gone_on(world, source, definition(dict(reversed(two.items())), "note"))
    assert (plan.reused, MADE) == (1, [3])


@pytest.mark.parametrize("front", ["script", "action"])
def test_a_step_inserted_at_the_front_keeps_no_prefix_but_all_results(world, front):
    source = failed(world, pay("refuse"))
    inserted = Step("z", script="1", next=["a"]) if front == "script" else call("z", 9, "a")
    plan, again = gone_on(world, source, pay(front=[inserted]))
    assert again.status == "completed"
    assert plan.at == 1
    if front == "script":
        assert (plan.reused, len(plan.live), MADE) == (2, 1, [3, 4])
    else:  # what follows from a call is not known before it, but what is at hand is
        assert (plan.reused, len(plan.live), plan.at_hand, MADE) == (0, 1, 2, [9, 3, 4])


def test_a_renamed_step_is_not_done_again(world):
    source = failed(world, pay("refuse"))
    plan, _ = gone_on(world, source, pay(second="bee"))
    assert (plan.reused, MADE) == (2, [3, 4])


def test_a_retry_that_was_added_tries_again_behind_the_failure_that_is_kept(world):
    source = failed(world, pay("refuse"))
    _, again = gone_on(world, source, pay("refuse", retry=Retry(2, seconds=0.0)))
    assert again.status == "failed"
    assert sum(isinstance(event.data, catalog.StepRetried) for event in again.history()) == 1


def test_of_items_only_the_one_that_failed_and_those_behind_it_are_made(world):
    def definition(action):
        return Workflow("items", [call("each", "$(item)", action=action, each=Each("$(range(10))", as_="item"))])

    source = failed(world, definition("odd"))
    corrected = call("each", "$(item + (100 if item == 7 else 0))", action="odd", each=Each("$(range(10))", as_="item"))
    plan, again = gone_on(world, source, Workflow("items", [corrected]))
    assert (again.status, MADE) == ("completed", [107, 8, 9])
    assert (plan.reused, len(plan.live)) == (7, 1)


def test_what_a_parallel_branch_did_behind_the_failure_is_not_done_again(world):
    def definition(action):
        steps = [
            Step("split", script="1", next=["left", "right"]),
            call("left", 1, action=action),
            call("right", 2, "more"),
            call("more", 3, "most"),
            call("most", 4),
        ]
        return Workflow("branches", steps)

    source = failed(world, definition("slow"))
    done = {event.data.operation_id for event in source.history() if isinstance(event.data, catalog.OperationCompleted)}
    plan, again = gone_on(world, source, definition("note"))
    assert again.status == "completed"
    assert not done & {operation for *_, operation in live_in(again, plan.at)}
    assert {(kind.operation_type, kind.step) for kind in plan.live} <= {
        (kind, step) for kind, step, _ in live_in(again, plan.at)
    }


def test_people_are_not_asked_again_what_they_have_answered(world):
    def definition(front, action):
        steps = [*front, Step("who", ask="Who?", store="who", next=["c"]), call("c", "$(state.who)", action=action)]
        return Workflow("asks", steps)

    world.add_workflow(definition([], "refuse"))
    source = world.start("asks").wait(20)
    source.answer(source.open_questions[0].id, "Ada").wait(20)
    plan, again = gone_on(world, source.refresh(), definition([Step("z", script="1", next=["who"])], "note"))
    assert (again.status, MADE) == ("completed", ["Ada"])
    assert (plan.reused, plan.asked, plan.kinds) == (1, (), {"answer": 1})


def test_an_open_question_is_asked_in_what_goes_on_and_the_old_one_is_cancelled(world):
    def definition(last):
        steps = [call("a", 1, "who"), Step("who", ask="Who?", store="who", next=["c"]), call("c", last)]
        return Workflow("asks", steps)

    world.add_workflow(definition(1))
    source = world.start("asks").wait(20)
    MADE.clear()
    plan, again = gone_on(world, source, definition(2))
    assert (plan.asked, plan.behind, again.status) == (("who",), ("c",), "waiting")
    assert source.refresh().status == "cancelled"
    again.answer(again.open_questions[0].id, "Ada").wait(20)
    assert (again.status, MADE) == ("completed", [2])


def test_a_child_that_completed_is_not_run_again(world):
    world.add_workflow(Workflow("child", [call("inside", 5)], outputs=["inside"]))

    def definition(action):
        steps = [
            Step("sub", workflow="child", store="sub", next=["c"]),
            call("c", 3, action=action),
        ]
        return Workflow("parent", steps)

    source = failed(world, definition("refuse"))
    plan, again = gone_on(world, source, definition("note"))
    assert (again.status, MADE, plan.reused) == ("completed", [3], 1)


def test_an_agent_that_was_changed_is_asked_anew_and_others_are_not():
    agents = [Agent(name, model=ScriptedModel([name]), instructions="old") for name in ("one", "two")]
    asked = [
        Step("first", prompt="Say", agent="one", store="first", next=["second"]),
        Step("second", prompt="Say", agent="two", store="second", next=["c"]),
    ]
    with Environment(store=MemoryStore(), actions=ACTIONS, agents=agents) as world:
        source = failed(world, Workflow("talk", [*asked, call("c", 3, action="refuse")]))
        world.add_agent(Agent("two", model=ScriptedModel(["other"]), instructions="new"), replace=True)
        plan, again = gone_on(world, source, Workflow("talk", [*asked, call("c", 3)]))
        assert again.variables["second"] == "other"
        assert [(found.name, found.step) for found in plan.live] == [("two", "second")]
        assert (plan.reused, plan.behind) == (1, ("c",))
        assert [step for _, step, _ in live_in(again, plan.at)] == ["second", "c"]


def test_a_call_that_was_under_way_is_named_since_it_may_have_taken_effect(world):
    world.add_workflow(pay())
    log = world.start("pay").wait(20).history()
    begun = [event.sequence for event in log if isinstance(event.data, catalog.OperationStarted)][2]
    with Environment(store=MemoryStore(), actions=ACTIONS) as other:
        other.store.append(log[0].execution_id, log[:begun], 0)
        MADE.clear()
        other.add_workflow(replace(pay(), steps=(*pay().steps[:3], call("d", 44))))
        plan, again = gone_on(other, other.run_of(log[0].execution_id))
        assert (again.status, MADE) == ("completed", [3, 44])
        assert [str(found) for found in plan.unsure] == ["action note (step c)"]
        assert "repeated, although the first call may have taken effect: action note (step c)" in plan.lines


def test_what_runs_is_not_taken_over():
    gate = Gate()
    with Environment(store=MemoryStore(), actions=[*ACTIONS, gate.action()]) as world:
        world.add_workflow(Workflow("cut", [Step("g", action="gate", next=["c"]), call("c", 3)]))
        source = world.start("cut")
        assert gate.reached.wait(20)
        with pytest.raises(ExecutionError, match="is running in this process; wait for it or cancel it"):
            world.run_of(source.id).resume(definition="new")
        gate.opened.set()
        source.wait(20)


# --- functions -------------------------------------------------------------------------------------------------------


@step
async def going_note(value):
    MADE.append(value)
    return value


@step
async def going_fail(value):
    raise ValueError(value)


def functions(mended, front):
    """Define a workflow function; return its workflow."""

    @workflow
    async def going(ctx, n: int = 1):
        if front:
            await going_note("front")
        first = await going_note(n)
        both = await ctx.gather(going_note(n + 1), going_note(n + 2))
        if mended:
            return [first, *both, await going_note(n + 3)]
        return await going_fail(first)

    return going


@pytest.mark.parametrize(("front", "made"), [(False, [4]), (True, ["front", 4])], ids=["end", "front"])
def test_an_edited_workflow_function_keeps_what_it_would_do_again(world, front, made):
    try:
        source = failed(world, functions(mended=False, front=False))
        plan, again = gone_on(world, source, functions(mended=True, front=front))
        assert (again.status, MADE) == ("completed", made)
        assert len(plan.live) == 1
        assert plan.reused == (0 if front else 3)
    finally:
        WORKFLOW_FUNCTIONS.pop("going")


# --- what can not go on ----------------------------------------------------------------------------------------------


def test_what_does_nothing_otherwise_says_so(world):
    source = failed(world, pay("refuse"))
    with pytest.raises(SetupError, match=r"makes the same calls.*resume without a definition"):
        world.run_of(source.id).resume(definition="new")


def test_a_definition_that_is_not_here_is_asked_for():
    store = MemoryStore()
    with Environment(store=store, actions=ACTIONS) as world:
        source = failed(world, pay("refuse"))
    with (
        Environment(store=store, actions=ACTIONS) as other,
        pytest.raises(NotFoundError, match="no workflow 'pay' is defined here; define its new version"),
    ):
        other.run_of(source.id).resume(definition="new")


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        (Workflow("other", [Step("a", script="1")]), "cannot continue with 'other'; start 'other' as a separate run"),
        (Workflow("pay", [Step("a", script="1")], inputs=["n"]), "n"),
        ("old", 'definition must be "new" or a Workflow'),
    ],
    ids=["name", "inputs", "word"],
)
def test_a_definition_that_does_not_fit_is_refused_with_the_reason(world, definition, told):
    source = failed(world, pay("refuse"))
    with pytest.raises(Exception, match=told):
        world.run_of(source.id).resume(definition=definition)


def test_what_has_completed_is_not_resumed(world):
    world.add_workflow(pay())
    source = world.start("pay").wait(20)
    with pytest.raises(ExecutionError, match="has completed"):
        world.run_of(source.id).resume(definition=pay("refuse"))
    with pytest.raises(SetupError, match='write definition="new"'):
        world.run_of(source.id).resume(plan=True)


# --- running again ---------------------------------------------------------------------------------------------------


def test_what_has_completed_is_run_again_and_keeps_what_is_the_same(world):
    world.add_workflow(pay())
    source = world.start("pay").wait(20)
    MADE.clear()
    other = replace(pay().steps[2], parameters={"x": 33})
    changed = replace(pay(), steps=(*pay().steps[:2], other, pay().steps[3]))
    world.add_workflow(changed, replace=True)
    plan = world.run_of(source.id).run_again(plan=True)
    again = world.run_of(source.id).run_again().wait(20)
    assert (again.status, MADE, plan.reused, plan.at_hand) == ("completed", [33], 2, 2)


def test_results_of_edited_functions_count_when_resumed_and_not_when_run_again(world):
    async def edited(x: object = 0) -> object:
        MADE.append(f"edited {x}")
        return x

    source = failed(world, pay("refuse"))
    with Environment(store=world.store, actions=[Action("note", edited)]) as later:
        plan, _ = gone_on(later, source, pay())
        assert (MADE, plan.edited) == (["edited 3", "edited 4"], ("action note",))
        MADE.clear()
        later.add_workflow(pay())
        assert later.run_of(source.id).run_again(plan=True).reused == 0
        later.run_of(source.id).run_again().wait(20)
        assert MADE == ["edited 1", "edited 2", "edited 3", "edited 4"]


def test_a_plan_says_that_the_calls_of_a_function_after_its_first_live_call_are_unknown(world):
    fails = [True]

    @step
    def get(x):
        if fails and x == 2:
            raise ValueError("two")
        return x

    @step
    def first(x):
        return x

    @workflow(name="total")
    async def before(ctx):
        return [await get(x) for x in range(3)]

    source = world.start(before).wait(20)
    assert source.status == "failed"
    fails.clear()

    @workflow(name="total")
    async def after(ctx):
        return [await first(0), *[await get(x) for x in range(3)]]

    plan = world.run_of(source.id).resume(definition=after, plan=True)
    assert plan.summary == (
        "0 operations reused, 1 live, then unknown: later calls of total, which may reuse up to 2 more"
    )
    assert (plan.behind, plan.at_hand) == (("later calls of total",), 2)
