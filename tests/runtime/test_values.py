"""Frames and instances on their way through executions: the same live as resumed, and nothing reaches the record."""

import asyncio
import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from divebook import Each, Environment, Step, Workflow, allow
from divebook.analysis.log import events_frame, operations_frame
from divebook.cli.output import as_json
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import fold
from divebook.engine.operations import Place
from divebook.errors import UnopenableValueError
from divebook.events import classes
from divebook.runtime.operations import OperationRequest
from divebook.steps.actions import Action
from divebook.steps.script_step import filled
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.transfer import export, import_
from tests.engine.history import reloaded
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

FRAME = pd.DataFrame({"city": ["Bonn", "Kiel"], "people": pd.array([330, None], dtype="Int64")})


@dataclasses.dataclass(frozen=True)
class Reading:
    place: str
    values: tuple[int, ...] = (1, 2)


class Report(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    readings: list[Reading]
    table: pd.DataFrame | None = None


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    known = dict(WORKFLOW_FUNCTIONS)
    monkeypatch.setattr(classes, "_ALLOWED", dict(classes._ALLOWED))
    allow(Reading, Report)
    yield
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)


SEEN = []


@step(idempotent=True)
def measure(place):
    made = Report(readings=[Reading(place)], table=FRAME)
    return {"report": made, "at": pd.Timestamp("2026", tz="UTC"), "array": np.arange(3), "big": 10**30, "rows": [1]}


@step(idempotent=True)
def count(report):
    return int(report.table.people.sum())


def survey():
    @workflow
    async def survey(ctx, frame, reading):
        found = await measure(reading.place)
        SEEN.append([found, frame, reading])
        before = repr(SEEN[-1])
        people = await count(found["report"])
        found["rows"].append(2)
        found["report"].table.loc[0, "people"] = 0
        frame.loc[0, "city"] = "Ulm"
        SEEN.append(before)
        return {"people": people, "frame": frame, **found}

    return survey


def surveyed(store=None):
    world = Environment(store=store or MemoryStore())
    return world, world.start(survey(), {"frame": FRAME, "reading": Reading("Bonn")}).wait(20, check=True)


def test_a_workflow_function_gets_what_its_steps_returned():
    SEEN.clear()
    _, execution = surveyed()
    (found, _, reading), _ = SEEN
    assert (type(found["report"]), type(found["at"]), type(found["big"])) == (Report, pd.Timestamp, int)
    assert (found["report"].readings, reading) == ([Reading("Bonn")], Reading("Bonn"))
    assert execution.outputs["result"]["people"] == 330
    assert execution.outputs["result"]["frame"].city.tolist() == ["Ulm", "Kiel"]


@pytest.mark.parametrize("length", range(2, 11))
def test_a_resumed_function_meets_the_same_kinds_of_values(length):
    SEEN.clear()
    _, execution = surveyed()
    shorter = cut(execution.store, execution, length)
    resumed = Environment(store=shorter).run_of(execution.id).resume().wait(20, check=True)
    assert resumed.state.outputs == execution.state.outputs
    assert len({SEEN[at] for at in range(1, len(SEEN), 2)}) == 1


def test_what_code_changes_afterwards_is_not_in_the_record():
    _, execution = surveyed()
    completed = [e.data.result for e in execution.history() if e.event_type == "operation_completed"]
    assert completed[0]["rows"] == [1]
    assert completed[0]["report"].to_python().table.people.tolist() == [330, pd.NA]
    pd.testing.assert_frame_equal(execution.inputs["frame"], FRAME)
    mine = execution.outputs["result"]["frame"]
    mine.loc[0, "city"] = "Jena"
    execution.outputs["result"]["rows"].clear()
    assert execution.outputs["result"]["frame"].city[0] == "Ulm"
    assert execution.outputs["result"]["rows"] == [1, 2]


def test_the_fold_of_the_log_is_the_live_state_and_fits_a_checkpoint():
    _, execution = surveyed()
    assert fold(execution.id, execution.history()) == execution.state
    assert reloaded(execution.state, execution.history()) == execution.state


def test_a_checkpoint_does_not_copy_a_large_frame():
    frame = pd.DataFrame({"a": np.arange(1_200_000)})
    execution = environment(Workflow("w", [Step("s", script="1")], inputs=["f"])).start("w", {"f": frame}).wait(20)
    assert len(dump_state(execution.state)) < 1000
    assert reloaded(execution.state, execution.history()) == execution.state


def test_a_child_workflow_passes_frames_on():
    @workflow
    async def inner(ctx, frame):
        return frame

    @workflow
    async def outer(ctx):
        return (await ctx.run("inner", {"frame": FRAME}))["result"]

    execution = Environment(store=MemoryStore()).start("outer").wait(20, check=True)
    pd.testing.assert_frame_equal(execution.outputs["result"], FRAME)


