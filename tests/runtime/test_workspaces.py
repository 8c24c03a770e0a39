"""Calls that work in a workspace: the log has its files at every event, and a process that goes on finds them so."""

import asyncio
import json
import threading
import time
from dataclasses import replace

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.definitions.resources import WorkspaceDefinition
from divebook.environments.settings import drop_folders
from divebook.errors import InvalidEventError, NotFoundError, SetupError, SnapshotError
from divebook.replay.files import KeptFiles
from divebook.runtime.workspaces import OpenWorkspace, snapshot_of
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.codec import FernetCodec
from divebook.stores.embedded import read_records
from divebook.stores.maintenance import check
from divebook.stores.transfer import export, import_, read
from divebook.tools.workspace import PROCESS_TOOLS
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots

EDIT = {"edit": {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}}


def calls(*asked):
    return [[*({"call": one} for one in asked), "done"]]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "README").write_text("Adds.\n")
    return folder


@pytest.fixture
def environment(tmp_path, project):
    made = []

    def make(*asked, store="runs.db", **options):
        definition = WorkspaceDefinition("app", folder=str(project), **options)
        place = tmp_path / store if store else "memory:"
        found = Environment(store=place, workspaces=[definition], approvals=[ApprovalRule("shell")])
        agent = Agent("coder", model=ScriptedModel(turns=calls(*asked)), workspace="app")
        found.add_agent(agent)
        found.add_workflow(Workflow("fix", [Step("go", prompt="repair it", agent="coder", store="out")]))
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


def files(found):
    return KeptFiles(found.store, found.store.read(found.id))


class Run:
    def __init__(self, environment, execution):
        self.environment, self.execution = environment, execution
        self.id, self.store = execution.id, environment.store

    def read(self, *args):
        return files(self).read(*args).decode()


def run(environment):
    return Run(environment, environment.start("fix").wait())


def of_type(found, name):
    return [event for event in found.store.read(found.id) if event.event_type == name]


def test_a_run_works_on_a_copy_and_the_log_has_its_files_at_every_event(environment, project):
    found = run(environment(EDIT, {"replace": {"file_path": "new.txt", "content": "new\n"}}))
    assert found.execution.status == "completed"
    assert "a - b" in (project / "calc.py").read_text()
    kept = files(found)
    first, second = kept.changed_at
    assert "a - b" in found.read("calc.py", kept.first)
    assert "a + b" in found.read("calc.py", first)
    with pytest.raises(NotFoundError):
        found.read("new.txt", first)
    assert found.read("new.txt", second) == "new\n"
    assert [(diff.path, diff.kind, diff.added, diff.removed) for diff in kept.diff()] == [
        ("calc.py", "changed", 1, 1),
        ("new.txt", "added", 1, 0),
    ]


def test_each_change_names_the_call_that_made_it(environment):
    found = run(environment(EDIT, {"shell": {"command": "rm README; echo x > y"}}))
    ended = {event.data.operation_id: event.sequence for event in of_type(found, "operation_completed")}
    changed = of_type(found, "files_changed")
    assert [event.sequence - 1 for event in changed] == [ended[event.data.operation_id] for event in changed]
    assert changed[0].data.changes == [{"path": "calc.py", "kind": "changed", "added": 1, "removed": 1}]
    assert [(change["path"], change["kind"]) for change in changed[1].data.changes] == [
        ("README", "deleted"),
        ("y", "added"),
    ]
    assert changed[0].data.after == changed[1].data.before


def test_a_command_that_fails_has_changed_files_all_the_same(environment):
    found = run(environment({"shell": {"command": "echo x > y; exit 3"}}))
    assert files(found).diff()[0].path == "y"


def test_looking_changes_nothing(environment):
    found = run(environment({"view": {"file_path": "calc.py"}}, {"ls": {}}, {"grep": {"pattern": "add"}}))
    assert of_type(found, "workspace_opened")
    assert not of_type(found, "files_changed")


