"""All interfaces show the same status of a run, and accept the words that they show as filters."""

import asyncio
import json
import queue

import pytest
from typer.testing import CliRunner

import divebook
from divebook import action
from divebook.analysis.run_report import report_of
from divebook.cli.main import app
from divebook.commands.command import NOTEBOOK, Invocation
from divebook.commands.table import COMMANDS
from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.engine.lifecycle import SHOWN_STATUSES
from divebook.environments.environment import Environment
from divebook.notebook.commands import Names, line_command, values_of
from divebook.notebook.session import open_session, reset_session
from divebook.widgets.runs_and_questions import EVERYTHING, RunsFeed
from divebook.widgets.source import header_of


@pytest.fixture(scope="module")
def statuses(tmp_path_factory):
    """Change to a folder with a store that has a run of each status; return the statuses by the id of the run."""
    folder = tmp_path_factory.mktemp("statuses")
    reached = queue.Queue()

    @action(name="hold")
    async def hold() -> None:
        reached.put(True)
        await asyncio.Event().wait()

    def begin_holding(environment):
        run = environment.start("hold")
        reached.get(timeout=30)
        return run

    workflows = [
        Workflow("done", [Step("s", script="1")]),
        Workflow("fails", [Step("s", script="1 / 0")]),
        Workflow("asks", [Step("s", ask="Go?")]),
        Workflow("sleeps", [Step("s", type="wait", seconds=10_000)]),
        Workflow("hold", [Step("s", action="hold")]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DIVEBOOK_STORE", str(folder / "runs.db"))
        with Environment(store="runs.db", workflows=workflows, actions=[hold]) as environment:
            environment.start("done").wait().export("done.jsonl", overwrite=True)
            asks = environment.start("asks").wait()
            asks.export("snapshot.jsonl")
            sleeps = environment.start("sleeps")
            sleeps.pause()
            moved = environment.start("asks").wait()
            moved.export("moved.jsonl", move=True)
            withheld = environment.enqueue("done")
            withheld.pause()
            interrupted = begin_holding(environment)
            interrupted.internals.leave()
            runs = {
                "completed": environment.start("done").wait(),
                "failed": environment.start("fails").wait(),
                "waiting": asks,
                "paused": sleeps.wait(),
                "cancelled": environment.start("asks").wait().cancel().wait(),
                "enqueued": environment.enqueue("done"),
                "running": begin_holding(environment),
                "interrupted": interrupted,
                "moved": moved,
            }
            by_id = {run.id: status for status, run in runs.items()}
            by_id[withheld.id] = "paused"
            yield by_id
            runs["running"].cancel().wait()


@pytest.fixture
def session(statuses):
    """Return a session of a notebook with the store."""
    reset_session()
    yield open_session("runs.db")
    reset_session()


def shell(*words):
    result = CliRunner().invoke(app, words)
    assert result.exit_code in (0, 1, 3, 130), result.output
    return result.stdout


def in_line(session, line):
    name, *words = line.split()
    arguments = line_command(COMMANDS[name]).parse(words, Names())
    call = Invocation(NOTEBOOK, lambda: session.environment, lambda _text, _style: None)
    return COMMANDS[name].function(call, **values_of(COMMANDS[name], arguments))


# Each returns the statuses by id, as far as the interface has them.
INTERFACES = {
    "Python": lambda session, ids: {name: session.environment.run_of(name).status for name in ids},
    "list in Python": lambda session, ids: {run.id: run.status for run in divebook.runs()},
    "frame of the list": lambda session, ids: dict(divebook.runs().frame()[["execution_id", "status"]].values),
    "frame of a store": lambda session, ids: dict(divebook.frames().executions[["execution_id", "status"]].values),
    "shell: runs": lambda session, ids: {
        line.split()[0]: line.split()[2].rstrip(",") for line in shell("runs").splitlines() if line.startswith("exec_")
    },
    "shell: runs --json": lambda session, ids: {
        run["id"]: run["status"] for run in json.loads(shell("runs", "--json"))["runs"]
    },
    "shell: show": lambda session, ids: {name: shell("show", name).splitlines()[0].split()[-1] for name in ids},
    "shell: show --json": lambda session, ids: {
        name: json.loads(shell("show", name, "--json"))["status"] for name in ids
    },
    "%dive runs": lambda session, ids: {line.id: line.status for line in lines_of(in_line(session, "runs"))},
    "%dive show": lambda session, ids: {name: in_line(session, f"show {name}").execution.status for name in ids},
    "report": lambda session, ids: {name: report_in(session, name).status for name in ids},
    "run browser": lambda session, ids: {row["execution_id"]: row["status"] for row in page(session)["runs"]},
    "live view": lambda session, ids: {name: header_of(session.environment.run_of(name))["status"] for name in ids},
}


def report_in(session, name):
    run = session.environment.run_of(name)
    return report_of(run, run.history())


def lines_of(query):
    return query.lines(query.records)


def page(session, **query):
    feed = RunsFeed(session.environment)
    feed.ask({**EVERYTHING, "limit": 100, **query})
    frame = None
    # The first frames lack the summaries that were not read in time.
    while (latest := feed.frame()) is not None:
        frame = latest
    return frame


@pytest.mark.parametrize("interface", INTERFACES)
def test_each_interface_shows_the_same_status(statuses, session, interface):
    shown = INTERFACES[interface](session, statuses)
    assert {name: shown[name] for name in statuses} == statuses


@pytest.mark.parametrize("status", SHOWN_STATUSES)
def test_each_status_that_is_shown_is_a_filter(statuses, session, status):
    expected = {name for name, shown in statuses.items() if shown == status}
    ways = {
        "divebook.runs": {run.id for run in divebook.runs(status=status)},
        "frames": set(divebook.frames(where={"status": status}).executions["execution_id"]),
        "shell": {run["id"] for run in json.loads(shell("runs", "--status", status, "--json"))["runs"]},
        "%dive": {line.id for line in lines_of(in_line(session, f"runs --status {status}"))},
        "run browser": {row["execution_id"] for row in page(session, status=status)["runs"]},
    }
    assert {name: ids & statuses.keys() for name, ids in ways.items()} == dict.fromkeys(ways, expected)


def test_the_table_has_all_statuses_that_a_store_can_have(statuses):
    # A pending run is in no store. A snapshot and a continued run are shown as they are recorded.
    assert set(SHOWN_STATUSES) - set(statuses.values()) == {"pending", "continued_as_new", "snapshot"}
