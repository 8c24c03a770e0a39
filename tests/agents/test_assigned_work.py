"""Work that agents hand to each other: a turn under the key of the call, in the same log."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow, tool
from divebook.definitions.reader import definitions_from
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import ContentEntry, Retry
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.errors import NotFoundError
from divebook.events import catalog
from tests.agents.payable import REFUSED, Payable
from tests.agents.test_approved_calls import TakesAllErrors
from tests.agents.test_turns import began
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="boss", store="birds")])


def work(agent, name="list", **more):
    return {"call": {"assign_work": {"agent": agent, "name": name, "description": "Do it.", **more}}}


ORDER = work("reader", expected_output="names")


class Book:
    def __init__(self):
        self.looked = []

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.looked.append(name)
        return f"{name}: seen"


def agent(name, script, *, supervisor=False, subordinates=None, tools=(), **more):
    names = None if subordinates is None else tuple(subordinates)
    definition = AgentDefinition(name, is_supervisor=supervisor, subordinates=names, **more)
    return Agent(definition, model=ScriptedModel(script, usage={"input_tokens": 10, "output_tokens": 5}), tools=tools)


def world(book, store=None, boss=(ORDER, "an owl"), reader=({"call": {"look": {"name": "owl"}}}, "owl")):
    agents = [agent("boss", list(boss), supervisor=True), agent("reader", list(reader), tools=[book.look], goal="Read")]
    return environment(ASK, agents=agents, **({} if store is None else {"store": store})), agents


def started(execution):
    return [event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted)]


def requests(agents):
    return [agent.model.calls for agent in agents]


def test_assigned_work_is_a_turn_under_the_key_of_its_call():
    book = Book()
    made, agents = world(book)
    execution = made.start("ask").wait(20)
    assert execution.variables == {"birds": "an owl"}, execution.error
    call = "tool-1-call-1-1"
    assert [(operation.key, operation.name) for operation in started(execution)] == [
        ("turn", "boss"),
        ("model-1", "boss"),
        (f"{call}/turn", "reader"),
        (f"{call}/model-1", "reader"),
        (f"{call}/tool-1-call-1-1", "look"),
        (f"{call}/model-2", "reader"),
        ("model-2", "boss"),
    ]
    outer, _, inner, *of_inner, last = started(execution)
    assert {operation.within for operation in of_inner} == {began(execution, inner)}
    assert {inner.within, last.within} == {began(execution, outer)}
    assert inner.parameters["prompt"] == "Do it.\n\nWork: list\n\nExpected output: names"
    assert execution.usage.requests == 4
    assert requests(agents) == [2, 2]


def test_nothing_of_assigned_work_is_done_again_wherever_a_process_ends():
    execution = world(Book())[0].start("ask").wait(20)
    turns = {operation.operation_id for operation in started(execution) if operation.operation_type == "agent_turn"}
    ends = [event for event in execution.history() if event.event_type == "operation_completed"]
    calls = [event.data.operation_id not in turns for event in ends]
    for done, end in enumerate(ends, 1):
        again = Book()
        other, agents = world(again, cut(execution.store, execution, end.sequence))
        resumed = other.run_of(execution.id).resume().wait(20)
        for question in resumed.open_questions:  # a call that was under way: nobody knows whether it took effect
            resumed.answer(question.id, {"choice": "retry"}).wait(20)
        assert resumed.variables == execution.variables
        assert sum(requests(agents)) + len(again.looked) == sum(calls[done:]), f"after {done} of {len(ends)}"


def test_two_agents_work_side_by_side_each_in_its_own_lane():
    both = [ORDER, work("writer", expected_output="text")]
    agents = [
        agent("boss", [both, "done"], subordinates=["reader", "writer"]),
        agent("reader", ["read"]),
        agent("writer", ["written"]),
        agent("other", ["never"]),
    ]
    execution = environment(ASK, agents=agents).start("ask").wait(20)
    assert execution.variables == {"birds": "done"}, execution.error
    turns = {
        operation.key: operation.name for operation in started(execution) if operation.operation_type == "agent_turn"
    }
    assert turns == {"turn": "boss", "tool-1-call-1-1/turn": "reader", "tool-1-call-1-2/turn": "writer"}


def test_an_agent_that_cannot_be_given_work_is_named_to_the_model_which_may_try_again():
    made, agents = world(Book(), boss=(work("nobody", expected_output="x"), ORDER, "an owl"))
    execution = made.start("ask").wait(20)
    assert execution.variables == {"birds": "an owl"}, execution.error
    assert requests(agents) == [3, 2]


def test_an_agent_is_given_no_work_by_those_it_works_for_and_a_line_ends():
    names = ["boss", "b", "c", "d", "e"]
    agents = [
        agent(name, [work(names[at + 1] if at < 4 else "boss", expected_output="x"), name], subordinates=names)
        for at, name in enumerate(names)
    ]
    agents[3] = agent("d", ["the end"], subordinates=names)  # it has no such tool: nobody stands below it
    execution = environment(ASK, agents=agents).start("ask").wait(20)
    assert execution.variables == {"birds": "boss"}, execution.error
    assert requests(agents) == [2, 2, 2, 1, 0]
    lines = [view for view in execution.requests if view.agent == "c"]
    (tool,) = lines[0].tools
    assert tool["parameters_json_schema"]["properties"]["agent"]["enum"] == ["d", "e"]


def test_what_an_agent_knows_stands_before_the_work_that_it_is_given():
    context = (ContentEntry(text="The house rules."), ContentEntry(dynamic="'Room ' + str(7)"))
    agents = [agent("boss", [ORDER, "done"], supervisor=True), agent("reader", ["read"], context=context)]
    execution = environment(ASK, agents=agents).start("ask").wait(20)
    assert execution.variables == {"birds": "done"}, execution.error
    keys = [operation.key for operation in started(execution)]
    assert "tool-1-call-1-1/content-2" in keys
    (view,) = [view for view in execution.requests if view.agent == "reader"]
    assert "The house rules." in str(view.messages)
    assert "Room 7" in str(view.messages)


def test_a_failure_of_assigned_work_fails_the_step_and_only_that_is_done_again():
    failing = [True]

    def look(name: str) -> str:
        """Look a bird up."""
        if failing:
            raise ValueError("no such page")
        return f"{name}: seen"

    reader = agent("reader", [{"call": {"look": {"name": "owl"}}}, "owl"], tools=[look])
    boss = agent("boss", [ORDER, "an owl"], supervisor=True)
    made = environment(ASK, agents=[boss, reader])
    execution = made.start("ask").wait(20)
    assert execution.status == "failed"
    assert "no such page" in execution.error
    failing.clear()
    resumed = made.run_of(execution.id).resume().wait(20)
    assert resumed.variables == {"birds": "an owl"}, resumed.error
    assert requests([boss, reader]) == [2, 2]


def test_who_may_be_given_work():
    plain, boss, other = agent("plain", []), agent("boss", [], supervisor=True), agent("other", [], supervisor=True)
    chooser = agent("chooser", [], subordinates=["plain"])
    made = environment(agents=[plain, boss, chooser])
    assert [found.name for found in made.internals.registry.subordinates_for(boss.definition)] == ["plain", "chooser"]
    assert [found.name for found in made.internals.registry.subordinates_for(chooser.definition)] == ["plain"]
    assert made.internals.registry.subordinates_for(plain.definition) == []
    made.add_agent(other)
    assert made.internals.registry.subordinates_for(boss.definition) == []
    lost = agent("boss", ["x"], subordinates=["nobody"])
    with pytest.raises(NotFoundError, match="nobody"):
        environment(ASK, agents=[lost]).start("ask")


def test_a_person_is_asked_about_calls_of_an_agent_that_was_given_work_while_another_works_on():
    removed = []

    def remove(name: str) -> str:
        """Remove a bird."""
        removed.append(name)
        return "gone"

    tool(destructive=True)(remove)
    both = [ORDER, work("writer", expected_output="text")]
    agents = [
        agent("boss", [both, "done"], subordinates=["reader", "writer"]),
        agent("reader", [{"call": {"remove": {"name": "owl"}}}, "read"], tools=[remove]),
        agent("writer", ["written"]),
    ]
    execution = environment(ASK, agents=agents).start("ask").wait(20)
    (question,) = execution.open_questions
    assert (question.data["agent"], question.data["tool"]) == ("reader", "remove")
    assert (removed, requests(agents)) == ([], [1, 1, 1])
    for _ in range(2):  # another process takes it up, and nothing is done again
        again = [
            agent(each.name, each.model.replies, subordinates=each.definition.subordinates, tools=each.tools)
            for each in agents
        ]
        other = environment(ASK, agents=again, store=cut(execution.store, execution, len(execution.history())))
        resumed = other.run_of(execution.id).resume().wait(20)
        assert requests(again) == [0, 0, 0]
        assert [found.id for found in resumed.open_questions] == [question.id]
    resumed.answer(question.id, {"approved": True, "data": {"parameters": {"name": "wren"}}}).wait(20)
    assert resumed.variables == {"birds": "done"}, resumed.error
    assert (removed, requests(again)) == (["wren"], [1, 1, 0])


def test_what_assigned_work_has_spent_counts_whatever_process_goes_on():
    def bounded(store=None):
        boss = AgentDefinition("boss", is_supervisor=True, bounds={"max_llm_calls": 4})
        orders = [ORDER, work("reader", "second", expected_output="names"), "done"]
        agents = [
            Agent(boss, model=ScriptedModel(orders)),
            agent("reader", [{"call": {"look": {"name": "owl"}}}, "read"], tools=[Book().look]),
        ]
        return environment(ASK, agents=agents, **({} if store is None else {"store": store}))

    execution = bounded().start("ask").wait(20)
    ends = [event for event in execution.history() if event.event_type == "operation_completed"]
    assert [event.data.operation_type for event in ends].count("agent_turn") == 1
    for end in ends:
        resumed = bounded(cut(execution.store, execution, end.sequence)).run_of(execution.id).resume().wait(20)
        (question,) = resumed.open_questions
        assert "Agent 'boss': Budget reached: 4 of 4 model calls made" in question.question
        assert resumed.usage.requests == 4
    assert resumed.answer(question.id, {"decision": "raise", "data": {"to": 9}}).wait(20).variables == {"birds": "done"}


def test_a_person_may_have_the_work_done_by_another():
    agents = [agent("boss", [ORDER, "done"], supervisor=True), agent("reader", ["read"]), agent("writer", ["written"])]
    rule = {"tool": "assign_work", "outcome": "ask"}
    execution = environment(ASK, agents=agents, approvals=[rule]).start("ask").wait(20)
    (question,) = execution.open_questions
    given = {**question.data["parameters"], "agent": "writer"}
    execution.answer(question.id, {"approved": True, "data": {"parameters": given}}).wait(20)
    assert (execution.variables, requests(agents)) == ({"birds": "done"}, [2, 0, 1])


READ = [{"call": {"look": {"name": "owl"}}}] * 5


def both_at_once(store=None, **bounds):
    """Return a world in which two agents are given work in one answer, and each of them would go on for long."""
    boss = AgentDefinition("boss", is_supervisor=True, bounds=bounds or {"max_llm_calls": 7})
    look = ToolFunction("look", Book().look, hints=ToolHints(read_only=True))
    orders = [work(name, expected_output="names") for name in ("left", "right")]
    readers = [agent(name, [*READ, "read"], tools=[look]) for name in ("left", "right")]
    agents = [Agent(boss, model=ScriptedModel([orders, "done"])), *readers]
    return environment(ASK, agents=agents, **({} if store is None else {"store": store}))


def test_works_that_are_handed_on_at_once_share_what_is_left():
    execution = both_at_once().start("ask").wait(20)
    met = "(its share of the bounds of agent 'boss'): Budget reached: 3 of 3 model calls made"
    said = sorted(question.question.partition(". Raise")[0] for question in execution.open_questions)
    assert said == [f"Agent 'left' {met}", f"Agent 'right' {met}"]
    assert execution.usage.requests == 7


def test_the_shares_are_the_same_whatever_process_goes_on():
    execution = both_at_once().start("ask").wait(20)
    ends = [event.sequence for event in execution.history() if event.event_type == "operation_completed"]
    assert len(ends) > 9
    for end in ends[::3]:
        resumed = both_at_once(cut(execution.store, execution, end)).run_of(execution.id).resume().wait(20)
        assert (resumed.usage.requests, len(resumed.open_questions)) == (7, 2)
        assert all("3 of 3 model calls" in question.question for question in resumed.open_questions)


def test_work_that_failed_for_its_share_has_a_new_one_when_it_is_done_again():
    """It had the old one, so that raising the bounds of who had given it the work was of no use."""
    bounded = both_at_once(max_llm_calls=7, on_exhausted="fail")
    failed = bounded.start("ask").wait(20)
    assert "in the Bounds of agent 'boss' and resume" in failed.error
    more = both_at_once(bounded.store, max_llm_calls=40, on_exhausted="fail")
    spent = [
        more.run_of(failed.id).resume().wait(20).usage.requests for _ in range(2)
    ]  # one failure at a time is made again
    assert (more.run_of(failed.id).status, spent) == ("completed", [10, 14])


def test_replies_that_failed_work_has_paid_for_count_whatever_process_goes_on():
    def bounded(store=None):
        boss = AgentDefinition("boss", is_supervisor=True, bounds={"max_tokens": 150})
        orders = [ORDER, work("reader", "second", expected_output="names"), "done"]
        agents = [
            Agent(boss, model=ScriptedModel(orders), capabilities=[TakesAllErrors()]),
            Agent(AgentDefinition("reader", retry=Retry(1)), model=Payable([(REFUSED, 90)]), tools=[Book().look]),
        ]
        return environment(ASK, agents=agents, **({} if store is None else {"store": store}))

    execution = bounded().start("ask").wait(20)
    (question,) = execution.open_questions
    assert "Agent 'boss': Budget reached: 90 of 150 tokens used" in question.question
    failed = [event.sequence for event in execution.history() if event.event_type == "operation_failed"]
    resumed = bounded(cut(execution.store, execution, failed[-1])).run_of(execution.id).resume().wait(20)
    assert [asked.question for asked in resumed.open_questions] == [question.question]


def test_what_failed_work_has_spent_counts_whatever_process_goes_on():
    def bounded(store=None):
        boss = AgentDefinition("boss", is_supervisor=True, bounds={"max_llm_calls": 4})
        orders = [ORDER, work("reader", "second", expected_output="names"), "done"]
        look = ToolFunction("look", Book().look, hints=ToolHints(read_only=True))
        script = ScriptedModel(turns=[[*READ[:1], {"error": "lost", "status": 400}], [*READ[:1], "read"]])
        agents = [
            Agent(boss, model=ScriptedModel(orders), capabilities=[TakesAllErrors()]),
            Agent("reader", model=script, tools=[look]),
        ]
        return environment(ASK, agents=agents, **({} if store is None else {"store": store}))

    execution = bounded().start("ask").wait(20)
    ends = [e for e in execution.history() if e.event_type in ("operation_completed", "operation_failed")]
    (failed,) = [e for e in ends if (e.event_type, e.data.operation_type) == ("operation_failed", "agent_turn")]
    asked = [question.question for question in execution.open_questions]
    assert ["Agent 'boss': Budget reached: 4 of 4 model calls made" in said for said in asked] == [True]
    spent = execution.usage.requests
    for end in ends[ends.index(failed) :]:
        resumed = bounded(cut(execution.store, execution, end.sequence)).run_of(execution.id).resume().wait(20)
        assert ([question.question for question in resumed.open_questions], resumed.usage.requests) == (asked, spent), (
            end
        )


@pytest.mark.parametrize(
    ("dialect", "written", "expected"),
    [
        ("divebook", {}, ["other"]),
        ("divebook", {"Subordinates": []}, []),
        ("dive", {}, ["other"]),
        ("dive", {"Subordinates": []}, ["other"]),
    ],
)
def test_an_empty_list_of_subordinates_names_none_outside_the_legacy_dialect(dialect, written, expected):
    data = {"Agents": [{"Name": "boss", "IsSupervisor": True, **written}, {"Name": "other"}]}
    world = environment(agents=[Agent(each) for each in definitions_from(data, dialect=dialect).agents])
    subordinates = world.internals.registry.subordinates_for(world.definitions.agents["boss"].definition)
    assert [agent.name for agent in subordinates] == expected


def test_an_agent_of_python_with_an_empty_list_of_subordinates_has_none():
    world = environment(agents=[agent("boss", ["x"], supervisor=True), Agent("other")])
    registry = world.internals.registry
    assert [each.name for each in registry.subordinates_for(world.definitions.agents["boss"].definition)] == ["other"]
    assert Agent("b", subordinates=[]).definition.subordinates == ()
    assert Agent("b").definition.subordinates is None
    added = Agent(AgentDefinition("b", subordinates=("x",)), subordinates=["y"])
    assert added.definition.subordinates == ("x", "y")
