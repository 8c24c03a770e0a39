"""Calls on a Dask cluster: the same log as anywhere, and what becomes of it when parts of the cluster die."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import cloudpickle
import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import SetupError
from divebook.execution.executors import Executors
from divebook.steps.actions import Action
from tests.execution.calls_on_a_cluster import lasting
from tests.execution.worlds import becomes, environment, event_types

pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed")
cloudpickle.register_pickle_by_value(sys.modules[__name__])
PATIENCE = 60
DRIVER = Path(__file__).parent / "calls_on_a_cluster.py"


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", resources={"GPU": 1}, silence_logs=50
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster, set_as_default=False) as opened:
        yield opened
        assert opened.list_datasets() == ()


def where():
    return os.getpid()


def twice(n):
    return {"pid": os.getpid(), "twice": 2 * n}


def begun(trace):
    return trace.read_text().split() if trace.exists() else []


def one(function, **given):
    parameters = given.pop("parameters", None)
    return Workflow("w", [Step("s", action=function.name, parameters=parameters, store="found", **given)])


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_call_runs_there_and_its_log_is_as_anywhere(client, idempotent):
    action = Action("where", where, idempotent=idempotent)
    logs = []
    for executor in (client, "thread"):
        with environment(one(action), actions=[action], executor=executor) as world:
            execution = world.start("w").wait(PATIENCE)
            logs.append((event_types(execution), execution.variables["found"] == os.getpid()))
    assert (logs[0][0], logs[0][1], logs[1][1]) == (logs[1][0], False, True)


def test_a_cluster_is_named_by_its_address(cluster):
    action = Action("where", where)
    with environment(one(action, executor="big"), actions=[action], executors={"big": cluster.scheduler_address}) as w:
        assert w.start("w").wait(PATIENCE).variables["found"] != os.getpid()


def test_an_error_comes_back_as_it_was_raised(client):
    def failing():
        raise LookupError("no such bird")

    action = Action("failing", failing)
    with environment(one(action), actions=[action], executor=client) as world:
        assert "no such bird" in world.start("w").wait(PATIENCE).error


def test_what_no_worker_has_is_said_before_anything_is_called(client):
    from divebook.execution.dask_cluster import DaskCluster

    action = Action("where", where)
    for wanted, told in (({"GPU": 1}, None), ({"TPU": 2}, "it needs TPU=2 of a Dask worker, and none of the 2")):
        with environment(one(action), actions=[action], executor=DaskCluster(client, resources=wanted)) as world:
            execution = world.start("w").wait(PATIENCE)
            assert execution.status == ("completed" if told is None else "failed")
            assert told is None or told in execution.error
            assert told is None or "(there is GPU=1). Start one with --resources 'TPU=2'" in execution.error


def test_what_is_no_cluster_is_refused_and_one_out_of_reach_is_named(monkeypatch):
    from divebook.execution import dask_cluster
    from divebook.execution.dask_cluster import DaskCluster

    monkeypatch.setattr(dask_cluster, "CONNECTING", 0.1)
    with pytest.raises(SetupError, match=r"a Dask cluster is a distributed.Client or an address"):
        DaskCluster(3)
    with pytest.raises(SetupError, match="or a Dask client or address, not 3"):
        Executors(3)
    action = Action("where", where)
    nowhere = DaskCluster("tcp://127.0.0.1:9")
    with environment(one(action), actions=[action], executor=nowhere) as world:
        error = world.start("w").wait(PATIENCE).error
        assert "was not called: the Dask cluster tcp://127.0.0.1:9 is out of reach" in error


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_worker_that_is_killed(client, tmp_path, idempotent):
    """What may be made twice is made again; of what may not, a person is asked, and it is not."""
    trace = tmp_path / "trace"
    action = Action("lasting", lasting, idempotent=idempotent)
    flow = one(action, parameters={"trace": str(trace)})
    with environment(flow, actions=[action], executor=client) as world:
        execution = world.start("w")
        assert becomes(lambda: len(begun(trace)) == 1)
        os.kill(int(begun(trace)[0]), signal.SIGKILL)
        if not idempotent:
            (question,) = execution.wait(PATIENCE).interrupts
            assert len(begun(trace)) == 1
            world.answer(question.id, {"choice": "done", "result": "seen"})
            assert execution.wait(PATIENCE).variables == {"found": "seen"}
            return
        assert becomes(lambda: len(begun(trace)) == 2)
        (tmp_path / "trace.go").touch()
        assert execution.wait(PATIENCE).variables == {"found": "done"}


def test_what_a_killed_driver_had_on_the_cluster_is_found_again(client, cluster, tmp_path):
    store, trace = tmp_path / "store.db", tmp_path / "trace"
    command = [sys.executable, str(DRIVER), str(store), str(trace), cluster.scheduler_address]
    with subprocess.Popen(command) as driver:
        assert becomes(lambda: len(begun(trace)) == 1)
        assert becomes(lambda: len(client.list_datasets()) == 1)
        driver.kill()
    (tmp_path / "trace.go").touch()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert (done.stdout.split(), len(begun(trace))) == (["completed", "done"], 1)


def test_a_call_that_is_cancelled_is_taken_back(client, tmp_path):
    action = Action("lasting", lasting, idempotent=True)
    flow = one(action, parameters={"trace": str(tmp_path / "trace")})
    with environment(flow, actions=[action], executor=client) as world:
        execution = world.start("w")
        assert becomes(lambda: len(begun(tmp_path / "trace")) == 1)
        assert execution.cancel("enough").wait(PATIENCE).status == "cancelled"
    (tmp_path / "trace.go").touch()


def test_rows_are_handed_to_the_cluster_in_chunks(client):
    from divebook.mapping import mapped

    frame = pd.DataFrame({"n": range(250)})
    with Environment(store="memory:", executor=client) as world:
        found = mapped(world, frame, twice, parallel=4).wait().frame
    assert (found["twice"] == 2 * found["n"]).all()
    assert os.getpid() not in set(found["pid"])
    assert found["error"].isna().all()
