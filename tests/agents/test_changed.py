"""Turns that go on with an agent that is not what it was when they began."""

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Each, ScriptedModel, Step, Workflow
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.definitions.step import Retry
from divebook.definitions.tools import ToolFunction, tool_of
from divebook.errors import InterruptError
from divebook.projections.spans import spans_of
from divebook.runtime.clock import SystemClock
from divebook.widgets.parts import conversation_of, newest_conversations
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds")])


THREADED = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds", thread="t")])


class Birds:
    """An agent that looks for two birds, one after the other, and says what it found."""

    def __init__(self):
        self.looked, self.told, self.breaks = [], [], False

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.looked.append(name)
        return f"{name}: seen"

    def find(self, name: str) -> str:
        """Find a bird."""
        self.looked.append(name)
        return f"{name}: found"

    def answer(self, messages, info):
        tools = [tool.name for tool in info.function_tools]
        self.told.append((info.instructions, tools))
        asked = [at for at, message in enumerate(messages) if message.parts[0].part_kind == "user-prompt"]
        number = sum(isinstance(message, ModelResponse) for message in messages[asked[-1] :])
        if number == 1 and self.breaks:
            raise ValueError("no more")
        if number < 2:
            return ModelResponse([ToolCallPart(tools[0], {"name": f"bird-{number}"}, tool_call_id=f"call-{number}")])
        found = [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]
        return ModelResponse([TextPart(", ".join(map(str, found)))])

    def world(self, instructions="Be brief.", tools=("look",), output=None, store=None, thread=False, **settings):
        definition = AgentDefinition("a", instructions=instructions, date_awareness=False, **settings)
        functions = [getattr(self, tool) for tool in tools]
        agent = Agent(definition, model=FunctionModel(self.answer), tools=functions, output=output)
        given = {} if store is None else {"store": store}
        return environment(THREADED if thread else ASK, agents=[agent], **given)


@pytest.fixture
def left():
    """A run that ended after the first call of its turn: where it is kept, and what it is called."""
    execution = Birds().world().start("ask").wait(20)
    assert execution.variables == {"birds": "bird-0: seen, bird-1: seen"}
    at = [event for event in execution.history() if event.event_type == "operation_completed"][1]
    return cut(execution.store, execution, at.sequence), execution.id


def resumed(left, birds, **changed):
    store, execution_id = left
    return birds.world(store=store, **changed).run_of(execution_id).resume().wait(20)


def test_an_agent_that_is_what_it_was_goes_on(left):
    birds = Birds()
    assert resumed(left, birds).variables == {"birds": "bird-0: seen, bird-1: seen"}
    assert birds.looked == ["bird-1"]


def test_another_model_or_setting_makes_no_other_agent(left):
    birds = Birds()
    settings = ModelSettings(temperature=0.5)
    assert resumed(left, birds, model_settings=settings, model="openai:gpt-x").status == "completed"
    assert birds.looked == ["bird-1"]


def test_what_changed_is_named(left):
    execution = resumed(left, Birds(), instructions="Be long.", tools=("find",))
    (question,) = execution.open_questions
    assert (execution.status, question.kind) == ("waiting", "agent_changed")
    assert question.data == {
        "agent": "a",
        "changes": ["instructions differ", "tool look is gone", "tool find is new"],
        "choices": ["finish", "anew"],
    }
    assert question.question.startswith(
        "Agent a changed since this turn began (instructions differ; tool look is gone; tool find is new)."
    )
    with pytest.raises(InterruptError, match="answer with finish or anew, not 'yes'"):
        execution.answer(question.id, "yes")


def test_finishing_with_the_old_sends_the_old_instructions_and_tools(left):
    birds = Birds()
    execution = resumed(left, birds, instructions="Be long.", tools=("look", "find"))
    done = execution.answer(execution.open_questions[0].id, "finish").wait(20)
    assert done.variables == {"birds": "bird-0: seen, bird-1: seen"}
    assert birds.looked == ["bird-1"]
    assert {(told.rpartition("\n")[2], *tools) for told, tools in birds.told} == {("Be brief.", "look")}


