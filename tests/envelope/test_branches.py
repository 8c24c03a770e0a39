import threading
from decimal import Decimal

import pytest

from divebook.errors import UncopyableValueError
from divebook.pipeline.envelope import merge_branches
from tests.envelope.strategies import fresh


def branches_of(envelope, count=2):
    return [envelope.clone() for _ in range(count)]


def test_what_was_there_before_counts_once():
    envelope = fresh()
    envelope.llm_call_count, envelope.cost, envelope.edge_counts = 4, Decimal(1), {"a->b": 2}
    envelope.record_agent_start("before")
    envelope.errors.append({"error": "old"})
    one, two = branches_of(envelope)
    for branch, name in ((one, "x"), (two, "y")):
        branch.record_agent_start(name)
        branch.record_agent_complete(name, "success", None, 2)
        branch.errors.append({"error": name})
        branch.token_count += 10
        branch.cost += Decimal("0.5")
        branch.count_edge("a->b")
        branch.set_output(name, {"from": name})
        branch.complete_stage(name)
    merge_branches(envelope, [one, two])
    assert (envelope.llm_call_count, envelope.agent_hop_count, envelope.token_count) == (8, 3, 20)
    assert (envelope.cost, envelope.edge_counts) == (Decimal(2), {"a->b": 4})
    assert [record.agent for record in envelope.processing_history] == ["before", "x", "y"]
    assert envelope.errors == [{"error": "old"}, {"error": "x"}, {"error": "y"}]
    assert envelope.outputs == {"x": {"from": "x"}, "y": {"from": "y"}}
    assert envelope.completed_stage_set == {"x": True, "y": True}


def test_metadata_is_merged_in_depth_and_the_later_branch_wins():
    envelope = fresh()
    envelope.metadata = {"kept": 1, "gone": 1, "deep": {"a": 0, "b": 0}}
    one, two = branches_of(envelope)
    one.metadata["deep"]["a"] = 1
    one.metadata["both"] = {"x": 1, "same": 1}
    del one.metadata["gone"]
    two.metadata["deep"]["b"] = 2
    two.metadata["both"] = {"y": 2, "same": 2}
    merge_branches(envelope, [one, two])
    assert envelope.metadata == {"kept": 1, "deep": {"a": 1, "b": 2}, "both": {"x": 1, "y": 2, "same": 2}}


def test_a_slot_is_taken_whole():
    envelope = fresh()
    envelope.set_output("s", {"a": 1})
    one, two = branches_of(envelope)
    one.set_output("s", {"b": 1})
    merge_branches(envelope, [one, two])
    assert envelope.outputs == {"s": {"b": 1}}


def test_the_first_question_is_asked_and_the_others_queue():
    envelope = fresh()
    quiet, *asking = branches_of(envelope, 3)
    for branch, name in zip(asking, "pq", strict=True):
        branch.set_interrupt("confirmation", name, message="ok?")
    merge_branches(envelope, [quiet, *asking])
    assert (envelope.interrupt.id, [waiting.id for waiting in envelope.interrupt_queue]) == ("p", ["q"])
    assert envelope.ask_next_interrupt()
    assert envelope.interrupt.id == "p"
    envelope.resolve_interrupt({"approved": True})
    assert envelope.ask_next_interrupt()
    assert (envelope.interrupt.id, envelope.interrupt_queue) == ("q", [])
    envelope.clear_interrupt()
    assert not envelope.ask_next_interrupt()


def test_stages_that_were_active_end_as_their_branches_did():
    envelope = fresh()
    envelope.start_stage("x")
    envelope.start_stage("y")
    one, two = branches_of(envelope)
    one.complete_stage("x")
    two.fail_stage("y", "boom")
    merge_branches(envelope, [one, two])
    assert (envelope.active_stages, envelope.completed_stage_set) == ({}, {"x": True})
    assert envelope.failed_stages == {"y": "boom"}


def test_goals_of_all_branches_count():
    envelope = fresh()
    envelope.initialize_goals(["a", "b", "c"])
    one, two = branches_of(envelope)
    one.advance_stage(["a"])
    two.advance_stage(["b"])
    merge_branches(envelope, [one, two])
    assert envelope.remaining_goals == ["c"]
    assert envelope.get_stage_context()["satisfied_goals"] == ["a", "b"]
    assert len(envelope.completed_stages) == 2


def test_the_first_end_counts():
    envelope = fresh()
    one, two = branches_of(envelope)
    one.terminate("one", "user_cancelled")
    two.terminate("two")
    merge_branches(envelope, [one, two])
    assert (envelope.terminated, envelope.termination_reason) == (True, "one")


def test_nothing_is_shared_with_a_branch():
    envelope = fresh()
    (branch,) = branches_of(envelope, 1)
    branch.set_output("a", {"k": [1]})
    merge_branches(envelope, [branch])
    branch.outputs["a"]["k"].append(2)
    assert envelope.outputs == {"a": {"k": [1]}}


def test_a_branch_that_cannot_be_copied_changes_nothing():
    envelope = fresh()
    one, two = branches_of(envelope)
    one.llm_call_count += 1
    two.metadata["lock"] = threading.Lock()
    before = envelope.clone()
    with pytest.raises(UncopyableValueError, match=r"metadata\.lock"):
        merge_branches(envelope, [one, two])
    assert envelope == before
