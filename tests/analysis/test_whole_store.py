"""Frames of many executions and of a whole store: what they are of, their Arrow tables, and odd values in logs."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import divebook
from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.analysis import lists, log
from divebook.analysis import store as state_frames
from divebook.analysis import store as whole_store
from divebook.analysis.columns import UserColumn, inferred_column
from divebook.errors import ExecutionNotFoundError, NotFoundError, SetupError
from divebook.events.catalog import ExecutionForked
from divebook.stores import MemoryStore, SqliteStore

ROWS = Workflow(
    "rows",
    [
        Step("make", script="[{'score': i, 'name': str(i)} for i in range(inputs.n)]", store="rows"),
        Step("count", script="len(state.rows)", store="path"),
        Step("each", script="it['score'] * 2", each=Each("$(state.rows)", as_="it"), store="doubled"),
        Step("ask", agent="a", prompt="hello", store="label"),
    ],
    inputs=["n"],
    outputs=["label"],
)


@pytest.fixture(scope="module")
def world():
    agent = Agent("a", model=ScriptedModel(["hi"] * 9, usage={"input_tokens": 7, "output_tokens": 3}, price=0.25))
    environment = Environment(store="memory:", agents=[agent])
    environment.start(ROWS, {"n": 2}, tags=["baseline"], note="the first").wait(20, check=True)
    environment.start(ROWS, {"n": 0}, tags=["other"]).wait(20, check=True)
    environment.start(Workflow("bad", [Step("fail", script="1 / 0")])).wait(20)
    environment.start(Workflow("asks", [Step("ask", ask="Sure?")])).wait(20)
    return environment


@pytest.fixture
def every(world):
    return divebook.frames(world)


def documented(kind):
    if kind == "executions":
        return lists.RUN_COLUMNS
    if kind == "variables":
        return state_frames.VARIABLE_COLUMNS
    return {**whole_store.ID, **whole_store.KINDS[kind].columns}


@pytest.mark.parametrize("kind", whole_store.ALL_KINDS)
def test_each_frame_full_or_empty_has_the_documented_dtypes_and_arrow_types(world, every, kind):
    declared = {name: column.dtype for name, column in documented(kind).items()}
    empty = divebook.frames(world, {"workflow": "none"})
    for frames in (every, empty):
        frame, table = getattr(frames, kind), frames.arrow(kind)
        assert {name: str(dtype) for name, dtype in frame.dtypes.items() if name in declared} == declared
        assert {name: table.schema.field(name).type for name in declared} == {
            name: log.TYPES[dtype] for name, dtype in declared.items()
        }
        assert table.column_names == list(frame)
        assert len(table) == len(frame)
    assert len(getattr(every, kind)) > 0 or kind == "tool_calls"
    assert len(getattr(empty, kind)) == 0


@pytest.mark.parametrize("kind", whole_store.ALL_KINDS)
def test_tables_say_what_frames_say(every, kind):
    frame, table = getattr(every, kind), every.arrow(kind)
    for name in frame.columns.drop("waited", errors="ignore"):  # an open question waits on from one to the other
        if frame[name].dtype == object:
            found = [None if text is None else json.loads(text) for text in table[name].to_pylist()]
            assert found == [None if value is None else value for value in frame[name]]
        else:
            found = [None if pd.isna(value) else value for value in frame[name]]
            assert table[name].to_pylist() == found


# --- which executions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (None, 4),
        ({"status": "completed"}, 2),
        ({"status": ["failed", "waiting"]}, 2),
        ({"workflow": "rows", "tag": ["baseline", "other"]}, 2),
        ({"tag": "baseline"}, 1),
        ({"text": "THE FIRST"}, 1),
        ({"text": "division"}, 1),
        ({"origin": "run"}, 4),
        ({"origin": ["what-if", "trial"]}, 0),
        ({"since": datetime(2020, 1, 1, tzinfo=UTC)}, 4),
        ({"since": "2999-01-01"}, 0),
        ({"until": date(2020, 1, 1)}, 0),
        ({"since": "1d"}, 4),
        ({"until": timedelta(days=1)}, 0),
        ({"parent": "exec_none"}, 0),
    ],
)
def test_a_filter_says_of_which_executions_frames_are(world, where, count):
    assert len(divebook.frames(world, where).executions) == count


def test_frames_are_of_an_environment_a_store_runs_or_a_frame_of_executions(world):
    runs = [world.run_of(record.execution_id) for record in world.store.records(workflow="rows")]
    assert len(divebook.frames(world.store, limit=3).executions) == 3
    assert divebook.frames(runs[0]).steps.execution_id.unique().tolist() == [runs[0].id]
    assert divebook.frames(runs).executions.execution_id.tolist() == [run.id for run in runs]
    chosen = divebook.frames(world).executions.query("status == 'failed'")
    assert divebook.frames(world, ids=list(chosen.execution_id)).executions.workflow.tolist() == ["bad"]
    assert divebook.frames(world, ids=runs[0].id[:-3]).executions.execution_id.tolist() == [runs[0].id]


def test_a_wrong_filter_says_which_there_are(world):
    for where, error, said in (
        ({"stauts": "failed"}, NotFoundError, "did you mean 'status'"),
        ({"status": "fialed"}, NotFoundError, "did you mean 'failed'"),
        ({"origin": ["whatif"]}, NotFoundError, "did you mean 'what-if'"),
        ({"tag": 3}, SetupError, "tag must be a string or a list of strings, not 3"),
        ({"since": "yesterday"}, SetupError, "since must be a date such as .* or a duration before now such as '1d'"),
        ({"since": "99999999d"}, SetupError, "since must be a date such as .*, not '99999999d'"),
        (
            {"until": "2026-13-45"},
            SetupError,
            "until must be a date such as '2026-01-31', a time such as '2026-01-31T12:00', .*, not '2026-13-45'",
        ),
        ({"ids": "exec_zzz"}, ExecutionNotFoundError, "exec_zzz"),
    ):
        with pytest.raises(error, match=said):
            divebook.frames(world, where)
    with pytest.raises(SetupError, match=r"a store, an environment, runs, ids of runs, or a DataFrame of .* not 3"):
        divebook.frames([3])
    with pytest.raises(SetupError, match="column 'execution_id'"):
        divebook.frames(pd.DataFrame({"id": [1]}))
    with pytest.raises(NotFoundError, match="did you mean 'events'"):
        divebook.frames(world).arrow("event")


def test_totals_leave_out_what_ifs_and_trials_unless_they_are_asked_for(world):
    source = next(record for record in world.store.records(tag="baseline"))
    store = MemoryStore()
    events = world.store.read(source.execution_id)
    for origin in (None, "what-if", "trial"):
        opening = replace(events[0].data, origin=origin)
        name = f"exec_{len(store.records()):026d}"
        copy = [replace(event, execution_id=name) for event in events]
        store.append(name, [replace(copy[0], data=opening), *copy[1:]], 0)
    assert sorted(divebook.frames(store).executions.origin) == ["run", "trial", "what-if"]
    assert divebook.frames(store).usage.cost.tolist() == [0.25]
    assert divebook.frames(store).costs().cost.tolist() == [0.25]
    tried = divebook.frames(store, {"origin": ["what-if", "trial"]})
    assert sorted(tried.usage.origin) == ["trial", "what-if"]
    assert tried.costs().cost.sum() == 0.5


def test_what_a_fork_shares_with_its_source_is_counted_once(world):
    """Where the source's request is counted, the fork's copy of it is not."""
    events = world.store.read(world.store.records(tag="baseline")[0].execution_id)
    shared = next(event.sequence for event in events if event.event_type == "step_completed" and event.step == "ask")
    name = f"exec_{0:026d}"
    opening = ExecutionForked(events[0].execution_id, shared, "rows")
    own = replace(events[shared], data=opening, path="", step="", execution_id=name)
    with MemoryStore() as store:
        store.append(events[0].execution_id, events, 0)
        store.append(name, [*(replace(event, execution_id=name) for event in events[:shared]), own], 0)
        frames = divebook.frames(store)
        assert frames.usage.execution_id.tolist() == [events[0].execution_id]
        assert frames.costs().cost.tolist() == [0.25]
        assert frames.executions.cost.sum() == 0.25


# --- what stands in them ---------------------------------------------------------------------------------------------


def test_variables_are_wide_over_sequence(world):
    run = world.run_of(world.store.records(tag="baseline")[0].execution_id)
    frame = divebook.frames(run).variables
    assert frame.sequence.is_monotonic_increasing
    frame = frame.drop_duplicates("step", keep="last")
    assert frame.step.tolist() == ["make", "count", "each", "ask"]
    assert frame["rows"].map(len).tolist() == [2, 2, 2, 2]
    assert frame["variables.path"].tolist() == [None, 2, 2, 2]
    assert frame.doubled.tolist() == [None, None, [0, 2], [0, 2]]
    assert list(frame)[5:] == ["doubled", "it", "label", "variables.path", "rows"]


def test_usage_is_by_execution_agent_and_model(every):
    usage = every.usage
    assert usage.agent.tolist() == ["a", "a"]
    assert usage[["requests", "input_tokens", "cost"]].to_numpy().tolist() == [[1, 7, 0.25]] * 2
    assert usage.origin.unique().tolist() == ["run"]


def test_old_names_mean_the_same(every):
    pd.testing.assert_frame_equal(every.runs, every.executions)


def test_own_columns_are_found_by_path(world):
    columns = {
        "label": "outputs.label",
        "n": "inputs.n",
        "scores": "variables.rows.*.score",
        "first": "variables.rows[0].name",
        "missing": "variables.nothing.there",
        "doubled": "steps.output",
    }
    with pytest.raises(SetupError, match=r"such as 'operations\.result'"):
        divebook.frames(world, columns={"x": "steps"})
    columns["again"] = columns.pop("doubled")
    frames = divebook.frames(world, {"workflow": "rows"}, columns=columns)
    frame = frames.executions.sort_values("n")
    assert frame.label.tolist() == ["hi", "hi"]
    assert (str(frame.label.dtype), str(frame.n.dtype), str(frame.scores.dtype)) == ("str", "Int64", "object")
    assert frame.scores.tolist() == [[], [0, 1]]
    assert frame["first"].isna().tolist() == [True, False]
    assert frame.missing.tolist() == [None, None]
    assert frames.steps.again.tolist() == frames.steps.output.tolist()
    table = frames.arrow("executions")
    assert (table.schema.field("n").type, table.schema.field("label").type) == (pa.int64(), pa.large_string())
    assert sorted(table["scores"].to_pylist()) == ["[0,1]", "[]"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("v.a.*.b", [1, 2]),
        ("v.a.*.*", [1, 2]),
        ("v.m.*.k", [5, None]),
        ("v.a[-1].b", 2),
        ("v.a[9].b", None),
        ('v["x y"]', 7),
        ("v.text.*", []),
        ("v", {"a": [{"b": 1}, {"b": 2}], "m": {"p": {"k": 5}, "q": {}}, "x y": 7, "text": "ab"}),
    ],
)
def test_a_path_leads_through_lists_and_mappings(path, found):
    value = {"a": [{"b": 1}, {"b": 2}], "m": {"p": {"k": 5}, "q": {}}, "x y": 7, "text": "ab"}
    assert UserColumn.of("c", path).value_in(value) == found


@pytest.mark.parametrize("path", ["", "outputs.", "*.a", ".", "outputs..a", "outputs[a]", 3])
def test_what_is_no_path_is_refused(world, path):
    with pytest.raises((SetupError, NotFoundError)):
        divebook.frames(world, columns={"c": path})


def test_an_own_column_has_the_type_that_all_its_values_have():
    for values, dtype in (
        ([True, None], "boolean"),
        ([1, None], "Int64"),
        ([1, 2.5], "Float64"),
        (["a", None], "str"),
        ([1, "a"], "object"),
        ([True, 1], "object"),
        ([2**63, 1], "object"),
        ([None], "object"),
        ([], "object"),
    ):
        assert str(inferred_column(values).dtype) == dtype, values


def test_an_own_column_takes_no_other_ones_place(world):
    with pytest.raises(SetupError, match="executions already has a column 'status'"):
        _ = divebook.frames(world, columns={"status": "outputs.label"}).executions
    with pytest.raises(NotFoundError, match="did you mean 'result'"):
        divebook.frames(world, columns={"r": "operations.resutl"})


# --- other libraries -------------------------------------------------------------------------------------------------


def test_a_whole_store_is_one_call_for_polars_and_duckdb(every):
    operations = pl.from_arrow(every.arrow("operations"))
    assert operations.filter(pl.col("agent") == "a")["cost"].sum() == 0.5
    assert pl.DataFrame(every.reader("steps")).height == len(every.steps)
    duckdb = pytest.importorskip("duckdb")
    steps = every.arrow("steps")
    executions = every.arrow("executions")
    with duckdb.connect() as connection:
        connection.register("steps", steps)
        connection.register("executions", executions)
        found = connection.sql(
            "SELECT workflow, count(*) FROM steps JOIN executions USING (execution_id) GROUP BY 1 ORDER BY 1"
        ).fetchall()
        events = every.reader("events")
        connection.register("events", events)
        named = connection.sql("SELECT data ->> '$.workflow_name' FROM events WHERE sequence = 1 ORDER BY 1").fetchall()
    assert found == [("asks", 1), ("bad", 1), ("rows", 8)]
    assert named == [("asks",), ("bad",), ("rows",), ("rows",)]
    assert set(every.to_arrow()) == {*whole_store.ALL_KINDS}


def test_a_reader_holds_one_log_at_a_time(every, monkeypatch):
    read = []
    history = every.store.history
    monkeypatch.setattr(every.store, "history", lambda name: read.append(name) or history(name))
    reader = every.reader("events")
    assert hasattr(reader, "__arrow_c_stream__")
    assert read == []
    first = reader.read_next_batch()
    assert len(read) == 1
    assert first.column("execution_id").unique().to_pylist() == read


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_execution_is_named_and_loses_no_other(tmp_path):
    path = tmp_path / "x.db"
    with SqliteStore(path) as store:
        environment = Environment(store=store)
        ids = [environment.start(Workflow(f"w{n}", [Step("s", script="1", store="x")])).wait(20).id for n in range(3)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
        key = connection.execute("SELECT key FROM executions WHERE id = ?", ids[1:2]).fetchone()[0]
        place = connection.execute("SELECT max(place) FROM events WHERE place >> 32 = ?", (key,)).fetchone()[0]
        connection.execute("UPDATE events SET data = '{' WHERE place = ?", (place,))
    with SqliteStore(path) as store:
        frames = divebook.frames(store, columns={"x": "variables.x"})
        for kind in ("events", "steps", "paths", "variables", "usage"):
            assert ids[1] not in set(getattr(frames, kind).execution_id)
            assert ids[1] not in frames.arrow(kind)["execution_id"].to_pylist()
        assert set(frames.steps.execution_id) == {ids[0], ids[2]}
        rows = frames.executions.set_index("execution_id")
        assert rows.loc[ids[1], "workflow"] == "w1"
        assert "checksum" in rows.loc[ids[1], "damage"] or ids[1] in rows.loc[ids[1], "damage"]
        assert rows.damage.isna().sum() == 2
        assert rows.x.dropna().tolist() == [1, 1]
        assert set(frames.damaged) == {ids[1]}
