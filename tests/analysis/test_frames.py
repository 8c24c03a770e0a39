"""DataFrames have the same columns and dtypes, whatever is in them."""

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from divebook import Agent, Each, Environment, Retry, ScriptedModel, Step, Workflow
from divebook.analysis import agents, lists, store
from divebook.analysis import log as frames
from divebook.analysis.timeline import layout, svg
from divebook.events import catalog
from divebook.projections.spans import spans_of
from divebook.runtime.run import asked_questions
from divebook.steps import Action
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


@pytest.fixture(scope="module")
def retried():
    """An execution whose action fails once for each item, and whose model has a price."""
    tries = []

    def flaky(i):
        tries.append(i)
        if tries.count(i) < 2:
            raise ValueError("again")

    model = ScriptedModel(["hi"], usage={"input_tokens": 10, "output_tokens": 3, "cache_read_tokens": 4}, price=0.25)
    steps = [
        Step(
            "call",
            action="flaky",
            parameters={"i": "$(i)"},
            each=Each([1, 2], as_="i"),
            retry=Retry(attempts=3, seconds=0),
        ),
        Step("ask", agent="a", prompt="hello", each=Each(["x", "y"], as_="it"), store="said"),
    ]
    workflow = Workflow("w", steps, inputs=["n"], outputs=["said"])
    environment = Environment(
        store="memory:", workflows=[workflow], agents=[Agent("a", model=model)], actions=[Action("flaky", flaky)]
    )
    return environment.start("w", {"n": 3}).wait()


def dtypes(frame):
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def declared(columns):
    return {name: column.dtype for name, column in columns.items()}


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (frames.events_frame, frames.EVENT_COLUMNS),
        (frames.operations_frame, frames.OPERATION_COLUMNS),
        (frames.steps_frame, frames.STEP_COLUMNS),
        (frames.items_frame, frames.ITEM_COLUMNS),
        (agents.messages_frame, agents.MESSAGE_COLUMNS),
        (agents.model_calls_frame, agents.MODEL_CALL_COLUMNS),
        (agents.tool_calls_frame, agents.TOOL_CALL_COLUMNS),
        (agents.costs_frame, agents.COST_COLUMNS),
    ],
)
def test_full_and_empty_frames_of_a_log_have_the_documented_dtypes(make, columns, execution):
    assert dtypes(make(execution.history())) == declared(columns)
    assert dtypes(make([])) == declared(columns)
    assert len(make([])) == 0
    for name in columns:
        assert name in (make.__doc__ or "")


def test_frames_of_paths_and_runs_have_the_documented_dtypes(execution):
    assert dtypes(frames.paths_frame(execution.internals.paths.values())) == declared(frames.PATH_COLUMNS)
    assert dtypes(frames.paths_frame([])) == declared(frames.PATH_COLUMNS)
    records = [execution.store.record(execution.id)]
    assert dtypes(lists.runs_frame(records, execution.store)) == declared(lists.RUN_COLUMNS)
    assert dtypes(lists.runs_frame([], execution.store)) == declared(lists.RUN_COLUMNS)
    for name in lists.RUN_COLUMNS:
        assert name in (lists.runs_frame.__doc__ or "")


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


# --- what is asked first -------------------------------------------------------------------------------------------


def test_calls_name_agent_model_item_and_cost(retried):
    calls = frames.operations_frame(retried.history())
    asked = calls[calls.type == "agent_response"]
    assert asked[["agent", "iteration", "item"]].to_numpy().tolist() == [["a", 0, "x"], ["a", 1, "y"]]
    assert asked.model.notna().all()
    assert asked.cost.tolist() == [0.25, 0.25]
    assert asked.cache_read_tokens.tolist() == [4, 4]


