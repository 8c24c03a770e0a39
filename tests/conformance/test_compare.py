import pytest

from tests.conformance.compare import compare_evaluation, compare_outcome, same
from tests.conformance.outcome import Evaluation, ObservedEvent, Outcome


def keys(expect, **observed):
    return [
        difference.key
        for difference in compare_outcome(expect, Outcome(observed.pop("status", "completed"), **observed))
    ]


def events(*types, path=""):
    return [ObservedEvent(event_type, path) for event_type in types]


ONE, TWO = {"main": {}}, {"main-1": {}, "main-2": {}}


def test_nothing_expected_is_met():
    assert keys({}) == []


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, True, False),
        (0, False, False),
        (2, 2.0, True),
        ([1, {"a": None}], [1, {"a": None}], True),
        ([1, True], [1, 1], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], (1,), True),
        ("1", 1, False),
    ],
)
def test_values_are_the_same_where_they_are_the_same_json(left, right, equal):
    assert same(left, right) is equal


def test_status_shows_the_error_of_an_unexpected_failure():
    (difference,) = compare_outcome({"status": "completed"}, Outcome("failed", "boom"))
    assert difference == ("status", "completed", "failed (boom)")


def test_an_error_contains_its_part_or_differs():
    assert keys({"error_contains": "oo"}, error="boom") == []
    assert keys({"error_contains": "x"}, error="boom") == ["error_contains"]
    assert keys({"error_contains": "x"}) == ["error_contains"]


@pytest.mark.parametrize(("key", "field"), [("state", "state"), ("outputs", "outputs"), ("effective_inputs", "inputs")])
def test_maps_are_compared_whole(key, field):
    assert keys({key: {"a": 1}}, **{field: {"a": 1}}) == []
    assert keys({key: {"a": 1}}, **{field: {"a": 1, "b": 2}}) == [key]


def test_the_set_of_paths_is_exact_and_their_listed_fields_count():
    paths = {"main": {"status": "completed", "current_step": "a", "step_outputs": {"a": "x"}}}
    assert keys({"paths": {"main": {}}}, paths=paths) == []
    assert keys({"paths": {"main": {"current_step": "b", "status": "completed"}}}, paths=paths) == [
        "paths.main.current_step"
    ]
    assert keys({"paths": {"main": {}, "main-1": {}}}, paths=paths) == ["paths"]


def test_only_listed_usage_counts():
    usage = {"input_tokens": 3, "requests": 1}
    assert keys({"usage": {"input_tokens": 3}}, usage=usage) == []
    assert keys({"usage": {"input_tokens": 4}}, usage=usage) == ["usage.input_tokens"]


def test_agent_calls_are_compared_in_order_by_listed_keys():
    calls = [{"agent": "A", "prompt": "one"}, {"agent": "A", "prompt": "two"}]
    assert keys({"agent_calls": [{"prompt": "one"}, {"agent": "A"}]}, agent_calls=calls, paths=ONE) == []
    assert keys({"agent_calls": [{"prompt": "two"}, {"prompt": "one"}]}, agent_calls=calls, paths=ONE) == [
        "agent_calls[0]"
    ]
    assert keys({"agent_calls": [{"prompt": "one"}]}, agent_calls=calls, paths=ONE) == ["agent_calls"]
    assert keys({"agent_calls": []}, agent_calls=calls, paths=ONE) == ["agent_calls"]


def test_the_order_between_paths_is_open():
    calls = [{"prompt": "one"}, {"prompt": "two"}]
    assert keys({"agent_calls": calls[::-1]}, agent_calls=calls, paths=TWO) == []
    assert keys({"agent_calls": [calls[0], calls[0]]}, agent_calls=calls, paths=TWO) == ["agent_calls[1]"]
    assert keys({"printed": ["b", "a"]}, printed=["a", "b"], paths=TWO) == []
    assert keys({"printed": ["b", "a"]}, printed=["a", "b"], paths=ONE) == ["printed"]
    assert keys({"printed": ["a", "a"]}, printed=["a", "b"], paths=TWO) == ["printed"]


def test_repeated_operation_ids_count():
    assert keys({"operation_ids": ["op_1", "op_1"]}, operation_ids=["op_1"], paths=ONE) == ["operation_ids"]


