import json
from typing import get_args

import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.commands.parameters import Origin, Status
from divebook.engine.lifecycle import SHOWN_STATUSES
from divebook.events import classes
from divebook.events.catalog import ORIGINS, ExecutionStarted
from divebook.stores import open_store
from tests.cli.conftest import write
from tests.store.logs import event


@pytest.fixture
def history(divebook, folder, hello):
    """Return the ids of one completed and one failed execution."""
    divebook("run", hello, "-v", "who=you")
    divebook("run", write(folder / "bad.yaml", "Workflows: [{Name: bad, Steps: [{Name: s, Script: 1 / 0}]}]"))
    records = {record.workflow_name: record.execution_id for record in open_store().records()}
    return records["hello"], records["bad"]


def test_runs_lists_executions_with_whole_ids(divebook, history):
    result = divebook("runs")
    assert result.exit_code == 0
    assert all(execution_id in result.stdout for execution_id in history)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), {"hello", "bad"}),
        (("--status", "failed"), {"bad"}),
        (("--workflow", "hello"), {"hello"}),
        (("--status", "failed", "--workflow", "hello"), set()),
        (("--limit", "1"), {"bad"}),
        (("--limit", "0"), {"hello", "bad"}),
    ],
)
def test_runs_filters(divebook, history, options, names):
    listed = json.loads(divebook("runs", "--json", *options).stdout)["runs"]
    assert {entry["workflow"] for entry in listed} == names


def test_runs_filters_by_tag_and_origin(divebook, history):
    for name, origin, tags in (
        ("exec_1", "fork", ["nightly"]),
        ("exec_2", "fork", None),
        ("exec_3", None, ["nightly"]),
    ):
        data = ExecutionStarted("hello", origin=origin, tags=tags, key=f"start {name}")
        open_store().append(name, [event(1, data, name, path="")], 0)
    listed = json.loads(divebook("runs", "--json", "--tag", "nightly", "--origin", "fork").stdout)["runs"]
    assert [(entry["id"], entry["key"], entry["tags"]) for entry in listed] == [("exec_1", "start exec_1", ["nightly"])]


def test_a_run_is_found_by_what_was_said_of_it(divebook, hello):
    assert divebook("run", hello, "-v", "who=you", "--tag", "a", "--tag", "b c", "--note", "keep it").exit_code == 0
    assert divebook("run", hello, "-v", "who=you").exit_code == 0
    (found,) = json.loads(divebook("runs", "--json", "--tag", "b c").stdout)["runs"]
    assert (found["tags"], found["note"]) == (["a", "b c"], "keep it")
    assert json.loads(divebook("runs", "--json", "--notebook", "other.ipynb").stdout)["runs"] == []


def test_runs_knows_every_status():
    assert get_args(Status) == SHOWN_STATUSES
    assert get_args(Origin) == ORIGINS


def test_a_wrong_status_is_a_usage_error(divebook, history):
    result = divebook("runs", "--status", "done")
    assert result.exit_code == 2
    assert "'done' is not one of" in result.stderr


def test_looking_something_up_makes_no_store(divebook, folder):
    for arguments in (("runs",), ("show", "exec_0"), ("cancel", "exec_0"), ("resume", "exec_0"), ("export", "exec_0")):
        result = divebook(*arguments)
        assert result.exit_code == 2
        assert "there is no store at .divebook/executions.db" in result.stderr
    assert list(folder.iterdir()) == []


