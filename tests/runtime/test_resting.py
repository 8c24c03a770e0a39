"""Code that stands where it waits: it goes on there, or is replayed, and both record the same."""

import asyncio
import gc
from dataclasses import asdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Environment
from divebook.definitions.functions import step, workflow
from divebook.engine.state import awaited_signals
from divebook.runtime import runner
from divebook.runtime.loop import ENGINE
from divebook.runtime.runner import PARKED_RUNS, ParkedRun, PausableTask
from divebook.stores import MemoryStore
from tests.runtime.worlds import becomes, environment, unwind

BEGUN, LEFT = [], []
"""What the functions of these tests did: each run of them, and each end by Suspended or an error."""
TURNS = 50


@pytest.fixture(autouse=True)
def fresh():
    unwind()  # what other tests have left waiting
    for found in (BEGUN, LEFT):
        found.clear()
    yield
    unwind()


@step
async def note(text):
    return text


def asking(word="Who?"):
    @workflow("asks")
    async def asks(ctx):
        BEGUN.append(word)
        first = await note("first")
        try:
            return [first, await ctx.ask(word), await note("last")]
        finally:
            LEFT.append(word)

    return asks


def question_of(execution):
    (question,) = execution.open_questions
    return question.id


def standing():
    return ENGINE.call(lambda: len(PARKED_RUNS))


def settle():
    """Let what was let go unwind: it takes a few turns of the loop, however long they are."""

    async def turn():
        for _ in range(TURNS):
            await asyncio.sleep(0)

    ENGINE.submit(turn()).result()


def test_an_answer_finds_the_function_where_it_asked():
    execution = environment().start(asking()).wait(20)
    assert (execution.status, BEGUN, LEFT, standing()) == ("waiting", ["Who?"], [], 1)
    assert execution.store.live_leases() == []
    done = execution.answer(question_of(execution), "ann").wait(20)
    assert (done.outputs, BEGUN, LEFT, standing()) == ({"result": ["first", "ann", "last"]}, ["Who?"], ["Who?"], 0)


@pytest.mark.usefixtures("replayed")
def test_where_there_is_no_room_it_is_let_go_at_once_and_replayed():
    execution = environment().start(asking()).wait(20)
    assert (execution.status, BEGUN, LEFT, standing()) == ("waiting", ["Who?"], ["Who?"], 0)
    done = execution.answer(question_of(execution), "ann").wait(20)
    assert (done.outputs, BEGUN) == ({"result": ["first", "ann", "last"]}, ["Who?", "Who?"])


def test_the_least_recently_used_are_let_go(monkeypatch):
    monkeypatch.setattr(PARKED_RUNS, "most", 2)
    world, asks = environment(), asking()
    waiting = [world.start(asks).wait(20) for _ in range(4)]
    settle()
    assert (standing(), len(LEFT)) == (2, 2)
    for execution in waiting:
        world.answer(question_of(execution), "ann", execution.id).wait(20)
    assert (len(BEGUN), {execution.status for execution in waiting}) == (6, {"completed"})


def test_code_that_waits_in_many_executions_takes_no_more_than_its_room():
    world = environment()
    others = ENGINE.submit(_paths()).result()  # of runs that other tests have left in the middle of a call
    for _ in range(runner.MOST + 40):
        world.start(asking()).wait(20)
    gc.collect()
    assert becomes(lambda: len(ENGINE.submit(_paths()).result() - others) <= runner.MOST)
    assert (standing(), len(ENGINE.submit(_paths()).result() - others)) == (runner.MOST, runner.MOST)


async def _paths():
    return {task for task in asyncio.all_tasks() if task.get_name() == "divebook-paths"}


def test_a_function_that_was_defined_anew_is_replayed():
    world = environment()
    execution = world.start(asking()).wait(20)
    asking()
    done = execution.answer(question_of(execution), "ann").wait(20)
    assert (done.status, BEGUN, LEFT) == ("completed", ["Who?"] * 2, ["Who?"] * 2)


def test_an_answer_reaches_no_other_question_of_a_function_that_was_changed():
    world = environment()
    execution = world.start(asking()).wait(20)
    asking("Whom?")
    failed = execution.answer(question_of(execution), "ann").wait(20)
    assert (failed.status, BEGUN) == ("failed", ["Who?", "Whom?"])
    assert "Whom?" in failed.error


