"""Questions that a server asks during a call: what it is told in the end, and who waits for the answer meanwhile."""

import asyncio
import json
import threading

import pytest

from divebook import Agent, Each, ScriptedModel, Step, Workflow
from divebook.config import answers
from divebook.definitions.functions import workflow
from divebook.definitions.json_schemas import FITTING
from divebook.definitions.resources import ApprovalRule
from divebook.errors import InterruptError
from divebook.questions.answer import checked_answer
from divebook.questions.question import Question
from divebook.runtime.run import asked_questions
from tests.runtime.test_expiring import Watch
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import Gate, becomes, environment
from tests.tools.conftest import defined
from tests.tools.test_mcp_turns import results

ASK = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")])
LATE = 280_000_000
"""Microseconds after which a question has expired, and the call that asked it has not."""
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def form(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def elicit(schema):
    return ["elicitation/create", {"message": "Delete all backups?", "requestedSchema": schema}]


URL = ["elicitation/create", {"mode": "url", "message": "Pay?", "url": "https://example.org/", "elicitationId": "1"}]
CHOICES = {"type": "string", "enum": ["decline", "accept"]}
FORMS = {
    "optional": (form({"why": TEXT}), {"why": "old"}),
    "required": (form({"why": TEXT}, "why"), {"why": "old"}),
    "closed": (form({"why": TEXT}, additionalProperties=False), {"why": "old"}),
    "two": (form({"n": NUMBER, "sure": {"type": "boolean"}}, "n"), {"n": 3, "sure": True}),
    "choice": (form({"choice": CHOICES}, "choice"), {"choice": "decline"}),
    "property data": (form({"data": TEXT}), {"data": "decline"}),
    "properties of answers": (form({"text": TEXT, "decision": TEXT, "data": TEXT}), {"text": "a", "decision": "b"}),
    "default accepts": (form({"why": {**TEXT, "default": "yes"}}, default={"why": "yes"}), {"why": "no"}),
}


def asking(*requests, **more):
    """Return what a model says that calls the tool once."""
    return [{"call": {"ask": {"asks": list(requests), **more}}}, "done"]


def world(script, *arguments, clock=None, store=None, **given):
    server = defined("asking.py", *arguments, **given.pop("server", {}))
    agent = Agent("a", model=ScriptedModel(script), servers=[server], **given.pop("agent", {}))
    given |= {name: value for name, value in (("clock", clock), ("store", store)) if value is not None}
    workflows = given.pop("workflows", [ASK])
    agents = [agent, *given.pop("agents", [])]
    return environment(*workflows, agents=agents, approvals=[ApprovalRule()], **given)


def told(execution):
    """Return what the server was told, one answer after the other."""
    return json.loads(results(execution)["tool-1-call-1-1"]["result"])


# --- what a server is told -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forms():
    """An environment with a workflow for each form, over one server, and its clock."""
    server, clock = defined("asking.py"), Watch()
    requests = {**{name: elicit(schema) for name, (schema, _) in FORMS.items()}, "address": URL}
    agents = [Agent(name, model=ScriptedModel(asking(asked)), servers=[server]) for name, asked in requests.items()]
    flows = [Workflow(name, [Step("ask", prompt="Go", agent=name, store="said")]) for name in requests]
    with environment(*flows, agents=agents, approvals=[ApprovalRule()], clock=clock) as here:
        yield here, clock


@pytest.mark.parametrize("name", [*FORMS, "address"])
def test_a_server_is_told_that_nobody_agreed_where_nobody_answered(forms, name):
    here, clock = forms
    execution = here.start(name).wait(60)
    (question,) = execution.open_questions
    clock.at += LATE
    assert becomes(lambda: execution.state.is_over)
    assert told(execution) == [{"action": "decline"}]
    with pytest.raises(InterruptError, match="it has expired"):
        execution.answer(question.id, "accept" if name == "address" else FORMS[name][1])


@pytest.mark.parametrize("name", [*FORMS, "address"])
def test_a_server_is_told_that_a_person_declined(forms, name):
    here, _ = forms
    execution = here.start(name).wait(60)
    assert told(execution.answer(execution.open_questions[0].id, "decline").wait(60)) == [{"action": "decline"}]


@pytest.mark.parametrize("in_full", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_a_server_is_told_exactly_what_a_person_has_filled_in(forms, name, in_full):
    here, _ = forms
    execution, content = here.start(name).wait(60), FORMS[name][1]
    execution.answer(execution.open_questions[0].id, {"data": content} if in_full else content).wait(60)
    assert told(execution) == [{"action": "accept", "content": content}]


def test_a_person_agrees_to_an_address_in_so_many_words(forms):
    here, _ = forms
    execution = here.start("address").wait(60)
    for answer in (True, "yes", {"why": "x"}):
        with pytest.raises(InterruptError, match="still open"):
            execution.answer(execution.open_questions[0].id, answer)
    assert told(execution.answer(execution.open_questions[0].id, "accept").wait(60)) == [{"action": "accept"}]


@pytest.mark.parametrize(
    ("schema", "answer", "kept"),
    [
        (form({"why": TEXT}), {"data": {"why": "x"}}, {"why": "x"}),
        (form({"why": TEXT}), {"data": {"why": "x"}, "text": "so"}, {"why": "x"}),
        (form({"data": TEXT}), {"data": "x"}, {"data": "x"}),
        (form({"data": form({"why": TEXT})}), {"data": {"why": "x"}}, {"data": {"why": "x"}}),
        (form({"why": TEXT}), {"data": 3}, {"data": 3}),
        ({"anyOf": [form({"why": TEXT}), {"const": "decline"}]}, {"data": "decline"}, "decline"),
        ({"anyOf": [form({"data": TEXT}), {"const": "decline"}]}, {"data": "decline"}, {"data": "decline"}),
    ],
)
def test_an_answer_in_full_is_told_from_a_value_by_the_names_of_the_schema(schema, answer, kept):
    question = Question("q", "clarification", "Why?", schema=schema)
    assert checked_answer(question, answer, FITTING, 0)["data"] == kept


def test_what_an_earlier_version_recorded_as_the_default_agrees_to_nothing(monkeypatch):
    monkeypatch.setattr("divebook.agents.server_tools.DEFAULT", {"data": {"data": "decline"}})
    clock = Watch()
    with world(asking(elicit(form({"why": TEXT}))), clock=clock) as here:
        execution = here.start("ask").wait(60)
        clock.at += LATE
        assert becomes(lambda: execution.state.is_over)
        (question,) = asked_questions(execution)
        assert question.response == {"data": {"data": "decline"}}
        assert told(execution) == [{"action": "decline"}]


def test_a_question_that_expired_while_no_process_ran_is_asked_again(tmp_path):
    clock, file = Watch(), tmp_path / "told"
    script = asking(elicit(form({"why": TEXT})))
    with world(script, str(file), clock=clock) as here:
        execution = here.start("ask").wait(60)
        store = cut(execution.store, execution, execution.state.last_sequence)
    clock.at += LATE
    with world(script, str(file), clock=clock, store=store) as here:
        execution = here.run_of(execution.id).resume().wait(60)
        (unknown,) = execution.open_questions
        assert unknown.kind == "outcome_unknown"
        execution.answer(unknown.id, "retry").wait(60)
        (question,) = execution.open_questions
        execution.answer(question.id, {"why": "old"}).wait(60)
        assert told(execution) == [{"action": "accept", "content": {"why": "old"}}]
    assert '"accept"' not in file.read_text().partition("\n")[0] or file.read_text().count("\n") == 1


def test_an_answer_that_was_given_before_a_process_ended_is_used_by_the_next_one():
    script = asking(elicit(form({"why": TEXT})))
    with world(script) as here:
        execution = here.start("ask").wait(60)
        store = cut(execution.store, execution, execution.state.last_sequence)
    with world(script, store=store) as here:
        here.run_of(execution.id).answer(execution.open_questions[0].id, {"why": "old"})
        execution = here.run_of(execution.id).resume().wait(60)
        execution.answer(execution.open_questions[0].id, "retry").wait(60)
        assert told(execution) == [{"action": "accept", "content": {"why": "old"}}]


@pytest.mark.parametrize("stop", ["cancel", "close"])
def test_a_server_is_told_nothing_that_sounds_like_a_yes_where_its_run_ends(tmp_path, stop):
    file = tmp_path / "told"
    with world(asking(elicit(form({"why": TEXT}))), str(file)) as here:
        execution = here.start("ask").wait(60)
        if stop == "cancel":
            assert execution.cancel().wait(60).status == "cancelled"
    assert not file.exists() or '"accept"' not in file.read_text()


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {"a": {"type": 5}}}, {"properties": {"a": 5}}])
def test_a_form_that_no_answer_can_fit_is_not_shown(schema, logs):
    with world(asking(elicit(schema))) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}
        assert told(execution)[0].get("action") != "accept"
        assert not asked_questions(execution)


