"""What if: one change, everything else from the log; nothing reaches the outside that it may not reach."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import OperationError, ReplayMismatchError, SetupError, SourceGoneError
from divebook.events import catalog
from divebook.events.codec import encode_line
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

CALLS = Counter()
NUMBER = []


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()
    NUMBER.clear()


async def double(x: object = 0) -> object:
    CALLS["double"] += 1
    return x * 2


async def number(x: object = 0) -> int:
    CALLS["number"] += 1
    NUMBER.append(x)
    mine = len(NUMBER)
    await asyncio.sleep(0)
    return mine


ACTIONS = [Action("double", double), Action("number", number)]


def world(*workflows):
    return Environment(store=MemoryStore(), workflows=workflows, actions=ACTIONS)


def ran(environment, definition, inputs=None):
    """Run a workflow; return the execution and its log as bytes."""
    source = environment.start(definition, inputs or {}).wait(20)
    CALLS.clear()
    return source, [encode_line(event) for event in source.history()]


def line(*names, **special):
    """Return steps one after the other, each an action on the result of the one before."""
    following = dict(zip(names, [*names[1:], None], strict=True))
    return [
        special.get(name)
        or Step(name, action="double", parameters={"x": "$(inputs.n)"}, store=name, next=[after] if after else [])
        for name, after in following.items()
    ]


LINE = Workflow("line", line("one", "two", "three"), inputs=["n"], outputs=["three"])
PARALLEL = Workflow(
    "parallel",
    [
        Step("a", action="number", each=Each([1] * 4, as_="i", parallel=3), store="l"),
        Step("b", script="1", next=["c", "d"]),
        Step("c", action="number", store="c", next=["e"]),
        Step("e", action="number", store="e", next=["j"]),
        Step("d", action="number", store="d", next=["j"]),
        Step("j", script="[state.l, state.c, state.d, state.e]", join=True, store="total"),
    ],
    outputs=["total"],
)


def test_without_a_change_everything_comes_from_the_log():
    with world(LINE) as environment:
        source, before = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if()
        assert (found.run.status, found.outputs, found.served, found.diff) == ("completed", {"three": 4}, 3, None)
        assert (found.live, found.blocked, found.unused, found.comparable) == (0, 0, 0, "full")
        assert not CALLS
        assert [encode_line(event) for event in source.history()] == before


def test_what_has_no_recorded_result_is_not_executed_and_its_step_is_told_so():
    with world(LINE) as environment:
        source, before = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if({"inputs": {"n": 3}})
        assert found.run.status == "failed"
        assert "not executed in a what-if: no recorded result for these arguments" in found.run.error
        assert (found.served, found.blocked, found.unused, found.comparable) == (0, 1, 3, "partly")
        assert not CALLS
        assert [encode_line(event) for event in source.history()] == before


def test_with_live_tools_it_is_executed():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if({"inputs": {"n": 3}}, tools="live")
        assert (found.outputs, found.live, CALLS["double"]) == ({"three": 6}, 3, 3)
        assert found.diff.text.endswith("[-2-]{+3+}"), found.diff.text


def test_equal_calls_on_parallel_paths_keep_their_own_results():  # trap 17
    with world(PARALLEL) as environment:
        for _ in range(8):
            source, _ = ran(environment, PARALLEL)
            NUMBER.clear()
            found = environment.run_of(source.id).what_if()
            assert (found.outputs, found.diff) == (source.outputs, None)
        assert not CALLS


def test_a_what_if_is_no_plain_run_and_is_never_taken_up_by_itself():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if({"inputs": {"n": 3}})
        record = environment.store.record(found.run.id)
        assert (record.origin, record.parent) == ("what-if", source.id)


def test_a_source_that_its_definition_no_longer_leads_to_is_unfaithful():
    answers = [7]

    @step
    async def counted():
        return 1

    @workflow("drifts")
    async def drifts(ctx):
        return [await counted()] * answers[0]

    with Environment(store=MemoryStore()) as environment:
        source = environment.start(drifts).wait(20)
        answers[0] = 8
        with pytest.raises(
            ReplayMismatchError,
            match=r"even a replay without changes differs from its log\. .* result: .*1, 1\{\+, 1\+\}\]",
        ):
            environment.run_of(source.id).what_if()


def test_what_cannot_be_changed_is_refused():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        with pytest.raises(SetupError, match="no input 'm'"):
            environment.run_of(source.id).what_if({"inputs": {"m": 3}})
        with pytest.raises(SetupError, match="recorded, read-only, live"):
            environment.run_of(source.id).what_if(tools="sometimes")
        with pytest.raises(SetupError, match="events, 1 to 19, not 4000"):
            environment.run_of(source.id).what_if(at=4000)
        with pytest.raises(SetupError, match="no variable of that name"):
            environment.run_of(source.id).what_if({"variables": {"nothing": 1}})
        with pytest.raises(SetupError, match=r"no option 'tool' \(did you mean 'tools'\?\)"):
            environment.run_of(source.id).what_if(tool="live")
        with pytest.raises(SetupError, match="at least once, not 0 times"):
            environment.run_of(source.id).what_if(repeat=0)


def test_a_plan_names_what_would_be_live_without_a_call():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        plan = environment.run_of(source.id).what_if({"inputs": {"n": 3}}, tools="live", plan=True)
        assert not CALLS
        assert [(call.name, call.step) for call in plan.live] == [("double", "one")]
        assert (plan.reused, plan.unknown) == (0, ("two", "three"))
        assert plan.summary == "0 operations reused, 1 live, about $0.00, then unknown: two, three"
        assert len(environment.store.records()) == 1


def test_sleeps_are_skipped_and_clock_and_chance_go_on():  # trap 20
    @workflow("clocked")
    async def clocked(ctx, again: bool = False):
        seen = [await ctx.now(), await ctx.random()]
        await ctx.sleep(0.01)
        seen += [await ctx.now(), await ctx.random()]
        return [*seen, await ctx.now(), await ctx.random()] if again else seen

    with Environment(store=MemoryStore()) as environment:
        source = environment.start(clocked).wait(20)
        found = environment.run_of(source.id).what_if()
        assert (found.outputs, found.tally.skipped) == (source.outputs, 1)
        first, second = (environment.run_of(source.id).what_if({"inputs": {"again": True}}) for _ in range(2))
        (old,), (new,) = source.outputs.values(), first.outputs.values()
        assert new[:4] == old
        assert new[4] >= old[2]
        assert new[5] == next(iter(second.outputs.values()))[5]


class SteppingClock:
    """A clock that moves by one second with each call of `tick`."""

    def __init__(self, now=1_700_000_000_000_000):
        self.time = now

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += int(seconds * 1_000_000)
        await asyncio.sleep(0)


def clocked(clock):
    """Return an environment with a workflow that reads the time before and after each of its calls, in seconds."""

    @step  # the parameter makes it repeatable; declared idempotent, it would share commits with other calls
    async def tick(number: int, idempotency_key: str = "") -> int:
        clock.time += 1_000_000
        return number

    @workflow("clocked")
    async def reads(ctx, readings: int = 2, changed: int = 0):
        seen = [await ctx.now()]
        for number in range(1, readings):
            await tick(number + changed)
            seen.append(await ctx.now())
        return [(moment - seen[0]).total_seconds() for moment in seen]

    return Environment(store=MemoryStore(), workflows=[reads], clock=clock), reads


@pytest.mark.parametrize("change", [{"readings": 6}, {"readings": 6, "changed": 10}])
def test_the_clock_of_a_what_if_is_as_fast_as_the_real_one_also_after_a_restart(change):
    """The first two readings are recorded; the what-if derives the others, and makes its calls live."""
    clock = SteppingClock()
    environment, definition = clocked(clock)
    with environment:
        source = environment.start(definition).wait(20)
        commits = []
        environment.store.subscribe(lambda name, events: commits.append((name, events[-1].sequence)))
        clock.time += 3_600_000_000
        found = environment.run_of(source.id).what_if({"inputs": change}, tools="live").run
        whole = list(found.history())
        (seconds,) = found.outputs.values()
    # A recorded answer takes no time, so that only the readings after live calls are later than the ones before.
    assert seconds == [0, 1, 2, 3, 4, 5]
    cuts = [sequence for name, sequence in commits if name == found.id][:-1]
    assert len(cuts) >= 5
    for cut in cuts:
        clock = SteppingClock(whole[cut - 1].recorded_at)
        again, _ = clocked(clock)
        with again:
            again.store.append(source.id, list(source.history()), 0)
            again.store.append(found.id, whole[:cut], 0)
            assert again.run_of(found.id).resume().wait(20).outputs == found.outputs, cut


def test_the_log_says_where_each_result_is_from():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if()
        told = [e.data.served for e in found.run.history() if isinstance(e.data, catalog.OperationCompleted)]
        ends = [e.sequence for e in source.history() if isinstance(e.data, catalog.OperationCompleted)]
        assert told == [{"execution": source.id, "sequence": sequence} for sequence in ends]


def test_a_what_if_is_told_in_words_and_as_a_page_with_both_lanes():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        found = environment.run_of(source.id).what_if({"inputs": {"n": 3}})
        first, second, *_ = str(found).splitlines()
        assert first == "what-if changed: inputs (n), from event 2 on; failed"
        assert second == (
            "0 replayed from the log, 0 live, 1 blocked, 3 recorded results unused, cost $0.00; "
            "comparable: partly, since it was blocked"
        )
        assert "blocked: action double, step one" in str(found)
        page = found._repr_html_()
        assert page.index("what-if</span>") < page.index("First difference") < page.index("not in this run")
        assert [(call.way, call.what, call.step) for call in found.calls] == [("blocked", "action double", "one")]
        several = environment.run_of(source.id).what_if({"inputs": {"n": 3}}, tools="live", repeat=2)
        assert str(several).count('{"three": 6}') == several._repr_html_().count("{&quot;three&quot;: 6}") == 2


def test_a_plan_says_what_would_be_blocked():
    with world(LINE) as environment:
        source, _ = ran(environment, LINE, {"n": 2})
        plan = environment.run_of(source.id).what_if({"inputs": {"n": 3}}, plan=True)
        assert plan.summary == "0 operations reused, 0 live, 1 blocked"
        for count in (0, True, "2"):
            with pytest.raises(SetupError, match="at least once"):
                environment.run_of(source.id).what_if(repeat=count)


def test_the_same_call_twice_is_answered_in_order_whatever_the_order_of_its_arguments():
    """Trap 17: a what-if at other places takes the oldest equal call first; null is not absent, and 1 is 1.0."""
    given = [{"x": 1, "y": None}, {"x": 1.0, "y": None}, {"x": 1}]
    turned = [{"y": None, "x": 1.0}, {"y": None, "x": 1}, {"x": 1.0}]

    def calling(parameters, prefix):
        names = [f"{prefix}{place}" for place in range(3)]
        steps = [
            Step(name, action="told", parameters=told, store=f"v{place}", next=names[place + 1 : place + 2])
            for place, (name, told) in enumerate(zip(names, parameters, strict=True))
        ]
        steps[-1] = replace(steps[-1], next=["end"])
        return Workflow("calling", [*steps, Step("end", script="[state.v0, state.v1, state.v2]", store="all")])

    made = []

    async def told(x: object = 0, y: object = "none") -> list:
        made.append(y)
        return [len(made), y]

    with Environment(store=MemoryStore(), actions=[Action("told", told)]) as environment:
        source = environment.start(calling(given, "a")).wait(20)
        found = environment.run_of(source.id).what_if({"definition": calling(turned, "b")})
        assert found.run.variables["all"] == source.variables["all"] == [[1, None], [2, None], [3, "none"]]
        assert (found.served, found.blocked, found.unused, len(made)) == (3, 0, 0, 3)
        missing = environment.run_of(source.id).what_if({"definition": calling([{"x": 1, "y": "none"}] * 3, "c")})
        assert (missing.served, missing.blocked, len(made)) == (0, 1, 3)


@pytest.mark.parametrize(
    ("parallel", "live", "unknown"), [(1, 1, ("one (3 more items)", "then")), (3, 4, ("then",))], ids=["one", "three"]
)
def test_a_plan_names_the_items_behind_those_it_would_do(parallel, live, unknown):
    call = {"action": "double", "parameters": {"x": "$(state.i * inputs.n)"}}
    each = Each([1, 2, 3, 4], as_="i", parallel=parallel)
    flow = Workflow(
        "all", [Step("one", **call, each=each, store="l"), Step("then", script="1", store="m")], inputs=["n"]
    )
    with world(flow) as environment:
        source, _ = ran(environment, flow, {"n": 1})
        plan = environment.run_of(source.id).what_if({"inputs": {"n": 10}}, tools="live", plan=True)
        assert (len(plan.live), plan.unknown) == (live, unknown)
        assert not CALLS


def test_a_what_if_whose_source_was_deleted_says_so_and_stays_as_it_is():
    def asking(question):
        return Workflow("asking", [Step("ask", ask=question, store="said"), Step("then", action="double", store="n")])

    with world(asking("Which?")) as environment:
        source = environment.start("asking").wait(20)
        source.answer(source.open_questions[0].id, "this").wait(20)
        found = environment.run_of(source.id).what_if({"definition": asking("Which one?")}).run
        (question,) = found.open_questions
        environment.store.delete(source.id)
        CALLS.clear()
        with pytest.raises(
            SourceGoneError,
            match=(f"execution {source.id}, was deleted, so its recorded results are gone. Start it again from"),
        ):
            found.answer(question.id, "that").wait(20)
        assert (environment.run_of(found.id).status, CALLS) == ("waiting", Counter())
        assert environment.store.leases() == []
        with pytest.raises(SourceGoneError):  # and not that this process drives it
            environment.run_of(found.id).resume().wait(20)


@step(retry=3)
async def doubled(x: int) -> int:
    return await double(x)


@workflow
async def retries_a_call(ctx, n: int):
    return await doubled(n)


@workflow
async def catches_a_call(ctx, n: int):
    try:
        return await doubled(n)
    except OperationError as error:
        return error.is_blocked and str(error)


RETRIED = {
    "a step": Workflow(
        "w", line("one", one=Step("one", action="double", parameters={"x": "$(inputs.n)"}, retry=3)), inputs=["n"]
    ),
    "an item": Workflow(
        "w",
        [Step("one", action="double", parameters={"x": "${i}"}, retry=3, each=Each("$([inputs.n])", as_="i"))],
        inputs=["n"],
    ),
    "a call": retries_a_call,
    "a caught call": catches_a_call,
}


@pytest.mark.parametrize("name", RETRIED)
def test_a_call_that_is_not_executed_is_not_tried_again(name):
    flow = RETRIED[name]
    with world() as environment:
        source, _ = ran(environment, flow, {"n": 2})
        what_if = source.what_if({"inputs": {"n": 3}})
        trial = source.try_step(flow.steps[0].name, inputs={"n": 3})
        for run in (what_if.run, *trial.runs):
            ends = Counter(type(event.data) for event in run.history())
            assert (ends[catalog.OperationFailed], ends[catalog.StepRetried]) == (1, 0)
        assert what_if.blocked == 1
        assert what_if.run.status == ("completed" if name == "a caught call" else "failed")
        assert not CALLS
