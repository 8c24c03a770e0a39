"""Text that is heard while a model writes it: what is told of it, and that nothing else depends on it."""

import logging
import threading
from contextlib import asynccontextmanager

import anyio.to_thread
import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents.scripted import words
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Each, Retry
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types

ASK = Workflow("w", [Step("ask", prompt="Write a poem", store="poem")])
POEM = "Roses are red,\n\nviolets are  blue "
PATIENCE = 20


class Held:
    """Holds a model up behind its first word, until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    async def __call__(self):
        self.reached.set()
        await anyio.to_thread.run_sync(self.opened.wait, PATIENCE, abandon_on_cancel=True)


@pytest.fixture
def held():
    gate = Held()
    yield gate
    gate.opened.set()


class Poet:
    """A model in pydantic-ai's form that streams, and counts how it was asked."""

    def __init__(self, *pieces, between=None):
        self.pieces, self.between = pieces, between
        self.asked, self.closed = [], threading.Event()
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    async def answer(self, _messages, _info):
        self.asked.append("plainly")
        return ModelResponse(parts=[TextPart("".join(piece for piece in self.pieces if isinstance(piece, str)))])

    async def stream(self, _messages, _info):
        self.asked.append("streaming")
        try:
            for place, piece in enumerate(self.pieces):
                if place and self.between is not None:
                    await self.between()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed.set()


def started(model, workflow=ASK, *listeners, **settings):
    """Start a workflow with an agent and listeners to its text; return the execution."""
    world = environment(agents=[Agent("poet", model=model)], **settings)
    execution = world.create(workflow)
    for listener in listeners:
        execution.subscribe_text(listener)
    return execution.start()


def heard(model, workflow=ASK, **settings):
    """Run a workflow to its end; return the execution and what was heard."""
    deltas = []
    return started(model, workflow, deltas.append, **settings).wait(PATIENCE), deltas


def once(model):
    """Return an agent that asks its model once and never again."""
    return Agent(AgentDefinition("poet", retry=Retry(attempts=1)), model=model)


UNLIKE = ("duration", "timestamp", "started_at", "seed")
"""What differs between two runs that did the same."""


def facts(execution):
    """Return a log without its times and the seed of its ids."""
    return [(event.event_type, event.step, untimed(event.data.to_data())) for event in execution.history()]


def untimed(data):
    if not isinstance(data, dict):
        return data
    return {key: untimed(value) for key, value in data.items() if key not in UNLIKE}


# --- what is heard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [POEM, "word", " ", "", "\n a"])
def test_words_make_up_their_text(text):
    assert "".join(words(text)) == text


def test_the_pieces_make_up_the_recorded_text_and_say_where_they_belong():
    execution, deltas = heard(ScriptedModel([POEM]))
    assert "".join(delta.text for delta in deltas) == execution.variables["poem"] == POEM
    assert [delta.at for delta in deltas] == [POEM.index(delta.text) for delta in deltas[:2]] + [10, 16, 24, 29]
    (operation,) = [e.data.operation_id for e in execution.history() if e.event_type == "operation_completed"]
    assert {delta.operation_id for delta in deltas} == {operation}


def test_a_log_is_the_same_whether_somebody_listens_or_not():
    def model():
        return ScriptedModel([POEM], usage={"input_tokens": 7, "output_tokens": 3}, price=0.25)

    listened, deltas = heard(model(), Workflow("w", ASK.steps, bounds={"max_tokens": 100}))
    alone = started(model(), Workflow("w", ASK.steps, bounds={"max_tokens": 100})).wait(PATIENCE)
    assert deltas
    assert facts(listened) == facts(alone)
    assert listened.usage == alone.usage
    assert listened.state.own_usage.cost == 250_000_000


def test_without_a_listener_a_model_is_asked_plainly():
    poet = Poet("Roses ", "are red")
    execution = started(poet.model).wait(PATIENCE)
    assert (poet.asked, execution.variables) == (["plainly"], {"poem": "Roses are red"})


def test_a_text_is_heard_while_it_is_written(held):
    deltas = []
    execution = started(ScriptedModel(["Roses are"], pace=held), ASK, deltas.append)
    assert held.reached.wait(PATIENCE)
    assert [delta.text for delta in deltas] == ["Roses "]
    assert event_types(execution)[-1] == "operation_started"
    held.opened.set()
    assert execution.wait(PATIENCE).variables == {"poem": "Roses are"}
    assert [delta.text for delta in deltas] == ["Roses ", "are"]


def test_who_comes_later_first_hears_what_there_is(held):
    early, late = [], []
    execution = started(ScriptedModel(["Roses are red"], pace=held), ASK, early.append)
    assert held.reached.wait(PATIENCE)
    execution.subscribe_text(late.append)
    held.opened.set()
    execution.wait(PATIENCE)
    assert late == early


