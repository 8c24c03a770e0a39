"""What each event does to the state."""

from dataclasses import FrozenInstanceError, fields

import pytest

from divebook.engine.evolve import evolve, fold
from divebook.engine.maps import Map
from divebook.errors import CorruptStoreError
from divebook.events import Event, catalog
from divebook.events.event import to_datetime
from tests.engine.history import STARTED, begun, events, reloaded, state_after, step


def set_(key, value):
    return catalog.StateMutated((catalog.Mutation("set", key, value),))


def delete(key):
    return catalog.StateMutated((catalog.Mutation("delete", key),))


def test_nothing_has_happened_before_the_first_event():
    assert state_after().status == "pending"


def test_started_is_running_with_its_inputs():
    state = state_after(STARTED)
    assert (state.status, state.inputs, state.workflow_name) == ("running", {"x": 1}, "w")


def test_a_gap_is_refused():
    with pytest.raises(CorruptStoreError, match="from event 0 to 2"):
        fold("exec_1", events(STARTED, *begun()[1:])[1:])


def test_an_event_on_a_path_that_never_began_is_refused():
    with pytest.raises(CorruptStoreError, match="which never started"):
        state_after(STARTED, (catalog.StepStarted("script"), "main-7", "a"))


def test_an_operation_outside_a_step_is_refused():
    with pytest.raises(CorruptStoreError, match="outside any step"):
        state_after(*begun(), (catalog.OperationStarted("op_1", "x"), "main", "a"))


def test_variables_are_set_and_deleted():
    state = state_after(*begun(), *step("a", set_("n", 1), set_("m", [2]), delete("n"), delete("never")))
    assert dict(state.variables) == {"m": [2]}


def test_a_step_reads_the_variables_of_its_start_and_its_own_writes():
    branched = catalog.PathBranched(({"id": "main-1", "current_step": "b"}, {"id": "main-2", "current_step": "c"}))
    state = state_after(
        *begun(),
        *step("a", set_("n", 1)),
        (branched, "main", "a"),
        (catalog.PathCompleted("a"), "main"),
        (catalog.PathStarted("b"), "main-1"),
        (catalog.PathStarted("c"), "main-2"),
        (catalog.StepStarted("script"), "main-1", "b"),
        (catalog.StepStarted("script"), "main-2", "c"),
        (set_("n", 2), "main-1", "b"),
    )
    assert state.variables["n"] == 2
    assert state.paths["main-1"].variables["n"] == 2
    assert state.paths["main-2"].variables["n"] == 1


def test_outputs_and_visits_are_kept_per_step():
    state = state_after(*begun(), *step("a", output="1"), *step("a", visit=2, output="2"))
    path = state.paths["main"]
    assert (dict(path.step_outputs), dict(path.visits)) == ({"a": "2"}, {"a": 2})


def test_usage_is_added_up_for_step_and_execution():
    used = {"requests": 1, "input_tokens": 10, "output_tokens": 5}
    state = state_after(
        *begun(),
        (catalog.StepStarted("prompt"), "main", "a"),
        (catalog.OperationStarted("op_1", "agent_response"), "main", "a"),
        (catalog.OperationCompleted("op_1", "agent_response", 1, "text", used), "main", "a"),
    )
    assert state.usage.to_dict() == used
    assert state.paths["main"].open.usage.to_dict() == used


def test_operations_are_forgotten_when_their_step_ends():
    inside = (catalog.OperationStarted("op_1", "x"), catalog.OperationCompleted("op_1", "x", 1, 3))
    assert state_after(*begun(), *step("a", *inside)).paths["main"].open is None


def test_an_execution_that_only_sleeps_is_waiting():
    facts = (
        *begun(),
        (catalog.StepStarted("wait"), "main", "a"),
        (catalog.OperationStarted("op_1", "timer"), "main", "a"),
    )
    assert state_after(*facts).status == "waiting"
    assert state_after(*facts, (catalog.OperationCompleted("op_1", "timer"), "main", "a")).status == "running"


