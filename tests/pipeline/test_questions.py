import pytest

from divebook import Environment
from divebook.errors import InterruptError, ResumeError
from divebook.pipeline import Envelope
from divebook.pipeline.pipeline import EngineClock
from divebook.stores import MemoryStore
from tests.envelope.test_service import Clock
from tests.pipeline.worlds import Script, asks, chain, envelope, flat, pipeline, went, world


def asking(kind, config=None, stage="a", details=None, **settings):
    """Return a pipeline in which a stage asks, and an envelope that waits for the answer."""
    script = Script(**{stage: [asks(kind, output={"n": 1}, **(details or {"message": "?"})), {"n": 2}]})
    runner = pipeline(config or chain("a", "b", "c"), script, **settings)
    return runner, runner.run(envelope()), script


def test_a_question_stops_the_request_before_the_next_stage():
    _, waiting, script = asking("clarification", details={"question": "Which?"})
    assert (waiting.interrupt_pending, waiting.current_stage, waiting.terminated) == (True, "b", False)
    assert (script.calls, waiting.outputs, waiting.get_final_response()) == (["a"], {"a": {"n": 1}}, "Which?")


def test_an_answer_lets_it_go_on_where_it_stopped():
    runner, waiting, script = asking("clarification", details={"question": "Which?"})
    done = runner.resume(waiting, {"text": "src"})
    assert (script.calls, done.current_stage) == (["a", "b", "c"], "end")
    assert (done.interrupt.response.text, done.interrupt_pending) == ("src", False)
    assert (done.outputs["a"], done.agent_hop_count, done.terminal_reason) == ({"n": 1}, 3, "completed")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("clarification", {"text": "x"}),
        ("confirmation", {"approved": True}),
        ("agent_review", {"decision": "reject"}),
    ],
)
def test_an_answer_may_lead_to_a_stage_of_its_own(kind, answer):
    runner, waiting, script = asking(kind, chain("a", "b", "c", **{f"{kind}_resume_stage": "c"}))
    assert runner.resume(waiting, answer).terminated is False
    assert script.calls == ["a", "c"]


@pytest.mark.parametrize("kind", ["checkpoint", "resource_exhausted", "timeout", "system_error"])
def test_other_questions_go_on_in_place_also_with_an_empty_answer(kind):
    runner, waiting, script = asking(kind)
    done = runner.resume(waiting, {})
    assert (script.calls, done.interrupt.response.text, done.terminal_reason) == (["a", "b", "c"], None, "completed")


@pytest.mark.parametrize("answer", [{"approved": False}, {"text": "maybe"}, {}, {"decision": "approve"}])
def test_anything_but_an_approval_is_a_denial(answer):
    saved = []
    runner, waiting, script = asking("confirmation", save=saved.append)
    done = runner.resume(waiting, answer)
    assert (done.terminated, done.termination_reason) == (True, "User denied confirmation")
    assert (done.terminal_reason, done.interrupt_pending, script.calls) == ("user_cancelled", False, ["a"])
    assert [state["terminated"] for state in saved] == [False, True]


def test_a_rejected_review_is_for_the_stage_to_read():
    seen = []
    config = chain("a", "b")
    script = Script(a=[asks("agent_review")], b=[lambda given: seen.append(given.interrupt.response.decision) or {}])
    runner = pipeline(config, script)
    runner.resume(runner.run(envelope()), {"decision": "reject"})
    assert seen == ["reject"]


def test_without_a_question_there_is_nothing_to_answer():
    runner = pipeline(chain("a"))
    with pytest.raises(ResumeError, match="has no pending interrupt"):
        runner.resume(envelope(), {"text": "x"})
    flagged = envelope()
    flagged.interrupt_pending = True
    with pytest.raises(ResumeError, match="has no pending interrupt"):
        runner.resume(flagged, {"text": "x"})


