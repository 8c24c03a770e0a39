import re
import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given

from divebook.errors import InterruptError, InvalidEnvelopeError, UncopyableValueError
from divebook.pipeline.envelope import (
    Bounds,
    Envelope,
    InterruptResponse,
    ReasonClass,
    RiskLevel,
    SlotNames,
    TerminalReason,
    create_envelope,
    exceeded_edge,
)
from tests.envelope.strategies import FIELDS, NOW, envelopes, fresh


def moving(*seconds):
    """Return a clock that is so many seconds later at each look."""
    looks = iter(seconds)
    return lambda: NOW + timedelta(seconds=next(looks))


def test_the_envelope_is_one_class():
    assert Envelope.__mro__ == (Envelope, object), "a reader finds all fields and methods of a request in one class"


def test_it_works_alone_with_real_time_and_identifiers():
    one, two = Envelope(), Envelope()
    assert re.fullmatch("env_[0-9a-f]{16}", one.envelope_id)
    assert re.fullmatch("req_[0-9a-f]{16}", one.request_id)
    assert one.envelope_id != two.envelope_id
    assert one.created_at.tzinfo is not None
    assert one != two


def test_the_factory_copies_what_it_is_given():
    metadata, order = {"a": {"b": 1}}, ["x"]
    envelope = create_envelope("m", "u", "s", metadata=metadata, stage_order=order)
    metadata["a"]["b"] = 2
    order.append("y")
    assert (envelope.metadata, envelope.stage_order) == ({"a": {"b": 1}}, ["x"])


@given(envelopes)
def test_a_clone_is_equal_and_independent(envelope):
    twin = envelope.clone()
    before = envelope.to_state_dict()
    assert twin == envelope
    for name in FIELDS:
        ruin(getattr(twin, name))
    assert envelope.to_state_dict() == before


def ruin(value):
    """Change everything inside a value that can be changed."""
    if isinstance(value, dict):
        for item in value.values():
            ruin(item)
        value["ruined"] = True
    elif isinstance(value, list):
        for item in value:
            ruin(item)
        value.append("ruined")
    elif type(value).__name__ in {"FlowInterrupt", "InterruptResponse", "ProcessingRecord"}:
        for name in value.__dataclass_fields__:
            ruin(getattr(value, name))
            setattr(value, name, "ruined")


def test_a_clone_names_what_it_cannot_copy():
    envelope = fresh()
    envelope.set_output("a", {"rows": [1, {"lock": threading.Lock()}]})
    with pytest.raises(UncopyableValueError, match=r"outputs\.a\.rows\[1\]\.lock") as caught:
        envelope.clone()
    assert caught.value.path == "outputs.a.rows[1].lock"


def test_a_clone_names_what_a_question_holds():
    envelope = fresh()
    envelope.set_interrupt("checkpoint", "q", data={})
    envelope.interrupt.data["lock"] = threading.Lock()
    with pytest.raises(UncopyableValueError, match=r"interrupt\.data\.lock"):
        envelope.clone()


def test_copies_keep_the_kinds_of_containers():
    envelope = fresh()
    envelope.metadata = {"tuple": (1, [2]), "set": {3}, "time": NOW}
    assert envelope.clone().metadata == {"tuple": (1, [2]), "set": {3}, "time": NOW}


# --- bounds


