"""Steps of type continue_as_new: the execution goes on as a new one with its variables, and the chain reads as one."""

import pytest

from divebook import Environment, Step, Workflow, frames
from divebook.definitions.definition import InputDefinition
from divebook.errors import DefinitionError, NotFoundError, SetupError
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

TWICE = ("again", "$(state.seen < inputs.until)")


def counting():
    """Return a workflow that adds one to what it has seen, and begins anew until that is enough."""
    return Workflow(
        "counting",
        [
            Step("count", script="state.get('seen', 0) + 1", store="seen", next=[TWICE]),
            Step("again", "continue_as_new", inputs={"until": "$(inputs.until)"}),
        ],
        inputs=[InputDefinition("until", default=3), InputDefinition("name", default="x")],
    )


@pytest.fixture
def world():
    """Return an environment."""
    return environment()


def whole(world, execution):
    """Return the executions of a chain, each at its end."""
    found = [execution]
    while (following := found[-1].state.continued_as) is not None:
        found.append(world.run_of(following).wait(20))
    return found


def test_a_new_one_begins_at_the_first_step_with_the_variables_as_they_were(world):
    runs = whole(world, world.start(counting(), {"name": "y"}).wait(20))
    assert [run.status for run in runs] == ["continued_as_new", "continued_as_new", "completed"]
    assert [run.variables for run in runs] == [{"seen": 1}, {"seen": 2}, {"seen": 3}]
    assert [run.inputs for run in runs] == [{"until": 3, "name": "y"}] * 3
    assert runs[1].history()[0].data.state == {"seen": 1}
    assert runs[0].history()[-1].data.reason == "step again"


def test_the_chain_reads_as_one(world):
    runs = whole(world, world.start(counting()).wait(20))
    other = world.start(counting(), {"until": 1}).wait(20)
    ids = [run.id for run in runs]
    assert [run.chain for run in runs] == [ids] * 3
    assert other.chain == [other.id]
    together = frames(world.store, where={"chain": ids[1]})
    assert sorted(together.executions["execution_id"]) == sorted(ids)
    assert len(together.events) == sum(len(run.history()) for run in runs)
    assert (
        list(frames(world.store, where={"chain": ids[0], "status": "completed"}).executions["execution_id"]) == ids[2:]
    )
    with pytest.raises(SetupError, match="chain must be a string, not 7"):
        frames(world.store, where={"chain": 7})
    with pytest.raises(NotFoundError):
        len(frames(world.store, where={"chain": "exec_none"}).executions)


def test_what_is_deleted_ends_the_chain(world):
    runs = whole(world, world.start(counting()).wait(20))
    world.store.delete(runs[0].id)
    assert runs[1].chain == [run.id for run in runs[1:]]


def test_wherever_it_died_one_goes_on_with_the_same_variables(world):
    first, second, *_ = whole(world, world.start(counting()).wait(20))
    for length in range(2, first.state.last_sequence - 2):  # the last three come in one commit
        store = cut(world.store, first, length)
        store.append(second.id, world.store.read(second.id), 0)
        resumed = environment(store=store).run_of(first.id).resume().wait(20)
        assert (resumed.status, resumed.state.continued_as) == ("continued_as_new", second.id), length


def test_another_path_that_is_on_its_way_is_told(world):
    steps = [
        Step("both", script="1", next=["wait", "again"]),
        Step("wait", "wait", signal="go", next=[]),
        Step("again", "continue_as_new"),
    ]
    failed = world.start(Workflow("two", steps)).wait(20)
    assert failed.status == "failed"
    assert "while other paths are running; join them before this step" in failed.error
    assert failed.chain == [failed.id]


@pytest.mark.parametrize("setting", [{"each": [1, 2]}, {"next": ["count"]}, {"store": "x"}, {"timeout": 3}], ids=str)
def test_what_has_no_effect_is_told(setting):
    steps = [Step("count", script="1"), Step("again", "continue_as_new", **setting)]
    with pytest.raises(DefinitionError, match=f"(?i){next(iter(setting))} has no effect on a step of type continue_as"):
        Workflow("w", steps)


def test_it_is_verified_forked_and_opened_by_another_process(world):
    runs = whole(world, world.start(counting()).wait(20))
    assert all(run.verify().equal for run in runs)
    fork = world.run_of(runs[1].id).fork(3).wait(20)
    assert fork.variables == {"seen": 2}
    assert Environment(store=world.store).run_of(runs[1].id).variables == {"seen": 2}


def test_why_says_what_was_carried_over(world):
    first, second, *_ = whole(world, world.start(counting()).wait(20))
    assert f"seen = 1: carried over from execution {first.id} at event 1" in str(world.run_of(second.id).why("seen"))