def test_an_answer_may_name_its_question_and_is_refused_if_it_is_another():
    runner, waiting, _ = asking("confirmation")
    with pytest.raises(ResumeError, match="'q', not to 'p'"):
        runner.resume(waiting, {"approved": True}, interrupt_id="p")
    assert waiting.interrupt_pending
    assert runner.resume(waiting, {"approved": True}, interrupt_id="q").terminal_reason == "completed"


@pytest.mark.parametrize("kind", ["clarification", "agent_review"])
def test_an_empty_answer_where_one_is_needed_leaves_the_question_open(kind):
    runner, waiting, _ = asking(kind)
    with pytest.raises(InterruptError, match="still open"):
        runner.resume(waiting, {"text": " "})
    assert waiting.interrupt_pending


def test_an_answer_of_the_wrong_type_leaves_the_question_open():
    runner, waiting, _ = asking("confirmation")
    with pytest.raises(InterruptError, match="approved must be true or false"):
        runner.resume(waiting, {"approved": "yes"})
    assert waiting.interrupt_pending


def expiring(**settings):
    clock = Clock()
    script = Script(a=[asks("confirmation", message="Sure?", expires_in=60), {}])
    runner = pipeline(chain("a", "b", **settings), script, clock=clock)
    waiting = runner.run(envelope(clock=clock))
    return runner, waiting, script, clock


def test_a_late_answer_ends_the_request():
    runner, waiting, script, clock = expiring()
    clock.advance(61)
    done = runner.resume(waiting, {"approved": True})
    assert (done.terminated, done.terminal_reason, script.calls) == (True, "confirmation_required", ["a"])
    assert "Sure?" in done.termination_reason
    assert done.interrupt.response is None


def test_a_late_answer_may_make_the_question_be_asked_again():
    runner, waiting, script, clock = expiring(on_expired="ask")
    clock.advance(61)
    again = runner.resume(waiting, {"approved": True})
    assert (again.interrupt_pending, again.interrupt.response, script.calls) == (True, None, ["a"])
    assert (again.interrupt.expires_at - clock()).total_seconds() == 60
    assert runner.resume(again, {"approved": True}).terminal_reason == "completed"


def test_checkpoints_may_be_passed_without_waiting():
    _, done, script = asking("checkpoint", chain("a", "b", resume_checkpoints=True))
    assert (done.terminal_reason, script.calls, done.interrupt.kind) == ("completed", ["a", "b"], "checkpoint")


@pytest.mark.parametrize(("kind", "field"), [("clarification", "question"), ("confirmation", "message")])
@pytest.mark.parametrize("said", ["question", "message"])
def test_a_rule_may_lead_to_a_question(kind, field, said):
    rules = [{"condition": "sure", "value": False, "target": kind}]
    config = flat(a={"routing_rules": rules, "default_next": "b"}, b={})
    script = Script(a=[{"sure": False, said: "Which folder?"}, {"sure": True}])
    runner = pipeline(config, script)
    waiting = runner.run(envelope())
    assert (waiting.interrupt.kind, getattr(waiting.interrupt, field)) == (kind, "Which folder?")
    assert (waiting.current_stage, waiting.terminated) == ("a", False)
    done = runner.resume(waiting, {"text": "src", "approved": True})
    assert (script.calls, done.terminal_reason) == (["a", "a", "b"], "completed")


def test_questions_without_an_id_get_one_of_their_own():
    config = flat(a={"default_next": "clarification"})
    runner = pipeline({**config, "clarification_resume_stage": "a"})
    first = runner.run(envelope())
    ids = {first.interrupt.id}
    for _ in range(3):
        ids.add(runner.resume(first, {"text": "x"}).interrupt.id)
    assert len(ids) == 4


def test_edges_are_counted_on_after_an_answer():
    config = flat(a={"default_next": "b"}, b={"default_next": "a"})
    limits = [{"from": "b", "to": "a", "max_count": 1}]
    script = Script(b=[asks("checkpoint", message="on?"), asks("checkpoint", message="on?")])
    runner = pipeline({**config, "edge_limits": limits, "max_iterations": 9}, script)
    stopped = runner.resume(runner.run(envelope()), {})
    assert (stopped.terminal_reason, script.calls) == ("max_loop_exceeded", ["a", "b", "a", "b"])