def test_a_fork_has_the_files_of_its_event_in_a_folder_of_its_own(environment):
    made = environment(EDIT, {"shell": {"command": "echo x > y; mkdir -p d/e"}})
    found = run(made)
    first, _ = files(found).changed_at
    fork = Run(made, made.run_of(found.id).fork(at=first).wait())
    assert fork.execution.status == "completed"
    theirs, ours = files(found).folder, files(fork).folder
    assert theirs != ours
    (opened,) = [event for event in of_type(fork, "workspace_opened") if event.sequence > first]
    assert opened.data.files is None
    assert opened.data.tree == of_type(found, "files_changed")[0].data.after
    assert files(fork).at().digest == files(found).at().digest
    assert (ours / "calc.py").read_text() == (theirs / "calc.py").read_text()


def test_what_has_changed_is_taken_over_file_by_file(environment, project):
    kept = files(
        run(
            environment(
                EDIT,
                {"replace": {"file_path": "new/file.txt", "content": "x"}},
                {"mkdir": {"paths": ["new"]}},
                {"replace": {"file_path": "new/file.txt", "content": "x"}},
                {"delete": {"path": "README"}},
            )
        )
    )
    assert kept.apply(paths=["calc.py"]).written == ["calc.py"]
    assert "a + b" in (project / "calc.py").read_text()
    assert (project / "README").exists()
    (project / "README").write_text("changed meanwhile")
    with pytest.raises(SnapshotError, match="README"):
        kept.apply()
    assert not (project / "new").exists()
    (project / "README").write_text("Adds.\n")
    done = kept.apply()
    assert done.there == ["calc.py"]
    assert (project / "new" / "file.txt").read_text() == "x"
    assert not (project / "README").exists()


def test_files_are_put_back_as_they_were_at_an_event(environment, tmp_path):
    kept = files(run(environment(EDIT)))
    kept.restore(tmp_path / "then", kept.first)
    assert "a - b" in (tmp_path / "then" / "calc.py").read_text()
    with pytest.raises(SetupError, match="would be lost"):
        kept.restore(tmp_path / "then")
    kept.restore(tmp_path / "then", force=True)
    assert "a + b" in (tmp_path / "then" / "calc.py").read_text()


def blocking(project):
    """Return a call of a command that changes a file, and waits for another one beside the project."""
    waiting = f"while [ ! -e {project.parent / 'go'} ]; do sleep 0.02; done"
    return {"shell": {"command": f"echo half >> half; {waiting}; echo done >> half"}}


def broken_off(environment, *asked):
    """Begin a run, and leave it in the middle of a command that has changed a file."""
    made = environment(*asked)
    started = made.start("fix")
    folder = None
    limit = time.monotonic() + 20
    while folder is None or not (folder / "half").exists():
        assert time.monotonic() < limit
        time.sleep(0.01)
        opened = [event for event in made.store.read(started.id) if event.event_type == "workspace_opened"]
        folder = files(Run(made, started)).folder if opened else None
    made.close()
    return started.id, folder


def test_a_command_of_unknown_outcome_is_asked_about_with_what_it_has_changed(environment, project):
    asked = EDIT, blocking(project)
    broken, folder = broken_off(environment, *asked)
    made = environment(*asked)
    execution = made.run_of(broken).resume().wait()
    (question,) = execution.open_questions
    assert question.kind == "outcome_unknown"
    assert "1 added: half" in question.message
    (project.parent / "go").touch()
    execution.answer(question.id, "retry").wait()
    assert execution.status == "completed"
    assert (folder / "half").read_text() == "half\ndone\n"
    assert execution.verify().equal


def interrupted(environment, project, **options):
    """Begin a run that waits for a person between two calls, and close its environment; return how to go on."""
    asked = EDIT, {"replace": {"file_path": "b", "content": "x"}}

    def make():
        made = environment(*asked, **options)
        made.internals.registry.agent("coder").definition = replace(
            made.internals.registry.agent("coder").definition, approvals=(ApprovalRule("replace", outcome="ask"),)
        )
        return made

    made = make()
    execution = made.start("fix").wait()
    assert execution.status == "waiting"
    made.close()
    return execution.id, make


