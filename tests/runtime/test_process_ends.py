"""The ends of processes: one may die, or be killed with a call, and its children with it."""

import asyncio
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import cloudpickle
import pytest

from divebook import Step, Workflow
from divebook.definitions import step, workflow
from divebook.runtime.clock import SystemClock
from divebook.runtime.compute.processes import Processes
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from tests.runtime import worlds

POOL = Processes(2)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each process would import pytest and all of this
environment = functools.partial(worlds.environment, executor=POOL)


@pytest.fixture(scope="session", autouse=True)
def _pool():
    # At the end of the session: a worker of the test run may leave this module and come back to it.
    yield
    POOL.close()


class Meeting:
    """A place where a process tells that it is there and waits to be let go on: two pipes in the file system."""

    def __init__(self, folder):
        self.there, self.go_on = str(folder / "there"), str(folder / "go on")
        os.mkfifo(self.there)
        os.mkfifo(self.go_on)

    def wait_in_process(self, value=None):
        Path(self.there).write_text(str(os.getpid()))
        return Path(self.go_on).read_text() or value

    def arrived(self):
        return int(Path(self.there).read_text())

    def let_go(self, word=""):
        Path(self.go_on).write_text(word)


class Alarm(SystemClock):
    """A clock whose alarms ring when the test says so."""

    def __init__(self):
        self.rings = threading.Event()

    async def sleep(self, seconds):
        while not self.rings.is_set():  # noqa: ASYNC110 - the test sets it in another thread
            await asyncio.sleep(0.005)


@pytest.fixture
def meeting(tmp_path):
    return Meeting(tmp_path)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def called(function, *args, resumed=False, **options):
    """Return the end of an execution whose workflow function makes one call."""
    made = step(**options)(function)

    @workflow
    async def once(ctx):
        return await made(*args)

    world = environment()
    execution = world.start("once").wait(30)
    return world.run_of(execution.id).resume().wait(30) if resumed else execution


def called_in_a_new_process(function):
    """Return what a call comes to in a process that has no other."""
    with closing(Processes(1)) as pool:
        world = worlds.environment(actions=[Action("call", function)], executor=pool)
        return world.start(Workflow("w", [Step("s", action="call", store="result")])).wait(30).variables["result"]


def where():
    return os.getpid()


def test_a_process_that_dies_leaves_the_outcome_of_its_call_unknown_and_no_other(meeting):
    def die_once(name):
        if name == "waits":
            return meeting.wait_in_process(name)
        return os.kill(os.getpid(), signal.SIGKILL)

    made = step()(die_once)

    @workflow
    async def pair(ctx):
        return await ctx.gather(made("waits"), made("dies"))

    execution = environment().start("pair")
    meeting.arrived()
    for _ in range(3000):
        if execution.refresh().open_questions:
            break
        ENGINE.submit(asyncio.sleep(0.01)).result()
    meeting.let_go("alive")
    (question,) = execution.wait(30).open_questions
    assert question.kind == "outcome_unknown"
    assert 'step "die_once" may or may not have taken effect: its process' in question.message
    assert "was ended by SIGKILL, for example because memory ran out" in question.message
    assert [e.data.result for e in execution.history() if e.event_type == "operation_completed"] == ["alive"]


def test_a_call_that_may_be_made_twice_is_made_once_more_where_its_process_died(tmp_path):
    def die_first(limit):
        with (tmp_path / "calls").open("a") as calls:
            calls.write("x")
        if (tmp_path / "calls").stat().st_size < limit:
            os._exit(3)
        return "made"

    assert called(die_first, 2, idempotent=True).outputs["result"] == "made"
    (tmp_path / "calls").unlink()
    execution = called(die_first, 9, idempotent=True)
    assert "ended with exit code 3; the call was attempted twice" in execution.error
    assert (tmp_path / "calls").read_text() == "xx"


def forking(how, there):
    """Have a child of some kind hold what this process holds, for long."""
    if how == "program":
        subprocess.Popen([sys.executable, "-c", SLEEPING, there])
    elif os.fork() == 0:
        if how == "fork in a session of its own":
            os.setsid()
        Path(there).write_text(str(os.getpid()))
        threading.Event().wait()