def test_bounds_are_kept_through_an_answer():
    runner, waiting, script = asking("checkpoint", chain("a", "b", "c", max_agent_hops=2))
    stopped = runner.resume(waiting, {})
    assert (stopped.terminal_reason, script.calls, stopped.agent_hop_count) == (
        "max_agent_hops_exceeded",
        ["a", "b"],
        2,
    )


def test_two_questions_one_after_the_other():
    script = Script(a=[asks("clarification", "q1")], b=[asks("clarification", "q2")])
    runner = pipeline(chain("a", "b", "c"), script)
    second = runner.resume(runner.run(envelope()), {"text": "A1"})
    assert (second.interrupt.id, second.interrupt_pending, second.current_stage) == ("q2", True, "c")
    done = runner.resume(second, {"text": "A2"})
    assert (done.interrupt.response.text, script.calls) == ("A2", ["a", "b", "c"])


def test_a_question_of_the_last_stage_is_asked_as_well():
    runner, waiting, _ = asking("confirmation", chain("a"))
    assert (waiting.current_stage, waiting.terminal_reason) == ("end", None)
    assert runner.resume(waiting, {"approved": True}).terminal_reason == "completed"


def test_an_envelope_kept_as_its_state_goes_on_in_another_pipeline():
    _, waiting, _ = asking("clarification", chain("a", "b", "c"))
    kept = Envelope.from_state_dict(waiting.to_state_dict())
    script = Script()
    done = pipeline(chain("a", "b", "c"), script).resume(kept, {"text": "x"})
    assert (script.calls, went(done), done.terminal_reason) == (["b", "c"], ["a", "b", "c"], "completed")


def test_a_bound_that_was_raised_by_hand_survives_an_answer():
    runner, waiting, _script = asking("checkpoint", chain("a", "b", "c", max_agent_hops=2))
    waiting.max_agent_hops = 3
    assert runner.resume(waiting, {}).terminal_reason == "completed"


# --- a person raises a bound ---------------------------------------------------------------------------------------


def test_at_a_bound_a_person_may_be_asked_to_raise_it():
    script = Script()
    runner = pipeline(chain("a", "b", "c", max_agent_hops=2, on_exhausted="ask"), script)
    waiting = runner.run(envelope())
    assert (waiting.interrupt.kind, waiting.interrupt.data["resource_type"]) == ("resource_exhausted", "max_agent_hops")
    assert waiting.current_stage == "c"
    done = runner.resume(waiting, {"decision": "raise", "data": {"to": 3}})
    assert (script.calls, done.max_agent_hops, done.terminal_reason) == (["a", "b", "c"], 3, "completed")


@pytest.mark.parametrize("to", [0, 2, "many", 2.5])
@pytest.mark.parametrize("kept", [False, True])
def test_a_bound_is_raised_above_what_is_used_wherever_the_envelope_waits(to, kept):
    config = chain("a", "b", "c", max_agent_hops=2, on_exhausted="ask")
    runner = pipeline(config, environment=world()) if kept else pipeline(config)
    waiting = runner.run(envelope())
    with pytest.raises(InterruptError, match="the new bound must be a"):
        runner.resume(waiting, {"decision": "raise", "data": {"to": to}})
    assert runner.resume(waiting, "raise").terminal_reason == "completed"


def test_at_a_bound_a_person_may_say_stop():
    runner = pipeline(chain("a", "b", "c", max_agent_hops=2, on_exhausted="ask"))
    done = runner.resume(runner.run(envelope()), {"decision": "stop"})
    assert (done.terminated, done.terminal_reason) == (True, "max_agent_hops_exceeded")


# --- in an environment that keeps ----------------------------------------------------------------------------------