def test_a_call_without_a_known_price_has_no_cost(execution):
    asked = frames.operations_frame(execution.history()).iloc[-1]
    assert asked.cost == 0  # scripted: known to be nothing
    log = events(
        *begun(),
        (catalog.StepStarted("prompt"), "main", "a"),
        (catalog.OperationStarted("op_1", "agent_response", {"agent": "a", "model": "new"}), "main", "a"),
        (catalog.OperationCompleted("op_1", "agent_response", 1, {}, {"input_tokens": 5}), "main", "a"),
    )
    unknown = frames.operations_frame(log).iloc[0]
    assert (unknown.agent, unknown.model, unknown.input_tokens) == ("a", "new", 5)
    assert pd.isna(unknown.cost)


def test_attempts_are_counted_where_each_has_a_row_of_its_own(retried):
    calls = frames.operations_frame(retried.history())
    tried = calls[calls.step == "call"]
    assert tried[["iteration", "attempts", "status"]].to_numpy().tolist() == [
        [0, 1, "failed"],
        [0, 2, "completed"],
        [1, 1, "failed"],
        [1, 2, "completed"],
    ]
    assert tried.error_type.tolist()[::2] == ["ValueError", "ValueError"]
    assert tried.item.tolist() == [1, 1, 2, 2]
    assert frames.items_frame(retried.history()).attempts.tolist() == [2, 2, 1, 1]


def test_steps_sum_what_their_calls_consumed(retried):
    steps = frames.steps_frame(retried.history()).set_index("step")
    assert steps.loc["ask", ["agent", "input_tokens", "cost"]].tolist() == ["a", 20, 0.5]
    assert pd.isna(steps.loc["call", "cost"])


def test_events_tell_what_they_are_about(retried):
    log = frames.events_frame(retried.history())
    ended = log[(log.type == "operation_completed") & (log.step == "ask")]
    assert ended[["agent", "item", "cost"]].to_numpy().tolist() == [["a", "x", 0.25], ["a", "y", 0.25]]
    assert log.cost.sum() == frames.operations_frame(retried.history()).cost.sum()


def test_the_item_that_failed_is_named_with_its_error():
    step = Step("s", script="1 / item", each=Each([1, 0, 2], as_="item"))
    execution = Environment(store="memory:").start(Workflow("w", [step])).wait()
    items = frames.items_frame(execution.history())
    assert items[["iteration", "item", "status"]].to_numpy().tolist() == [[0, 1, "completed"], [1, 0, "failed"]]
    assert "division by zero" in items.error[1]


def test_runs_tell_what_went_in_what_came_out_and_what_it_cost(retried):
    row = lists.runs_frame([retried.store.record(retried.id)], retried.store).iloc[0]
    assert row.inputs == {"n": 3}
    assert row.outputs == {"said": ["hi", "hi"]}
    assert (row.input_tokens, row.output_tokens, row.cost) == (20, 6, 0.5)


def test_runs_tell_the_class_of_an_error_and_the_lines_that_led_there():
    def divide(a):
        return 1 // a

    world = Environment(store="memory:", actions=[Action("divide", divide)])
    for value in (0, 1):
        world.start(Workflow("w", [Step("s", action="divide", parameters={"a": value})])).wait(20)
    good, bad = (row for _, row in lists.runs_frame(world.store.records(), world.store).iterrows())
    assert (bad.error_type, bad.error.partition(" (")[0]) == (
        "ZeroDivisionError",
        "ZeroDivisionError: integer division or modulo by zero",
    )
    assert "in divide\n    return 1 // a" in bad.traceback
    assert pd.isna(good.error_type)
    assert pd.isna(good.traceback)


def test_frames_of_all_runs_of_a_workflow_come_together(retried):
    environment = Environment(store=retried.store, workflows=[Workflow("other", [Step("s", script="1")])])
    environment.start("other").wait()
    every = store.Frames(retried.store, environment.store.records())
    assert set(every.steps.execution_id) == set(every.runs.execution_id)
    assert len(every.runs) == 2
    assert every.operations.cost.sum() == 0.5
    none = store.Frames(retried.store, [])
    assert dtypes(none.events) == {"execution_id": "str", **declared(frames.EVENT_COLUMNS)}
    assert dtypes(every.items) == {"execution_id": "str", **declared(frames.ITEM_COLUMNS)}