# --- actions, scripts and items ------------------------------------------------------------------------------------


def one_step(step, inputs, *actions):
    made = Workflow("w", [step], inputs=list(inputs))
    return environment(made, actions=actions).start("w", inputs).wait(20)


def test_an_action_takes_and_gives_frames_by_reference():
    def double(frame, reading):
        assert type(reading) is Reading
        frame["people"] *= 2
        return frame

    parameters = {"frame": "$(inputs.report.table)", "reading": "$( inputs.reading )"}
    inputs = {"report": Report(readings=[], table=FRAME), "reading": Reading("Bonn")}
    act = Step("s", action="double", parameters=parameters, store="out")
    execution = one_step(act, inputs, Action("double", double))
    assert execution.error is None
    assert execution.variables["out"].people.tolist() == [660, pd.NA]
    assert execution.inputs["report"].table.people.tolist() == [330, pd.NA]
    assert execution.internals.paths["main"].step_outputs["s"] == "DataFrame 2 x 2"


def test_an_action_that_changes_its_parameters_does_not_change_the_definition():
    shop = Action("shop", lambda items: items.append("x") or items)
    made = Workflow("w", [Step("s", action="shop", parameters={"items": ["a"]}, store="out")])
    world = environment(made, actions=[shop])
    assert [world.start("w").wait(20).variables["out"] for _ in range(2)] == [["a", "x"], ["a", "x"]]


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("[row.city for row in inputs.frame]", ["Bonn", "Kiel"]),
        ("inputs.frame[1].people is None", True),
        ("inputs.reading.place + str(inputs.reading.values[1])", "Bonn2"),
        ("sum(inputs.array[1])", 5),
        ("inputs.at.year", 2026),
    ],
)
def test_scripts_see_frames_as_records_and_instances_as_mappings(script, value):
    array, at = np.arange(4).reshape(2, 2), pd.Timestamp("2026")
    given = {"frame": FRAME, "reading": Reading("Bonn"), "array": array, "at": at}
    execution = one_step(Step("s", script=script, store="out"), given)
    assert (execution.error, execution.variables.get("out")) == (None, value)


def test_a_frame_too_large_for_a_script_is_named_with_what_to_do():
    frame = pd.DataFrame({"a": range(100_001)})
    execution = one_step(Step("s", script="len(inputs.frame)"), {"frame": frame})
    assert "inputs.frame is a DataFrame 100,001 x 1, but scripts take at most 100,000 cells" in execution.error
    assert "pass it to an action" in execution.error


def test_each_runs_over_the_rows_of_a_frame_and_over_instances():
    each = Each("$(inputs.frame)", as_="row")
    assert one_step(Step("s", script="row.city", each=each, store="o"), {"frame": FRAME}).variables["o"] == [
        "Bonn",
        "Kiel",
    ]
    each = Each("$(inputs.readings)", as_="r")
    act = Step("s", action="place", parameters={"reading": "$(r)"}, each=each, store="o")
    place = Action("place", lambda reading: reading.place)
    execution = one_step(act, {"readings": [Reading("A"), Reading("B")]}, place)
    assert (execution.error, execution.variables["o"]) == (None, ["A", "B"])


def test_items_that_a_log_cannot_hold_fail_their_step():
    execution = one_step(Step("s", script="1", each=Each("$([{1: [2, 10**5000]}])")), {})
    reason = "an integer of more than 4300 digits; store it as bytes or a float"
    assert execution.error == f"cannot store items[0][1][1]: {reason} (step s)"
    each = Each("$([{1: 2}])", as_="i")
    assert one_step(Step("s", script="i", each=each, store="o"), {}).variables["o"] == [{1: 2}]
    each = Each("$([10**30])", as_="i")
    assert one_step(Step("s", script="i", each=each, store="o"), {}).variables["o"] == [10**30]


# --- in the store, in other processes, on the screen ---------------------------------------------------------------


def test_a_large_frame_is_written_once_however_often_it_occurs(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).random((13_000, 10)))
    size = frame.to_numpy().nbytes
    keep = Action("keep", lambda frame: frame)
    steps = [Step(n, action="keep", parameters={"frame": "$(inputs.frame)"}, store=n) for n in ("a", "b")]
    made = Workflow("w", steps, inputs=["frame"], outputs=["a", "b"])
    with SqliteStore(tmp_path / "log.db") as store:
        world = Environment(store=store, workflows=[made], actions=[keep])
        for _ in range(2):
            execution = world.start("w", {"frame": frame.copy()}).wait(20, check=True)
        blobs = store.blobs()
        assert len(blobs) == 1
        assert 0.9 * size < blobs[0].stored < 1.05 * size
        assert execution.outputs["b"].equals(frame)


