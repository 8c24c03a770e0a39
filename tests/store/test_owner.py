import os
import subprocess
import sys
from dataclasses import replace

import pytest

from divebook.processes import this_boot
from divebook.stores import MemoryStore, Owner
from tests.store.logs import ONE, log

PRINT = (
    "from divebook.stores import Owner; o = Owner.current('worker'); print(o.host, o.pid, o.started, o.boot, sep='|')"
)

needs_proc = pytest.mark.skipif(not this_boot(), reason="the machine does not tell when it was started")


def owner_that_printed(output):
    host, pid, started, boot = output.strip().split("|")
    return Owner(host, int(pid), int(started), "worker", boot)


def ended_owner():
    done = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, timeout=60)
    return owner_that_printed(done.stdout)


def test_this_process_is_alive():
    here = Owner.current()
    assert here.pid == os.getpid()
    assert here.name
    assert not here.has_died()


def test_an_owner_may_have_a_name():
    assert Owner.current("kernel").name == "kernel"


def test_a_process_that_ended_has_died():
    assert ended_owner().has_died()


@needs_proc
def test_a_later_process_of_the_same_number_is_somebody_else():
    here = Owner.current()
    assert replace(here, started=here.started - 1).has_died()


@needs_proc
def test_a_process_that_nobody_asked_about_yet_has_died():
    with subprocess.Popen([sys.executable, "-c", PRINT], stdout=subprocess.PIPE, text=True) as process:
        owner = owner_that_printed(process.stdout.readline())
        process.stdout.read()  # ends with the process
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.has_died()


@needs_proc
def test_whoever_ran_before_the_machine_was_started_has_died():
    here = Owner.current()
    assert replace(here, boot=f"another {here.boot.split()[1]}").has_died()


def test_what_cannot_be_seen_from_here_may_be_alive():
    here = Owner.current()
    assert not replace(here, host="elsewhere", pid=2**22 + 1).has_died()
    assert not replace(here, boot="", pid=2**22 + 1).has_died() or not here.boot
    if here.boot:
        assert not replace(here, boot=f"{here.boot.split()[0]} another-container", pid=2**22 + 1).has_died()


def test_a_forked_process_is_an_owner_of_its_own():
    here = Owner.current()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"same" if Owner.current() == here else b"other")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 9) == b"other"
    os.close(read)
    os.close(write)


def test_the_lease_of_a_dead_process_is_taken_over_at_once():
    with MemoryStore() as store:
        store.append(ONE, log(1), 0)
        store.acquire(ONE, ended_owner())
        assert store.live_leases() == []
        assert [record.execution_id for record in store.orphans()] == [ONE]
        assert store.acquire(ONE, Owner.current()).token == 2