@pytest.mark.parametrize(("outcome", "left"), [("restore", False), ("keep", True)])
def test_files_that_somebody_else_has_changed_are_asked_about(environment, project, outcome, left):
    broken, make = interrupted(environment, project)
    made = make()
    folder = KeptFiles(made.store, made.store.read(broken)).folder
    (folder / "stray").write_text("mine")
    execution = made.run_of(broken).resume().wait()
    (question,) = execution.open_questions
    execution.answer(question.id, "approve").wait()
    (question,) = execution.open_questions
    assert "The files of workspace app are not as the run left them" in question.question
    assert "1 added: stray" in question.message
    execution.answer(question.id, outcome).wait()
    assert execution.status == "completed", execution.state.error
    assert (folder / "stray").exists() is left
    kept = KeptFiles(made.store, made.store.read(broken))
    assert ("stray" in kept.at().entries) is left
    assert execution.verify().equal


def test_nobody_is_asked_where_the_files_are_as_they_were(environment, project):
    broken, make = interrupted(environment, project)
    made = make()
    execution = made.run_of(broken).resume().wait()
    (question,) = execution.open_questions
    execution.answer(question.id, "approve").wait()
    assert execution.status == "completed"


def test_in_place_there_is_no_copy(environment, project):
    found = run(environment(EDIT, in_place=True))
    (question,) = found.execution.open_questions  # what is changed is a person's own file
    found.execution.answer(question.id, "approve").wait()
    assert "a + b" in (project / "calc.py").read_text()
    fork = Run(found.environment, found.environment.run_of(found.id).fork(at=files(found).changed_at[0] - 2).wait())
    assert files(fork).folder != project


def test_a_workspace_without_a_folder_begins_empty(tmp_path):
    with Environment(store="memory:", workspaces=[WorkspaceDefinition("app")]) as made:
        agent = Agent(
            "coder", model=ScriptedModel(turns=calls({"replace": {"file_path": "a", "content": "x"}})), workspace="app"
        )
        made.add_agent(agent)
        made.add_workflow(Workflow("fix", [Step("go", prompt="go", agent="coder")]))
        found = run(made)
        assert found.read("a") == "x"
        folder = files(found).folder
    assert not folder.exists()  # it passes with its environment


def test_without_snapshots_nothing_is_known_of_the_files(environment):
    found = run(environment(EDIT, snapshots=False))
    assert found.execution.status == "completed"
    with pytest.raises(NotFoundError, match="with stored files"):
        files(found)


def test_files_go_along_with_an_export_and_a_backup(environment, tmp_path):
    made = environment(EDIT, {"shell": {"command": "printf 'a\\0b' > binary"}})
    found = run(made)
    export(made.store, found.id, tmp_path / "run.jsonl")
    for copy in (MemoryStore(), SqliteStore(tmp_path / "other.db")):
        with copy:
            name = import_(read(tmp_path / "run.jsonl"), copy)
            kept = KeptFiles(copy, copy.read(name))
            assert kept.at().digest == files(found).at().digest
            assert kept.read("binary") == b"a\0b"
            assert check(copy).all_damages() == []


@pytest.mark.parametrize("line", ["content", "digest"])
def test_an_export_whose_file_was_changed_is_refused(environment, tmp_path, line):
    found = run(environment(EDIT))
    file = tmp_path / "run.jsonl"
    export(found.store, found.id, file)
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    lines = [
        {name: value for name, value in told.items() if name != "hash"}
        for told in lines
        if told.get("divebook") != "log"
    ]
    next(told for told in lines if told.get("divebook") == "file")[line] = "AAAA"
    with pytest.raises(InvalidEventError, match="content of a file"):
        read_records([told for told in lines if told.get("divebook") != "end"], "run.jsonl")


def test_contents_are_kept_once_and_go_with_the_last_run_that_has_them(environment, project):
    (project / "large").write_bytes(b"x" * 100_000)
    made = environment(EDIT)
    first, second = run(made), run(made)
    fork = made.run_of(first.id).fork(at=files(first).changed_at[0]).wait()
    digest = bytes.fromhex(files(first).at().entries["large"].content)

    def kept():
        made.store.drop_blobs()
        return made.store.blob(digest) is not None

    assert [blob.digest for blob in made.store.blobs()].count(digest) == 1
    for name in (first.id, fork.id):
        made.store.delete(name)
        assert kept()
    assert Run(made, second.execution).read("README") == "Adds.\n"
    made.store.delete(second.id)
    assert not kept()


