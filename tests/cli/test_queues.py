"""``divebook enqueue``, ``queue`` and ``worker``."""

import json
import signal

import pytest

from divebook import Environment, Step, Workflow
from divebook.queues import Worker
from divebook.stores import open_store
from tests.cli.conftest import write
from tests.runtime.worlds import becomes


def test_what_is_enqueued_is_listed_and_driven_by_a_worker(divebook, hello):
    first = divebook("enqueue", hello, "-v", "who=Ada", "--queue", "greetings", "--priority", 3, "--key", "k")
    assert first.exit_code == 0, first.stderr
    name = first.stdout.strip()
    assert divebook("enqueue", hello, "-v", "who=Ada", "--queue", "greetings", "--key", "k").stdout.strip() == name
    listed = divebook("queue")
    assert "no running worker can run it" in listed.stdout
    assert "no running worker; start a worker with divebook worker FILE" in listed.stdout
    (told,) = json.loads(divebook("queue", "--json").stdout)["queued"]
    assert (told["run_id"], told["queue"], told["priority"], told["status"]) == (name, "greetings", 3, "enqueued")
    assert divebook("runs", "--status", "enqueued", "--json").stdout.count(name) == 1
    worked = divebook("worker", hello, "--queue", "greetings", "--until-idle")
    assert worked.exit_code == 0, worked.stderr
    assert "has ended after 1 run" in worked.stderr
    assert json.loads(divebook("show", name, "--json").stdout)["status"] == "completed"
    assert "no runs in queues" in divebook("queue").stdout


def test_what_cannot_be_enqueued_is_told(divebook, hello):
    for odd in ("0001-01-01", "9999-12-31T23:59-12:00"):
        far = divebook("enqueue", hello, "-v", "who=Ada", "--at", odd)
        assert (far.exit_code, "at must be a time that clocks can show" in far.stderr) == (2, True)
    for patience in ("nan", "-5"):
        told = divebook("worker", hello, "--patience", patience, "--until-idle")
        assert (told.exit_code, "number of seconds from 0 to" in told.stderr) == (2, True)
    late = divebook("enqueue", hello, "-v", "who=Ada", "--at", "soon")
    assert (late.exit_code, "--at 'soon' is not a time; write --at 2026-05-01T08:00" in late.stderr) == (2, True)
    assert divebook("enqueue", hello).exit_code == 2
    assert divebook("worker", hello, "--parallel", 0).exit_code == 2


def test_it_is_said_why_nobody_can_run_an_execution_and_what_workers_leave_alone(divebook, hello, folder):
    name = divebook("enqueue", hello, "-v", "who=Ada", "--at", "2150-05-01T08:00", "--key", "k").stdout.strip()
    with Environment() as made:
        made.add_workflow(Workflow("other", [Step("add", script="1")]))
        with Worker(made, ["labels"], name="w1"):
            shown = divebook("queue").stdout
        assert f"{name}: worker w1 cannot run it: accepts only runs of the queue labels" in shown
        assert "2150-05-01 08:00" in shown
        made.run_of(name).pause("lunch")
    shown = divebook("queue").stdout
    assert "these runs are not started by workers" in shown
    assert ("lunch" in shown, f"{name}: worker" in shown) == (True, False)
    assert "to resume one: divebook resume RUN -d FILE" in shown
    (told,) = json.loads(divebook("queue", "--json").stdout)["left_alone"]
    assert (told["run_id"], told["key"], told["attempts"], told["why"]) == (name, "k", 0, "lunch")


def test_schedules_that_cannot_be_are_told_with_their_place(divebook, folder):
    lines = [
        "from divebook import Step, Workflow",
        "from divebook.definitions import ScheduleDefinition",
        "tidy = Workflow('tidy', [Step('a', script='1')])",
        "often = ScheduleDefinition('often', cron='* * * *', workflow='tidy')",
    ]
    told = divebook("worker", write(folder / "jobs.py", "\n".join(lines)), "--schedules")
    assert (told.exit_code, "schedule 'often': Cron '* * * *' is not a valid cron expression" in told.stderr) == (
        2,
        True,
    ), told.stderr
    text = """
    Workflows: [{Name: tidy, Steps: [{Name: a, Script: '1'}]}]
    Schedules: [{Name: often, Cron: '* * * *', Workflow: tidy}]
    """
    told = divebook("worker", write(folder / "often.yaml", text), "--schedules")
    assert (told.exit_code, "often.yaml:3:" in told.stderr) == (2, True), told.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_worker_which_gives_back_what_it_drives(process, divebook, slow, number):
    name = divebook("enqueue", slow).stdout.strip()
    worker = process("worker", slow, "--patience", 20)
    assert "press Ctrl-C or send SIGTERM to stop it" in worker.stderr.readline()
    with open_store() as store:
        assert becomes(lambda: store.record(name).last_sequence > 5)
        (there,) = store.workers()
        assert (there.owner.pid, there.parallel) == (worker.pid, 8)
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
        assert (worker.returncode, "has ended after 1 run" in err) == (0, True)
        assert (store.workers(), store.leases()) == ([], [])
        assert [queued.execution_id for queued in store.queued()] == [name]
