"""Where a person's functions run: as the step says, else the function, else the environment; and what is refused."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import cloudpickle
import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.execution.processes import Processes
from divebook.steps.actions import Action
from divebook.steps.actions import action as make_action
from divebook.workflow import step
from divebook.workflow.reader import read_workflow
from tests.execution.worlds import environment, event_types

POOL = Processes(1)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each process would import pytest and all of this


@pytest.fixture(scope="module", autouse=True)
def _pool():
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
    with pytest.raises(SetupError, match=r"an executor is a name \(thread, process\), a .*, not 3"):
        Environment(store="memory:", executor=3)
    with pytest.raises(DefinitionError, match="executor of where must be a name"):
        step(executor=3)(where)

    async def waiting():
        """Do nothing."""

    with pytest.raises(DefinitionError, match="is async, so it runs on the engine's loop"):
        step(executor="process")(waiting)
    with pytest.raises(DefinitionError, match="takes a context, which lives in this process only"):
        make_action(executor="process")(lambda context: context.emit("x"))
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
    for name, told in (("emit", "takes what lives in this process only"), ("wait", "is async")):
        asked = Workflow("w", [Step("s", action=name, executor="process")])
        execution = environment(actions=actions, executor=POOL).start(asked).wait(30)
        assert told in execution.error
        assert "operation_started" not in event_types(execution)


def test_an_executor_that_takes_no_calls_any_more_fails_those_that_come():
    pool = ProcessPoolExecutor(1)
    pool.shutdown()
    execution = environment(executor=pool, actions=[Action("where", where)]).start(
        Workflow("w", [Step("s", action="where")])
    )
    assert "was not called: ProcessPoolExecutor takes no calls: cannot schedule new futures" in execution.wait(30).error


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