def test_the_store_may_be_named_by_the_environment(divebook, folder, hello, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_STORE", "elsewhere.db")
    divebook("run", hello, "-v", "who=you")
    assert (folder / "elsewhere.db").exists()
    assert "hello" in divebook("runs").stdout


def test_show_tells_what_is_known(divebook, history):
    shown = divebook("show", history[0]).stdout
    assert f"hello: ✓ completed\n  {history[0]}\n" in shown
    assert "2 inputs:\n  who = you\n  times = 2\n" in shown
    assert "1 output:\n  greeting = hello you hello you" in shown
    assert "greet  ✓ completed  " in shown
    assert "events" not in shown


def test_show_tells_why_an_execution_failed(divebook, folder, history):
    result = divebook("show", history[1])
    assert result.exit_code == 0
    for line in (
        f"error: ZeroDivisionError: division by zero (step s, {folder / 'bad.yaml'}:1:51)",
        "  where: step s",
        f"  {folder / 'bad.yaml'}:1:51:",
        "    >    1  Workflows: [{Name: bad, Steps: [{Name: s, Script: 1 / 0}]}]",
    ):
        assert line in result.stdout.splitlines()


def test_show_tells_what_a_call_was_given_and_which_items_have_failed(divebook, folder):
    each = "Each: {Items: $(inputs.rows), As: row, OnItemError: skip}"
    loop = f"{{Name: s, Script: 1 // row, {each}}}, {{Name: t, Action: Print, Parameters: {{Message: $(1 // 0)}}}}"
    path = write(folder / "many.yaml", f"Workflows: [{{Name: many, Inputs: [{{Name: rows}}], Steps: [{loop}]}}]")
    divebook("run", path, "-v", "rows:=[0, 1, 0]")
    shown = divebook("show", open_store().records()[0].execution_id).stdout
    assert "error: ZeroDivisionError: " in shown
    assert "  also: 3 failed: rows[0], rows[2], step t" in shown


def test_show_lists_events_on_request(divebook, history):
    shown = divebook("show", history[0], "--events").stdout
    assert "execution_started" in shown
    assert "execution_completed" in shown


def test_show_as_json_holds_the_log_on_request(divebook, history):
    assert "events" not in json.loads(divebook("show", history[0], "--json").stdout)
    shown = json.loads(divebook("show", history[0], "--json", "--events").stdout)
    assert [event["sequence"] for event in shown["events"]] == list(range(1, len(shown["events"]) + 1))
    assert shown["paths"][0]["id"] == "main"


def test_the_beginning_of_an_id_is_enough_if_it_is_unique(divebook, history):
    length = next(n for n in range(len(history[0]), 0, -1) if history[1].startswith(history[0][: n - 1]))
    assert history[0] in divebook("show", history[0][:length]).stdout
    ambiguous = divebook("show", history[0][: length - 1])
    assert ambiguous.exit_code == 2
    assert "is ambiguous" in ambiguous.stderr


def test_an_unknown_id_is_refused_with_what_to_do_next(divebook, history):
    result = divebook("show", "exec_nowhere")
    assert result.exit_code == 2
    assert "`divebook runs` lists the runs of the store" in result.stderr


def test_what_has_ended_cannot_be_cancelled(divebook, history):
    result = divebook("cancel", history[0])
    assert result.exit_code == 2
    assert "is already completed; there is nothing to cancel" in result.stderr


def test_what_has_completed_is_shown_unchanged(divebook, history):
    result = divebook("resume", history[0])
    assert (result.exit_code, "completed" in result.stdout) == (0, True)
    assert "has completed; start a new run" in result.stderr


def test_resume_goes_on_at_the_step_that_failed(divebook, folder, monkeypatch):
    text = "Workflows: [{Name: a, Steps: [{Name: one, Script: '1', Store: n}, {Name: two, Action: Flaky, Store: m}]}]"
    path = write(folder / "a.yaml", text)
    code = """
from pathlib import Path
from divebook import action

@action('Flaky')
def flaky():
    return Path('ready').read_text()
"""
    write(folder / "flaky.py", code)
    failed = divebook("run", path, "--actions", "flaky.py")
    assert failed.exit_code == 1
    write(folder / "ready", "yes")
    execution_id = open_store().records()[0].execution_id
    resumed = divebook("resume", execution_id, "--actions", "flaky.py")
    assert resumed.exit_code == 0
    assert "  m = yes\n" in resumed.stdout
    assert "one" not in resumed.stderr


def test_resume_needs_the_agents_that_the_log_does_not_hold(divebook, folder):
    text = """
Agents: [{Name: poet}]
Workflows:
  - Name: a
    Inputs: [{Name: n}]
    Steps: [{Name: s, Script: 1 / inputs.n}, {Name: ask, Agent: poet, Prompt: hi}]
"""
    path = write(folder / "a.yaml", text)
    divebook("run", path, "-v", "n:=0")
    execution_id = open_store().records()[0].execution_id
    refused = divebook("resume", execution_id)
    assert refused.exit_code == 2
    assert "poet" in refused.stderr
    assert "A log contains the workflow, but no agents or actions" in refused.stderr
    assert divebook("resume", execution_id, "-d", path).exit_code == 1


def test_resume_says_that_a_changed_definition_is_not_the_one_that_goes_on(divebook, folder):
    text = "Workflows: [{Name: a, Steps: [{Name: s, Script: 1 / 0}]}]"
    path = write(folder / "a.yaml", text)
    divebook("run", path)
    execution_id = open_store().records()[0].execution_id
    told = "workflow 'a' has changed since the run started; the run keeps its original definition"
    assert told not in divebook("resume", execution_id, "-d", path).stderr
    write(folder / "a.yaml", text.replace("1 / 0", "1 / 1"))
    again = divebook("resume", execution_id, "-d", path)
    assert (again.exit_code, told in " ".join(again.stderr.split())) == (1, True)


def test_show_describes_frames_and_writes_big_numbers_out(divebook, folder):
    made = Workflow("w", [Step("s", script="10**30", store="big")], inputs=["frame"])
    frame = pd.DataFrame({"a": range(10_000)})
    execution = Environment().start(made, {"frame": frame}).wait(20, check=True)
    for options in ((), ("--events",), ("--json",), ("--json", "--events")):
        shown = divebook("show", execution.id, *options).stdout
        assert "DataFrame 10,000 x 1" in shown
        assert "1000000000000000000000000000000" in shown
        assert "$type" not in shown
        assert len(shown) < 10_000
    assert json.loads(divebook("show", execution.id, "--json").stdout)["variables"] == {"big": 10**30}


def test_the_size_of_a_log_is_listed(divebook, history):
    listed = json.loads(divebook("runs", "--json").stdout)["runs"]
    assert all(entry["bytes"] > 100 for entry in listed)
    assert divebook("runs").stdout.splitlines()[0].split()[-2] == "size"
    assert " kB" in divebook("runs").stdout


def test_what_is_not_fully_durable_is_said(divebook, hello, history):
    assert "relaxed" not in divebook("runs").output + divebook("show", history[0]).output
    run = json.loads(divebook("run", hello, "-v", "who=you", "--durability", "relaxed", "--json", "-q").stdout)
    assert run["durability"] == "relaxed"
    assert f"relaxed durability: {run['id']}" in divebook("runs").stderr
    assert "durability: relaxed" in divebook("show", run["id"]).stdout


def test_a_durability_that_does_not_exist_is_a_usage_error(divebook, hello):
    assert divebook("run", hello, "-v", "who=you", "--durability", "fast").exit_code == 2


def test_a_run_that_has_ended_is_tagged_and_found_by_it(divebook, history):
    hello, bad = history
    assert divebook("tag", hello, "baseline", "kept").stdout.split("  ")[0] == "baseline, kept"
    assert [entry["id"] for entry in json.loads(divebook("runs", "--json", "--tag", "kept").stdout)["runs"]] == [hello]
    assert divebook("tag", hello, "--remove", "kept").stdout.startswith("baseline")
    assert divebook("tag", bad).stdout.startswith("no tags")
    refused = divebook("tag", hello, " ")
    assert (refused.exit_code, "a tag must be a word such as 'baseline', not ' '" in refused.stderr) == (2, True)


def test_runs_say_why_they_failed_what_they_were_given_and_how_long_they_worked(divebook, history):
    titles, bad, hello = divebook("runs").stdout.splitlines()[:3]
    assert titles.split()[4:] == ["worked", "cost", "events", "size", "about"]
    assert "ZeroDivisionError" in bad
    assert "who you" in hello
    listed = json.loads(divebook("runs", "--json").stdout)["runs"]
    assert all(entry["worked_seconds"] > 0 for entry in listed)
    assert [entry["cost"] for entry in listed] == [None, None]


def test_compare_says_where_runs_part_and_exits_with_1(divebook, history, hello):
    divebook("run", hello, "-v", "who=me")
    other = open_store().records(workflow="hello")[0].execution_id
    result = divebook("compare", history[0], other)
    assert result.exit_code == 1
    assert "≠ input who: [-you-]{+me+}" in result.stdout
    assert json.loads(divebook("compare", history[0], other, "--json").stdout)["differences"][0]["place"] == "input who"
    assert divebook("compare", history[0], history[0]).exit_code == 0


def test_compare_refuses_runs_of_two_workflows_and_a_run_alone(divebook, history):
    refused = divebook("compare", *history)
    assert refused.exit_code != 0
    assert "'hello'" in refused.stderr
    assert "'bad'" in refused.stderr
    assert divebook("compare", history[0]).exit_code == 2


def test_cancel_takes_several_and_those_that_options_leave(divebook, folder):
    asks = write(folder / "asks.yaml", "Workflows: [{Name: asks, Steps: [{Name: s, Ask: Which?}]}]")
    for _ in range(3):
        divebook("run", asks)
    ids = [record.execution_id for record in open_store().records()]
    listed = divebook("cancel", "--workflow", "asks", "--dry-run")
    assert all(name in listed.stdout for name in ids)
    assert {record.status for record in open_store().records()} == {"waiting"}
    assert divebook("cancel", ids[0], "exec_none", ids[1]).exit_code == 1
    assert [record.status for record in open_store().records()] == ["cancelled", "cancelled", "waiting"]
    assert divebook("cancel", "--status", "waiting").exit_code == 0
    assert {record.status for record in open_store().records()} == {"cancelled"}
    assert divebook("cancel").exit_code == 2


def test_a_note_labels_and_tags_are_said_of_several(divebook, history):
    hello, bad = history
    done = divebook("annotate", hello, bad, "--note", "read twice", "--label", "quality=good", "--tag", "seen")
    assert done.exit_code == 0, done.output
    assert [(record.note, record.tags) for record in open_store().records()] == [("read twice", ("seen",))] * 2
    assert dict(Environment().run_of(hello).state.labels) == {"quality": "good"}
    divebook("annotate", "--tagged", "seen", "--status", "failed", "--untag", "seen", "--note", "")
    assert {record.execution_id: record.tags for record in open_store().records()} == {hello: ("seen",), bad: ()}


def test_what_cannot_be_said_of_any_is_said_of_none(divebook, history):
    assert "nothing to record" in divebook("annotate", *history).stderr
    assert "--label 'good' has no value" in divebook("annotate", *history, "--label", "good", "--tag", "t").stderr
    assert divebook("annotate", "--note", "x").exit_code == 2
    partly = divebook("annotate", history[0], "exec_none", "--note", "x")
    assert (partly.exit_code, "exec_none" in partly.stdout) == (1, True)
    assert [record.note for record in open_store().records() if record.note] == ["x"]


def test_a_list_that_leaves_runs_out_says_how_many_there_are(folder, divebook):
    with Environment(store="runs.db", workflows=[Workflow("w", [Step("s", script="1")])]) as environment:
        for _ in range(3):
            environment.start("w").wait()
    listed = divebook("runs", "--limit", "2", "--store", "runs.db")
    assert "2 of 3 runs; to list all runs: divebook runs --limit 0" in listed.stderr
    assert json.loads(divebook("runs", "--limit", "2", "--json", "--store", "runs.db").stdout)["total"] == 3
    assert "runs; all" not in divebook("runs", "--limit", "0", "--store", "runs.db").stderr


TYPED = """
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path

from divebook import workflow


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    at: date
    colour: Colour = Colour.RED


@workflow
async def typed(
    ctx,
    colour: Colour = Colour.RED,
    point: Point = Point(1, date(2026, 1, 2)),
    amount: Decimal = Decimal("1.50"),
    day: date = date(2026, 1, 2),
    at: datetime = datetime(2026, 1, 2, 3, 4),
    path: Path = Path("a"),
    several: list[Colour] = [Colour.RED],
    wait: timedelta = timedelta(minutes=5),
):
    return [colour, point, amount, day, at, path, several, wait]
"""


def test_inputs_are_shown_in_the_form_in_which_they_can_be_given_again(divebook, folder, monkeypatch):
    """By the process that has their classes and by another one, as JSON and as text."""
    file = write(folder / "typed.py", TYPED)
    run = json.loads(divebook("run", file, "--json").stdout)
    monkeypatch.setattr(classes, "_ALLOWED", {})
    shown = json.loads(divebook("show", run["id"], "--json").stdout)
    assert (shown["inputs"], shown["outputs"]) == (run["inputs"], run["outputs"])
    assert run["inputs"]["colour"] == "red"
    assert run["inputs"]["point"] == {"x": 1, "at": "2026-01-02", "colour": "red"}
    assert "$type" not in json.dumps(run)

    text = divebook("show", run["id"]).stdout
    lines = dict(line.strip().split(" = ", 1) for line in text.splitlines() if " = " in line)
    assert (lines["wait"], lines["colour"]) == ("PT300S", "red")
    forms = {name: value if isinstance(value, str) else json.dumps(value) for name, value in run["inputs"].items()}
    for values in (forms, {name: text for name, text in lines.items() if name in forms}):
        again = json.loads(divebook("run", file, "--json", *[f"{name}={text}" for name, text in values.items()]).stdout)
        assert (again["inputs"], again["outputs"]) == (run["inputs"], run["outputs"])
