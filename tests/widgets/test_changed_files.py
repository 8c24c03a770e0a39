"""Views of the files that a run has changed: as they are now, within bounds, each event read once."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.resources import WorkspaceDefinition
from divebook.stores import MemoryStore
from divebook.text.redaction import shared
from divebook.widgets.feed import Feed
from divebook.widgets.recording import pack, read_saved, saved_run
from divebook.widgets.source import source_of
from divebook.widgets.variables_and_files import MOST_FILES, FilesReader, within


@pytest.fixture
def made():
    environments = []
    yield environments
    for environment in environments:
        environment.close()


@pytest.fixture
def ran(tmp_path, made):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("old\n")

    def run(*commands):
        definition = WorkspaceDefinition("app", folder=str(tmp_path / "project"))
        made.append(Environment(store=MemoryStore(), workspaces=[definition]))
        steps = [
            Step(f"s{at}", action="Workspace.Shell", parameters={"Command": command})
            for at, command in enumerate(commands)
        ]
        made[-1].add_workflow(Workflow("w", steps, workspace="app"))
        execution = made[-1].start("w").wait(20)
        assert execution.status == "completed", execution.error
        return execution

    return run


def views(execution):
    return FilesReader(execution, shared()).of()


def test_each_file_is_told_with_its_difference(ran, tmp_path):
    (view,) = views(ran("echo new > a.txt", "mkdir d; echo x > d/b; printf '\\0' > c"))
    assert (view["name"], view["kind"], view["folder"]) == ("app", "local", str(tmp_path / "project"))
    assert (view["total"], view["added"], view["removed"]) == (3, 2, 1)
    assert [(file["path"], file["kind"], file["added"]) for file in view["files"]] == [
        ("a.txt", "changed", 1),
        ("c", "added", None),
        ("d/b", "added", 1),
    ]
    assert view["files"][0]["diff"].endswith("-old\n+new\n")


def test_hidden_files_are_protected_which_the_page_does_not_tick(ran, tmp_path):
    for name in ("HEAD", "refs", "objects"):  # a bare repository, part of which is there already
        (tmp_path / "project" / "bare" / name).mkdir(parents=True)
    (view,) = views(ran("echo new > a.txt", "mkdir .git; echo x > .git/config; echo x > bare/config"))
    assert {file["path"]: file["protected"] for file in view["files"]} == {
        "a.txt": False,
        ".git/config": True,
        "bare/config": True,
    }


def test_nothing_is_told_where_nothing_has_changed(ran):
    assert views(ran("true")) == []


def test_an_event_is_read_once(ran, monkeypatch):
    execution = ran("echo 1 > b", "echo 2 > b", "echo 3 > b")
    reader = FilesReader(execution, shared())
    first = reader.of()
    monkeypatch.setattr(execution.store, "read", lambda *_: pytest.fail("it was read again"))
    assert reader.of() == first
    assert first[0]["files"][0]["diff"].endswith("+3\n")


def test_many_files_and_long_differences_are_bounded(ran):
    (view,) = views(ran(f"seq 1 12000 > long; for n in $(seq 1 {MOST_FILES + 7}); do echo $n > many$n; done"))
    assert (view["total"], len(view["files"])) == (MOST_FILES + 8, MOST_FILES)
    told = {file["path"]: file["diff"] for file in view["files"]}
    assert told["long"] is None
    assert told["many1"].endswith("+1\n")
    (shorter,) = within([view], 1_000)
    assert sum(len(file["diff"] or "") for file in shorter["files"]) <= 1_000
    assert len(shorter["files"]) == MOST_FILES


def test_secrets_are_left_out(ran):
    (view,) = views(ran("echo api_key=sk-ant-REDACTED > b"))
    assert "abcdefghij" not in str(view)


def test_a_view_is_told_what_has_changed_since_it_last_asked(ran):
    feed = Feed(source_of(ran("echo new > a.txt")))
    told = feed.files("v", 0)
    assert [file["path"] for file in told["workspaces"][0]["files"]] == ["a.txt"]
    assert feed.files("v", told["version"]) == {**told, "workspaces": None}


def test_a_saved_run_has_them_and_an_older_one_none(ran):
    execution = ran("echo new > a.txt")
    _, recording = read_saved(saved_run(execution))
    assert recording["workspaces"] == [{**view, "points": []} for view in views(execution)]
    assert recording["header"]["workspaces"] == 1


def test_a_saved_run_that_does_not_say_what_is_not_kept_is_read(ran):
    packed = saved_run(ran("echo new > a.txt"))
    _, recording = read_saved(packed)
    del recording["workspaces"][0]["left_out"], recording["workspaces"][0]["points"]
    _, found = read_saved({**packed, "recording": pack(recording)})
    assert found["workspaces"][0]["left_out"] == []


def test_a_fork_counts_from_where_its_source_began(ran, made):
    execution = ran("echo new > a.txt", "echo x > b")
    changed = [event.sequence for event in execution.history() if event.event_type == "files_changed"]
    fork = made[-1].run_of(execution.id).fork(at=changed[0]).wait(20)
    assert [file["path"] for file in views(fork)[0]["files"]] == ["a.txt", "b"]


def test_what_is_not_kept_is_named_with_the_reason(ran):
    (view,) = views(ran("echo new > a.txt; mkfifo pipe"))
    assert view["left_out"] == [{"path": "pipe", "reason": "not a file, folder or link"}]


def test_files_are_told_as_they_were_at_an_event(ran):
    execution = ran("echo new > a.txt", "echo x > b; echo y > c", "rm b")
    reader = FilesReader(execution, shared())
    (now,) = reader.of()
    (third, second, first, begin) = now["points"]
    assert [point["told"] for point in now["points"]] == ["b", "b and 1 more", "a.txt", "begin"]
    paths = {}
    for point in (*now["points"], {"sequence": 10_000}, {"sequence": 1}):
        (view,) = reader.of(point["sequence"])
        paths[point["sequence"]] = [file["path"] for file in view["files"]]
        assert view["points"] == now["points"]
    assert paths == {
        third["sequence"]: ["a.txt", "c"],
        second["sequence"]: ["a.txt", "b", "c"],
        first["sequence"]: ["a.txt"],
        begin["sequence"]: [],
        10_000: ["a.txt", "c"],
        1: [],
    }


def test_files_of_an_event_are_compared_with_those_of_another_one(ran):
    execution = ran("echo new > a.txt", "echo x > b; echo y > c", "rm b")
    reader = FilesReader(execution, shared())
    (now,) = reader.of()
    third, second, first, begin = (point["sequence"] for point in now["points"])

    def changed(at, since):
        (view,) = reader.of(at, since)
        return [(file["path"], file["kind"]) for file in view["files"]]

    assert changed(0, begin) == changed(third, 0) == [("a.txt", "changed"), ("c", "added")]
    assert changed(0, first) == [("c", "added")]
    assert changed(0, second) == [("b", "deleted")]
    assert changed(second, first) == [("b", "added"), ("c", "added")]
    assert changed(first, second) == [("b", "deleted"), ("c", "deleted")]
    assert changed(second, second) == []


def test_what_is_compared_with_an_event_is_told_each_time(ran):
    feed = Feed(source_of(ran("echo new > a.txt")))
    told = feed.files("v", 0)
    (at,) = {point["sequence"] for point in told["workspaces"][0]["points"] if point["told"] == "a.txt"}
    compared = feed.files("v", told["version"], 0, at)
    assert (compared["at"], compared["since"], compared["workspaces"][0]["files"]) == (0, at, [])
