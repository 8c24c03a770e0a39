"""A log as a view steps through it: plain JSON of bounded size, and what messages get as answers."""

import json
from pathlib import Path

import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.definition import ENVELOPE, STATE
from divebook.events import catalog
from divebook.pipeline import Pipeline, create_envelope
from divebook.replay.replayer import Positions
from divebook.widgets.stepping import FRAME, MAX_VALUES, SteppedLog, reply_of
from tests.engine.history import begun, events, step


def a_log(visits):
    inside = [
        step("a", catalog.StateMutated((catalog.Mutation("set", f"v{visit % 7}", visit),)), visit=visit)
        for visit in range(1, visits + 1)
    ]
    return events(*begun(), *(fact for part in inside for fact in part))


def test_before_the_first_event_nothing_is_there():
    state = SteppedLog(Positions.of(a_log(1))).state_at(0)
    assert (state["sequence"], state["status"], state["variables"], state["paths"]) == (0, "pending", {}, [])


def test_a_path_shows_the_variables_that_its_step_reads():
    log = events(
        *begun(), (catalog.StepStarted("script"), "main", "a"), catalog.StateMutated((catalog.Mutation("set", "x", 2),))
    )
    state = SteppedLog(Positions.of(log)).state_at(4)
    assert state["variables"] == {"x": 2}
    (path,) = state["paths"]
    assert (path["id"], path["step"], path["visits"], path["variables"]) == ("main", "a", 1, {})


def test_open_questions_are_shown_until_they_are_answered():
    log = events(
        *begun(),
        (catalog.StepStarted("script"), "main", "a"),
        (catalog.InterruptRaised("int_1", "clarification", "Which?"), "main", "a"),
        (catalog.InterruptResolved("int_1", {"text": "this"}), "main", "a"),
    )
    positions = SteppedLog(Positions.of(log))
    assert [asked["question"] for asked in positions.state_at(4)["pending"]] == ["Which?"]
    assert positions.state_at(4)["status"] == "waiting"
    assert positions.state_at(5)["pending"] == []


def test_large_values_are_cut_to_a_bounded_answer():
    values = {"text": "x" * 5_000_000, "list": list(range(1_000_000)), "last": "y"}
    log = events(catalog.ExecutionStarted("w", values))
    state = SteppedLog(Positions.of(log)).state_at(1)
    assert len(json.dumps(state)) < 2 * MAX_VALUES
    assert state["inputs"]["text"].endswith("(4,980,000 more characters)")
    assert state["inputs"]["list"][-1].endswith("more)")


def test_a_page_finds_the_envelope_of_a_pipeline_where_it_looks_for_it():
    page = Path(__file__).parents[2] / "widgets" / "src" / "replay" / "envelope.ts"
    assert f'const HOLDER = "{STATE}"' in page.read_text("utf-8")
    pipeline = Pipeline({"name": "one", "agents": [{"name": "draft"}]}, services={"draft": lambda _: {"text": "done"}})
    log = SteppedLog(Positions.of(pipeline.start(create_envelope("Write it", "ann", "s1")).wait().history()))
    given, ended = log.state_at(1), log.state_at(log.total)
    assert given["inputs"][ENVELOPE]["raw_input"] == "Write it"
    assert "envelope_id" in given["inputs"][ENVELOPE]
    assert ended["variables"][STATE][ENVELOPE]["outputs"] == {"draft": {"text": "done"}}
    assert "envelope_id" in ended["variables"][STATE][ENVELOPE]


def test_an_event_is_shown_whole():
    positions = SteppedLog(Positions.of(a_log(1)))
    event = positions.event_at(4)
    assert event["event_type"] == "state_mutated"
    assert event["data"] == {"mutations": [{"type": "set", "key": "v1", "value": 1}]}


def test_events_come_as_columns_with_what_tells_them_apart():
    block = SteppedLog(Positions.of(a_log(2))).block(after=2, stop=5)
    read = [[block["names"][place] for place in block[name]] for name in ("type", "path", "step", "text")]
    assert block["first"] == 3
    assert block["time"] == [2_000_000, 3_000_000, 4_000_000]
    assert list(zip(*read, strict=True)) == [
        ("step_started", "main", "a", ""),
        ("state_mutated", "main", "a", "v1"),
        ("step_completed", "main", "a", ""),
    ]