def test_an_environment_may_stream_before_somebody_listens(held):
    world, deltas = environment(agents=[Agent("poet", model=ScriptedModel(["Roses are"], pace=held))]), []
    world.internals.control.texts.always = True
    execution = world.start(ASK)
    assert held.reached.wait(PATIENCE)
    execution.subscribe_text(deltas.append)
    held.opened.set()
    execution.wait(PATIENCE)
    assert [(delta.at, delta.text) for delta in deltas] == [(0, "Roses "), (6, "are")]


def test_who_has_stopped_listening_hears_no_more(held):
    deltas = []
    world = environment(agents=[Agent("poet", model=ScriptedModel(["Roses are"], pace=held))])
    execution = world.create(ASK)
    unsubscribe = execution.subscribe_text(deltas.append)
    execution.start()
    assert held.reached.wait(PATIENCE)
    unsubscribe()
    unsubscribe()
    held.opened.set()
    execution.wait(PATIENCE)
    assert [delta.text for delta in deltas] == ["Roses "]


def test_thoughts_are_not_taken_for_the_answer():
    execution, deltas = heard(Poet({0: DeltaThinkingPart(content="Flowers? ")}, "Roses ", "are red").model)
    assert [delta.text for delta in deltas] == ["Roses ", "are red"]
    assert execution.variables == {"poem": "Roses are red"}


def test_calls_side_by_side_are_told_apart():
    each = Each(["a", "b"], as_="name", parallel=2)
    workflow = Workflow("w", [Step("ask", prompt="Write", each=each, store="poems")])
    execution, deltas = heard(ScriptedModel(["Roses are red"]), workflow)
    texts = {}
    for delta in deltas:
        assert delta.at == len(texts.setdefault(delta.operation_id, ""))
        texts[delta.operation_id] += delta.text
    assert list(texts.values()) == ["Roses are red"] * 2
    assert execution.status == "completed"


# --- models that cannot stream, and streams that fail --------------------------------------------------------------


class Silent(WrapperModel):
    """A model that knows no streams."""

    request_stream = Model.request_stream


@pytest.mark.parametrize("wrap", [lambda model: model, WrapperModel, FallbackModel])
def test_a_function_that_answers_as_a_whole_is_asked_plainly(wrap):
    async def answer(_messages, _info):
        return ModelResponse(parts=[TextPart("Roses")])

    execution, deltas = heard(wrap(FunctionModel(answer)))
    assert (execution.variables, deltas) == ({"poem": "Roses"}, [])


def test_thoughts_and_arguments_are_parts_of_their_own_for_those_who_want_them():
    calls = {1: DeltaToolCall("search", '{"query": ', tool_call_id="c1")}, {1: DeltaToolCall(json_args='"owls"}')}
    poet = Poet({0: DeltaThinkingPart(content="Birds")}, {0: DeltaThinkingPart(content="?")}, *calls, "Well")
    texts, parts = [], []
    execution = environment(agents=[Agent("poet", model=poet.model)]).create(ASK)
    execution.subscribe_text(texts.append)
    execution.subscribe_text(parts.append, parts=True)
    execution.start().wait(PATIENCE)
    assert [(delta.part, delta.at, delta.text) for delta in parts] == [
        ("thinking", 0, "Birds"),
        ("thinking", 5, "?"),
        ("arguments:search:c1", 0, '{"query": '),
        ("arguments:search:c1", 10, '"owls"}'),
        ("text", 0, "Well"),
    ]
    assert [delta.text for delta in texts] == ["Well"]


def test_who_comes_late_hears_each_part_from_its_start(held):
    poet = Poet({0: DeltaThinkingPart(content="Birds?")}, "Well", between=held)
    late, execution = [], environment(agents=[Agent("poet", model=poet.model)]).create(ASK)
    execution.subscribe_text(lambda _: None)
    execution.start()
    assert held.reached.wait(PATIENCE)
    execution.subscribe_text(late.append, parts=True)
    held.opened.set()
    execution.wait(PATIENCE)
    assert [(delta.part, delta.at, delta.text) for delta in late] == [("thinking", 0, "Birds?"), ("text", 0, "Well")]


def test_a_script_is_heard_in_its_parts():
    script = ScriptedModel([{"think": "Birds? ", "call": {"search": {"q": "a b"}}, "say": "Well"}])
    execution = environment(agents=[Agent("poet", model=script)]).create(ASK)
    parts = []
    execution.subscribe_text(parts.append, parts=True)
    execution.start().wait(PATIENCE)
    assert [(delta.part, delta.text) for delta in parts] == [
        ("thinking", "Birds? "),
        ("text", "Well"),
        ("arguments:search:call-1-1", '{"q":"a '),
        ("arguments:search:call-1-1", 'b"}'),
    ]


def test_a_model_that_cannot_stream_is_asked_plainly():
    poet = Poet("Roses ", "are red")
    execution, deltas = heard(Silent(poet.model))
    assert (execution.variables, deltas, poet.asked) == ({"poem": "Roses are red"}, [], ["plainly"])


