import json

import pytest

from divebook.store import open_store
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
    event = json.loads(lines[1]) | {"event_type": "quantum_leap"}
    write(folder / "log.jsonl", "\n".join([lines[0], json.dumps(event)]))
    result = divebook("import", "log.jsonl", "--store", "other.db")
    assert result.exit_code == 2
    assert "upgrade divebook" in result.stderr


def test_files_that_are_not_there_are_refused(divebook, execution_id):
    assert "nowhere.jsonl cannot be read: No such file" in divebook("import", "nowhere.jsonl").stderr
    assert "cannot be written: No such file" in divebook("export", execution_id, "no/such/folder/log.jsonl").stderr