def test_a_tool_that_is_gone_is_not_called_any_more_and_what_it_returned_stays(left):
    birds = Birds()
    execution = resumed(left, birds, tools=("find",))
    done = execution.answer(execution.open_questions[0].id, "finish").wait(20)
    assert done.variables == {"birds": "bird-0: seen, look is not there any more"}
    assert birds.looked == []


class Wider(Birds):
    def look(self, name: str, far: bool = False) -> str:
        """Look a bird up."""
        return super().look(name)


class Needier(Birds):
    def look(self, name: str, far: bool) -> str:
        """Look a bird up."""
        return super().look(name)


@pytest.mark.parametrize(
    ("changed", "second", "looked"),
    [(Wider, "bird-1: seen", ["bird-1"]), (Needier, "look takes other arguments by now: ", [])],
)
def test_a_finished_call_stays_though_its_tool_takes_other_arguments(left, changed, second, looked):
    birds = changed()
    execution = resumed(left, birds)
    assert execution.open_questions[0].data["changes"] == ["tool look is described otherwise"]
    done = execution.answer(execution.open_questions[0].id, "finish").wait(20)
    assert (done.error, birds.looked) == (None, looked)
    assert done.variables["birds"].startswith(f"bird-0: seen, {second}")


def test_an_agent_that_has_no_tools_any_more_is_asked_about_as_well(left):
    birds = Birds()
    execution = resumed(left, birds, tools=())
    assert execution.open_questions[0].data["changes"] == ["tool look is gone"]
    done = execution.answer(execution.open_questions[0].id, "finish").wait(20)
    assert done.variables == {"birds": "bird-0: seen, look is not there any more"}


@pytest.mark.parametrize("answers", [("yes", "finish"), ("finish", "yes")])
def test_a_call_that_was_approved_is_made_with_what_was_approved(answers, tmp_path):
    sent, script = [], [{"call": {"send": {"to": "ann"}}}, "done"]

    def old(to: str, cc: str = "bob") -> str:
        """Send a letter."""
        return "never called"

    def new(to: str, cc: str = "eve", bcc: str = "") -> str:
        """Send a letter."""
        sent.append((to, cc))
        return "sent"

    def world(send):
        agent = Agent("a", model=ScriptedModel(script), tools=[ToolFunction("send", send, approval=True)])
        return environment(ASK, agents=[agent], store=f"sqlite:///{tmp_path}/store.db")

    with world(old) as before:
        execution = before.start("ask").wait(20)
        assert execution.open_questions[0].data["parameters"] == {"to": "ann", "cc": "bob"}
    with world(new) as after:
        execution = after.run_of(execution.id).resume().wait(20)
        questions = {question.kind: question.id for question in execution.open_questions}
        for answer in answers:
            execution.answer(questions["confirmation" if answer == "yes" else "agent_changed"], answer).wait(20)
        assert (execution.error, sent) == (None, [("ann", "bob")])


def test_beginning_anew_has_places_of_its_own(left):
    birds = Birds()
    execution = resumed(left, birds, instructions="Be long.", tools=("find",))
    done = execution.answer(execution.open_questions[0].id, "anew").wait(20)
    assert done.variables == {"birds": "bird-0: found, bird-1: found"}
    keys = [event.data.key for event in done.history() if event.event_type == "operation_started"]
    assert [key for key in keys if str(key).startswith("anew-1/")] == [
        f"anew-1/{key}" for key in ("model-1", "tool-1-call-0", "model-2", "tool-2-call-1", "model-3")
    ]
    requests = done.requests
    assert [view.n for view in requests] == [1, 1, 2, 3]
    assert requests[0].turn != requests[1].turn == requests[3].turn


def test_views_show_what_was_begun_first_and_what_was_begun_anew(left):
    """They showed of each number the later request only."""
    execution = resumed(left, Birds(), instructions="Be long.", tools=("find",))
    done = execution.answer(execution.open_questions[0].id, "anew").wait(20)
    (said,) = newest_conversations(spans_of(done.history()), 9, lambda *_: "question")
    told = [(each["number"], each["instructions"].rpartition("\n")[2], each["tools"]) for each in said["requests"]]
    assert told == [(1, "Be brief.", ["look"]), *((number, "Be long.", ["find"]) for number in (2, 3, 4))]
    calls = [(call["request"], call["tool"], call["result"]) for call in said["calls"]]
    assert calls == [(1, "look", "bird-0: seen"), (2, "find", "bird-0: found"), (3, "find", "bird-1: found")]
    since = conversation_of(*turn_of(done), since=done.requests[-2].span.sequences[-1])
    assert [each["number"] for each in since["requests"]] == [4]


