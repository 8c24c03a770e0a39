import json
import re
import sqlite3
from contextlib import closing

import pytest

from divebook.stores import open_store
from tests.cli.conftest import write


@pytest.fixture
def execution_id(divebook, hello):
    divebook("run", hello, "-v", "who=\x9bJosé\u202e")
    return open_store().records()[0].execution_id


def test_an_exported_log_comes_back_whole_in_another_store(divebook, execution_id):
    exported = divebook("export", execution_id, "log.jsonl")
    imported = divebook("import", "log.jsonl", "--store", "other.db")
    assert (exported.exit_code, imported.exit_code) == (0, 0)
    assert imported.stdout == f"{execution_id}\n"
    assert open_store("other.db").read(execution_id) == open_store().read(execution_id)
    assert f"of {execution_id} to log.jsonl" in exported.stderr


def test_what_goes_to_stdout_is_the_same_log_without_control_characters(divebook, folder, execution_id):
    result = divebook("export", execution_id)
    write(folder / "log.jsonl", result.stdout)
    divebook("import", "log.jsonl", "--store", "other.db")
    assert not {"\x9b", "\u202e"} & set(result.stdout)
    assert "José" in result.stdout
    assert open_store("other.db").read(execution_id) == open_store().read(execution_id)


def test_a_log_is_not_imported_twice_unless_renamed(divebook, execution_id):
    divebook("export", execution_id, "log.jsonl")
    refused = divebook("import", "log.jsonl")
    renamed = divebook("import", "log.jsonl", "--rename")
    assert refused.exit_code == 2
    assert f"already holds execution {execution_id}" in refused.stderr
    assert renamed.exit_code == 0
    assert renamed.stdout.strip() in {record.execution_id for record in open_store().records()} - {execution_id}


def test_a_damaged_log_is_refused_whole_with_its_line(divebook, folder, execution_id):
    lines = divebook("export", execution_id).stdout.splitlines()
    write(folder / "log.jsonl", "\n".join([*lines[:3], "{oops", *lines[4:]]))
    result = divebook("import", "log.jsonl", "--store", "other.db")
    assert result.exit_code == 2
    assert "log.jsonl, line 4: " in result.stderr
    assert open_store("other.db").records() == []


def test_a_log_of_a_newer_version_is_refused(divebook, folder, execution_id):
    lines = divebook("export", execution_id).stdout.splitlines()
    header = json.loads(lines[0]) | {"form": 99}
    write(folder / "log.jsonl", "\n".join([json.dumps(header), *lines[1:]]))
    result = divebook("import", "log.jsonl", "--store", "other.db")
    assert result.exit_code == 2
    assert "upgrade divebook" in result.stderr


def test_files_that_are_not_there_are_refused(divebook, execution_id):
    assert "nowhere.jsonl cannot be read: No such file" in divebook("import", "nowhere.jsonl").stderr
    assert "cannot be written: No such file" in divebook("export", execution_id, "no/such/folder/log.jsonl").stderr


def test_a_damaged_file_makes_no_store(divebook, folder, execution_id):
    write(folder / "log.jsonl", "{oops")
    assert divebook("import", "log.jsonl", "--store", "other.db").exit_code == 2
    assert not (folder / "other.db").exists()


def test_an_export_overwrites_a_file_only_by_force(divebook, folder, execution_id):
    write(folder / "log.jsonl", "mine")
    refused = divebook("export", execution_id, "log.jsonl")
    assert (refused.exit_code, (folder / "log.jsonl").read_text()) == (2, "mine")
    assert "log.jsonl exists already" in refused.stderr
    assert "--force" in refused.stderr
    assert divebook("export", execution_id, "log.jsonl", "--force").exit_code == 0
    assert divebook("import", "log.jsonl", "--store", "other.db").exit_code == 0


@pytest.fixture
def damaged(divebook, folder, execution_id):
    """Damage event 5 of the execution; return its id."""
    open_store().close()
    with closing(sqlite3.connect(folder / ".divebook" / "executions.db")) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place & 4294967295 = 5")
    return execution_id


def test_of_a_damaged_log_the_sound_beginning_is_shown(divebook, damaged):
    shown = divebook("show", damaged, "--events")
    assert shown.exit_code == 1
    assert "hello: ▸ running" in shown.stdout
    assert "execution_started" in shown.stdout
    assert "only its first 4 events can be read" in shown.stdout
    assert re.search(r"events? 5( to \d+)? of execution", shown.stdout)
    told = json.loads(divebook("show", damaged, "--json", "--events").stdout)
    assert (len(told["events"]), "is damaged" in told["damage"]) == (4, True)


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_log_that_is_damaged_from_the_start_is_named_with_the_exit_code_of_damage(divebook, damaged, folder, command):
    with closing(sqlite3.connect(folder / ".divebook" / "executions.db")) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place & 4294967295 = 1")
    told = divebook(command, damaged)
    assert told.exit_code == 1
    assert f"event 1 of execution {damaged} is damaged" in told.stderr


def test_of_a_damaged_log_the_sound_beginning_is_exported(divebook, damaged, folder):
    exported = divebook("export", damaged, "log.jsonl")
    assert exported.exit_code == 1
    assert "damaged log: only the first 4 of" in exported.stderr
    assert len((folder / "log.jsonl").read_text().splitlines()) == 6  # a header, four events, an end
    assert divebook("import", "log.jsonl", "--store", "other.db").exit_code == 0
    assert len(divebook("export", damaged).stdout.splitlines()) == 6


def test_a_damaged_execution_is_not_taken_up(divebook, damaged):
    refused = divebook("resume", damaged)
    assert refused.exit_code == 2
    assert "is damaged" in refused.stderr


