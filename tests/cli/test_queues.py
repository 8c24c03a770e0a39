"""``divebook enqueue``, ``queue`` and ``worker``."""

import json
import signal

import pytest

from divebook.store import open_store
from tests.execution.worlds import becomes


def test_what_is_enqueued_is_listed_and_driven_by_a_worker(divebook, hello):
    first = divebook("enqueue", hello, "-v", "who=Ada", "--queue", "greetings", "--priority", 3, "--key", "k")
    assert first.exit_code == 0, first.stderr
    name = first.stdout.strip()
    assert divebook("enqueue", hello, "-v", "who=Ada", "--queue", "greetings", "--key", "k").stdout.strip() == name
    listed = divebook("queue")
    assert "nobody there can run it" in listed.stdout
    assert "no worker is there; begin one: divebook worker FILE" in listed.stdout
    (told,) = json.loads(divebook("queue", "--json").stdout)["queued"]
    assert (told["execution_id"], told["queue"], told["priority"], told["status"]) == (name, "greetings", 3, "enqueued")
    assert divebook("runs", "--status", "enqueued", "--json").stdout.count(name) == 1
    worked = divebook("worker", hello, "--queue", "greetings", "--until-idle")
    assert worked.exit_code == 0, worked.stderr
    assert "has ended; it took up 1 execution" in worked.stderr
    assert json.loads(divebook("show", name, "--json").stdout)["status"] == "completed"
    assert "no queue has anything" in divebook("queue").stdout


def test_what_cannot_be_enqueued_is_told(divebook, hello):
    late = divebook("enqueue", hello, "-v", "who=Ada", "--at", "soon")
    assert (late.exit_code, "--at 'soon' is no time; write --at 2026-05-01T08:00" in late.stderr) == (2, True)
    assert divebook("enqueue", hello).exit_code == 2
    assert divebook("worker", hello, "--parallel", 0).exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_worker_which_gives_back_what_it_drives(process, divebook, slow, number):
    name = divebook("enqueue", slow).stdout.strip()
    worker = process("worker", slow, "--patience", 20)
    assert "SIGTERM or Ctrl-C drains it" in worker.stderr.readline()
    with open_store() as store:
        assert becomes(lambda: store.record(name).last_sequence > 5)
        (there,) = store.workers()
        assert (there.owner.pid, there.parallel) == (worker.pid, 8)
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
        assert (worker.returncode, "it took up 1 execution" in err) == (0, True)
        assert (store.workers(), store.leases()) == ([], [])
        assert [queued.execution_id for queued in store.queued()] == [name]
