"""Where a person's functions run: as the step says, else the function, else the environment; and what is refused."""

import asyncio
import functools
import os
import signal
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.reader import read_workflow
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.runtime.clock import SystemClock
from divebook.runtime.compute.processes import Processes
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from divebook.steps.actions import action as make_action
from tests.runtime.worlds import becomes, environment, event_types

POOL = Processes(1)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each process would import pytest and all of this


@pytest.fixture(scope="session", autouse=True)
def _pool():
    # At the end of the session: a worker of the test run may leave this module and come back to it.
    yield
    POOL.close()


def where():
    return os.getpid()


def test_a_step_says_where_before_its_function_and_that_before_the_environment():
    functions = [
        Action("plain", where),
        Action("there", where, executor="process"),
        Action("here", where, executor="thread"),
    ]
    executors = [None, "process", "thread"]
    steps = [
        Step(f"{function.name} {asked}", action=function.name, executor=asked, store=f"{function.name}_{asked}")
        for function in functions
        for asked in executors
    ]
    for default, plain in ((None, True), (POOL, False)):
        with environment(actions=functions, executor=default) as world:
            found = world.start(Workflow("w", steps)).wait(60).variables
        assert {name: pid == os.getpid() for name, pid in found.items()} == {
            "plain_None": plain, "plain_process": False, "plain_thread": True,
            "there_None": False, "there_process": False, "there_thread": True,
            "here_None": True, "here_process": False, "here_thread": True,
        }  # fmt: skip


def test_an_executor_is_named_in_yaml_and_must_be_known():
    text = "{Name: w, Steps: [{Name: a, Action: where, Executor: cores, Store: pid}]}"
    world = environment(read_workflow(text), actions=[Action("where", where)])
    with pytest.raises(NotFoundError, match=r"executor not found: cores .*process"):
        world.start("w")
    world.add_executor("cores", POOL)
    assert world.start("w").wait(30).variables["pid"] != os.getpid()


def test_executors_that_make_no_sense_are_refused_where_they_are_written():
    with pytest.raises(SetupError, match=r"an executor must be a name \(thread, process\), a .*, not 3"):
        Environment(store="memory:", executor=3)
    for near in ("localhost:8786", "http://localhost:8786"):
        with pytest.raises(
            SetupError, match=f"'{near}' is not an executor: the address of .* Dask scheduler is tcp://HOST:PORT"
        ):
            Environment(store="memory:", executor=near)
    with pytest.raises(DefinitionError, match="executor of where must be a name"):
        step(executor=3)(where)

    async def waiting():
        """Do nothing."""

    with pytest.raises(DefinitionError, match="is async, so it runs on the engine's loop"):
        step(executor="process")(waiting)
    with pytest.raises(DefinitionError, match="takes a context, which cannot be passed to another process"):
        make_action(name="emit", executor="process")(lambda context: context.emit("x"))
    with pytest.raises(DefinitionError, match="Executor has no effect on a step of type script"):
        Workflow("w", [Step("s", script="1", executor="process")])


def test_what_only_this_process_has_is_refused_at_the_call_or_stays():
    def emit(context):
        context.emit("here", os.getpid())

    async def waiting():
        """Do nothing."""

    actions = [Action("emit", emit), Action("wait", waiting)]
    assert (
        environment(actions=actions, executor=POOL).start(Workflow("w", [Step("s", action="emit")])).wait(30).status
        == "completed"
    )
    for name, told in (("emit", "takes an argument that exists only in this process"), ("wait", "is async")):
        asked = Workflow("w", [Step("s", action=name, executor="process")])
        execution = environment(actions=actions, executor=POOL).start(asked).wait(30)
        assert told in execution.error
        assert "operation_started" not in event_types(execution)


EXECUTORS = {
    "threads": lambda: ThreadPoolExecutor(1),
    "processes": lambda: ProcessPoolExecutor(1),
    "ours": lambda: Processes(1),
}


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("repeatable", [False, True])
def test_a_call_begins_and_its_time_limit_when_it_has_a_worker(kind, repeatable, tmp_path):
    """Also where one before it has lost its time, but not yet its worker: nobody is asked about one that never ran."""

    def call(number):
        with (tmp_path / "calls").open("a") as calls:
            calls.write(f"{number} ")
        if number == 0:
            Path(tmp_path / "go on").read_text()
        return number

    os.mkfifo(tmp_path / "go on")
    clock, pool = Alarm(), EXECUTORS[kind]()
    made = step(timeout=60, idempotent=repeatable)(call)

    @workflow
    async def queued(ctx):
        return await ctx.gather(*[made(number) for number in range(3)], return_exceptions=True)

    with environment(queued, clock=clock, executor=pool) as world:
        execution = world.start("queued")
        assert becomes(lambda: (tmp_path / "calls").exists() and (tmp_path / "calls").read_text() == "0 ")
        # An idempotent call may begin before its start is in the store.
        assert becomes(lambda: event_types(execution).count("operation_started") == 1)
        clock.ring_once()
        if kind != "ours":  # which has killed it
            (tmp_path / "go on").write_text("")
        execution = execution.wait(30)
        assert (tmp_path / "calls").read_text() == "0 1 2 "
        assert len(execution.open_questions) == (not repeatable)
        ended = [e.data.result for e in execution.history() if e.event_type == "operation_completed"]
        assert ended == [1, 2]
    (pool.close if kind == "ours" else pool.shutdown)()


