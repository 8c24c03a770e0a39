"""Calls of tools that wait for a person: none disturbs another, wherever the turn goes on."""

import threading

import pydantic_ai
import pytest
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

from divebook import Agent, ScriptedModel, tool
from divebook.agents.scripted_model import ScriptedFunction
from divebook.definitions.resources import ApprovalRule
from divebook.definitions.tools import ToolFunction
from divebook.runtime.runner import PARKED_RUNS
from tests.agents.test_tool_limits import returns_of
from tests.agents.test_turns import ASK, started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

THREE = [
    [
        {"call": {"send": {"to": "ann"}}},
        {"call": {"look": {"name": "owl"}}},
        {"call": {"send": {"to": "bob"}}},
    ],
    "done",
]


@pytest.fixture(params=["where it stands", "replayed"])
def goes_on(request, monkeypatch):
    """Have a turn that waits stay in memory, or be let go and replayed."""
    if request.param == "replayed":
        monkeypatch.setattr(PARKED_RUNS, "most", 0)
    return request.param


class Post:
    """A tool that asks first, and one that does not."""

    def __init__(self):
        self.sent, self.looked = [], []

    @property
    def tools(self):
        def send(to: str) -> str:
            """Send a letter."""
            self.sent.append(to)
            return f"sent to {to}"

        def look(name: str) -> str:
            """Look a bird up."""
            self.looked.append(name)
            return f"{name}: seen"

        return [ToolFunction("send", send, approval=True), look]

    def world(self, script=THREE, **settings):
        self.model = ScriptedModel(script)
        return environment(ASK, agents=[Agent("a", model=self.model, tools=self.tools)], **settings)


def question_about(execution, to):
    (found,) = [q for q in execution.open_questions if q.data["parameters"]["to"] == to]
    return found


@pytest.mark.usefixtures("goes_on")
def test_all_questions_of_a_response_stand_at_once_and_no_sibling_is_cut():
    post = Post()
    execution = post.world().start("ask").wait(20)
    assert (post.sent, post.looked, len(execution.open_questions)) == ([], ["owl"], 2)
    execution.answer(question_about(execution, "bob").id, "yes").wait(20)
    assert (post.sent, post.looked, len(execution.open_questions)) == (["bob"], ["owl"], 1)
    execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    assert execution.variables == {"birds": "done"}
    assert (post.sent, post.looked, post.model.calls) == (["bob", "ann"], ["owl"], 2)
    assert returns_of(execution, 2) == ["sent to ann", "owl: seen", "sent to bob"]
    keys = [o.key for o in started(execution) if o.operation_type == "tool_call"]
    assert sorted(keys) == ["tool-1-call-1-1", "tool-1-call-1-2", "tool-1-call-1-3"]


@pytest.mark.usefixtures("goes_on")
def test_a_question_cancels_no_sibling_that_is_under_way():
    reached, opened = threading.Event(), threading.Event()
    post = Post()

    def look(name: str) -> str:
        """Look a bird up."""
        reached.set()
        assert opened.wait(20)
        post.looked.append(name)
        return f"{name}: seen"

    send, _ = post.tools
    agent = Agent("a", model=ScriptedModel(THREE), tools=[send, look])
    execution = environment(ASK, agents=[agent]).start("ask")
    assert reached.wait(20)
    opened.set()
    execution.wait(20)
    assert (post.looked, len(execution.open_questions)) == (["owl"], 2)
    for to in ("ann", "bob"):
        execution.answer(question_about(execution, to).id, "yes").wait(20)
    assert (execution.status, post.looked, post.sent) == ("completed", ["owl"], ["ann", "bob"])


@pytest.mark.usefixtures("goes_on")
def test_what_a_person_says_reaches_the_model_and_edits_reach_the_tool():
    post = Post()
    execution = post.world().start("ask").wait(20)
    execution.answer(question_about(execution, "ann").id, "no: she has moved").wait(20)
    data = {"approved": True, "data": {"parameters": {"to": "carl"}}}
    execution.answer(question_about(execution, "bob").id, data).wait(20)
    assert (execution.status, post.sent) == ("completed", ["carl"])
    assert returns_of(execution, 2) == ["User denied tool call: she has moved", "owl: seen", "sent to carl"]
    (call,) = [o for o in started(execution) if o.name == "send"]
    assert call.parameters["arguments"] == {"to": "carl"}


def test_no_yes_allows_what_a_rule_denies_of_an_edited_call_or_denies_by_now():
    """An edit on the card went past the rules: who answers may be another than who made them."""
    post, rule = Post(), {"tool": "send", "arguments": {"to": "zoe"}, "outcome": "deny", "reason": "not her"}
    execution = post.world(approvals=[rule]).start("ask").wait(20)
    edited = {"approved": True, "data": {"parameters": {"to": " ZOE"}}}
    execution.answer(question_about(execution, "bob").id, edited).wait(20)
    done = execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    assert (done.status, post.sent) == ("completed", ["ann"])
    assert "A rule denies send: not her" in str(post_told(done))
    again = (
        post.world(store=cut(done.store, done, len(done.history()) - 2), approvals=[]).run_of(done.id).resume().wait(20)
    )
    assert (again.status, post.sent) == ("completed", ["ann"])


def test_a_rule_that_came_while_a_call_waited_holds_when_it_is_approved():
    post = Post()
    execution = post.world().start("ask").wait(20)
    rule = {"tool": "send", "arguments": {"to": "bob"}, "outcome": "deny"}
    later = post.world(store=cut(execution.store, execution, len(execution.history())), approvals=[rule])
    resumed = later.run_of(execution.id).resume().wait(20)
    for question in resumed.open_questions:
        resumed = later.answer(question.id, "yes").wait(20)
    assert (resumed.status, post.sent) == ("completed", ["ann"])


