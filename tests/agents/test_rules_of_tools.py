"""Rules for calls of tools, in turns of agents: made on cards, by the environment and by agents, and judged once."""

import pytest

from divebook import Agent, ScriptedModel
from divebook.definitions import ApprovalRule
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.errors import InterruptError
from divebook.stores import MemoryStore
from tests.agents.test_tool_limits import returns_of
from tests.agents.test_turns import ASK, started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, question_of

TWICE = [{"call": {"send": {"to": "ann", "copies": 1}}}, {"call": {"send": {"to": "ann", "copies": 1}}}, "done"]


class Post:
    """A tool that asks first, and an agent that has it."""

    def __init__(self, script=TWICE, store=None, own=(), **settings):
        self.sent = []
        self.model = ScriptedModel(list(script))
        agent = Agent("a", model=self.model, tools=[self.tool], approvals=own)
        self.world = environment(ASK, agents=[agent], store=store if store is not None else MemoryStore(), **settings)

    @property
    def tool(self):
        def send(to: str, copies: int = 1) -> str:
            self.sent.append((to, copies))
            return f"sent to {to}"

        return ToolFunction("send", send, "Send a letter.", hints=ToolHints(destructive=True))

    def asked(self):
        return self.world.start("ask").wait(20)


def approved(run, **data):
    return run.answer(question_of(run).id, {"approved": True, **({"data": data} if data else {})}).wait(20)


def test_a_card_shows_the_call_and_what_it_may_become():
    run = Post().asked()
    question = question_of(run)
    assert (question.question, question.message) == ("Run send?", "Send a letter.")
    assert question.data == {
        "tool": "send",
        "parameters": {"to": "ann", "copies": 1},
        "agent": "a",
        "hints": {"destructive": True},
        "rule": "if-destructive",
        "offers": {"scopes": ["run", "always"], "expires_in": 86_400},
    }


def test_arguments_that_do_not_fit_the_tool_are_refused_and_the_question_stays():
    post = Post()
    run = post.asked()
    for wrong in ({"to": 7}, {"to": "ann", "copies": "many"}, {"copies": 2}, {"to": "ann", "where": "here"}):
        with pytest.raises(InterruptError, match="data does not fit"):
            run.answer(question_of(run).id, {"approved": True, "data": {"parameters": wrong}})
    run = approved(run, parameters={"to": "bob", "copies": 2})
    assert post.sent == [("bob", 2)]


def test_a_rule_for_this_run_holds_for_later_calls_of_the_turn_and_ends_with_it():
    post = Post()
    run = approved(post.asked(), rule={"scope": "run"})
    assert (run.status, post.sent, len(run.state.interrupts)) == ("completed", [("ann", 1)] * 2, 1)
    assert [call.setting["rule"] for call in started(run) if call.operation_type == "tool_call"][1].startswith("rule_")
    assert Post(store=post.world.store).asked().status == "waiting"


def test_a_rule_for_always_holds_in_the_next_run_until_it_is_revoked():
    post = Post()
    approved(post.asked(), rule={"scope": "always"})
    ((_, rule),) = post.world.rules
    assert (rule.tool, rule.agent, rule.kind) == ("send", "a", "tool")
    assert Post(store=post.world.store).asked().status == "completed"
    other = Post(store=post.world.store)
    other.world.add_agent(Agent("b", model=ScriptedModel(TWICE), tools=[other.tool]))
    post.world.rules.revoke(rule.rule_id)
    assert Post(store=post.world.store).asked().status == "waiting"


def test_what_is_nearly_the_call_that_was_allowed_is_asked_about():
    for near in ({"to": "Ann", "copies": 1}, {"to": "ann", "copies": 2}, {"to": "ann "}):
        post = Post([TWICE[0], {"call": {"send": near}}, "done"])
        run = approved(post.asked(), rule={"scope": "run"})
        assert (run.status, len(post.sent)) == ("waiting", 1), near


def test_rules_of_an_agent_are_about_its_own_calls():
    allow = ApprovalRule("send", arguments={"to": "a*", "copies": 1})
    assert Post(own=[allow]).asked().status == "completed"
    post = Post(own=[allow], approvals=[{"tool": "send", "outcome": "deny", "reason": "no letters"}])
    run = post.asked()
    assert (run.status, post.sent) == ("completed", [])
    assert returns_of(run, 2) == ["A rule denies send: no letters"]
    post = Post()
    post.world.add_agent(Agent("b", model=ScriptedModel(TWICE), tools=[post.tool], approvals=[allow]))
    assert post.asked().status == "waiting", "the rule is for the other agent"


def test_a_call_that_the_log_has_is_not_judged_again():
    allow = {"tool": "send", "outcome": "allow"}
    post = Post(approvals=[allow])
    run = post.asked()
    ended = [event.sequence for event in run.history() if event.event_type == "operation_completed"]
    left = cut(post.world.store, run, ended[1])  # the first call has ended, its turn goes on
    strict = Post(store=left, approvals=[{"tool": "send", "outcome": "deny"}])
    resumed = strict.world.run_of(run.id).resume().wait(20)
    assert (resumed.status, strict.sent) == ("completed", [])
    assert returns_of(resumed, 2) == ["sent to ann"]
    assert returns_of(resumed, 3) == ["A rule denies send"]