def test_a_refused_request_to_a_model_is_an_error_and_no_answer_of_one():
    messages = [{"role": "user", "content": {"type": "text", "text": "Why?"}}]
    asked = [
        "sampling/createMessage",
        {"messages": messages, "maxTokens": 9, "tools": [{"name": "x", "inputSchema": {}}]},
    ]
    with world(asking(asked), server={"sampling": "a2"}, agents=[Agent("a2", model=ScriptedModel(["yes"]))]) as here:
        (answer,) = told(here.start("ask").wait(60))
    assert "content" not in answer
    assert "message" in answer


# --- calls that end before the answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "status"), [("ends", "completed"), ("dies", "waiting")])
def test_a_question_whose_call_has_ended_is_open_no_more(way, status):
    with world(asking(elicit(form({"why": TEXT})), **{way: True})) as here:
        execution = here.create("ask")
        ended = threading.Event()
        execution.subscribe(lambda events: any(e.event_type == "interrupt_expired" for e in events) and ended.set())
        execution.start()
        assert ended.wait(60)
        assert becomes(lambda: execution.status == status and not execution.is_live)
        question, *others = asked_questions(execution)
        assert (question.status, question.response) == ("expired", {"data": "decline"})
        assert [other.kind for other in others] == ["outcome_unknown"] * (way == "dies")