def test_documents_are_those_from_before_and_those_listed():
    before = {"a": "1"}
    assert keys({"documents": {"b": "2"}}, documents={"a": "1", "b": "2"}, initial_documents=before) == []
    assert keys({"documents": {"b": "2"}}, documents={"b": "2"}, initial_documents=before) == ["documents"]
    assert keys({"documents": {}}, documents={"b": "2"}) == ["documents"]


def test_events_are_compared_in_order_without_the_newer_types():
    seen = events("step_started", "condition_evaluated", "iteration_started", "step_completed")
    assert keys({"events": ["step_started", "step_completed"], "event_count": 2}, events=seen) == []
    assert keys({"events": ["step_completed", "step_started"]}, events=seen) == ["events"]
    assert keys({"event_count": 4}, events=seen) == ["event_count"]


def test_events_by_path_name_every_path():
    seen = [*events("execution_started"), *events("path_started", path="main")]
    assert keys({"events_by_path": {"": ["execution_started"], "main": ["path_started"]}}, events=seen) == []
    assert keys({"events_by_path": {"": ["execution_started"]}}, events=seen) == ["events_by_path['main']"]
    assert keys({"events_by_path": {"x": ["path_started"]}}, events=()) == ["events_by_path['x']"]


def test_required_events_must_all_occur():
    assert keys({"required_events": ["a"]}, events=events("a", "b")) == []
    (difference,) = compare_outcome({"required_events": ["a", "c"]}, Outcome("completed", events=events("a", "b")))
    assert difference.expected == ["c"]


def test_one_event_of_the_type_must_meet_the_whole_payload_check():
    seen = [
        ObservedEvent("step_completed", "main", "a", {"output": "x"}),
        ObservedEvent("step_completed", "main", "b", {"output": "y"}),
    ]
    assert keys({"event_payload_checks": {"step_completed": {"step": "b", "output": "y"}}}, events=seen) == []
    found = keys({"event_payload_checks": {"step_completed": {"step": "a", "output": "y"}}}, events=seen)
    assert found == ["event_payload_checks.step_completed"]
    assert keys({"event_payload_checks": {"step_failed": {}}}, events=seen) == ["event_payload_checks.step_failed"]


def test_statuses_are_a_sequence():
    assert keys({"status_sequence": ["pending", "running"]}, status_sequence=["pending", "running"]) == []
    assert keys({"status_sequence": ["pending", "running"]}, status_sequence=["running"]) == ["status_sequence"]


def test_a_remark_is_no_expectation_but_an_unknown_key_is_a_difference():
    assert keys({"events_note": "prose"}) == []
    assert keys({"colour": "blue"}) == ["colour"]


@pytest.mark.parametrize(
    ("expect", "evaluation", "met"),
    [
        ({"value": True}, Evaluation(True), True),
        ({"value": True}, Evaluation(1), False),
        ({"value": False}, Evaluation(error="boom"), False),
        ({"text": "a"}, Evaluation("a"), True),
        ({"text": "a"}, Evaluation("b"), False),
        ({"error": True}, Evaluation(error="boom"), True),
        ({"error": True}, Evaluation(True), False),
        ({"error_contains": "oo"}, Evaluation(error="boom"), True),
        ({"error_contains": "oo"}, Evaluation("boom"), False),
        ({"colour": 1}, Evaluation(1), False),
    ],
)
def test_an_evaluation_meets_its_value_text_or_error(expect, evaluation, met):
    assert (not compare_evaluation(expect, evaluation)) is met


def test_statistics_are_counted_over_the_paths():
    paths = {"main": {"status": "completed"}, "main-1": {"status": "failed"}, "main-2": {"status": "running"}}
    outcome = Outcome("running", paths=paths)
    assert not compare_outcome({"stats": {"total_paths": 3, "completed": 1, "failed_paths": 1, "active": 1}}, outcome)
    assert [found.key for found in compare_outcome({"stats": {"total": 2}}, outcome)] == ["stats.total"]


def test_what_must_not_be_empty_is_looked_up():
    outcome = Outcome("completed", state={"a": {"b": "x", "c": ""}})
    assert not compare_outcome({"non_empty": ["state", "state.a.b", "a.b"]}, outcome)
    found = compare_outcome({"non_empty": ["state.a.c", "outputs", "error"]}, outcome)
    assert [difference.key for difference in found] == ["non_empty.state.a.c", "non_empty.outputs", "non_empty.error"]