def turn_of(execution):
    spans = [span for span in spans_of(execution.history()) if span.kind == "operation"]
    (turn,) = [span for span in spans if span.type == "agent_turn"]
    return turn, [span for span in spans if span.holder == turn.index], {}, lambda *_: "question"


def test_a_turn_of_a_thread_that_is_begun_anew_has_what_was_said_before():
    first = Birds().world(thread=True)
    first.start("ask").wait(20)
    again = first.start("ask").wait(20)
    at = [event for event in again.history() if event.event_type == "operation_completed"][1]
    changed = resumed((cut(again.store, again, at.sequence), again.id), Birds(), tools=("find",), thread=True)
    done = changed.answer(changed.open_questions[0].id, "anew").wait(20)
    lengths = [len(view.messages) for view in done.requests]
    assert lengths == [7, 7, 9, 11]
    assert done.requests[1].messages[:6] == done.requests[0].messages[:6]


@pytest.mark.parametrize("choice", ["finish", "anew"])
def test_the_choice_holds_in_every_process_that_goes_on(left, choice):
    changed = {"instructions": "Be long."}
    execution = resumed(left, Birds(), **changed)
    done = execution.answer(execution.open_questions[0].id, choice).wait(20)
    for end in [event for event in done.history() if event.event_type == "operation_completed"][2:-1]:
        birds = Birds()
        again = resumed((cut(done.store, done, end.sequence), done.id), birds, **changed)
        for question in again.open_questions:  # a call that was under way
            again = again.answer(question.id, {"choice": "retry"}).wait(20)
        assert again.variables == done.variables
        assert len(again.state.interrupts) - len(again.open_questions) <= 2


def test_a_question_that_was_asked_stands_whatever_changes_then(left):
    store, execution_id = left
    waiting = resumed(left, Birds(), instructions="Be long.")
    (question,) = waiting.open_questions
    store = cut(waiting.store, waiting, len(waiting.history()))
    for changed in ({"instructions": "Be funny."}, {}):
        birds = Birds()
        again = resumed((store, execution_id), birds, **changed)
        assert [asked.question for asked in again.open_questions] == [question.question]
        assert birds.told == []


def test_an_agent_that_changed_twice_is_asked_about_twice(left):
    failing = Birds()
    failing.breaks = True
    waiting = resumed(left, failing, instructions="Be long.")
    failed = waiting.answer(waiting.open_questions[0].id, "anew").wait(20)
    assert failed.status == "failed"
    birds = Birds()
    again = resumed((failed.store, failed.id), birds, instructions="Be funny.")
    (question,) = again.open_questions
    assert question.data["changes"] == ["instructions differ"]
    done = again.answer(question.id, "anew").wait(20)
    assert done.variables == {"birds": "bird-0: seen, bird-1: seen"}
    assert [view.instructions.rpartition("\n")[2] for view in done.requests] == [
        "Be brief.",
        "Be long.",
        "Be long.",
        *["Be funny."] * 3,
    ]


def test_a_turn_that_is_begun_anew_has_the_rest_of_its_budget(left):
    """Its first beginning has made one request of three, so that two are left."""
    bounds = {"max_llm_calls": 3}
    waiting = resumed(left, Birds(), instructions="Be long.", bounds=bounds)
    (question,) = waiting.open_questions
    assert question.data["spent"]["calls"] == 1
    asked = waiting.answer(question.id, "anew").wait(20)
    birds = Birds()
    again = resumed((asked.store, asked.id), birds, instructions="Be long.", bounds=bounds)
    for execution in (asked, again):
        (question,) = execution.open_questions
        assert "Agent 'a': Budget reached: 3 of 3 model calls made" in question.question
    assert birds.told == []


