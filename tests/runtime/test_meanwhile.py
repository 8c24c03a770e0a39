"""What others do between a look at an execution and its lease: what has ended meanwhile stays as it is."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ExecutionError
from divebook.stores import SqliteStore
from divebook.stores.base import EventStore
from tests.runtime.worlds import environment

ASKING = Workflow("w", [Step("ask", ask="Go?", store="a"), Step("after", script="1", store="n")])


class Late(SqliteStore):
    """A second process whose leases come late: `meanwhile` happens before each of them."""

    meanwhile = staticmethod(lambda: None)

    _post_and_acquire = EventStore._post_and_acquire  # in two transactions, as in a store on a server

    def _acquire(self, *args):
        self.meanwhile()
        return super()._acquire(*args)


@pytest.fixture
def worlds(tmp_path):
    with SqliteStore(tmp_path / "s.db") as store, Late(tmp_path / "s.db") as late:
        yield Environment(store=store, workflows=[ASKING]), Environment(store=late, workflows=[ASKING])


ACTS = {
    "cancel": lambda world, execution_id: world.run_of(execution_id).cancel(),
    "resume": lambda world, execution_id: world.run_of(execution_id).resume(),
    "signal": lambda world, execution_id: world.run_of(execution_id).signal("go"),
}
ENDS = {
    "completed": lambda world, execution: world.answer(execution.open_questions[0].id, "yes", execution.id),
    "cancelled": lambda world, execution: world.run_of(execution.id).cancel(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("act", ACTS)
def test_what_has_ended_meanwhile_stays_as_it_is(worlds, act, end):
    first, second = worlds
    execution = first.start("w").wait(20)
    second.store.meanwhile = lambda: ENDS[end](first, execution).wait(20)
    if (act, end) == ("resume", "cancelled"):  # which is what resume is for
        assert second.run_of(execution.id).resume().wait(20).status == "waiting"
        return
    if (act, end) == ("resume", "completed"):
        assert second.run_of(execution.id).resume().wait(20).status == "completed"
        assert second.store.leases() == []
        return
    if (act, end) == ("signal", "completed"):  # who answered has taken the signal into the log before the end
        assert second.run_of(execution.id).signal("go").state.signals["go"] == (None,)
        return
    with pytest.raises(ExecutionError, match=f"already (ended as )?{end}|{end} before .* arrived"):
        ACTS[act](second, execution.id)
    kinds = [event.event_type for event in first.store.read(execution.id)]
    assert kinds[-1] == f"execution_{end}"
    assert second.store.leases() == []
    assert [kind for kind in kinds if kind.removeprefix("execution_") in TERMINAL] == [f"execution_{end}"]


def test_an_answer_that_another_process_took_in_begins_nothing_anew(worlds):
    first, second = worlds
    execution = first.start("w").wait(20)
    second.store.meanwhile = lambda: first.run_of(execution.id).resume().wait(20)
    assert second.answer(execution.open_questions[0].id, "yes").status == "completed"
    kinds = [event.event_type for event in first.store.read(execution.id)]
    assert kinds.count("execution_resumed") == 1


def test_a_cancellation_that_comes_while_an_execution_comes_to_rest_still_holds():
    world = environment()
    execution = world.create(ASKING)
    told = []

    def cancel(_, events):
        if any(event.event_type == "interrupt_raised" for event in events) and not told:
            told.append(execution.cancel())

    world.store.subscribe(cancel)
    execution.start().wait(20)
    assert execution.status == "cancelled"


def test_what_is_sent_right_after_the_start_arrives(tmp_path):
    waiting = Workflow("w", [Step("a", "wait", signal="go")])
    world, other = (Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[waiting]) for _ in range(2))
    for sender in (world, other):
        for _ in range(10):
            execution = world.start("w")
            taking = sender.run_of(execution.id).signal("go", 1)
            execution.wait(20)
            assert (taking.wait(20) if taking.is_live else execution.refresh()).status == "completed"
        execution = world.start("w")
        assert sender.run_of(execution.id).cancel().wait(20).status == "cancelled"


def test_an_execution_that_a_step_starts_on_the_engines_own_thread_takes_signals_at_once():
    from divebook.steps.actions import Action

    world = environment()

    async def start():
        return world.start(Workflow("inner", [Step("a", "wait", signal="go")])).signal("go").id

    outer = environment(actions=[Action("start", start)]).start(Workflow("w", [Step("a", action="start", store="id")]))
    inner = world.run_of(outer.wait(20).variables["id"])
    assert (inner.wait(20) if inner.is_live else inner).status == "completed"