def test_a_stream_that_breaks_off_fails_as_a_request_does():
    execution, deltas = heard(Poet("Roses ", RuntimeError("the line is cut")).model)
    assert execution.error.startswith("RuntimeError: the line is cut (step ask, tests/agents/test_streaming.py:")
    assert [delta.text for delta in deltas] == ["Roses "]
    assert event_types(execution)[-4:] == ["operation_failed", "step_failed", "path_failed", "execution_failed"]


def test_a_stream_that_ends_too_early_is_no_answer():
    class Interrupted(FunctionModel):
        @asynccontextmanager
        async def request_stream(self, *arguments, **named):
            async with super().request_stream(*arguments, **named) as stream:
                stream.state = "incomplete"  # as models of OpenAI say when the last event is missing
                yield stream

    poet = Poet("Roses ", "are red")
    world = environment(agents=[once(Interrupted(poet.answer, stream_function=poet.stream))])
    execution = world.create(ASK)
    execution.subscribe_text(lambda _: None)
    execution.start().wait(PATIENCE)
    assert "the reply was cut off: its stream ended without a finish reason" in execution.error


def test_a_stream_that_takes_too_long_is_closed(held):
    poet = Poet("Roses ", "are red", between=held)
    world = environment(agents=[Agent(AgentDefinition("poet", response_timeout=0.02), model=poet.model)])
    execution = world.create(ASK)
    execution.subscribe_text(lambda _: None)
    assert "not complete after 0.02 seconds; to allow more" in execution.start().wait(PATIENCE).error
    assert poet.closed.is_set()


def test_a_scripted_failure_is_the_same_while_somebody_listens():
    execution, deltas = heard(ScriptedModel(error="overloaded"))
    assert (execution.error, deltas) == ("RuntimeError: overloaded (step ask)", [])


def test_the_text_of_a_retried_call_replaces_that_of_the_failed_one():
    attempts = iter([Poet("Violets ", RuntimeError("the line is cut")), Poet("Roses ", "are red")])
    model = FunctionModel(stream_function=lambda *given: next(attempts).stream(*given))
    workflow = Workflow("w", [Step("ask", prompt="Write", store="poem", retry=Retry(2, seconds=0))])
    execution, deltas = heard(model, workflow)
    assert execution.variables == {"poem": "Roses are red"}
    assert [(delta.at, delta.text) for delta in deltas] == [(0, "Violets "), (0, "Roses "), (6, "are red")]
    assert len({delta.operation_id for delta in deltas}) == 2


# --- nothing depends on who listens --------------------------------------------------------------------------------


def test_a_listener_that_fails_harms_nobody_and_is_told_no_more(caplog, logs):
    calls, deltas = [], []

    def failing(delta):
        calls.append(delta)
        raise ValueError("no paper")

    execution = started(ScriptedModel([POEM]), ASK, failing, deltas.append)
    with caplog.at_level(logging.ERROR):
        assert execution.wait(PATIENCE).variables == {"poem": POEM}
    assert (len(calls), len(deltas)) == (1, len(words(POEM)))
    assert logs() == [f"a listener to the streamed text of {execution.id} failed and is removed"]


@pytest.mark.parametrize("stop", ["cancel", "pause"])
def test_a_run_that_is_stopped_in_the_middle_closes_the_stream_and_begins_its_text_anew(stop, held):
    poet, deltas = Poet("Roses ", "are red", between=held), []
    world = environment(agents=[Agent("poet", model=poet.model)])
    execution = world.create(ASK)
    execution.subscribe_text(deltas.append)
    execution.start()
    assert held.reached.wait(PATIENCE)
    getattr(execution, stop)()
    execution.wait(PATIENCE)
    assert poet.closed.is_set()
    stopped = {"cancel": ["path_cancelled", "execution_cancelled"], "pause": ["execution_paused"]}[stop]
    assert event_types(execution)[3:] == ["operation_started", *stopped]
    held.opened.set()
    assert world.run_of(execution.id).resume().wait(PATIENCE).variables == {"poem": "Roses are red"}
    assert [(delta.at, delta.text) for delta in deltas] == [(0, "Roses "), (0, "Roses "), (6, "are red")]


def test_a_stopped_call_leaves_the_same_log_as_one_that_nobody_listens_to(held):
    async def answer(_messages, _info):
        await held()

    plain = started(FunctionModel(answer))
    assert held.reached.wait(PATIENCE)
    plain.cancel()
    held.reached.clear()
    streaming = started(Poet("Roses ", "are", between=held).model, ASK, lambda _: None)
    assert held.reached.wait(PATIENCE)
    streaming.cancel()
    logs = [[(kind, step) for kind, step, _ in facts(one.wait(PATIENCE))] for one in (plain, streaming)]
    assert logs[0] == logs[1]


def test_what_the_log_knows_is_not_streamed_again():
    model = ScriptedModel([POEM, "another"])
    execution, _ = heard(model)
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_completed")
    again = environment(store=cut(execution.store, execution, length), agents=[Agent("poet", model=model)])
    deltas = []
    again.run_of(execution.id).subscribe_text(deltas.append)
    assert again.run_of(execution.id).resume().wait(PATIENCE).variables == {"poem": POEM}
    assert (deltas, model.calls) == ([], 1)