def test_a_question_that_does_not_state_what_was_spent_is_answered_as_before(left):
    """Earlier versions have recorded such questions, also for an agent with bounds."""
    waiting = resumed(left, Birds(), instructions="Be long.")
    (question,) = waiting.open_questions
    assert question.data.keys() == {"agent", "changes", "choices"}
    world = Birds().world(store=waiting.store, instructions="Be long.", bounds={"max_llm_calls": 3})
    done = world.answer(question.id, "anew", waiting.id).wait(20)
    assert (done.status, done.usage.requests) == ("completed", 4)


def test_changed_output_cannot_finish_with_the_old(left):
    execution = resumed(left, Birds(), output=dict[str, str])
    (question,) = execution.open_questions
    assert (question.data["changes"], question.data["choices"]) == (["output differs"], ["anew"])
    with pytest.raises(InterruptError, match="answer with anew, not 'finish'"):
        execution.answer(question.id, "finish")


def test_a_finished_turn_is_not_asked_about():
    execution = Birds().world().start("ask").wait(20)
    at = next(event for event in execution.history() if event.event_type == "step_completed")
    birds = Birds()
    again = resumed((cut(execution.store, execution, at.sequence - 2), execution.id), birds, instructions="Other.")
    assert (again.status, birds.told) == ("completed", [])


class Boss:
    """An agent that hands its work to the one who looks for birds."""

    @staticmethod
    def answer(messages, info):
        del info
        found = [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]
        if found:
            return ModelResponse([TextPart(f"I hear: {found[0]}")])
        work = {"agent": "a", "name": "birds", "description": "Look.", "expected_output": "names"}
        return ModelResponse([ToolCallPart("assign_work", work, tool_call_id="work")])

    def world(self, birds, instructions="Be brief.", store=None, goal=""):
        below = AgentDefinition("a", instructions=instructions, date_awareness=False)
        above = AgentDefinition("boss", goal, is_supervisor=True, subordinates=("a",), date_awareness=False)
        agents = [
            Agent(above, model=FunctionModel(self.answer)),
            Agent(below, model=FunctionModel(birds.answer), tools=[birds.look]),
        ]
        workflow = Workflow("ask", [Step("ask", prompt="Which birds?", agent="boss", store="birds")])
        return environment(workflow, agents=agents, **({} if store is None else {"store": store}))


@pytest.mark.parametrize("choice", ["finish", "anew"])
def test_the_turn_of_a_subordinate_is_asked_about_by_itself(choice):
    execution = Boss().world(Birds()).start("ask").wait(20)
    assert execution.variables == {"birds": "I hear: bird-0: seen, bird-1: seen"}
    at = [event for event in execution.history() if event.event_type == "operation_completed"][2]
    birds, store = Birds(), cut(execution.store, execution, at.sequence)
    waiting = Boss().world(birds, instructions="Be long.", store=store).run_of(execution.id).resume().wait(20)
    (question,) = waiting.open_questions
    assert question.data["agent"] == "a"
    done = waiting.answer(question.id, choice).wait(20)
    assert done.variables == execution.variables
    keys = [str(event.data.key) for event in done.history() if event.event_type == "operation_started"]
    assert ("tool-1-work/anew-1/model-1" in keys) == (choice == "anew")
    assert birds.looked == (["bird-0", "bird-1"] if choice == "anew" else ["bird-1"])


def test_work_is_handed_on_again_in_a_turn_that_is_begun_anew():
    execution = Boss().world(Birds()).start("ask").wait(20)
    handed = next(
        event
        for event in execution.history()
        if event.event_type == "operation_completed" and event.data.operation_type == "agent_turn"
    )
    birds, store = Birds(), cut(execution.store, execution, handed.sequence)
    waiting = Boss().world(birds, store=store, goal="Birds").run_of(execution.id).resume().wait(20)
    done = waiting.answer(waiting.open_questions[0].id, "anew").wait(20)
    assert (done.variables, birds.looked) == (execution.variables, ["bird-0", "bird-1"])