class Alarm(SystemClock):
    """A clock whose alarms ring when the test says so, those that are set by then."""

    def __init__(self):
        self._alarms = []

    async def sleep(self, seconds):
        self._alarms.append(alarm := asyncio.Event())
        await alarm.wait()

    def ring_once(self):
        ENGINE.submit(self._ring()).result()

    async def _ring(self):
        for alarm in self._alarms:
            alarm.set()


def test_an_executor_that_does_not_say_how_many_workers_it_has_is_handed_all_calls():
    class Plain(Executor):
        def submit(self, function, *args, **kwargs):
            ended = Future()
            ended.set_result(function(*args, **kwargs))
            return ended

    made = step()(where)

    @workflow
    async def three(ctx):
        return await ctx.gather(made(), made(), made())

    with environment(three, executor=Plain()) as world:
        assert world.start("three").wait(30).outputs["result"] == [os.getpid()] * 3


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_worker_that_dies_concerns_the_call_that_it_made(repeatable, tmp_path):
    def call(number):
        with (tmp_path / "calls").open("a") as calls:
            calls.write(f"{number} ")
        if number == 1 and (tmp_path / "calls").read_text().count("1") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    made = step(idempotent=repeatable)(call)

    @workflow
    async def several(ctx):
        return await ctx.gather(*[made(number) for number in range(4)])

    with environment(several, executor=functools.partial(ProcessPoolExecutor, 1)) as world:
        execution = world.start("several").wait(60)
        assert [question.kind for question in execution.open_questions] == ([] if repeatable else ["outcome_unknown"])
    made = (tmp_path / "calls").read_text()
    assert made == ("0 1 1 2 3 " if repeatable else "0 1 2 3 ")


def test_a_given_executor_that_is_broken_for_good_is_named_and_with_what_to_do():
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    with environment(executor=ProcessPoolExecutor(1), actions=[Action("die", die, idempotent=True)]) as world:
        error = world.start(Workflow("w", [Step("s", action="die")])).wait(60).error
    assert 'action "die" may or may not have taken effect: BrokenProcessPool' in error
    assert "ProcessPoolExecutor accepts no more calls" in error
    assert "Pass the environment a function that returns a new executor" in error


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_a_call_in_a_thread_of_a_given_executor_comes_to_its_end_as_in_any_thread(how, tmp_path):
    os.mkfifo(tmp_path / "there")
    os.mkfifo(tmp_path / "go on")

    def charge():
        (tmp_path / "there").write_text("there")
        return (tmp_path / "go on").read_text()

    def refuse():
        (tmp_path / "there").read_text()
        raise ValueError("no")

    charged, refused = step(idempotent=True)(charge), step(executor="thread")(refuse)

    @workflow
    async def pair(ctx):
        await (charged() if how == "is cancelled" else ctx.gather(charged(), refused()))

    with ThreadPoolExecutor(2) as pool, environment(pair, executor=pool) as world:
        execution = world.start("pair")
        if how == "is cancelled":
            (tmp_path / "there").read_text()
            execution.cancel()
        (tmp_path / "go on").write_text("charged")
        execution = execution.wait(30)
        assert execution.status == ("cancelled" if how == "is cancelled" else "failed")
        ended = [e.data.result for e in execution.history() if e.event_type == "operation_completed"]
        assert ended == ["charged"]


def test_a_call_that_an_executor_takes_back_was_not_made():
    class Full(ThreadPoolExecutor):
        """One whose workers are busy with other things, and that is shut down meanwhile."""

        def submit(self, *args, **kwargs):
            ended = Future()
            ended.cancel()
            return ended

    with environment(executor=Full(1), actions=[Action("where", where)]) as world:
        error = world.start(Workflow("w", [Step("s", action="where")])).wait(30).error
    assert 'action "where" was not called: Full was shut down while the call waited in it' in error


def test_an_executor_that_takes_no_calls_any_more_fails_those_that_come():
    pool = ProcessPoolExecutor(1)
    pool.shutdown()
    execution = environment(executor=pool, actions=[Action("where", where)]).start(
        Workflow("w", [Step("s", action="where")])
    )
    assert (
        "was not called: ProcessPoolExecutor accepts no more calls: cannot schedule new futures"
        in execution.wait(30).error
    )


class Fragile(ThreadPoolExecutor):
    """An executor that breaks with its first call, and takes no further one."""

    def submit(self, *args, **kwargs):
        found = super().submit(*args, **kwargs)
        self.shutdown()
        return found


def test_an_executor_that_is_made_here_is_made_anew_after_it_broke_and_closed_in_the_end():
    made = []

    def make():
        made.append(Fragile(1))
        return made[-1]

    steps = [Step(name, action="where", store=name) for name in ("a", "b")]
    with environment(executor=make, actions=[Action("where", where)]) as world:
        assert made == []
        assert world.start(Workflow("w", steps)).wait(30).variables == {"a": os.getpid(), "b": os.getpid()}
    assert len(made) == 2
    assert all(pool._shutdown for pool in made)
