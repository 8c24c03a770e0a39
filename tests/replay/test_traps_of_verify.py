"""What could hide a difference, or make one where there is none: handled failures, and what other paths do later."""

import asyncio

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.definitions.step import Catch, Retry
from divebook.events.catalog import WHAT_IF
from divebook.replay.tape import Tape
from divebook.steps.actions import Action
from divebook.stores import MemoryStore


async def broken(x: object = 0) -> str:
    """Fail."""
    raise ValueError(f"{x} is broken")


# --- a difference is told though code handles what goes wrong (trap 3) ----------------------------------------------


HANDLED = {
    "catch": {"catch": Catch("after", store="problem")},
    "catch of any error": {"catch": Catch("after", errors=[])},
    "retry": {"retry": Retry(3, seconds=0.0), "catch": Catch("after")},
    "items that may fail": {"each": Each([1, 2], as_="item"), "catch": Catch("after")},
}


@pytest.mark.parametrize("name", HANDLED)
def test_a_call_that_fails_otherwise_is_told_though_its_step_goes_on_after_any_failure(name):
    def made_of(script):
        return Workflow("handles", [Step("call", script=script, **HANDLED[name]), Step("after", script="1")])

    with Environment(store=MemoryStore()) as made:
        execution = made.start(made_of("{}['a']")).wait(20)
        assert execution.status == "completed", execution.error
        assert made.run_of(execution.id).verify().equal
        found = made.run_of(execution.id).verify(made_of("{}['b']")).divergence
        assert (found.event_type, found.step) == ("operation_started", "call")


@step
async def fetched_of_trap(n: int) -> int:
    """Fail for odd numbers."""
    if n % 2:
        raise LookupError(f"no {n}")
    return n


def test_a_difference_is_told_though_a_function_excepts_all_of_it():
    def define(first):
        @workflow(name="excepts_all")
        async def excepts_all(ctx, n: int) -> str:
            for number in (first, 2):
                try:
                    await fetched_of_trap(number)
                except BaseException:  # noqa: BLE001 - what is to be shown
                    continue
            return "done"

        return excepts_all

    with Environment(store=MemoryStore(), workflows=[define(1)]) as made:
        execution = made.start("excepts_all", {"n": 1}).wait(20)
        assert execution.status == "completed", execution.error
        assert made.run_of(execution.id).verify().equal
        define(3)
        found = made.run_of(execution.id).verify().divergence
        assert found.event_type == "operation_started"
        assert '"n":3' in found.actual


# --- what others do later is not known yet (trap 4) -----------------------------------------------------------------


def side_by_side():
    """Run two paths of which one stores its value once the other has looked for it; return world and execution."""
    looked = asyncio.Event()

    async def tell() -> str:
        looked.set()
        return "told"

    async def wait() -> str:
        await looked.wait()
        return "late"

    steps = [
        Step("split", script="1", next=["left", "right"]),
        Step("left", script="state.get('late', 'nothing')", store="seen", next=["choose"]),
        Step("choose", script="1", next=[("early", "$('late' not in state)"), ("later", "$('late' in state)")]),
        Step("early", action="tell", end=True),
        Step("later", action="tell", end=True),
        Step("right", action="wait", store="late", end=True),
    ]
    made = Environment(store=MemoryStore(), actions=[Action("tell", tell), Action("wait", wait)])
    return made, made.start(Workflow("beside", steps)).wait(20)


def items_at_once():
    """Run items of which the first ends last; return world and execution."""
    ended = asyncio.Event()

    async def work(item: int) -> int:
        if item == 1:
            await ended.wait()
        else:
            ended.set()
        return item * 2

    each = Each([1, 2], as_="item", parallel=2)
    steps = [Step("all", action="work", parameters={"item": "$(item)"}, each=each, store="doubled")]
    made = Environment(store=MemoryStore(), actions=[Action("work", work)])
    return made, made.start(Workflow("at once", steps)).wait(20)


def test_a_path_does_not_know_what_others_do_later(monkeypatch):
    made, execution = side_by_side()
    with made:
        assert (execution.variables["seen"], execution.variables["late"]) == ("nothing", "late")
        assert made.run_of(execution.id).verify().equal
        monkeypatch.setattr(Tape, "state", property(lambda tape: tape.state_at(tape.high)))
        assert not made.run_of(execution.id).verify().equal, "else the test shows nothing"


def test_an_item_does_not_know_what_others_do_later(monkeypatch):
    made, execution = items_at_once()
    with made:
        assert execution.variables["doubled"] == [2, 4], execution.error
        ended = [e.data.iteration_index for e in execution.history() if e.event_type == "iteration_completed"]
        assert ended == [1, 0]
        assert made.run_of(execution.id).verify().equal
        monkeypatch.setattr(Tape, "state", property(lambda tape: tape.state_at(tape.high)))
        assert not made.run_of(execution.id).verify().equal, "else the test shows nothing"


# --- children in a what-if (trap 21) --------------------------------------------------------------------------------


def test_a_child_in_a_what_if_is_served_whole_or_is_one_itself_and_never_a_run():
    calls = []

    async def work(x: int) -> int:
        calls.append(x)
        return x * 2

    small = Workflow("small", [Step("work", action="work", parameters={"x": "$(inputs.n)"}, store="y")], inputs=["n"])
    calls_it = Step("call", workflow="small", inputs={"n": "$(inputs.n)"}, store="got")
    parent = Workflow("parent", [calls_it, Step("use", script="[state.got, inputs.add]", store="both")])
    parent = Workflow("parent", parent.steps, inputs=["n", "add"])
    with Environment(store=MemoryStore(), actions=[Action("work", work)], workflows=[small, parent]) as made:
        source = made.start("parent", {"n": 3, "add": 1}).wait(20)
        assert source.status == "completed", source.error
        before = {record.execution_id for record in made.store.records()}
        same = made.run_of(source.id).what_if({"inputs": {"add": 2}}).run
        assert same.variables["both"] == [source.variables["got"], 2]
        assert {r.execution_id for r in made.store.records()} - before == {same.id}
        other = made.run_of(source.id).what_if({"inputs": {"n": 4}})
        assert calls == [3]
        told = {r.execution_id: r.origin for r in made.store.records() if r.execution_id not in before}
        assert set(told.values()) == {WHAT_IF}
        assert "0 replayed, 0 live, 1 blocked, 2 unused" in repr(other)
        assert "not executed in a what-if: no recorded result for these arguments" in other.run.error
        assert [call.what for call in other.calls] == ["action work"]