def test_questions_tell_who_waited_how_long():
    workflow = Workflow("w", [Step("first", ask="Sure?"), Step("second", ask="And now?")])
    execution = Environment(store="memory:").start(workflow).wait()
    execution.answer(execution.open_questions[0].id, "yes", by="ann").wait()
    asked = [(execution.id, question) for question in execution.state.interrupts.values()]
    open_us = execution.open_questions[0].raised_us
    rows = lists.questions_frame(asked, open_us + 5_000_000).set_index("step")
    assert rows.loc["first", "answered_by"] == "ann"
    assert rows.loc["first", "waited"] == rows.loc["first", "settled"] - rows.loc["first", "asked"]
    assert rows.loc["second", "waited"] == timedelta(seconds=5)
    assert pd.isna(rows.loc["second", "settled"])
    assert dtypes(lists.questions_frame([])) == declared(lists.QUESTION_COLUMNS)


def test_an_execution_and_its_run_have_the_same_frames(retried):
    run = Environment(store=retried.store).run_of(retried.id)
    for kind in ("events", "operations", "model_calls", "messages", "tool_calls", "steps", "items", "questions"):
        pd.testing.assert_frame_equal(getattr(retried, kind), getattr(run, kind))
    assert list(retried.steps.attempts) == list(frames.steps_frame(retried.history()).attempts)
    assert list(retried.items.status) == ["completed"] * 4


def test_an_execution_tells_who_was_asked_what():
    execution = Environment(store="memory:").start(Workflow("w", [Step("first", ask="Sure?")])).wait()
    assert list(execution.questions.question) == ["Sure?"]
    assert [question.id for question in asked_questions(execution)] == list(execution.questions.question_id)


def test_items_that_failed_and_were_kept_are_told_from_those_that_succeeded():
    def strict(i):
        if i == 2:
            raise LookupError("not in the table")
        return i

    each = Each([1, 2, 3], as_="i", on_item_error="keep")
    step = Step("s", action="strict", parameters={"i": "$(i)"}, each=each)
    environment = Environment(store="memory:", actions=[Action("strict", strict)])
    execution = environment.start(Workflow("w", [step])).wait()
    items = frames.items_frame(execution.history())
    assert items.status.tolist() == ["completed", "failed", "completed"]
    failed = items.iloc[1]
    assert (failed["item"], failed.error_type) == (2, "LookupError")
    assert "not in the table" in failed.error
    assert "strict" in failed.traceback
    assert frames.steps_frame(execution.history()).status.tolist() == ["completed"]


def test_a_persons_own_events_are_rows_with_their_names_and_marks_on_the_timeline():
    log = events(
        *begun(),
        (catalog.StepStarted("script"), "main", "a"),
        (catalog.EventEmitted("found", {"n": 3}), "main", "a"),
        (catalog.StepCompleted("done"), "main", "a"),
    )
    row = frames.events_frame(log).set_index("type").loc["event_emitted"]
    assert (row["name"], row.step, row["data"]["data"]) == ("found", "a", {"n": 3})
    assert len(frames.operations_frame(log)) == 0
    assert "event found" in svg(layout(spans_of(log)))


def test_a_table_of_runs_shows_what_tells_them_apart_and_keeps_every_column():
    world = Environment(store="memory:")
    world.start(Workflow("w", [Step("a", script="1")]), tags=["nightly"]).wait(20)
    table = lists.RunsTable(lists.runs_frame(world.store.records(), world.store))
    shown = table._repr_html_()
    assert list(table) == list(lists.RUN_COLUMNS)
    assert "<th>duration</th>" in shown
    assert "<th>tags</th>" in shown
    assert "nightly" in shown
    assert not any(f"<th>{name}</th>" in shown for name in ("inputs", "outputs", "cost", "error", "bytes", "note"))
