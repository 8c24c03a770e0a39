"""The public form of a path's state."""

from divebook.engine.state import PathState, Usage

RECORD = {
    "id": "test-path-1",
    "status": "running",
    "current_step": "process_data",
    "start_time": "2026-01-02T03:04:05+00:00",
    "end_time": "2026-01-02T04:04:05+00:00",
    "error_message": "test error message",
    "step_outputs": {"step1": "output1", "step2": "output2"},
}


def test_a_path_state_comes_back_from_plain_data():
    assert PathState.from_dict(RECORD).to_dict() == RECORD
    assert PathState.from_dict(PathState.from_dict(RECORD).to_dict()) == PathState.from_dict(RECORD)


def test_an_empty_error_is_left_out():
    record = {"id": "minimal-path", "status": "pending", "current_step": "start", "start_time": RECORD["start_time"]}
    assert PathState.from_dict(record).to_dict() == {**record, "step_outputs": {}}


def test_usage_adds_up_and_hides_what_is_zero():
    usage = Usage().plus({"requests": 1, "input_tokens": 2}).plus({"requests": 1, "unknown": 5})
    assert usage.to_dict() == {"requests": 2, "input_tokens": 2}