def sleeping(path, seconds):
    return (
        (catalog.PathStarted("a"), path),
        (catalog.StepStarted("wait"), path, "a"),
        (catalog.OperationStarted(f"op_{path}", "timer", {"seconds": seconds}), path, "a"),
    )


def test_what_only_sleeps_needs_somebody_to_wake_it_at_any_time():
    branched = catalog.PathBranched([{"id": "main-1", "current_step": "a"}, {"id": "main-2", "current_step": "a"}])
    facts = [
        *begun(),
        (branched, "main"),
        (catalog.PathCompleted("a"), "main"),
        *sleeping("main-1", 60),
        *sleeping("main-2", 1.5),
    ]
    state = state_after(*facts)
    assert (state.status, state.wake_at) == ("waiting", state.last_us)
    rung = state_after(*facts, (catalog.OperationCompleted("op_main-2", "timer"), "main-2", "a"))
    assert (rung.status, rung.wake_at) == ("running", None)


@pytest.mark.parametrize("parameters", [{"seconds": 1e300}, {"seconds": "soon"}, None])
def test_a_timer_that_cannot_be_dated_does_no_harm(parameters):
    timer = (catalog.OperationStarted("op_1", "timer", parameters), "main", "a")
    state = state_after(*begun(), (catalog.StepStarted("wait"), "main", "a"), timer)
    assert state.wake_at == state.last_us
    assert all(to_datetime(deadline).year < 9999 for _, deadline in state.deadlines())


def test_cancelling_a_sleeping_path_leaves_nothing_asleep():
    state = state_after(
        *begun(),
        (catalog.StepStarted("wait"), "main", "a"),
        (catalog.OperationStarted("op_1", "timer"), "main", "a"),
        (catalog.PathCancelled("stop"), "main"),
        catalog.ExecutionCancelled("stop"),
    )
    assert (state.status, state.sleeping, state.active) == ("cancelled", 0, 0)


def test_resuming_keeps_what_succeeded_and_drops_what_failed():
    state = state_after(
        *begun(),
        (catalog.StepStarted("action"), "main", "a"),
        (catalog.OperationStarted("op_1", "x"), "main", "a"),
        (catalog.OperationCompleted("op_1", "x", 1, "kept"), "main", "a"),
        (catalog.OperationStarted("op_2", "x"), "main", "a"),
        (catalog.OperationFailed("op_2", "x", 1, "boom"), "main", "a"),
        (catalog.StepFailed("boom"), "main", "a"),
        (catalog.PathFailed("boom"), "main"),
        catalog.ExecutionFailed("boom"),
        catalog.ExecutionResumed("failed"),
    )
    path = state.paths["main"]
    assert (state.status, state.error, state.active, path.status, path.phase) == (
        "running",
        None,
        1,
        "running",
        "in_step",
    )
    assert list(path.open.operations) == ["op_1"]


def test_resuming_leaves_completed_paths_alone():
    branched = catalog.PathBranched(({"id": "main-1", "current_step": "b"}, {"id": "main-2", "current_step": "c"}))
    state = state_after(
        *begun(),
        *step("a"),
        (branched, "main", "a"),
        (catalog.PathCompleted("a"), "main"),
        (catalog.PathStarted("b"), "main-1"),
        *step("b", path="main-1"),
        (catalog.PathCompleted("b"), "main-1"),
        catalog.ExecutionResumed("running"),
    )
    assert [path.id for path in state.active_paths()] == ["main-2"]
    assert state.paths["main-2"].status == "pending"


def test_a_state_is_never_changed_only_replaced():
    before = state_after(*begun())
    event = Event("event_3", "exec_1", 3, 3, set_("n", 1), "main", "a")
    after = evolve(before, event)
    assert "n" not in before.variables
    assert after.variables["n"] == 1


def test_a_copy_has_the_same_fields_and_no_others():
    state = state_after(*begun(), *step("a", set_("n", 1)), catalog.ExecutionCancelled("stop"))
    for snapshot in (state, state.paths["main"]):
        assert list(vars(snapshot)) == [field.name for field in fields(snapshot)]


def test_a_state_is_frozen():
    with pytest.raises(FrozenInstanceError):
        state_after(STARTED).lifecycle = "completed"


