"""What is reachable in a workflow."""

from divebook.definitions.definition import Workflow, missing_agents
from divebook.definitions.step import Step


def script(name, **settings):
    return Step(name, script="1", **settings)


def diamond():
    steps = [
        script("a", next=["b", "c"]),
        script("b", next="d"),
        script("c", next="d"),
        script("d"),
        script("e", end=True),
    ]
    return Workflow("w", steps)


def test_everything_below_a_step_is_reachable_but_not_the_step_itself():
    assert diamond().reachable("a") == {"b", "c", "d", "e"}
    assert diamond().reachable("c") == {"d", "e"}
    assert diamond().reachable("e") == frozenset()


def test_in_a_circle_a_step_reaches_itself():
    workflow = Workflow("w", [script("a"), script("b", next=[("a", "$(state.again)")])])
    assert workflow.reachable("b") == {"a", "b"}


def test_reachability_is_computed_once():
    workflow = diamond()
    assert workflow.reachable("a") is workflow.reachable("a")


def test_a_long_chain_is_no_problem():
    workflow = Workflow("w", [script(f"s{number}") for number in range(5000)])
    assert len(workflow.reachable("s0")) == 4999


def test_a_stored_definition_with_a_dangling_edge_does_not_break_reachability():
    stored = {"name": "w", "steps": [{"name": "a", "type": "script", "edges": [{"step": "gone"}]}]}
    assert Workflow.from_dict(stored).reachable("a") == {"gone"}


def test_steps_without_an_agent_take_the_default_one():
    workflow = Workflow("w", [Step("a", prompt="x"), Step("b", prompt="x", agent="ghost")])
    assert [problem.message for problem in missing_agents(workflow, [])] == ["agent ghost not found"]
    assert missing_agents(workflow, ["ghost"]) == []
