"""Functions in processes: what comes back is as if it had been made here, and a process may die or be killed."""

import functools
import importlib
import logging
import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import cloudpickle
import pandas as pd
import pytest

from divebook import Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import UnpicklableError
from divebook.runtime.compute.process_calls import make_pickled_call, pickle_call, unpickle_result
from divebook.runtime.compute.processes import Processes
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


def failed_of(execution):
    return next(event.data for event in execution.history() if event.event_type == "operation_failed")


def where():
    return os.getpid()


# --- what comes back -------------------------------------------------------------------------------------------------


def same(value):
    return value


def test_arguments_and_results_are_whatever_a_log_can_hold():
    when = {"at": [1, 2.5, None], "raw": b"\x00\xff", 1: ("a", {2, 3})}
    execution = called(lambda given: {**given, "pid": os.getpid()}, when, name="add_pid")
    result = execution.outputs["result"]
    assert {**result, "pid": 0} == {**when, "pid": 0}
    assert result["pid"] != os.getpid()


class OddError(ValueError):
    def __init__(self, code, *, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


def raise_odd():
    try:
        {}["missing"]
    except KeyError as error:
        raise OddError(7, reason="late") from error


def raise_unpicklable():
    error = ValueError("kept")
    error.lock = threading.Lock()
    raise error


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "UTC"])
@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("hour", [2, 12])
def test_a_timestamp_keeps_its_fold_on_the_way_there_and_back(zone, fold, hour):
    moment = pd.Timestamp(2026, 10, 25, hour, 30, fold=fold, tz=zone)
    returned = unpickle_result(make_pickled_call(pickle_call("same", same, ([moment],), {})))[0]
    assert (returned, returned.fold, returned.utcoffset()) == (moment, moment.fold, moment.utcoffset())


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("raising", [raise_odd, raise_unpicklable, sys.exit])
def test_an_error_is_recorded_as_it_would_be_from_a_thread(raising, resumed):
    there = failed_of(called(raising, resumed=resumed))
    here = failed_of(called(raising, executor="thread"))
    assert (there.error, there.error_names) == (here.error, here.error_names)
    assert (there.raised, there.trace) == (here.raised, here.trace)


def test_an_error_is_caught_as_its_class():
    made = step()(raise_odd)

    @workflow
    async def careful(ctx):
        try:
            await made()
        except OddError as error:
            return [error.code, str(error)]

    assert environment().start("careful").wait(30).outputs["result"] == [7, "7: late"]


def test_a_connection_that_broke_in_a_process_leaves_the_outcome_unknown_as_well():
    def broken():
        raise ValueError("it failed") from ConnectionResetError()

    assert worlds.question_of(called(broken)).kind == "outcome_unknown"


def test_what_cannot_travel_is_named_with_what_to_do():
    lock = threading.Lock()
    with pytest.raises(UnpicklableError, match="step take cannot run in another process: its argument 'given'"):
        pickle_call("step take", where, (), {"given": lock, "other": 1})

    def look():
        return lock.locked()

    closed = called(look)
    assert "its code, or an object that it uses, cannot be pickled: cannot pickle '_thread.lock' object" in closed.error

    def make():
        return threading.Lock()

    returned = called(make)
    assert "the result of make (lock) cannot be sent back from its process" in returned.error
    for execution in (closed, returned):
        assert 'let it run in a thread: executor="thread"' in execution.error
        assert failed_of(execution).error_names[0] == "UnpicklableError"


def test_what_is_printed_and_logged_there_is_printed_and_logged_here(capsys, caplog):
    caplog.set_level(logging.WARNING)

    def tell():
        print("on its way", end="")  # noqa: T201 - that is what is tried
        print("an error", file=sys.stderr)  # noqa: T201 - same
        logging.getLogger("mine").warning("about %s", "this")

    assert called(tell).status == "completed"
    assert capsys.readouterr() == ("on its way", "an error\n")
    assert [record.getMessage() for record in caplog.records if record.name == "mine"] == ["about this"]


def test_what_is_printed_there_is_no_matter_of_the_call(monkeypatch):
    class Broken:
        def write(self, text):
            raise BrokenPipeError(text)

    def tell():
        print("charged \ud800")  # noqa: T201 - that is what is tried
        logging.getLogger("mine").warning("charged")
        return "made"

    for stream in (Broken(), None):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            assert called(tell).outputs["result"] == "made"