# --- who waits -------------------------------------------------------------------------------------------------------


def answered(execution, content=None):
    return execution.answer(execution.open_questions[0].id, content or {"why": "old"})


QUESTION = asking(elicit(form({"why": TEXT})))
ACCEPTED = [{"action": "accept", "content": {"why": "old"}}]


def test_waiting_returns_where_a_call_asks_and_again_at_its_next_question():
    first, second = elicit(form({"why": TEXT})), elicit(form({"how": TEXT}))
    with world(asking(first, second)) as here:
        execution = here.start("ask").wait(60)
        for _ in range(2):
            assert (execution.wait(60).status, execution.is_live, execution.internals.is_blocked) == (
                "waiting",
                True,
                True,
            )
        assert here.store.record(execution.id).status == "waiting"
        answered(execution).wait(60)
        assert [question.schema["anyOf"][0]["properties"] for question in execution.open_questions] == [{"how": TEXT}]
        answered(execution, {"how": "so"}).wait(60)
        assert (execution.status, execution.internals.is_blocked) == ("completed", False)
        assert [answer["content"] for answer in told(execution)] == [{"why": "old"}, {"how": "so"}]


def test_awaiting_returns_as_well():
    with world(QUESTION) as here:

        async def awaited():
            execution = await here.start("ask")
            return await answered(execution)

        assert told(asyncio.run(awaited())) == ACCEPTED


def test_waiting_goes_on_while_another_path_can_do_something():
    gate = Gate()
    steps = [
        Step("begin", script="1", next=["ask", "work"]),
        Step("ask", prompt="Go", agent="a", store="said"),
        Step("work", action="gate"),
    ]
    with world(QUESTION, workflows=[Workflow("ask", steps)], actions=[gate.action()]) as here:
        execution = here.start("ask")
        assert gate.reached.wait(60)
        assert becomes(lambda: bool(execution.open_questions))
        assert not execution.internals.is_blocked
        with pytest.raises(TimeoutError):
            execution.wait(0.05)
        gate.opened.set()
        assert execution.wait(60).internals.is_blocked
        assert answered(execution).wait(60).status == "completed"


def test_an_answer_up_front_reaches_a_server_while_another_path_works(monkeypatch):
    monkeypatch.setattr(answers, "POLL_INTERVAL", 0.01)
    gate = Gate()
    steps = [
        Step("begin", script="1", next=["ask", "work"]),
        Step("ask", prompt="Go", agent="a", store="said"),
        Step("work", action="gate"),
    ]
    with world(QUESTION, workflows=[Workflow("ask", steps)], actions=[gate.action()]) as here:
        execution = here.start("ask")
        execution.subscribe(
            lambda events: any(e.event_type == "interrupt_resolved" for e in events) and gate.opened.set()
        )
        given = answers.answers_from(mapping={"ask": {"why": "old"}})
        assert given.settle(execution).status == "completed"
        assert told(execution) == ACCEPTED