@pytest.mark.parametrize(
    ("bounds", "spent", "reason"),
    [
        (Bounds(max_iterations=0), {"iteration": 0}, None),
        (Bounds(max_iterations=0), {"iteration": 1}, "max_iterations_exceeded"),
        (Bounds(max_llm_calls=2), {"llm_call_count": 2}, "max_llm_calls_exceeded"),
        (Bounds(max_agent_hops=0), {}, "max_agent_hops_exceeded"),
        (Bounds(max_tokens=10), {"token_count": 9}, None),
        (Bounds(max_tokens=10), {"token_count": 10}, "max_tokens_exceeded"),
        (Bounds(max_cost=Decimal("0.3")), {"cost": Decimal("0.1") * 3}, "max_cost_exceeded"),
        (Bounds(edges={"a->b": 1}), {"edge_counts": {"a->b": 1, "b->c": 9}}, None),
        (Bounds(edges={"a->b": 1}), {"edge_counts": {"a->b": 2}}, "max_loop_exceeded"),
        (Bounds(max_iterations=1, max_llm_calls=1), {"iteration": 2, "llm_call_count": 1}, "max_iterations_exceeded"),
        (Bounds.none(), {"iteration": 10**9, "llm_call_count": 10**9, "cost": Decimal(10**9)}, None),
    ],
)
def test_the_first_bound_that_is_reached_is_named_and_nothing_changes(bounds, spent, reason):
    envelope = fresh(bounds=bounds)
    for name, value in spent.items():
        setattr(envelope, name, value)
    before = envelope.clone()
    assert envelope.exceeded_bound() == reason
    assert envelope == before
    assert envelope.can_continue() is (reason is None)
    assert envelope.terminal_reason == reason


def test_time_is_a_bound():
    envelope = Envelope(bounds=Bounds(max_seconds=10), clock=moving(0, 9.9, 10))
    assert envelope.exceeded_bound() is None
    assert envelope.exceeded_bound() is TerminalReason.MAX_SECONDS_EXCEEDED


def test_a_raised_bound_takes_its_reason_back():
    envelope = fresh()
    envelope.llm_call_count = 10
    assert not envelope.can_continue()
    envelope.max_llm_calls = 20
    assert envelope.can_continue()
    assert envelope.terminal_reason is None
    envelope.terminal_reason = TerminalReason.CLARIFICATION_REQUIRED
    assert envelope.can_continue()
    assert envelope.terminal_reason == "clarification_required"


def test_the_edge_that_was_passed_too_often_is_named():
    envelope = fresh(bounds=Bounds(edges={"a->b": 1, "b->c": 1}))
    assert [envelope.count_edge("b->c") for _ in range(2)] == [1, 2]
    assert exceeded_edge(envelope.bounds, envelope.edge_counts) == "b->c"


def test_a_second_end_keeps_the_typed_reason():
    envelope = fresh()
    envelope.terminate("one", "user_cancelled")
    envelope.terminate("two")
    assert (envelope.termination_reason, envelope.terminal_reason) == ("two", TerminalReason.USER_CANCELLED)
    assert not envelope.can_continue()


def test_reasons_and_risks_are_classified():
    assert {reason for reason in TerminalReason if reason.classification is ReasonClass.WAITING} == {
        "clarification_required",
        "confirmation_required",
    }
    assert TerminalReason.MAX_COST_EXCEEDED.classification == "bounds_exceeded"
    assert TerminalReason.COMPLETED.classification == "completed"
    assert TerminalReason.USER_CANCELLED.classification == "failed"
    assert {level for level in RiskLevel if level.requires_confirmation} == {"destructive", "high", "critical"}


# --- slots, goals, history


def test_slot_names_are_settings():
    names = SlotNames({"draft"}, {"review"}, archive="draft", response="answer", response_key="text")
    envelope = fresh(slot_names=names)
    for slot in ("draft", "review", "plan", "answer"):
        envelope.set_output(slot, {"plan_id": slot, "text": slot})
    envelope.initialize_goals(["a", "b"])
    assert envelope.advance_stage(["a"])
    assert envelope.completed_stages[0]["plan_id"] == "draft"
    envelope.increment_iteration()
    assert envelope.outputs.keys() == {"plan", "answer"}
    assert envelope.prior_plans == [{"plan_id": "draft", "text": "draft"}]
    assert envelope.get_final_response() == "answer"
    assert envelope.clone().get_final_response() == "answer"


def test_an_archived_plan_is_a_copy():
    envelope = fresh()
    plan = {"steps": [1]}
    envelope.set_output("plan", plan)
    envelope.increment_iteration("")
    plan["steps"].append(2)
    assert (envelope.prior_plans, envelope.loop_feedback) == ([{"steps": [1]}], [""])


