"""Functions on a Dask cluster: the log is that of threads, and whoever dies, no call is begun twice that may not be."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import cloudpickle
import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.errors import NotFoundError, SetupError
from divebook.mapping import mapped
from divebook.runtime.compute import dask as dask_cluster
from divebook.runtime.compute.dask import DASHBOARDS, DaskCluster
from divebook.steps.actions import Action
from divebook.widgets.source import header_of
from tests.runtime.dask_driver import calling, wait
from tests.runtime.dask_kills import one_round
from tests.runtime.worlds import becomes, environment, event_types, question_of

distributed = pytest.importorskip("distributed", reason="distributed is not installed")
dask = pytest.importorskip("dask", reason="distributed is not installed")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each worker would import pytest and all of this


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process with a thread."""
    # Tests end workers. A worker takes longer than the 15 s of the default to be there again on a busy machine, and a
    # cluster that gives it up never has two again.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}):
        made = functools.partial(distributed.LocalCluster, threads_per_worker=1, dashboard_address=":0")
        with made(n_workers=2, resources={"GPU": 1}, silence_logs=50) as found:
            yield found


@pytest.fixture(scope="module")
def client(cluster):
    with cluster.get_client() as found:
        yield found


@pytest.fixture(autouse=True)
def _every_call_is_long(monkeypatch):
    """Have calls known to the cluster from their beginning."""
    monkeypatch.setattr(dask_cluster, "LONG", 0)


@pytest.fixture
def meeting(tmp_path):
    """A folder with pipes, by which the calls once and twice tell that they are there, and wait to be let go on."""
    for name in ("once", "twice"):
        os.mkfifo(tmp_path / f"{name} there")
        os.mkfifo(tmp_path / f"{name} goes on")
    return tmp_path


def arrived(meeting, *names):
    for name in names or ("once", "twice"):
        (meeting / f"{name} there").read_text()


def let_go(meeting, *names):
    for name in names or ("once", "twice"):
        (meeting / f"{name} goes on").write_text("made ")


def calls_of(name, dask_worker):
    """Return the calls of a function that a worker knows."""
    return [key for key in dask_worker.state.tasks if name in key]


def wanted_calls_of(name, dask_scheduler):
    """Return the calls of a function that the scheduler knows."""
    return [key for key in dask_scheduler.tasks if name in key]


def where():
    return os.getpid()


# --- what comes back -------------------------------------------------------------------------------------------------


class OddError(ValueError):
    """An error of a person's own."""


@workflow
async def story(ctx):
    add, fail = step(name="add", idempotent=True)(lambda a, b: {"sum": a + b}), step()(refuse)
    found = await ctx.gather(*[add(number, 1) for number in range(3)])
    try:
        await fail("no")
    except OddError as error:
        return [found, str(error), error.__cause__ is not None]


def refuse(why):
    try:
        {}["missing"]
    except KeyError as error:
        raise OddError(why) from error


def told(executor):
    """Return what the log of a run says of its calls and its end, but for times."""
    with environment(story, executor=executor) as world:
        history = world.start("story").wait(30, check=True).history()
    times = {"started_at": 0, "duration": 0}
    return sorted(f"{event.event_type} {vars_of(event) | times}" for event in history[1:])


def vars_of(event):
    return {name: getattr(event.data, name) for name in event.data.__dataclass_fields__}


def test_the_log_is_that_of_threads(client):
    assert told(client) == told("thread")


def test_steps_and_functions_name_a_cluster_and_definitions_no_address(cluster, client):
    cloud = DaskCluster(cluster.scheduler_address, priority=1, keep=False)
    steps = [Step("a", action="where", executor="cloud", store="there"), Step("b", action="where", store="here")]
    with environment(actions=[Action("where", where)], executors={"cloud": cloud}) as world:
        world.add_workflow(Workflow("w", steps))
        found = world.start("w").wait(30).variables
        assert found["there"] != os.getpid() == found["here"]
        assert cloud.dashboard == client.dashboard_link
        run = world.start("w").wait(30)
        assert DASHBOARDS.of(run.id) == [cloud.dashboard]
        assert header_of(run)["dashboards"] == []  # nothing goes there any more
        cloud._connection.client.close()  # as one does that finds its scheduler no more
        assert world.start("w").wait(30).status == "completed"
        with pytest.raises(NotFoundError, match="executor not found: tcp://"):
            world.start(Workflow("w", [Step("s", action="where", executor=cluster.scheduler_address)]))
    cloud.close()