def test_waiting_returns_where_all_paths_ask_in_their_own_way():
    steps = [
        Step("begin", script="1", next=["ask", "who"]),
        Step("ask", prompt="Go", agent="a", store="said"),
        Step("who", type="interrupt", ask={"question": "Who?"}, store="who"),
    ]
    with world(QUESTION, workflows=[Workflow("ask", steps)]) as here:
        execution = here.start("ask").wait(60)
        by_step = {question.step: question.id for question in execution.open_questions}
        assert set(by_step) == {"ask", "who"}
        execution.answer(by_step["who"], "ann").wait(60)
        assert execution.internals.is_blocked
        assert execution.answer(by_step["ask"], {"why": "old"}).wait(60).variables == {"said": "done", "who": "ann"}


def test_an_execution_waits_for_a_child_that_is_blocked_as_for_one_that_rests():
    outer = Workflow("outer", [Step("child", workflow="ask", store="child")])
    with world(QUESTION, workflows=[ASK, outer]) as here:
        execution = here.start("outer").wait(60)
        assert (execution.status, execution.is_live) == ("waiting", False)
        ((child, question),) = here.inbox()
        here.answer(question.id, {"why": "old"}, child).wait(60)
        assert becomes(lambda: here.run_of(execution.id).status == "completed")
        assert told(here.run_of(child)) == ACCEPTED


def test_an_execution_that_is_cancelled_cancels_a_child_that_is_blocked(tmp_path):
    outer, file = Workflow("outer", [Step("child", workflow="ask", store="child")]), tmp_path / "told"
    with world(QUESTION, str(file), workflows=[ASK, outer]) as here:
        execution = here.start("outer").wait(60)
        ((child, _),) = here.inbox()
        assert execution.cancel().wait(60).status == "cancelled"
        assert becomes(lambda: here.run_of(child).state.is_over)
        assert here.run_of(child).status == "cancelled"
    assert not file.exists() or '"accept"' not in file.read_text()


def test_an_agent_that_works_for_another_one_asks_as_well():
    work = {"agent": "a", "name": "n", "description": "Go.", "expected_output": "e"}
    boss = Agent("boss", model=ScriptedModel([{"call": {"assign_work": work}}, "all done"]), subordinates=["a"])
    flow = Workflow("ask", [Step("ask", prompt="Go", agent="boss", store="said")])
    with world(QUESTION, workflows=[flow], agents=[boss]) as here:
        execution = here.start("ask").wait(60)
        assert execution.internals.is_blocked, execution.error
        assert answered(execution).wait(60).variables == {"said": "all done"}


def test_calls_side_by_side_ask_side_by_side_with_an_approval_beside_them():
    calls = [{"call": {"ask": {"asks": [elicit(form({name: TEXT}))]}}} for name in ("why", "how")]
    script = [[*calls, {"call": {"danger": {}}}], "done"]

    def danger() -> str:
        """Do it."""
        return "done"

    agent = Agent("a", model=ScriptedModel(script), servers=[defined("asking.py")], tools=[danger])
    rules = [ApprovalRule("danger", outcome="ask"), ApprovalRule()]
    with environment(ASK, agents=[agent], approvals=rules) as here:
        execution = here.start("ask").wait(60)
        assert execution.internals.is_blocked, execution.error
        while execution.open_questions:
            question = execution.open_questions[0]
            names = list((question.schema or {}).get("anyOf", [{}])[0].get("properties", ()))
            answer = True if question.kind == "confirmation" else {names[0]: "x"}
            execution.answer(question.id, answer).wait(60)
        assert execution.variables == {"said": "done"}, execution.error


def test_rows_side_by_side_each_ask():
    step = Step("ask", prompt="Go", agent="a", each=Each([1, 2, 3], parallel=3), store="said")
    with world(QUESTION, workflows=[Workflow("ask", [step])]) as here:
        execution = here.start("ask").wait(60)
        assert execution.internals.is_blocked, execution.error
        while execution.open_questions:
            answered(execution).wait(60)
        assert execution.variables == {"said": ["done"] * 3}, execution.error


def test_a_function_that_asks_an_agent_waits_for_its_call():
    @workflow("asks_within")
    async def asks_within(ctx):
        return await ctx.agent("a").run("Go")

    with world(QUESTION) as here:
        execution = here.start(asks_within).wait(60)
        assert execution.internals.is_blocked, execution.error
        assert answered(execution).wait(60).status == "completed", execution.error


def test_the_process_may_leave_an_execution_that_is_blocked_and_the_next_one_asks_what_became_of_the_call():
    with world(QUESTION) as here:
        execution = here.start("ask").wait(60)
        store = execution.store
    with world(QUESTION, store=store) as here:
        execution = here.run_of(execution.id).resume().wait(60)
        kinds = {question.kind for question in execution.open_questions}
        assert "outcome_unknown" in kinds