SLEEPING = """
import os, sys, time
with open(sys.argv[1], "w") as there:
    there.write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["program", "fork", "fork in a session of its own"])
@pytest.mark.parametrize("end", ["limit", "cancel", "killed", "close"])
def test_children_of_a_call_keep_nobody_waiting_and_end_with_it(how, end, meeting):
    """As those of ``multiprocessing.Pool`` and of ``subprocess`` do; what leaves the session is left to itself."""

    def call():
        forking(how, meeting.there)
        if end == "killed":
            Path(meeting.go_on).read_text()
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    clock, pool = Alarm(), Processes(1)
    made = step(timeout=60 if end == "limit" else None)(call)

    @workflow
    async def once(ctx):
        await made()

    world = worlds.environment(clock=clock, executor=pool)
    execution = world.start("once")
    child = meeting.arrived()
    if end == "limit":
        clock.rings.set()
    elif end == "cancel":
        execution.cancel()
    elif end == "killed":
        meeting.let_go()
    else:
        pool.close()
    execution.wait(30)
    pool.close()
    if "session" in how:
        os.kill(child, signal.SIGKILL)
    assert worlds.becomes(lambda: not is_running(child))


def is_running(pid):
    """Return whether a process lives, and is no zombie that nobody has waited for."""
    found = Path(f"/proc/{pid}/stat")
    if not found.exists():
        return is_alive(pid) and not Path("/proc/self").exists()
    return found.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_what_forks_from_a_process_prints_and_logs_as_a_process_of_its_own(capfd):
    def call():
        import multiprocessing

        def child():
            print("printed there")  # noqa: T201 - that is what is tried
            logging.getLogger("mine").warning("logged there")

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print("printed here")  # noqa: T201 - same
        return process.exitcode

    assert called_in_a_new_process(call) == 0
    out, err = capfd.readouterr()
    assert out == "printed here\n"
    assert "printed there" in err
    assert "logged there" in err


def test_a_call_that_takes_too_long_loses_its_process_and_no_other(meeting):
    clock = Alarm()
    made = step(timeout=60, idempotent=True)(meeting.wait_in_process)
    other = step()(where)

    @workflow
    async def hasty(ctx):
        before = await other()
        try:
            await made()
        except TimeoutError:
            return [before, await other()]

    execution = environment(clock=clock).start("hasty")
    pid = meeting.arrived()
    clock.rings.set()
    before, after = execution.wait(30).outputs["result"]
    assert not is_alive(pid)
    assert is_alive(after)
    assert before in {pid, after}


def test_a_cancelled_execution_waits_for_no_process(meeting):
    world = environment(actions=[Action("wait", meeting.wait_in_process)])
    execution = world.start(Workflow("w", [Step("s", action="wait")]))
    pid = meeting.arrived()
    execution.cancel()
    assert execution.wait(30).status == "cancelled"
    assert not is_alive(pid)


def test_a_failure_beside_it_lets_a_call_come_to_its_end(meeting):
    def refuse():
        meeting.arrived()
        raise ValueError("no")

    slow, bad = step()(meeting.wait_in_process), step(executor="thread")(refuse)

    @workflow
    async def pair(ctx):
        await ctx.gather(slow("done"), bad())

    execution = environment().start("pair")
    meeting.let_go()  # waits until it is there
    execution.wait(30)
    assert [e.data.result for e in execution.history() if e.event_type == "operation_completed"] == ["done"]
    assert execution.status == "failed"


def test_a_call_has_not_begun_before_there_is_a_process_for_it():
    with closing(Processes(1)) as pool:
        made = step()(where)

        @workflow
        async def three(ctx):
            return await ctx.gather(made(), made(), made())

        execution = worlds.environment(executor=pool).start("three").wait(30)
    ends = [name for name in worlds.event_types(execution) if name.startswith("operation_")]
    assert ends == ["operation_started", "operation_completed"] * 3
    assert len(set(execution.outputs["result"])) == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_nothing_is_left_of_an_owner_that_is_killed(tmp_path):
    """Neither its processes, nor what their calls have started."""
    os.mkfifo(tmp_path / "there")
    (tmp_path / "program.py").write_text(KILLED + f"SLEEPING = {SLEEPING!r}\n" + STARTING)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    owner = subprocess.Popen([sys.executable, "program.py", str(tmp_path / "there")], cwd=tmp_path, env=environ)
    child = int((tmp_path / "there").read_text())
    owner.kill()
    owner.wait()
    assert worlds.becomes(lambda: not is_running(child))


KILLED = """
import subprocess, sys
from divebook import Environment
from divebook.definitions import step, workflow
"""
STARTING = """
@step(executor="process")
def call(there):
    subprocess.run([sys.executable, "-c", SLEEPING, there])

@workflow
async def once(ctx):
    await call(sys.argv[1])

Environment(store="memory:").start("once").wait(60)
"""