def test_a_step_that_was_changed_has_the_function_replayed():
    def of(number):
        @step
        async def look():
            return number

        return look

    look = of(1)

    @workflow
    async def looks(ctx):
        BEGUN.append("looks")
        before = await look()
        await ctx.ask("Go on?")
        return [before, await look()]

    execution = environment().start(looks).wait(20)
    look = of(2)
    done = execution.answer(question_of(execution), "yes").wait(20)
    assert (done.outputs, len(BEGUN)) == ({"result": [1, 2]}, 2)


def test_what_another_environment_did_meanwhile_is_replayed():
    @workflow
    async def asks_twice(ctx):
        BEGUN.append("asks_twice")
        return [await ctx.ask("One?"), await note("between"), await ctx.ask("Two?")]

    store = MemoryStore()
    here, there = Environment(store=store), Environment(store=store)
    execution = here.start(asks_twice).wait(20)
    there.answer(question_of(execution), "1").wait(20)
    execution.refresh()
    done = here.answer(question_of(execution), "2", execution.id).wait(20)
    assert (done.outputs, len(BEGUN)) == ({"result": ["1", "between", "2"]}, 3)


def test_to_resume_is_to_replay():
    execution = environment().start(asking()).wait(20)
    resumed = execution.resume().wait(20)
    assert (resumed.status, len(BEGUN), len(LEFT), standing()) == ("waiting", 2, 1, 1)
    assert resumed.answer(question_of(resumed), "ann").wait(20).status == "completed"
    assert len(BEGUN) == 2


def test_a_cancelled_execution_leaves_nothing_standing():
    execution = environment().start(asking()).wait(20)
    execution.cancel().wait(20)
    assert (execution.status, LEFT, standing()) == ("cancelled", ["Who?"], 0)
    again = execution.resume().wait(20)
    assert again.answer(question_of(again), "ann").wait(20).status == "completed"


def test_a_closed_environment_leaves_nothing_standing():
    world, other = environment(), environment()
    execution, stays = world.start(asking()).wait(20), other.start(asking("Where?")).wait(20)
    world.close()
    assert (execution.status, LEFT, standing()) == ("waiting", ["Who?"], 1)
    assert stays.answer(question_of(stays), "here").wait(20).status == "completed"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_all_who_wait_for_code_that_was_let_go_are_there_until_its_end(order):
    """As the close of an environment and a cancellation do, while more of the same execution is let go."""

    class Left:
        parked_tasks = 1

        def __init__(self, apart):
            self.unwind = lambda: apart

    async def wait_beside_one_another():
        ends = [asyncio.Event() for _ in order]
        aparts = [PausableTask() for _ in order]
        for apart, end in zip(aparts, ends, strict=True):
            apart.begin(end.wait())
        at_rest, waiting = ParkedRun(None), []
        for apart in aparts:
            PARKED_RUNS.keep(at_rest, Left(apart))
            at_rest.unwind()
            waiting += [asyncio.create_task(at_rest.wait_end()) for _ in range(2)]
            await asyncio.sleep(0)
        for number in order:
            assert not any(one.done() for one in waiting)
            ends[number].set()
            for _ in range(TURNS):
                await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*waiting, at_rest.wait_end()), 5)
        assert all(apart.has_ended for apart in aparts)

    asyncio.run(wait_beside_one_another())


def test_the_end_of_the_engine_unwinds_what_stands_still():
    ended = []

    @workflow
    async def gathers(ctx):
        try:
            await ctx.gather(ctx.ask("One?"), ctx.ask("Two?"))
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    execution = environment().start(gathers).wait(20)
    assert (execution.status, standing()) == ("waiting", 2)
    ENGINE.stop()
    assert (ended, standing()) == (["Suspended"], 0)


@pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")
def test_a_time_limit_of_the_functions_own_is_refused_and_asks_nothing():
    @workflow
    async def hurries(ctx):
        BEGUN.append("hurries")
        try:
            async with asyncio.timeout(0.02):
                return await ctx.ask("Who?")
        except TimeoutError:
            return await note("too late")

    execution = environment().start(hurries).wait(20)
    assert (execution.status, execution.open_questions, standing()) == ("failed", [], 0)
    assert "`ctx.ask(..., expires_in=seconds)`" in execution.error