def test_the_question_is_the_executions_and_is_answered_by_its_id():
    environment = world()
    runner, _waiting, script = asking("confirmation", details={"message": "Delete?"}, environment=environment)
    ((execution_id, question),) = environment.inbox()
    assert (question.kind, question.question, environment.run_of(execution_id).status) == (
        "confirmation",
        "Delete?",
        "waiting",
    )
    execution = environment.answer(question.id, True).wait(20)
    done = runner.envelope(execution)
    assert (done.terminal_reason, script.calls) == ("completed", ["a", "b", "c"])
    assert done.interrupt.response.approved is True
    with pytest.raises(InterruptError, match="already answered"):
        environment.answer(question.id, False, execution_id)


def test_an_envelope_goes_on_in_its_own_execution():
    environment = world()
    runner, waiting, script = asking("clarification", environment=environment)
    done = runner.resume(waiting, {"text": "x"})
    assert (len(environment.store.records()), environment.inbox()) == (1, [])
    assert (script.calls, done.terminal_reason) == (["a", "b", "c"], "completed")


def test_an_old_copy_of_an_envelope_cannot_be_answered_again():
    environment = world()
    script = Script(a=[asks("clarification", "q1")], b=[asks("clarification", "q2")])
    runner = pipeline(chain("a", "b", "c"), script, environment=environment)
    waiting = runner.run(envelope())
    old = waiting.clone()
    runner.resume(waiting, {"text": "A1"})
    with pytest.raises(ResumeError, match="has continued in execution"):
        runner.resume(old, {"text": "A1"})
    assert script.calls == ["a", "b"]


def test_a_denial_ends_the_request_of_an_execution_that_completes():
    saved = []
    environment = world()
    runner, _waiting, _ = asking("confirmation", environment=environment, save=saved.append)
    execution = environment.answer(environment.inbox()[0][1].id, "no").wait(20)
    assert (execution.status, runner.envelope(execution).terminal_reason) == ("completed", "user_cancelled")
    assert len(saved) == 2


def test_a_process_without_the_functions_of_a_pipeline_says_so():
    store = MemoryStore()
    asking("confirmation", environment=Environment(store=store))
    stranger = Environment(store=store)
    ((execution_id, _),) = stranger.inbox()
    with pytest.raises(Exception, match="stages of pipeline 'p' are missing: a, b, c"):
        stranger.run_of(execution_id).resume()


def test_a_question_that_expires_in_an_environment_ends_the_request_without_an_answer():
    store, clock = MemoryStore(), Clock()
    script = Script(a=[asks("clarification", "q", question="Which?", expires_in=60)])
    runner = pipeline(chain("a", "b"), script, environment=Environment(store=store, clock=EngineClock(clock)))
    waiting = runner.run(envelope(clock=clock))
    clock.advance(61)
    later = Environment(store=store, clock=EngineClock(clock))
    other = pipeline(chain("a", "b"), script, environment=later)
    (execution_id,) = (record.execution_id for record in store.records())
    (question,) = later.run_of(execution_id)._driver.questions.values()
    assert (later.inbox(), question.status) == ([], "expired")
    with pytest.raises(InterruptError, match="expired"):
        later.answer(question.id, "src")
    done = other.envelope(later.run_of(execution_id).resume().wait(20))
    assert (done.terminal_reason, script.calls) == ("clarification_required", ["a"])
    assert waiting.interrupt.expires_at == done.interrupt.expires_at


def test_an_envelope_that_asked_before_it_began_goes_to_the_first_stage():
    given, script = envelope(), Script()
    given.set_interrupt("clarification", "q", question="Which?")
    done = pipeline(chain("a", "b", max_iterations=7), script).resume(given, {"text": "src"})
    assert (script.calls, done.terminal_reason, done.max_iterations) == (["a", "b"], "completed", 7)


def test_a_question_in_memory_leaves_nothing_behind_and_expires_nowhere():
    runner, waiting, _ = asking("clarification", details={"question": "?", "expires_in": 3600})
    assert (waiting.interrupt_pending, runner.environment.store.records()) == (True, [])