def post_told(execution):
    return execution.requests[-1].messages


def test_an_edit_that_only_changes_a_type_reaches_the_tool():
    taken = []

    def put(value: int | bool) -> str:
        """Put a value."""
        taken.append(value)
        return "put"

    agent = Agent("a", model=ScriptedModel([{"call": {"put": {"value": 1}}}, "done"]), tools=[tool(approval=True)(put)])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    (question,) = execution.open_questions
    execution.answer(question.id, {"approved": True, "data": {"parameters": {"value": True}}}).wait(20)
    assert (execution.status, [repr(value) for value in taken]) == ("completed", ["True"])


def test_a_rule_denies_without_a_question_and_the_log_keeps_it():
    post = Post()
    rule = ApprovalRule(tool="send", arguments={"to": "*"}, outcome="deny", reason="no letters today")
    execution = post.world(approvals=[rule]).start("ask").wait(20)
    assert (execution.status, post.sent) == ("completed", [])
    denied = "A rule denies send: no letters today"
    assert returns_of(execution, 2) == [denied, "owl: seen", denied]
    at = max(e.sequence for e in execution.history() if e.event_type == "operation_started") - 1
    resumed = post.world(store=cut(execution.store, execution, at)).run_of(execution.id).resume().wait(20)
    assert (resumed.status, post.sent, resumed.open_questions, post.model.calls) == ("completed", [], [], 1)


def library_agent(*tools, **options):
    return pydantic_ai.Agent(ScriptedFunction(ScriptedModel(THREE)), name="a", tools=tools, **options)


@pytest.mark.usefixtures("goes_on")
def test_approvals_and_answers_that_a_library_agent_waits_for_are_questions():
    post, asked = Post(), []

    def look(name: str) -> str:
        """Look a bird up."""
        asked.append(name)
        raise CallDeferred

    def send(to: str) -> str:
        """Send a letter."""
        post.sent.append(to)
        return f"sent to {to}"

    agent = library_agent(look, pydantic_ai.Tool(send, requires_approval=True))
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert len(execution.open_questions) == 3
    (look_up,) = [q for q in execution.open_questions if q.data.get("tool") == "look"]
    execution.answer(look_up.id, "an owl").wait(20)
    execution.answer(question_about(execution, "bob").id, "no").wait(20)
    execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    assert (execution.status, post.sent, asked) == ("completed", ["ann"], ["owl"])
    assert returns_of(execution, 2) == ["sent to ann", "an owl", "User denied tool call"]


@pytest.mark.usefixtures("goes_on")
@pytest.mark.parametrize("rules", [(), [ApprovalRule(tool="send", outcome="ask")]])
def test_a_tool_that_wants_a_call_approved_is_called_again_once_it_is(rules):
    sent = []

    def send(ctx: pydantic_ai.RunContext, to: str) -> str:
        """Send a letter."""
        sent.append((to, ctx.tool_call_approved))
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"sent to {to}"

    def look(name: str) -> str:
        """Look a bird up."""
        return f"{name}: seen"

    execution = environment(ASK, agents=[Agent.of(library_agent(look, send), approvals=rules)]).start("ask").wait(20)
    assert list(execution.tool_calls.status) == ["waiting", "completed", "waiting"]
    execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    execution.answer(question_about(execution, "bob").id, "no").wait(20)
    assert (execution.error, execution.status) == (None, "completed")
    assert [call for call in sent if call[1]] == [("ann", True)]
    assert len(sent) == len(set(sent)) == 3 - len(rules)  # a rule asks about bob's before it is called
    assert returns_of(execution, 2) == ["sent to ann", "owl: seen", "User denied tool call"]
    assert list(execution.tool_calls.outcome) == ["returned", "returned", "denied"]


class TakesAllErrors(AbstractCapability):
    """Makes an answer of whatever ends a run."""

    async def on_run_error(self, ctx, *, error):
        return pydantic_ai.run.AgentRunResult(output=f"gave up: {type(error).__name__}")

    async def on_tool_execute_error(self, ctx, *, call, tool_def, args, error):
        return "gave up"


def test_a_hook_that_makes_a_result_of_every_error_does_not_end_a_waiting_turn(monkeypatch):
    monkeypatch.setattr(PARKED_RUNS, "most", 0)
    post = Post()
    agent = Agent("a", model=ScriptedModel(THREE), tools=post.tools, capabilities=[TakesAllErrors()])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert (execution.status, len(execution.open_questions)) == ("waiting", 2)
    for to in ("ann", "bob"):
        execution.answer(question_about(execution, to).id, "yes").wait(20)
    assert execution.variables == {"birds": "done"}
    assert post.sent == ["ann", "bob"]


def test_an_approved_call_that_was_cut_is_asked_about_and_not_approved_again():
    post = Post()
    execution = post.world([{"call": {"send": {"to": "ann"}}}, "done"]).start("ask").wait(20)
    (question,) = execution.open_questions
    execution.answer(question.id, {"approved": True, "data": {"parameters": {"to": "carl"}}}).wait(20)
    (call,) = [e.sequence for e in execution.history() if getattr(e.data, "operation_type", "") == "tool_call"][:1]
    other = Post()
    world = other.world([{"call": {"send": {"to": "ann"}}}, "done"], store=cut(execution.store, execution, call))
    resumed = world.run_of(execution.id).resume().wait(20)
    (unknown,) = resumed.open_questions
    assert unknown.question.startswith("Did the call to send")
    assert 'It was called with to = "carl".' in unknown.message
    assert other.sent == []