@pytest.mark.parametrize("sequence", [-1, 3])
def test_a_position_outside_of_the_log_is_refused(sequence):
    positions = SteppedLog(Positions.of(events(catalog.ExecutionStarted("w"), catalog.ExecutionCompleted())))
    with pytest.raises(IndexError, match="2 events"):
        positions.state_at(sequence)


def test_messages_of_a_view_are_answered_and_troubles_told():
    positions = SteppedLog(Positions.of(a_log(1)))
    events_answer = reply_of(positions, {"type": "events", "view": "v", "after": 0, "stop": 3})
    assert (events_answer["total"], len(events_answer["events"]["type"])) == (5, 3)
    assert reply_of(positions, {"type": "state", "view": "v", "sequence": 2})["state"] == positions.state_at(2)
    assert reply_of(positions, {"type": "event", "view": "v", "sequence": 2})["event"] == positions.event_at(2)
    missing = reply_of(positions, {"type": "state", "view": "v", "sequence": 9})
    assert (missing["state"], missing["error"]) == (
        None,
        "there is no position 9: the log has 5 events; choose 0 to 5",
    )
    assert reply_of(positions, {"type": "event", "view": "v", "sequence": 0})["event"] is None
    assert reply_of(positions, {"type": "strange"}) is None


def test_events_have_the_items_of_their_calls_and_values_in_words():
    result = {"amount": 12, "of": [1, {"x": "y"}]}
    log = events(
        *begun(),
        (catalog.StepStarted("prompt"), "main", "read"),
        (catalog.IterationStarted(3, item="hotel.txt"), "main", "read"),
        (catalog.OperationStarted("op_1", "script_execution", {}, iteration_index=3), "main", "read"),
        (
            catalog.OperationCompleted("op_1", "script_execution", 12, result),
            "main",
            "read",
        ),
    )
    block = SteppedLog(Positions.of(log)).block(after=3)
    rows = zip(*([block["names"][place] for place in block[name]] for name in ("kind", "item", "text")), strict=True)
    assert [*rows] == [
        ("item", "3", "hotel.txt"),
        ("script_execution", "3", "script_execution"),
        ("script_execution", "3", "amount: 12, of: [1, {x: y}]"),
    ]


def test_why_gives_the_causes_of_a_value_with_their_events():
    steps = [Step("a", script="inputs.n + 1", store="x"), Step("b", script="[state.x, 2]", store="y")]
    environment = Environment(store="memory:", workflows=[Workflow("sum", steps, inputs=["n"])])
    run = environment.start("sum", {"n": 1}).wait()
    log = SteppedLog(Positions.of(run.history()), run.history)
    answer = reply_of(log, {"type": "why", "view": "v", "sequence": log.total, "name": "y"})
    lines = [(line["depth"], line["sequence"], line["kind"], line["name"], line["value"]) for line in answer["lines"]]
    assert lines == [(0, 11, "set", "y", "[2, 2]"), (1, 6, "set", "x", "2"), (2, 1, "input", "inputs.n", "1")]
    assert answer["lines"][0]["operation"] == "script_execution"
    missing = reply_of(log, {"type": "why", "view": "v", "sequence": 1, "name": "z"})
    assert missing["lines"] == []
    assert "no event up to event 1 sets a variable z" in missing["error"]


def test_a_frame_is_shown_with_its_size_and_first_rows():
    steps = [Step("a", script="inputs.frame", store="frame")]
    environment = Environment(store="memory:", workflows=[Workflow("w", steps, inputs=["frame"])])
    run = environment.start("w", {"frame": pd.DataFrame({"n": range(9), "name": list("abcdefghi")})}).wait()
    log = SteppedLog(Positions.of(run.history()))
    frame = log.state_at(1)["inputs"]["frame"][FRAME]
    assert (frame["type"], frame["size"], frame["columns"]) == ("DataFrame", "9 x 2", ["n", "name"])
    assert frame["rows"][:2] == [["0", "a"], ["1", "b"]]
