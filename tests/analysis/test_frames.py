"""DataFrames have the same columns and dtypes, whatever is in them."""

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.analysis import frames
from divebook.events import catalog
from tests.engine.history import begun, events

WORKFLOW = Workflow(
    "w",
    [
        Step("list", script="['a', 'b']", store="letters"),
        Step("each", script="letter.upper()", each=Each("$(state.letters)", as_="letter"), store="big"),
        Step("ask", prompt="hello", store="answer"),
    ],
)


@pytest.fixture(scope="module")
def execution():
    model = ScriptedModel(["hi"], usage={"input_tokens": 7, "output_tokens": 3})
    return Environment(store="memory:", workflows=[WORKFLOW], agents=[Agent("a", model=model)]).start("w").wait()


def dtypes(frame):
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (frames.events_frame, frames.EVENT_COLUMNS),
        (frames.operations_frame, frames.OPERATION_COLUMNS),
        (frames.steps_frame, frames.STEP_COLUMNS),
    ],
)
def test_full_and_empty_frames_of_a_log_have_the_documented_dtypes(make, columns, execution):
    assert dtypes(make(execution.history())) == columns
    assert dtypes(make([])) == columns
    assert len(make([])) == 0
    for name in columns:
        assert name in (make.__doc__ or "")


def test_frames_of_paths_and_runs_have_the_documented_dtypes(execution):
    assert dtypes(frames.paths_frame(execution.paths.values())) == frames.PATH_COLUMNS
    assert dtypes(frames.paths_frame([])) == frames.PATH_COLUMNS
    assert dtypes(frames.runs_frame([execution.store.record(execution.id)])) == frames.RUN_COLUMNS
    assert dtypes(frames.runs_frame([])) == frames.RUN_COLUMNS


def test_there_is_a_row_for_each_event(execution):
    frame = frames.events_frame(execution.history())
    assert list(frame.sequence) == list(range(1, execution.state.last_sequence + 1))
    assert frame.iloc[0].type == "execution_started"
    assert frame.iloc[0].data["workflow_name"] == "w"
    assert pd.isna(frame.iloc[0].path)


def test_tokens_of_a_log_can_be_summed(execution):
    frame = frames.events_frame(execution.history())
    assert (frame.input_tokens.sum(), frame.output_tokens.sum()) == (7, 3)


def test_the_end_of_an_operation_knows_the_item_it_belongs_to(execution):
    frame = frames.events_frame(execution.history())
    ended = frame[(frame.type == "operation_completed") & (frame.step == "each")]
    assert list(ended.iteration) == [0, 1]


def test_ends_have_the_time_since_their_beginning():
    log = events(
        *begun(),
        (catalog.StepStarted("action"), "main", "a"),
        (catalog.IterationStarted(0), "main", "a"),
        (catalog.OperationStarted("op_1", "action_execution"), "main", "a"),
        (catalog.OperationCompleted("op_1", "action_execution", 2_500_000), "main", "a"),
        (catalog.IterationCompleted(0), "main", "a"),
        (catalog.StepFailed("bad"), "main", "a"),
        (catalog.PathFailed("bad"), "main"),
        catalog.ExecutionFailed("bad"),
    )
    frame = frames.events_frame(log)
    seconds = frame.set_index("type").duration.dropna().dt.total_seconds()
    assert seconds.to_dict() == {
        "operation_completed": 0.0025,  # as measured, not between the events
        "iteration_completed": 3.0,
        "step_failed": 5.0,
        "path_failed": 7.0,
        "execution_failed": 9.0,
    }


def test_operations_have_one_row_each(execution):
    frame = frames.operations_frame(execution.history())
    assert list(frame.type) == ["script_execution"] * 3 + ["agent_response"]
    assert list(frame.result)[:3] == [["a", "b"], "A", "B"]
    assert frame.input_tokens.sum() == 7
    assert (frame.duration == frame.ended - frame.started).all()


def test_steps_have_one_row_per_visit(execution):
    frame = frames.steps_frame(execution.history())
    assert list(frame.step) == ["list", "each", "ask"]
    assert list(frame["items"]) == [0, 2, 0]
    assert list(frame.output)[2] == "hi"


def test_times_are_utc():
    log = events(*begun())
    assert frames.events_frame(log).timestamp[0] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    record_duration = frames.operations_frame(
        events(
            *begun(),
            (catalog.StepStarted("action"), "main", "a"),
            (catalog.OperationStarted("op_1", "action_execution"), "main", "a"),
            (catalog.OperationCompleted("op_1", "action_execution", 1), "main", "a"),
        )
    ).duration[0]
    assert record_duration == timedelta(seconds=1)