def test_nothing_is_recorded_by_code_that_is_let_go():
    @workflow
    async def tidies(ctx):
        try:
            return await ctx.ask("Who?")
        finally:
            await note("tidied")

    world = environment()
    execution = world.start(tidies).wait(20)
    before = len(execution.history())
    unwind()
    assert (len(execution.refresh().history()), execution.status) == (before, "waiting")
    assert execution.answer(question_of(execution), "ann").wait(20).outputs == {"result": "ann"}


def test_tasks_of_the_functions_own_go_on_where_they_are_and_are_replayed():
    @step(approval=True)
    async def pay(amount):
        return amount

    @workflow
    async def side_by_side(ctx):
        BEGUN.append("side_by_side")
        return await asyncio.gather(note("a"), pay(5), note("b"))

    execution = environment().start(side_by_side).wait(20)
    assert (execution.status, standing()) == ("waiting", 0)
    done = execution.answer(question_of(execution), True).wait(20)
    assert (done.outputs, len(BEGUN)) == ({"result": ["a", 5, "b"]}, 2)


# --- both ways record the same ---------------------------------------------------------------------------------------

CALLS = st.sampled_from(["note", "ask", "confirm", "signal", "late", "now", "random", "emit"])
GATHERED = st.recursive(CALLS, lambda part: st.lists(part, min_size=2, max_size=3).map(tuple), max_leaves=5)
PROGRAMS = st.lists(GATHERED | st.just("version"), min_size=1, max_size=4)
OF_CHANCE = {"seed", "interrupt_id", "result", "value", "source"}
"""What differs between two runs of one program, whatever they are."""


class Still:
    """A clock that stands still."""

    def now(self):
        return 1_700_000_000_000_000

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


async def carry_out(ctx, part, name):
    if isinstance(part, list | tuple):
        return await ctx.gather(*[carry_out(ctx, each, f"{name}.{number}") for number, each in enumerate(part)])
    if part == "emit":
        return ctx.emit(name, {"at": name})
    made = {
        "note": lambda: note(name),
        "ask": lambda: ctx.ask(f"What about {name}?"),
        "confirm": lambda: ctx.confirm(f"Sure of {name}?"),
        "signal": lambda: ctx.wait_signal(name),
        "late": lambda: ctx.ask(f"In time for {name}?", expires_in=3600, default="in time"),
        "version": lambda: ctx.version(name, 1, 2),
        "now": ctx.now,
        "random": ctx.random,
    }
    return [type(await made[part]()).__name__, await note(f"{name} again")]


@workflow("program_of_parts")
async def program_of_parts(ctx, program):
    BEGUN.append(program)
    return [await carry_out(ctx, part, str(number)) for number, part in enumerate(program)]


def lived(program, order):
    """Return what an execution of a program records, answered one thing after the other, and how often it began."""
    BEGUN.clear()
    execution = Environment(store=MemoryStore(), clock=Still()).start(program_of_parts, {"program": program}).wait(20)
    while execution.status == "waiting":
        asked, signals = (
            sorted(execution.open_questions, key=lambda asked: asked.question),
            [found.name for found in awaited_signals(execution.state)],
        )
        chosen = order.choice([*asked, *signals])
        if isinstance(chosen, str):
            execution.signal(chosen, "went").wait(20)
        else:
            execution.answer(chosen.id, True if chosen.kind == "confirmation" else "so").wait(20)
    facts = [(event.event_type, event.path, event.step, plain(asdict(event.data))) for event in execution.history()]
    return facts, execution.status, len(BEGUN)


def plain(data):
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items() if key not in OF_CHANCE}
    return [plain(value) for value in data] if isinstance(data, list | tuple) else data


@settings(max_examples=25)
@given(program=PROGRAMS, seed=st.integers(0, 1000))
def test_what_went_on_in_memory_and_what_was_replayed_record_the_same(program, seed):
    stood = lived(program, Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PARKED_RUNS, "most", 0)
        replayed = lived(program, Random(seed))
    assert stood[:2] == replayed[:2]
    assert stood[1:] == ("completed", 1)