def test_rows_are_handed_over_in_chunks(cluster, client):
    def label(text):
        return {"length": len(text), "pid": os.getpid()}

    frame, own = pd.DataFrame({"text": ["a" * n for n in range(450)]}), DaskCluster(cluster)
    with environment() as world:
        given = [cluster.scheduler_address, cluster.scheduler_address, client, cluster, own]
        for number, executor in enumerate(given):
            function = step(idempotent=True)(label) if number else label
            found = mapped(world, frame, function, executor=executor, again=number > 1).wait().frame
            assert list(found["length"]) == list(range(450))
            assert os.getpid() not in set(found["pid"])
    own.close()
    assert client.list_datasets() == ()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_resources_that_no_worker_has_are_refused_before_the_call(client):
    clusters = {"one": DaskCluster(client, resources={"GPU": 1}), "two": DaskCluster(client, resources={"GPU": 2})}
    steps = [Step(name, action="where", executor=name, store=name) for name in clusters]
    with environment(actions=[Action("where", where)], executors=clusters) as world:
        execution = world.start(Workflow("w", steps)).wait(30)
    assert execution.variables["one"] != os.getpid()
    assert 'action "where" was not called: it needs GPU=2, but no worker of the cluster at tcp://' in execution.error
    assert (
        'offers that (2 workers, available: GPU=1): start one with dask worker --resources "GPU=2"' in execution.error
    )


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.2)
    with environment(actions=[Action("where", where)], executor="tcp://127.0.0.1:1") as world:
        execution = world.start(Workflow("w", [Step("s", action="where")])).wait(30)
    assert "was not called: no Dask scheduler answers at tcp://127.0.0.1:1" in execution.error


def test_a_cluster_that_cannot_be_used_is_refused(cluster, monkeypatch):
    with pytest.raises(
        SetupError, match=r"a Dask cluster must be a distributed.Client, a cluster object or an address"
    ):
        DaskCluster(3)
    with pytest.raises(SetupError, match=r"an address such as tcp://HOST:PORT, not 'tcp://'"):
        Environment(store="memory:", executor="tcp://")
    closed = distributed.Client(cluster, set_as_default=False)
    closed.close()
    with environment(actions=[Action("where", where)], executor=closed) as world:
        execution = world.start(Workflow("w", [Step("s", action="where")])).wait(30)
    assert "was not called: its Dask client is closed" in execution.error
    monkeypatch.setattr(dask_cluster.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"pip install 'divebook\[dask\]'"):
        Environment(store="memory:", executor="tcp://127.0.0.1:1")


# --- who dies --------------------------------------------------------------------------------------------------------


def test_a_driver_that_dies_finds_what_may_be_made_twice_and_is_asked_about_the_rest(cluster, client, meeting):
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.dask_driver", cluster.scheduler_address, str(meeting)],
        cwd=Path(__file__).parents[2],
    )
    arrived(meeting)
    assert becomes(client.list_datasets)
    driver.kill()
    driver.wait()
    let_go(meeting)
    (left,) = client.list_datasets()
    assert becomes(client.get_dataset(left).done)
    with Environment(store=meeting / "log.db", workflows=[calling()], executor=client) as world:
        (execution,) = world.store.records()
        execution = world.run_of(execution.execution_id).resume().wait(30)
        question = question_of(execution)
        assert question.kind == "outcome_unknown"
        (found,) = [e.data.result for e in execution.history() if e.event_type == "operation_completed"]
        assert found == "made twice"
    assert sorted((meeting / "calls").read_text().split()) == ["once", "twice"]
    assert client.list_datasets() == ()


def test_a_connection_that_is_lost_leaves_the_outcome_unknown(cluster, meeting):
    made = step()(wait)

    @workflow
    async def waiting(ctx):
        return await made(str(meeting), "once")

    client = distributed.Client(cluster, set_as_default=False)
    execution = environment(executor=client).start("waiting")
    arrived(meeting, "once")
    client.close()
    question = question_of(execution.wait(30))
    let_go(meeting, "once")
    assert question.kind == "outcome_unknown"
    assert "FutureCancelledError" in question.message


def test_a_connection_that_is_lost_in_a_call_that_may_be_made_twice_is_made_anew(cluster, client, meeting):
    """The call is found again where it goes on."""
    made, cloud = step(idempotent=True)(wait), DaskCluster(cluster.scheduler_address)

    @workflow
    async def waiting(ctx):
        return await made(str(meeting), "twice")

    with environment(executor=cloud) as world:
        execution = world.start("waiting")
        arrived(meeting, "twice")
        assert becomes(client.list_datasets)
        first = cloud._connection
        first.client.close()
        assert becomes(lambda: cloud._connection is not first)
        let_go(meeting, "twice")
        assert execution.wait(30).outputs["result"] == "made twice"
    cloud.close()
    assert (meeting / "calls").read_text().split() == ["twice"]