def test_a_file_that_reads_like_a_reference_is_none(environment, project):
    (project / "forged").write_text('{"$type":"blob","value":["' + "ab" * 32 + '",5]}')
    found = run(environment(EDIT))
    assert found.read("forged").startswith('{"$type"')
    assert check(found.store).all_damages() == []


def test_files_of_an_encrypted_store_are_not_to_be_read_on_its_disk(tmp_path, project):
    pytest.importorskip("cryptography")
    (project / "secret").write_text("the treasure lies under the oak")
    definition = WorkspaceDefinition("app", folder=str(project))
    codec = FernetCodec(FernetCodec.new_key())
    with Environment(store=tmp_path / "sealed.db", workspaces=[definition], codec=codec) as made:
        agent = Agent("coder", model=ScriptedModel(turns=calls(EDIT)), workspace="app")
        made.add_agent(agent)
        made.add_workflow(Workflow("fix", [Step("go", prompt="go", agent="coder")]))
        found = run(made)
        assert found.read("secret") == "the treasure lies under the oak"
    assert b"treasure" not in (tmp_path / "sealed.db").read_bytes()


def test_folders_go_when_their_executions_are_gone(environment):
    made = environment(EDIT)
    first, second = run(made), run(made)
    folders = files(first).folder, files(second).folder
    made.store.delete(first.id)
    assert drop_folders(made.store, dry_run=True) == 1
    assert folders[0].exists()
    assert drop_folders(made.store) == 1
    assert [folder.exists() for folder in folders] == [False, True]


def test_the_folder_of_a_run_that_starts_during_the_deletion_is_kept(environment, monkeypatch):
    made = environment(EDIT)
    first = run(made)
    folder = files(first).folder
    made.store.delete(first.id)
    ids = made.store.ids
    started = []

    def ids_before_a_start():
        result = ids()
        if not started:
            started.append(run(made))
        return result

    monkeypatch.setattr(made.store, "ids", ids_before_a_start)
    assert drop_folders(made.store) == 1
    assert not folder.exists()
    assert files(started[0]).folder.exists()


def test_an_agent_may_start_processes_and_its_calls_are_recorded(environment):
    asked = (
        {"spawn_process": {"command": "read word; echo got $word > said.txt; echo ready", "takes_input": True}},
        {"list_processes": {}},
    )
    made = environment(*asked)
    agent = made.internals.registry.agent("coder")
    names = (*PROCESS_TOOLS, "view")
    agent.definition = replace(agent.definition, tools=names, approvals=(ApprovalRule("spawn_process"),))
    done = run(made)
    assert done.execution.status == "completed", done.execution.error
    ended = [event.data for event in made.store.read(done.id) if event.event_type == "operation_completed"]
    told = [data.result["result"] for data in ended if data.operation_type == "tool_call"]
    started, (listed,) = told
    assert started["status"] == listed["status"] == "running"
    assert started["process_id"] == listed["process_id"]


def test_a_cancelled_look_keeps_the_contents_that_it_read(tmp_path, monkeypatch):
    """The next look does not read them again, and records them."""
    (tmp_path / "f").write_text("read while the caller was cancelled")
    looks, continues = threading.Event(), threading.Event()
    real = Snapshots.take

    def take(*args, **options):
        looks.set()
        assert continues.wait(60)
        return real(*args, **options)

    monkeypatch.setattr(Snapshots, "take", take)
    with Snapshots(Root(tmp_path)) as snapshots:
        opened = OpenWorkspace(None, snapshots, is_copy=True)

        async def cancelled():
            look = asyncio.create_task(snapshot_of(opened))
            await asyncio.to_thread(looks.wait, 60)
            look.cancel()
            await asyncio.wait([look])
            continues.set()
            assert look.cancelled()

        asyncio.run(cancelled())  # which waits for the threads at its end
        assert not snapshots.take().contents
    assert list(opened.unrecorded.values()) == [b"read while the caller was cancelled"]