def test_a_log_cut_at_a_line_end_is_refused_and_says_where(divebook, folder, execution_id):
    lines = divebook("export", execution_id).stdout.splitlines()
    write(folder / "log.jsonl", "\n".join(lines[:4]) + "\n")
    refused = divebook("import", "log.jsonl", "--store", "other.db")
    assert refused.exit_code == 2
    assert "log.jsonl, line 4: the file ends here; expected event 4 or the end line" in refused.stderr
    assert not (folder / "other.db").exists()


def test_the_sound_beginning_of_a_damaged_file_is_shown(divebook, folder, execution_id):
    divebook("export", execution_id, "log.jsonl")
    whole = divebook("show", "log.jsonl", "--events")
    assert whole.exit_code == 0
    assert "hello: ✓ completed" in whole.stdout
    lines = (folder / "log.jsonl").read_text().splitlines()
    write(folder / "log.jsonl", "\n".join(lines[:4]))
    shown = divebook("show", "log.jsonl", "--events")
    assert shown.exit_code == 1
    assert "hello: ▸ running" in shown.stdout
    assert "only its first 3 events can be read" in shown.stdout
    assert "line 4: the file ends here" in shown.stdout
    told = json.loads(divebook("show", "log.jsonl", "--json", "--events").stdout)
    assert (len(told["events"]), "file ends here" in told["damage"]) == (3, True)


def test_a_file_of_which_nothing_is_sound_is_refused(divebook, folder):
    write(folder / "log.jsonl", "{oops")
    refused = divebook("show", "log.jsonl")
    assert (refused.exit_code, "line 1: not a line of JSON" in refused.stderr) == (2, True)


@pytest.fixture
def waiting(divebook, folder):
    write(folder / "ask.yaml", "Workflows: [{Name: asks, Steps: [{Name: ask, Ask: 'Go?', Store: answer}]}]")
    divebook("run", "ask.yaml", "-q")
    return open_store().records()[0].execution_id


def test_an_unfinished_execution_says_so_and_is_imported_as_a_snapshot(divebook, waiting):
    exported = divebook("export", waiting, "log.jsonl")
    assert "the run has not ended (waiting)" in exported.stderr
    imported = divebook("import", "log.jsonl", "--store", "other.db")
    assert (imported.exit_code, imported.stdout) == (0, f"{waiting}\n")
    assert "the execution had not ended (waiting)" in imported.stderr
    refused = divebook("resume", waiting, "--store", "other.db")
    assert (refused.exit_code, "--as-fork" in refused.stderr) == (2, True)
    assert "snapshot" in divebook("runs", "--store", "other.db").stdout


def test_a_fork_of_a_file_goes_on_under_an_id_of_its_own(divebook, waiting):
    divebook("export", waiting, "log.jsonl")
    fork = divebook("import", "log.jsonl", "--store", "other.db", "--as-fork")
    assert "snapshot" not in fork.stderr
    record = open_store("other.db").record(fork.stdout.strip())
    assert (record.status, record.origin, record.parent) == ("waiting", "fork", waiting)


def test_what_moves_ends_here_and_goes_on_where_it_is_imported(divebook, waiting):
    assert divebook("export", waiting, "--move").exit_code == 2
    moved = divebook("export", waiting, "log.jsonl", "--move")
    assert (moved.exit_code, f"moved {waiting} to log.jsonl" in moved.stderr) == (0, True)
    assert open_store().record(waiting).status == "moved"
    assert divebook("import", "log.jsonl", "--store", "other.db").stdout == f"{waiting}\n"
    assert open_store("other.db").record(waiting).status == "waiting"


@pytest.mark.parametrize("name", ["run.html", "run.ipynb", "run.jsonl"])
def test_a_run_is_exported_by_the_end_of_the_files_name_and_opened_again(divebook, folder, execution_id, name):
    exported = divebook("export", execution_id, name)
    assert exported.exit_code == 0
    assert f"of {execution_id} to {name}" in exported.stderr
    begins = {"run.html": "<!doctype html>", "run.ipynb": "{\n", "run.jsonl": '{"divebook":"log"'}[name]
    assert (folder / name).read_text().startswith(begins)
    opened, shown = divebook("open", name), divebook("show", execution_id)
    assert (opened.exit_code, opened.stdout) == (0, shown.stdout)
    imported = divebook("import", name, "--store", "other.db")
    assert imported.stdout == f"{execution_id}\n"
    assert open_store("other.db").read(execution_id) == open_store().read(execution_id)
    refused = divebook("export", execution_id, name)
    assert (refused.exit_code, "exists already" in refused.stderr) == (2, True)


def test_a_page_that_is_damaged_beside_its_log_is_opened_with_exit_code_1(divebook, folder, execution_id):
    divebook("export", execution_id, "run.html")
    content = (folder / "run.html").read_text()
    (folder / "run.html").write_text(content.replace("<main", "<Main"))
    opened = divebook("open", "run.html")
    assert (opened.exit_code, execution_id in opened.stdout) == (1, True)
    assert "the checksum of the page is" in opened.stdout
    assert divebook("import", "run.html", "--store", "other.db").exit_code == 2


@pytest.mark.parametrize("name", ["run.txt", "absent.html", "absent.ipynb"])
def test_what_is_no_such_file_is_refused(divebook, name):
    assert divebook("open", name).exit_code == 2


def test_a_page_is_not_moved_to(divebook, execution_id):
    refused = divebook("export", execution_id, "run.html", "--move")
    assert (refused.exit_code, "--move needs a file of JSON lines" in refused.stderr) == (2, True)