def test_every_event_type_can_be_folded():
    untouched = {catalog.IterationStarted, catalog.SignalReceived, catalog.VersionDecision, catalog.TimeAccessed}
    untouched |= {catalog.RandomGenerated, catalog.ExecutionContinuedAsNew, catalog.EgressAnswered}
    from divebook.engine.evolve import _CHANGES

    assert set(catalog.PAYLOADS.values()) == set(_CHANGES) | untouched


def test_a_rule_for_calls_to_come_holds_until_it_is_revoked():
    added = catalog.ApprovalRuleAdded("r1", "allow", "pay", arguments={"amount": 5}, scope="run", question="ask_1")
    other = catalog.ApprovalRuleAdded("r2", "allow", "send", kind="action", scope="always", expires_at=9)
    state = state_after(*begun(), (added, "main", "a"), (other, "main", "a"))
    assert {rule.rule_id: (rule.tool, rule.kind, rule.scope) for rule in state.rules.values()} == {
        "r1": ("pay", "tool", "run"),
        "r2": ("send", "action", "always"),
    }
    assert (state.rules["r1"].arguments, state.rules["r2"].expires_us) == ({"amount": 5}, 9)
    gone = catalog.ApprovalRuleRevoked
    after = state_after(
        *begun(), (added, "main", "a"), (other, "main", "a"), (gone("r1", by="ann"), "main"), (gone("none"), "main")
    )
    assert set(after.rules) == {"r2"}


def operation(name, *, within=None, kind="tool_call", ends=True):
    begins = (catalog.OperationStarted(name, kind, {"tool": name}, name, within=within), "main", "a")
    return [begins, (catalog.OperationCompleted(name, kind, 1, name), "main", "a")] if ends else [begins]


def test_a_turn_that_completes_lets_go_of_what_it_held_and_of_nothing_else():
    first = [*begun(), (catalog.StepStarted("prompt"), "main", "a"), *operation("before")]
    turn, at = operation("turn", kind="agent_turn", ends=False), len(first) + 1
    inner = [*operation("one", within=at), *operation("sub", within=at, kind="agent_turn", ends=False)]
    inner += [*operation("deep", within=at + 3), *operation("left", within=at, ends=False)]
    ends = (catalog.OperationCompleted("turn", "agent_turn", 1, "said"), "main", "a")
    before = [*first, *turn, *inner]
    held = state_after(*before).paths["main"].open.operations
    assert held["turn"].holds == ("one", "sub", "left")
    sub = (catalog.OperationFailed("sub", "agent_turn", 1, "no"), "main", "a")
    assert state_after(*before, sub).paths["main"].open.holders == Map({at: "turn", at + 3: "sub"})
    opened = state_after(*before, sub, ends).paths["main"].open
    left = opened.operations
    assert (set(left), opened.holders) == ({"before", "turn", "left"}, Map())
    assert (left["turn"].result, left["turn"].holds) == ("said", ())
    last = (catalog.OperationCompleted("left", "tool_call", 1, "late"), "main", "a")
    assert state_after(*before, sub, ends, last).paths["main"].open.operations["left"].result == "late"


def test_what_a_turn_holds_that_begins_once_more_is_within_its_later_beginning():
    first = [*begun(), (catalog.StepStarted("prompt"), "main", "a")]
    at = len(first) + 1
    turn, inner = operation("turn", kind="agent_turn", ends=False), operation("one", within=at)
    failed = (catalog.OperationFailed("turn", "agent_turn", 1, "no"), "main", "a")
    before = [*first, *turn, *inner, failed]
    again = [*turn, *operation("two", within=len(before) + 1)]
    opened = state_after(*before, *again).paths["main"].open
    assert opened.operations["turn"].holds == ("one", "two")
    assert opened.holders == Map({len(before) + 1: "turn"})
    history = events(*before, *again)
    assert reloaded(fold("exec_1", history), history) == fold("exec_1", history)
    ends = (catalog.OperationCompleted("turn", "agent_turn", 1, "said"), "main", "a")
    assert set(state_after(*before, *again, ends).paths["main"].open.operations) == {"turn"}
