"""No command lets texts of others act on a terminal, and none ends with a traceback where a stream is closed."""

import pytest

from divebook.text.format import UNSAFE
from tests.cli import hostile


@pytest.fixture
def names(folder):
    return hostile.built(folder)


def test_every_command_is_in_the_table(folder):
    names = dict.fromkeys(("store", "file", "done", "failed", "asks", "question", "folder"), "x")
    assert set(hostile.commands(names)) == hostile.names_of_commands()


def test_no_command_prints_control_characters_of_others(names, divebook):
    wrong, shown = [], 0
    for several in hostile.commands(names).values():
        for arguments in several:
            done = divebook(*arguments)
            found = UNSAFE.findall((done.stdout + done.stderr).replace("\r\n", "\n"))
            shown += "title" in done.stdout + done.stderr
            wrong += [(arguments, found, (done.stdout + done.stderr)[:300])] if found else []
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                wrong.append((arguments, done.exception))
    assert wrong == []
    assert shown > 30  # most commands repeat such a text


@pytest.mark.parametrize("redirection", hostile.REDIRECTIONS)
def test_a_closed_stream_is_no_reason_for_a_traceback(folder, redirection):
    done = hostile.as_process(["keys", "Step"], redirection, folder)
    assert hostile.faults(done) == [], done


def test_what_is_printed_reaches_no_file_that_is_opened_later(names, folder):
    done = hostile.as_process(["runs", "--store", names["store"]], ">&- 2>&- <&-", folder)
    assert (done.returncode, hostile.faults(done)) == (0, [])
    assert b"completed  " not in (folder / "s.db").read_bytes()
    assert hostile.as_process(["check", "--store", names["store"]], "", folder).returncode == 0