def test_an_exported_log_carries_frames_and_instances():
    _, execution = surveyed()
    file = io.BytesIO()
    export(execution.store, execution.id, file)
    file.seek(0)
    other = MemoryStore()
    import_(file, other)
    again = Environment(store=other).run_of(execution.id)
    assert again.state.outputs == execution.state.outputs
    assert again.outputs["result"]["report"].readings == [Reading("Bonn")]


def test_where_a_class_is_not_allowed_the_rest_stays_readable():
    world, execution = surveyed()
    shorter = cut(execution.store, execution, 6)
    classes._ALLOWED.clear()
    past = world.run_of(execution.id)
    assert past.outputs["result"]["people"] == 330
    hint = "<Report: not allowed in this process>"
    assert str(past.outputs["result"]["report"]) == hint
    frame = events_frame(past.history()).to_string()
    assert hint in frame or "<Reading: not" in frame
    # The log has its fields, as which people and programs can give it back as an input.
    report = json.loads(as_json(past.state.outputs))["result"]["report"]
    assert report["readings"] == [{"place": "Bonn", "values": [1, 2]}]
    assert '"place": "Bonn"' in str(past)
    resumed = Environment(store=shorter).run_of(execution.id).resume().wait(20)
    assert resumed.status == "failed"
    assert "cannot open the recorded tests.runtime.test_values.Reading" in resumed.error
    assert "divebook.allow(Reading)" in resumed.error
    allow(Reading, Report)
    assert Environment(store=shorter).run_of(execution.id).resume().wait(20).outputs["result"]["people"] == 330


def test_opening_fails_once_and_is_not_retried(monkeypatch):
    @step(retry=5)
    def reading():
        return Reading("Bonn")

    @workflow
    async def lost(ctx):
        made = classes.record_instance

        def and_forget(*given):
            recorded = made(*given)
            classes._ALLOWED.clear()
            return recorded

        monkeypatch.setattr("divebook.events.values.record_instance", and_forget)
        with pytest.raises(UnopenableValueError):
            await reading()
        return "done"

    execution = Environment(store=MemoryStore()).start("lost").wait(20)
    assert execution.outputs == {"result": "done"}
    assert [e.event_type for e in execution.history()].count("operation_started") == 1


def test_values_are_shown_in_a_few_words_everywhere():
    frame = pd.DataFrame({"a": range(1000), "b": 1.5, "c": "x" * 50})
    execution = one_step(Step("s", script="10**30", store="big"), {"frame": frame, "at": pd.Timestamp("2026")})
    facts = json.loads(as_json({"inputs": execution.state.inputs, "variables": execution.state.variables["big"]}))
    assert facts == {"inputs": {"frame": "DataFrame 1,000 x 3", "at": "2026-01-01T00:00:00"}, "variables": 10**30}
    run = execution
    assert "big = 1000000000000000000000000000000\n" in f"{run}\n"
    assert "$type" not in str(run)
    assert len(run._repr_html_()) < 20_000
    assert "DataFrame 1,000 x 3" in str(run.events.data[0])
    assert operations_frame(execution.history()).result[0] == 10**30


# --- variables that are handed on ----------------------------------------------------------------------------------

PLACE = Place("main", "s", 1, None, 1)
ROWS = [{"n": number, "name": f"n{number}", "share": number / 8, "raw": b"\xff"} for number in range(3_000)]


def test_a_variable_that_is_handed_on_has_the_identity_that_it_always_had():
    parameters = {"action_name": "count", "params": {"rows": ROWS, "text": "x" * 200_000}}
    looked_through = OperationRequest.of(PLACE, "action_execution", parameters)
    taken_whole = OperationRequest.of(PLACE, "action_execution", parameters, {id(ROWS): ROWS})
    assert taken_whole == looked_through
    assert taken_whole.digest == "b1e4c3c4e3e75f33"  # as a log of version 0.1 has it
    assert taken_whole.parameters["params"]["rows"] is ROWS
    assert looked_through.parameters["params"]["rows"] is not ROWS


def test_parameters_that_only_refer_to_a_variable_are_known():
    known = {}
    given = {"rows": "$(state.rows)", "made": "$(state.rows[:1])", "text": "${state.rows[0].n}", "own": [1]}
    made = asyncio.run(filled(given, {"state": {"rows": ROWS}}, cache=known))
    assert made == {"rows": ROWS, "made": ROWS[:1], "text": "0", "own": [1]}
    assert known == {id(ROWS): ROWS}
