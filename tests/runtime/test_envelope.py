"""The envelope of an execution: what it spent, did and asked, the same whether it lives or is read from its log."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.pipeline.envelope import Envelope, TerminalReason
from divebook.pipeline.envelope.envelope import envelope_from_state
from divebook.runtime.journal import Journal
from divebook.runtime.messages import this_person
from tests.engine.history import reloaded
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import Calls, Failing, environment

TALK = Workflow(
    "talk",
    [
        Step("draft", prompt="write", store="text", next=["review"]),
        Step("review", prompt="review", store="n", next=[("draft", "$(state.n == 'again')"), "end"]),
        Step("end", script="1"),
    ],
)


def agent(*replies, **usage):
    return Agent("ann", model=ScriptedModel(replies or ["hello"], usage=usage, price=0.5))


def talk(*replies, **settings):
    return environment(TALK, agents=[agent(*replies, input_tokens=3, output_tokens=2)]).start("talk", **settings)


def test_it_counts_agent_steps_model_calls_loops_tokens_and_money():
    envelope = talk("one", "again", "two", "fine").wait(20).envelope
    assert (envelope.agent_hop_count, envelope.llm_call_count, envelope.iteration) == (4, 4, 1)
    assert (envelope.token_count, str(envelope.cost)) == (20, "2")
    assert [record.agent for record in envelope.processing_history] == ["draft", "review", "draft", "review"]
    assert {record.status for record in envelope.processing_history} == {"success"}
    assert [record.stage_order for record in envelope.processing_history] == [0, 1, 0, 1]


def test_it_knows_who_asked_and_how_it_ended():
    who = {"user_id": "ann", "session_id": "s1", "request_id": "r1", "metadata": {"a": [1]}}
    execution = talk("fine", identity=who).wait(20)
    envelope = execution.envelope
    assert (envelope.user_id, envelope.session_id, envelope.request_id) == ("ann", "s1", "r1")
    assert (envelope.metadata, envelope.envelope_id) == ({"a": [1]}, execution.id)
    assert (envelope.terminated, envelope.terminal_reason) == (True, TerminalReason.COMPLETED)
    assert (envelope.created_at, envelope.completed_at) == (execution.started_at, execution.ended_at)
    assert envelope.current_stage == "end"


def test_agent_steps_have_slots_and_other_steps_have_none():
    envelope = talk("draft", '{"verdict": "proceed"}').wait(20).envelope
    assert envelope.outputs == {"draft": {"text": "draft"}, "review": {"verdict": "proceed"}}
    assert list(envelope.completed_stage_set) == envelope.stage_order == ["draft", "review", "end"]
    assert (envelope.active_stages, envelope.failed_stages) == ({}, {})


def test_a_text_that_only_looks_like_json_is_a_text():
    for text in ("{", '{"a": 1} and more', '{"a":' * 100_000, '{"a": NaN}'):
        assert talk(text, "fine").wait(20).envelope.outputs["draft"] == {"text": text}


def test_failures_are_errors_and_history():
    broken = Agent("ann", model=ScriptedModel(error="no such model"))
    envelope = environment(TALK, agents=[broken]).start("talk").wait(20).envelope
    (error,) = envelope.errors
    assert (error["agent"], error["error_type"]) == ("draft", "ProcessingError")
    assert "no such model" in error["error"]
    assert [record.status for record in envelope.processing_history] == ["error"]
    assert list(envelope.failed_stages) == ["draft"]
    assert (envelope.llm_call_count, envelope.terminated) == (1, True)


def test_a_resumed_agent_step_is_the_same_hop_and_counters_go_on():
    store = environment().store
    broken = Agent("ann", model=ScriptedModel(error="down"))
    failed = environment(TALK, agents=[broken], store=store).start("talk").wait(20)
    world = Environment(store=store, agents=[agent("fine")])
    envelope = world.run_of(failed.id).resume().wait(20).envelope
    assert (envelope.agent_hop_count, envelope.llm_call_count) == (2, 3)
    assert [record.status for record in envelope.processing_history] == ["success", "success"]
    assert len(envelope.errors) == 1


def test_a_cancelled_agent_step_runs_no_more():
    execution = talk("fine").wait(20)
    started = next(e.sequence for e in execution.history() if e.event_type == "operation_started")
    world = Environment(store=cut(execution.store, execution, started))
    envelope = world.run_of(execution.id).cancel().wait(20).envelope
    (record,) = envelope.processing_history
    assert (record.status, record.error) == ("error", f"cancelled by {this_person()}")
    assert envelope.terminal_reason == TerminalReason.USER_CANCELLED


def test_questions_queue_and_their_answers_stay():
    each = {"type": "interrupt", "ask": "Who?", "next": ["end"]}
    branches = [Step("s", script="1", next=["a", "b"]), Step("a", **each), Step("b", **each)]
    workflow = Workflow("w", [*branches, Step("end", script="1")])
    execution = environment(workflow).start("w").wait(20)
    first, second = execution.open_questions
    envelope = execution.envelope
    assert (envelope.interrupt_pending, envelope.interrupt.id) == (True, first.id)
    assert [question.id for question in envelope.interrupt_queue] == [second.id]
    assert not envelope.can_continue()
    assert envelope.parallel_mode
    execution.answer(second.id, "me").wait(20)
    answered = execution.answer(first.id, "you").wait(20).envelope
    assert (answered.interrupt_pending, answered.interrupt.response.text) == (False, "you")


def test_a_bound_that_is_met_is_its_reason_until_it_is_raised():
    execution = talk("fine", bounds={"max_llm_calls": 1}).wait(20)
    envelope = execution.envelope
    assert (envelope.terminal_reason, envelope.terminated) == (TerminalReason.MAX_LLM_CALLS_EXCEEDED, False)
    assert envelope.max_llm_calls == 1
    raised = execution.answer(execution.open_questions[0].id, 5).wait(20).envelope
    assert (raised.terminal_reason, raised.max_llm_calls) == (TerminalReason.COMPLETED, 5)


def test_it_is_a_copy_and_can_be_written_and_read():
    execution = talk("fine", identity={"metadata": {"a": {"b": 1}}}).wait(20)
    envelope = execution.envelope
    envelope.metadata["a"]["b"] = 2
    assert execution.envelope.metadata == {"a": {"b": 1}}
    kept = execution.envelope
    assert Envelope.from_state_dict(kept.to_state_dict(), strict=True) == kept


# --- the fold ------------------------------------------------------------------------------------------------------


@st.composite
def workflows(draw):
    """Draw a workflow of agents, questions, failures and loops."""
    count = draw(st.integers(1, 5))
    names = [f"s{number}" for number in range(count)]
    steps = []
    for number, name in enumerate(names):
        shape = draw(st.sampled_from(["prompt", "prompt", "ask", "fail", "note"]))
        targets = draw(st.lists(st.sampled_from([*names[number + 1 :], "end"]), unique=True, max_size=2))
        back = [(draw(st.sampled_from(names[: number + 1])), f"$(state.get('n', 0) < {draw(st.integers(0, 3))})")]
        following = (back if draw(st.booleans()) else []) + [(target, None) for target in targets]
        steps.append(_step(shape, name, following))
    end = Step("end", script="(state.get('n') or 0) + 1", store="n", join=draw(st.booleans()))
    return Workflow("random", [*steps, end], continue_on_failure=draw(st.booleans()))


def _step(shape, name, following):
    if shape == "prompt":
        return Step(name, prompt="hello", next=following, catch="end")
    if shape == "ask":
        return Step(name, type="interrupt", ask=f"{name}?", store=name, next=following)
    return Step(name, action=shape, store="n" if shape == "note" else None, parameters={"value": 1}, next=following)


class Watch:
    """Keeps the live envelope at every sequence number."""

    def __init__(self, steps):
        self.steps, self.envelopes, self._record = steps, {}, Journal.record

    def __enter__(self):
        def record(journal, data, path="", step="", *, more=(), **options):
            for fact in (data, *more):
                self._record(journal, fact, path, step, **options)
                self.envelopes[journal.recorded] = envelope_from_state(journal.state, self.steps)

        Journal.record = record
        return self

    def __exit__(self, *_):
        Journal.record = self._record


@settings(max_examples=40, deadline=None)
@given(workflows(), st.sampled_from([{}, {"max_agent_hops": 2}, {"max_llm_calls": 1}, {"max_iterations": 1}]))
def test_the_envelope_is_the_fold_of_the_log_at_every_sequence_number(workflow, bounds):
    actions = [Calls().action("note"), Failing().action("fail")]
    world = environment(workflow, actions=actions, agents=[agent("hello", "again", input_tokens=1)])
    steps = [step.name for step in workflow.steps]
    with Watch(steps) as watch:
        execution = world.start("random", bounds={"max_iterations": 4, "max_repeats": 9, **bounds}).wait(30)
        for _ in range(12):
            if execution.status != "waiting":
                break
            question = execution.open_questions[-1]
            bound = question.kind == "resource_exhausted"
            execution = execution.answer(question.id, "stop" if bound else "yes").wait(30)
    state, history = ExecutionState(execution.id), execution.history()
    for event in history:
        state = evolve(state, event)
        assert envelope_from_state(state, steps) == watch.envelopes[event.sequence]
        assert envelope_from_state(reloaded(state, history), steps) == watch.envelopes[event.sequence]
    assert len(watch.envelopes) == state.last_sequence
    assert execution.envelope == envelope_from_state(state, steps)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_an_execution_that_has_hardly_begun_has_an_envelope(length):
    execution = talk("fine").wait(20)
    store = cut(execution.store, execution, length)
    envelope = Environment(store=store).run_of(execution.id).envelope
    assert (envelope.terminated, envelope.agent_hop_count) == (False, int(length == 3))


def test_a_pending_execution_has_an_envelope():
    envelope = environment(TALK, agents=[agent()]).create("talk").envelope
    assert (envelope.current_stage, envelope.agent_hop_count) == ("start", 0)