def test_an_agent_that_gets_tools_while_its_step_is_retried_answers(note, noted):
    """Its turn belongs to the second attempt at the step, and what it looked up was that of the first one."""
    workflow = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r", retry=Retry(3, seconds=0))])
    plain = Agent("a", model=ScriptedModel([{"error": "busy", "status": 503}, "done"]))
    execution = environment(workflow, agents=[plain]).start("w").wait(20)
    (retried,) = [event.sequence for event in execution.history() if event.event_type == "step_retried"]

    def later(store):
        tools = [replace(tool_of(note), approval=True)]
        agent = Agent("a", model=ScriptedModel([{"call": {"note": {"text": "owls"}}}, "done"]), tools=tools)
        return environment(workflow, store=store, agents=[agent])

    asked = later(cut(execution.store, execution, retried)).run_of(execution.id).resume().wait(20)
    done = asked.answer(asked.open_questions[0].id, "yes").wait(20)
    assert (done.variables, noted) == ({"r": "done"}, ["owls"])
    ends = [event.sequence for event in done.history() if event.event_type == "operation_completed"]
    again = later(cut(done.store, done, ends[1])).run_of(done.id).resume().wait(20)
    assert (again.variables, again.usage, noted) == ({"r": "done"}, done.usage, ["owls"])


def test_a_turn_whose_agent_has_lost_its_tools_is_retried_as_often_as_its_step_says(note):
    """The requests of the turn are retried, and not the step as well."""
    workflow = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r", retry=Retry(3, seconds=0))])
    first = environment(workflow, agents=[Agent("a", model=ScriptedModel(["done"]), tools=[note])]).start("w").wait(20)
    (began,) = [
        event.sequence
        for event in first.history()
        if event.event_type == "operation_started" and event.data.operation_type == "agent_turn"
    ]
    requests = []

    def fail(messages, info):
        requests.append(messages)
        raise ModelHTTPError(503, "busy")

    store = cut(first.store, first, began)
    later = environment(workflow, store=store, agents=[Agent("a", model=FunctionModel(fail))])
    run = later.run_of(first.id).resume().wait(20)
    assert (run.status, len(requests)) == ("failed", 3), run.error


# --- forks on another day --------------------------------------------------------------------------------------------


class AnotherDay(SystemClock):
    """A clock that is set forward by a day when the test says so."""

    offset = 0

    def now(self):
        return super().now() + self.offset


EACH = Workflow(
    "each", [Step("ask", prompt="${item}", agent="a", each=Each(["a", "b", "c"], as_="item"), store="said")]
)


@pytest.mark.parametrize("workflow", [ASK, EACH], ids=["a turn with tools", "a request for each item"])
def test_a_fork_on_another_day_continues_with_the_calls_that_it_shares(workflow):
    birds, clock = Birds(), AnotherDay()
    tools = [birds.look] if workflow is ASK else []
    model = FunctionModel(birds.answer) if workflow is ASK else ScriptedModel(["1", "2", "3", "4", "5"])
    world = environment(workflow, agents=[Agent("a", model=model, tools=tools)], clock=clock)
    source = world.start(workflow).wait(20, check=True)
    ends = [event.sequence for event in source.history() if event.event_type == "operation_completed"]
    clock.offset = 86_400_000_000
    fork = source.fork(ends[1]).wait(20)
    assert (fork.status, fork.open_questions) == ("completed", [])
    assert fork.started_at - source.started_at > timedelta(hours=23)
    # A fork of the fork, on the day after that.
    clock.offset *= 2
    assert fork.fork(max(event.sequence for event in fork.history()) - 3).wait(20).status == "completed"


@pytest.mark.parametrize("workflow", [ASK, EACH], ids=["a turn with tools", "a request for each item"])
def test_a_what_if_on_another_day_repeats_no_paid_request(workflow):
    birds, clock = Birds(), AnotherDay()
    tools = [birds.look] if workflow is ASK else []
    model = FunctionModel(birds.answer) if workflow is ASK else ScriptedModel(["1", "2", "3"])
    world = environment(workflow, agents=[Agent("a", model=model, tools=tools)], clock=clock)
    source = world.start(workflow).wait(20, check=True)
    requests = len(birds.told)
    clock.offset = 86_400_000_000
    trial = source.what_if()
    assert (trial.run.status, trial.run.variables) == ("completed", source.variables)
    assert (trial.live, trial.blocked, len(birds.told)) == (0, 0, requests)