def test_what_another_process_left_later_is_found_and_let_go(cluster, client, meeting, monkeypatch):
    """Who resumes was connected before: it looks when it takes the execution up."""
    monkeypatch.setattr(dask_cluster, "KEPT_SECONDS", 0)
    with Environment(
        store=meeting / "log.db",
        workflows=[calling()],
        actions=[Action("where", where, idempotent=True)],
        executor=client,
    ) as world:
        assert world.start(Workflow("w", [Step("s", action="where")])).wait(30).status == "completed"
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.dask_driver", cluster.scheduler_address, str(meeting)],
            cwd=Path(__file__).parents[2],
        )
        arrived(meeting)
        assert becomes(client.list_datasets)
        driver.kill()
        driver.wait()
        let_go(meeting)
        (left,) = client.list_datasets()
        assert becomes(client.get_dataset(left).done)
        (found,) = [each.execution_id for each in world.store.records() if each.workflow_name != "w"]
        assert question_of(world.run_of(found).resume().wait(30)).kind == "outcome_unknown"
        assert becomes(lambda: not client.list_datasets())
    assert sorted((meeting / "calls").read_text().split()) == ["once", "twice"]


def test_large_arguments_go_without_advice(client, recwarn):
    with environment(executor=client, actions=[Action("size", lambda data: len(data) + 0)]) as world:
        steps = [Step("s", action="size", parameters={"data": "x" * 12_000_000}, store="a")]
        assert world.start(Workflow("w", steps)).wait(30).variables["a"] == 12_000_000
    assert not [warning for warning in recwarn if "large graph" in str(warning.message)]


def test_a_call_that_is_given_up_before_it_began_is_taken_back(client, meeting):
    hold = step(name="hold")(wait)
    later = step(name="later", idempotent=True)(lambda: (meeting / "began").write_text("began"))

    @workflow
    async def holding(ctx):
        await ctx.gather(hold(str(meeting), "once"), hold(str(meeting), "twice"))

    @workflow
    async def waiting(ctx):
        await later()

    with environment(executor=client) as world:
        held = world.start("holding")
        arrived(meeting)
        execution = world.start("waiting")
        assert becomes(client.list_datasets)
        execution.cancel()
        assert execution.wait(30).status == "cancelled"
        assert becomes(
            lambda: not client.run_on_scheduler(wanted_calls_of, "later")
        )  # which gives it to no worker any more
        assert becomes(lambda: not any(client.run(calls_of, "later").values()))
        let_go(meeting)
        assert held.wait(30).status == "completed"
    assert not (meeting / "began").exists()


def test_a_result_is_let_go_a_little_after_it_came(client, meeting, monkeypatch):
    monkeypatch.setattr(dask_cluster, "KEPT_SECONDS", 0)
    made = step(idempotent=True)(wait)

    @workflow
    async def waiting(ctx):
        return await made(str(meeting), "twice")

    with environment(executor=client) as world:
        execution = world.start("waiting")
        arrived(meeting, "twice")
        assert becomes(client.list_datasets)
        let_go(meeting, "twice")
        assert execution.wait(30).outputs["result"] == "made twice"
        assert becomes(lambda: not client.list_datasets())


@pytest.mark.parametrize("options", [{}, {"idempotent": True, "timeout": 600}])
def test_a_call_that_is_to_run_once_it_has_begun_begins_only_where_a_thread_is_free(options, client, meeting):
    """One that may not be made twice, or has a time limit."""
    hold, look = step(name="hold")(wait), step(name="look", **options)(where)

    @workflow
    async def waiting(ctx):
        await ctx.gather(hold(str(meeting), "once"), hold(str(meeting), "twice"), *[look() for _ in range(4)])

    with environment(executor=client) as world:
        execution = world.start("waiting")
        arrived(meeting)
        begun = event_types(execution).count("operation_started")
        let_go(meeting)
        assert execution.wait(30).status == "completed"
    assert begun == 2


# --- last, as Dask takes a second to replace a worker ----------------------------------------------------------------


def test_workers_that_are_killed_at_any_moment(client, tmp_path):
    """More of it: ``python -m tests.runtime.dask_kills 50``."""
    asked, lost, _ = one_round(client, tmp_path, Random(3))
    assert asked >= lost


def test_a_worker_that_dies_leaves_one_call_unknown_and_begins_none_twice(client, tmp_path):
    def call(name):
        with (tmp_path / "calls").open("a") as calls:
            calls.write(f"{name}\n")
        if name == "dies" and (tmp_path / "calls").read_text().count("dies") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return name

    made, again = step()(call), step(name="again", idempotent=True)(call)

    @workflow
    async def many(ctx):
        return await ctx.gather(*[made(name) for name in ("a", "dies", "b", "c", "d")])

    @workflow
    async def one(ctx):
        return await again("dies")

    client.wait_for_workers(2, timeout=30)
    with environment(executor=client) as world:
        execution = world.start("many").wait(30)
        question = question_of(execution)
        assert question.kind == "outcome_unknown"
        assert (
            'step "call" may or may not have taken effect: its Dask worker or its result was lost' in question.message
        )
        assert sorted((tmp_path / "calls").read_text().split()) == ["a", "b", "c", "d", "dies"]
        (tmp_path / "calls").unlink()
        assert world.start("one").wait(30).outputs["result"] == "dies"
        assert (tmp_path / "calls").read_text().split() == ["dies", "dies"]