def test_streams_there_are_those_that_programs_know(capfd):
    def tell():
        print("before ", end="")  # noqa: T201 - that is what is tried
        sys.stdout.flush()
        sys.stdout.buffer.write("gr\u00fcn \n".encode())
        print("odd \ud800")  # noqa: T201 - same
        subprocess.run(["echo", "from a program"], stdout=sys.stdout, check=True)
        return [sys.stdout.encoding, sys.stdout.isatty(), sys.stderr.fileno()]

    assert called_in_a_new_process(tell) == ["utf-8", False, 2]
    out, err = capfd.readouterr()
    assert out == "before gr\u00fcn \nodd \\ud800\n"
    assert "from a program" in err


def test_a_call_that_closes_or_replaces_its_streams_has_a_result():
    def close():
        sys.stdout.close()
        sys.stderr = None
        return "made"

    assert called_in_a_new_process(close) == "made"


# --- what is around a call -------------------------------------------------------------------------------------------


def test_a_call_finds_the_folder_and_variables_that_are_here_when_it_begins(tmp_path, monkeypatch):
    def look():
        found = [str(Path.cwd()), os.environ.get("MODE"), "OTHER" in os.environ, sys.path[0]]
        os.chdir("/")
        os.environ["OTHER"] = "left behind"
        return found

    with closing(Processes(1)) as pool:
        world = worlds.environment(actions=[Action("look", look)], executor=pool)
        for mode in ("a", "b"):
            monkeypatch.setenv("MODE", mode)
            (tmp_path / mode).mkdir()
            monkeypatch.chdir(tmp_path / mode)
            monkeypatch.syspath_prepend(str(tmp_path / mode))
            execution = world.start(Workflow("w", [Step("s", action="look", store="a")])).wait(30)
            assert execution.variables["a"] == [str(tmp_path / mode), mode, False, str(tmp_path / mode)]


def test_a_module_that_has_changed_since_a_process_imported_it_is_imported_anew(tmp_path, monkeypatch):
    """Others keep their process, and with it what they hold."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def price(name):
        return [importlib.import_module(name).price, os.getpid()]

    def written(factor):
        (tmp_path / "prices_of_a_test.py").write_text(f"price = {factor}")

    with closing(Processes(1)) as pool:
        world = worlds.environment(actions=[Action("price", price)], executor=pool)

        def asked():
            steps = [Step("s", action="price", parameters={"name": "prices_of_a_test"}, store="a")]
            return world.start(Workflow("w", steps)).wait(30).variables["a"]

        written(1)
        (first, pid), (same, again) = asked(), asked()
        written(20)
        second, other = asked()
        (tmp_path / "prices_of_a_test.py").unlink()
        third, kept = asked()
    assert (first, same, second, third) == (1, 1, 20, 20)
    assert pid == again != other == kept


# --- whole programs --------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
import library
from divebook import Environment
from divebook.definitions import step, workflow

FACTOR = 2

def helper(n):
    return FACTOR * n

@step(executor="process")
def work(n):
    return [helper(n), os.getpid(), __name__]

@workflow
async def program(ctx, n: int):
    return [*await work(n), await library.count(), await library.count()]

world = Environment(store="memory:")
print(*world.start("program", {"n": 21}).wait(30).outputs["result"], os.getpid())
if sys.argv[1] == "close":
    world.close()
    print(len(world._executors._processes._all))
"""
LIBRARY = """
from divebook.definitions import step
calls = 0

@step(executor="process")
def count():
    global calls
    calls += 1
    return calls
"""


@pytest.mark.parametrize("how", ["close", "end"])
def test_a_script_needs_no_guard_and_leaves_no_process(how, tmp_path):
    """Its own functions travel by value; a module is imported once for each process, and keeps what it holds."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "library.py").write_text(LIBRARY)
    command = [sys.executable, "program.py", how]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environ)  # noqa: PLW1510
    assert done.stderr == ""
    doubled, pid, module, first, second, own, *left = done.stdout.split()
    assert (doubled, module, pid != own) == ("42", "__main__", True)
    assert (first, second) == ("1", "2")
    assert left == (["0"] if how == "close" else [])
    # Its stderr is ours: it was read to its end, so the process has let go of it, and ends.
