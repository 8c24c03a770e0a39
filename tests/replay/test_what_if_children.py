"""What-ifs that ask for another workflow otherwise than their source did: that one is a what-if itself."""

from collections import Counter

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.agents import Agent, ScriptedModel
from divebook.events.codec import encode_line
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

CALLS = Counter()
PRICE = 0.25
INNER = Workflow(
    "inner",
    [
        Step("weigh", action="weigh", parameters={"of": "stone"}, store="weight"),
        Step("sum", script="state.weight + inputs.n", store="sum"),
        Step("say", agent="poet", prompt="It weighs ${state.sum}", store="said"),
        Step("sure", ask="Sure?", store="sure"),
    ],
    inputs=["n"],
    outputs=["sum", "said", "sure"],
)
CALL = Step("call", workflow="inner", inputs={"n": "$(inputs.n)"}, store="got")
OUTER = Workflow("outer", [CALL, Step("take", script="state.got", store="taken")], inputs=["n"], outputs=["taken"])


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


def weigh(of):
    CALLS[of] += 1
    return 10


def world(*flows):
    poet = Agent("poet", model=ScriptedModel(["it is", "it was", "so be it"], price=PRICE))
    return Environment(store=MemoryStore(), actions=[Action("weigh", weigh)], agents=[poet], workflows=flows)


def answered(execution, environment, response):
    """Answer the question of the workflow that an execution asked for; return the execution."""
    ((child, question),) = environment.inbox()
    environment.answer(question.id, response, run=child).wait(20)
    return execution.wait(20)


@pytest.fixture
def source():
    """Return an environment and a run in it that has asked for another workflow."""
    with world(INNER, OUTER) as environment:
        made = answered(environment.start("outer", {"n": 1}).wait(20), environment, "yes")
        assert made.status == "completed", made.error
        CALLS.clear()
        yield environment, made


def test_another_workflow_with_other_inputs_is_a_what_if_itself(source):
    environment, made = source
    before = [encode_line(event) for event in made.history()]
    (child,) = environment.store.records(origin="child")
    plan = environment.run_of(made.id).what_if({"inputs": {"n": 2}}, plan=True)
    assert ([*map(str, plan.live)], plan.cost, plan.unknown) == (["workflow inner (step call)"], None, ("take",))
    found = environment.run_of(made.id).what_if({"inputs": {"n": 2}})
    assert found.outputs == {"taken": {"sum": 12, "said": "it was", "sure": "yes"}}
    assert (found.served, found.live, found.blocked, found.cost, found.comparable) == (2, 1, 0, PRICE, "full")
    assert [call.what for call in found.calls] == ["model call poet"]
    (inner,) = [record for record in environment.store.records(origin="what-if") if record.workflow_name == "inner"]
    assert (inner.parent, inner.status) == (child.execution_id, "completed")
    assert found.calls[0].step == f"say of {inner.execution_id}"
    assert environment.run_of(inner.execution_id).verify().equal
    assert environment.run_of(found.run.id).verify().equal
    assert [encode_line(event) for event in made.history()] == before
    assert (CALLS, environment.queues.recoverable()) == (Counter(), [])


def test_a_question_that_was_never_asked_waits_in_it_and_both_go_on_once_it_is_answered():
    asking = Workflow(
        "inner",
        [*INNER.steps[:-1], Step("sure", ask="Sure of ${inputs.n}?", store="sure")],
        inputs=["n"],
        outputs=["sum", "sure"],
    )
    with world(asking, OUTER) as environment:
        made = answered(environment.start("outer", {"n": 1}).wait(20), environment, "yes")
        found = environment.run_of(made.id).what_if({"inputs": {"n": 2}}).run
        assert found.status == "waiting"
        with world(asking, OUTER) as other:  # the process ends, and another one is given the answer
            for record in sorted(environment.store.records(), key=lambda record: record.execution_id):
                other.store.append(record.execution_id, list(environment.store.read(record.execution_id)), 0)
            assert other.queues.recoverable() == []
            again = answered(other.run_of(found.id), other, "no")
            assert (again.status, again.outputs["taken"]["sure"]) == ("completed", "no")
        found = answered(found, environment, "certainly")
        assert (found.status, found.outputs["taken"]["sure"], found.outputs["taken"]["sum"]) == (
            "completed",
            "certainly",
            12,
        )
        inner = next(r for r in environment.store.records(origin="what-if") if r.workflow_name == "inner")
        again = environment.run_of(inner.execution_id).what_if({"inputs": {"n": 3}}, at=1)
        assert again.run.variables["sum"] == 13, "it can be gone through again as any other"
    assert CALLS["stone"] == 1


def small_and_many():
    """Return a workflow, and one that asks for it once for each of its inputs, two at a time."""
    each = Each("$(inputs.ns)", as_="n", parallel=2)
    asking = Step("call", workflow="small", inputs={"n": "$(n)"}, each=each, store="all")
    weighing = Step("weigh", action="weigh", parameters={"of": "stone"}, store="weight")
    adding = Step("sum", script="state.weight * inputs.n", store="sum")
    small = Workflow("small", [weighing, adding], inputs=["n"], outputs=["sum"])
    return small, Workflow("many", [asking], inputs=["ns"], outputs=["all"])


def test_items_take_the_one_of_their_place_and_one_that_was_never_begun_takes_the_first():
    with world(*small_and_many()) as environment:
        made = environment.start("many", {"ns": [1, 2]}).wait(20, check=True)
        CALLS.clear()
        found = environment.run_of(made.id).what_if({"inputs": {"ns": [2, 5, 7]}})
        assert [each["sum"] for each in found.outputs["all"]] == [20, 50, 70]
        assert (found.served, found.live, found.blocked, CALLS) == (3, 0, 0, Counter())


def test_wherever_it_is_killed_both_come_to_the_same():  # traps 18, 21
    with world(*small_and_many()) as environment:
        made = environment.start("many", {"ns": [1, 2]}).wait(20, check=True)
        CALLS.clear()
        commits, kept = [], {name.execution_id for name in environment.store.records()}
        unsubscribe = environment.store.subscribe(lambda name, events: commits.append((name, events[-1].sequence)))
        found = environment.run_of(made.id).what_if({"inputs": {"ns": [3, 4]}})
        unsubscribe()
        logs = {
            record.execution_id: environment.store.read(record.execution_id) for record in environment.store.records()
        }
        last = max(place for place, (name, _) in enumerate(commits) if name == found.run.id)
        cuts = [dict(commits[: place + 1]) for place in range(last)]
        for cut in [cut for cut in cuts if found.run.id in cut]:
            with world(*small_and_many()) as other:
                for name in (*kept, *cut):
                    other.store.append(name, list(logs[name])[: cut.get(name)], 0)
                again = other.run_of(found.run.id).resume().wait(20)
                assert (again.status, again.outputs) == ("completed", found.outputs)
        assert (len(cuts) > 8, CALLS) == (True, Counter())
