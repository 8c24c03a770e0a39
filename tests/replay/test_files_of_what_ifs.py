"""A call that is answered from another log has changed files there: what works in the workspace after it finds them."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.definitions.functions import workflow
from divebook.definitions.resources import WorkspaceDefinition
from divebook.replay.files import KeptFiles
from divebook.stores import SqliteStore


def shell(name, command, **options):
    return Step(name, action="Workspace.Shell", parameters={"Command": command}, store=name, **options)


@pytest.fixture
def environment(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("begun\n")
    with Environment(
        store=SqliteStore(tmp_path / "runs.db"),
        workspaces=[WorkspaceDefinition("app", folder=str(folder))],
        approvals=[ApprovalRule("*")],
    ) as made:
        made.project = folder
        yield made


def run(environment, *steps, **options):
    environment.add_workflow(Workflow("work", list(steps), workspace="app", inputs=["text"], **options), replace=True)
    return environment.start("work", {"text": "one"}).wait()


def what_if(environment, source):
    found = environment.run_of(source.id).what_if({"inputs": {"text": "two"}}, tools="live")
    assert found.run.status == "completed", found.run.error
    return found


def digests(environment, execution_id):
    """Return the digest of all files as the log tells it, and as its events come to."""
    kept = KeptFiles(environment.store, list(environment.store.read(execution_id)))
    told = [event.data.after for event in environment.store.read(execution_id) if event.event_type == "files_changed"]
    return told[-1], kept.at().digest


STEPS = (
    shell("first", "echo first >> a.txt"),
    shell("second", "cat a.txt; echo ${inputs.text} > b.txt"),
    shell("third", "cat a.txt b.txt; rm a.txt"),
)


def test_served_calls_have_changed_files_and_live_ones_find_them_so(environment):
    source = run(environment, *STEPS)
    (environment.project / "a.txt").write_text("changed since\n")
    found = what_if(environment, source)
    assert found.run.variables["second"]["stdout"] == "begun\nfirst\n"
    assert found.run.variables["third"]["stdout"] == "begun\nfirst\ntwo\n"
    assert len(set(digests(environment, found.run.id))) == 1
    kept = KeptFiles(environment.store, list(environment.store.read(found.run.id)))
    assert [(diff.path, diff.kind) for diff in kept.diff()] == [("a.txt", "deleted"), ("b.txt", "added")]
    assert kept.read("b.txt") == b"two\n"
    assert kept.folder != KeptFiles(environment.store, list(environment.store.read(source.id))).folder


def test_a_what_if_that_is_served_whole_has_the_files_of_its_source_and_makes_none(environment, tmp_path):
    source = run(environment, *STEPS)
    found = environment.run_of(source.id).what_if()
    assert digests(environment, found.run.id) == digests(environment, source.id)
    assert not (tmp_path / "workspaces" / found.run.id).exists()


def test_a_call_that_finds_other_files_is_another_call(environment):
    """The first call is live and leaves other files: what the second came to before says nothing about these."""
    source = run(environment, shell("first", "echo ${inputs.text} > b.txt"), shell("second", "cat b.txt"))
    found = what_if(environment, source)
    assert found.run.variables["second"]["stdout"] == "two\n"
    blocked = environment.run_of(source.id).what_if({"results": {}, "inputs": {"text": "two"}})
    assert "not executed in a what-if" in blocked.run.error


def test_calls_side_by_side_are_served_in_whatever_order_they_ended(environment):
    @workflow(workspace="app")
    async def both(ctx, text: str):
        app = ctx.workspace()
        waits = "while [ ! -e go ]; do sleep 0.01; done; echo late > late.txt"
        await ctx.gather(app.shell(waits), app.shell("echo x > early.txt; touch go"))
        return (await app.shell(f"cat a.txt late.txt early.txt; echo {text}")).stdout

    environment.add_workflow(both)
    source = environment.start("both", {"text": "one"}).wait()
    found = what_if(environment, source)
    assert found.run.outputs["result"] == "begun\nlate\nx\ntwo\n"
    assert len(set(digests(environment, found.run.id))) == 1
    ended = [e.data for e in found.run.history() if e.event_type == "operation_completed"]
    assert [one.served is not None for one in ended] == [True, True, False]


def test_what_goes_on_with_another_definition_finds_the_files_that_were_made_before(environment):
    steps = [shell("first", "echo first >> a.txt"), shell("fails", "cat a.txt nothing")]
    source = run(environment, *steps)
    assert source.status == "failed"
    mended = [shell("new", "true"), steps[0], shell("fails", "cat a.txt")]
    environment.add_workflow(Workflow("work", mended, workspace="app", inputs=["text"]), replace=True)
    gone_on = environment.run_of(source.id).resume(definition="new").wait()
    assert gone_on.status == "completed", gone_on.error
    assert gone_on.variables["fails"]["stdout"] == "begun\nfirst\n"


def test_a_failed_call_that_is_served_has_changed_files_too(environment):
    catching = shell("first", "echo half > b.txt; exit 3", catch=["second"])
    source = run(environment, catching, shell("second", "cat b.txt; echo ${inputs.text}"))
    assert source.status == "completed", source.error
    found = what_if(environment, source)
    assert found.run.variables["second"]["stdout"] == "half\ntwo\n"
