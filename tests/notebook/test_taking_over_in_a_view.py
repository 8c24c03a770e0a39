"""Changed files that somebody takes over from the view of a run: those that were shown, all of them or none."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions import WorkspaceDefinition
from divebook.events.catalog import FilesChanged
from divebook.notebook.run_view import _handlers
from divebook.widgets.views import Handlers, Intents


class AtOnce:
    """An executor that does at once what it is given."""

    def submit(self, call, *given):
        call(*given)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("old\n")
    (tmp_path / "project" / "b.txt").write_text("other\n")
    definition = WorkspaceDefinition("app", folder=str(tmp_path / "project"))
    commands = ["echo new > a.txt; mkdir d; echo x > d/y", "echo later > a.txt; mv b.txt c.txt"]
    steps = [Step(f"s{at}", action="Workspace.Shell", parameters={"Command": text}) for at, text in enumerate(commands)]
    with Environment(store="memory:", workspaces=[definition]) as environment:
        run = environment.start(Workflow("w", steps, workspace="app"))
        assert run.wait().status == "completed"
        yield run


def wish(handlers, at, *paths):
    told = []
    asked = {"type": "take_over", "id": "i1", "workspace": "app", "at": at, "paths": list(paths)}
    Intents(handlers, told.append, AtOnce()).take(asked)
    (ack,) = told
    return ack["accepted"], ack["text"]


def points(run):
    return [event.sequence for event in run.history() if isinstance(event.data, FilesChanged)]


def test_files_are_taken_over_as_they_were_at_the_event_that_is_shown(run, tmp_path):
    folder, handlers = tmp_path / "project", _handlers(run, lambda: None)
    first, last = points(run)
    assert wish(handlers, first, "a.txt", "d/y") == (True, f"applied to {folder}: a.txt, d/y")
    assert (folder / "a.txt").read_text() == "new\n"
    assert wish(handlers, last, "a.txt", "c.txt") == (True, f"applied to {folder}: a.txt, c.txt")
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "c.txt", "d"]


def test_what_has_changed_in_the_folder_meanwhile_stays_and_nothing_is_written(run, tmp_path):
    (tmp_path / "project" / "a.txt").write_text("mine\n")
    accepted, text = wish(_handlers(run, lambda: None), points(run)[-1], "d/y", "a.txt")
    assert not accepted
    assert "a.txt" in text
    assert (tmp_path / "project" / "a.txt").read_text() == "mine\n"
    assert not (tmp_path / "project" / "d").exists()


def test_a_view_that_takes_no_files_says_what_does():
    accepted, text = wish(Handlers(lambda *_: None), 3, "a.txt")
    assert not accepted
    assert text == "this view cannot copy changed files to your folder; use divebook apply with a.txt"