def test_satisfied_goals_come_in_the_order_they_were_satisfied():
    envelope = fresh()
    envelope.initialize_goals(["a", "b", "c", "b"])
    envelope.advance_stage(["b", "new"])
    envelope.advance_stage(["a"])
    assert envelope.get_stage_context()["satisfied_goals"] == ["b", "new", "a"]
    assert envelope.remaining_goals == ["c"]
    assert not envelope.is_stuck()


def test_goals_whose_standing_was_lost_can_still_be_satisfied():
    envelope = fresh()
    envelope.initialize_goals(["a", "b"])
    envelope.goal_completion_status = None
    assert envelope.advance_stage(["a"])
    assert envelope.goal_completion_status == {"a": "satisfied"}


def test_it_is_stuck_when_stages_pass_without_a_goal():
    envelope = fresh()
    envelope.initialize_goals(["a"])
    assert envelope.advance_stage([])
    assert envelope.is_stuck()
    assert not envelope.is_stuck(3)


def test_model_calls_count_even_without_a_record():
    envelope = fresh()
    envelope.record_agent_complete("nobody", "success", None, 3, 5)
    assert (envelope.llm_call_count, envelope.processing_history) == (3, [])


# --- questions


def test_an_answer_is_copied_and_dated():
    envelope = fresh()
    envelope.set_interrupt("agent_review", "q", message="ok?", expires_in=timedelta(hours=1))
    data = {"k": [1]}
    envelope.resolve_interrupt(InterruptResponse(decision="modify", data=data, received_at=NOW - timedelta(days=1)))
    data["k"].append(2)
    assert envelope.interrupt.response == InterruptResponse(decision="modify", data={"k": [1]}, received_at=NOW)
    assert envelope.interrupt.expires_at == NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"approved": "yes"}, "question q: approved must be a bool, not 'yes'"),
        ({"approved": 1}, "approved must be a bool"),
        ({"txt": "x"}, "unknown key 'txt' in an answer; did you mean 'text'?"),
        ({"zzz": "x"}, "valid keys: text, approved, decision, data"),
        ("yes", "answer with a mapping"),
    ],
)
def test_an_answer_that_fits_no_question_leaves_it_pending(answer, message):
    envelope = fresh()
    envelope.set_interrupt("confirmation", "q", message="ok?")
    with pytest.raises(InterruptError) as caught:
        envelope.resolve_interrupt(answer)
    assert message in str(caught.value)
    assert envelope.has_pending_interrupt()


def test_a_result_has_its_typed_reason_and_shares_nothing():
    envelope = fresh()
    envelope.set_output("a", {"k": [1]})
    envelope.set_interrupt("confirmation", "q", message="ok?")
    envelope.terminate("over", "user_cancelled")
    result = envelope.to_result_dict()
    result["outputs"]["a"]["k"].append(2)
    assert envelope.outputs == {"a": {"k": [1]}}
    assert result["terminal_reason"] == "user_cancelled"
    assert (result["confirmation_needed"], result["confirmation_id"]) == (True, "q")
    assert result["interrupt"].keys() == {"kind", "id", "question", "message", "created_at"}


# --- validation


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("envelope_id", "", "envelope_id is empty"),
        ("cost", Decimal(-1), "cost is negative: -1"),
        ("max_stages", 0, "max_stages must be at least 1, not 0"),
        ("current_stage_number", 0, "current_stage_number must be at least 1"),
        ("remaining_goals", ["x"], "remaining_goals contains 'x'"),
        ("interrupt_pending", True, "there is no interrupt"),
        ("terminated", True, "completed_at is not"),
        ("completed_at", NOW.replace(tzinfo=None), "completed_at has no time zone"),
    ],
)
def test_validation_names_what_is_wrong(name, value, problem):
    envelope = fresh()
    envelope.validate()
    setattr(envelope, name, value)
    with pytest.raises(InvalidEnvelopeError, match=problem):
        envelope.validate()


def test_the_edges_of_an_order_are_stages_as_well():
    envelope = fresh()
    envelope.stage_order = ["a"]
    envelope.validate()
    envelope.current_stage = "end"
    envelope.validate()
