"""One cell that two kernels run at once is run once."""

import contextlib
import threading

import pytest
from jupyter_client.manager import start_new_kernel

from divebook.notebook.rerun import CellPlace
from divebook.notebook.session import Session
from divebook.steps.actions import Action
from tests.runtime.worlds import Calls

CELL = CellPlace({"notebook": "n.ipynb", "cell": "c1", "source": "%dive run w"}, 1)
YAML = "Workflows: [{Name: w, Steps: [{Name: a, Action: note, Parameters: {value: 1}, Store: n}]}]"


def kernels(store, calls, count=2):
    sessions = [Session(str(store)) for _ in range(count)]
    for session in sessions:
        session.define(YAML)
        session.environment._registry.custom_actions["note"] = calls.action()
    return sessions


def begin_together(sessions, **options):
    runs, together = [], threading.Barrier(len(sessions))

    def begin(session):
        together.wait(20)
        runs.append(session.start_at(CELL, session.workflow("w"), {}, **options))

    threads = [threading.Thread(target=begin, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return runs


def test_two_kernels_that_run_one_cell_at_once_get_one_run(tmp_path):
    calls = Calls()
    runs = begin_together(kernels(tmp_path / "s.db", calls))
    for run in runs:
        if run.internals.was_driven:
            run.wait(20)
    assert len({run.id for run in runs}) == 1
    assert calls == [1]


def test_the_same_cell_may_begin_another_run_when_it_is_told_to(tmp_path):
    calls = Calls()
    (session,) = kernels(tmp_path / "s.db", calls, 1)
    ids = [
        session.start_at(CELL, session.workflow("w"), {}, always_new=always_new).wait(20).id
        for always_new in (False, False, True)
    ]
    assert ids[0] == ids[1] != ids[2]
    assert calls == [1, 1]


def test_a_run_that_another_kernel_drives_is_shown_and_not_run_twice(tmp_path):
    reached, opened = threading.Event(), threading.Event()

    def note(value):
        reached.set()
        assert opened.wait(20)
        return value

    first, second = kernels(tmp_path / "s.db", Calls())
    first.environment._registry.custom_actions["note"] = Action("note", note)
    run = first.start_at(CELL, first.workflow("w"), {})
    assert reached.wait(20)
    other = second.start_at(CELL, second.workflow("w"), {})
    opened.set()
    assert (other.id, run.wait(20).status) == (run.id, "completed")
    assert "is running in another process, so it was not started again" in other.internals.options.remark


CHARGE = """
from divebook import action
@action
def charge(n):
    open('charges', 'a').write(f'{n}\\n')
    return n
"""
AT_ONCE = """
import os, time
while not os.path.exists('go'):
    time.sleep(.002)
"""


@pytest.fixture
def real_kernels(tmp_path):
    """Return the clients of two kernels in one folder, in which the same cells were run."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(2):
            manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
            stack.callback(manager.cleanup_resources)
            stack.callback(manager.shutdown_kernel, now=True)
            stack.callback(client.stop_channels)
            clients.append(client)
        for client in clients:
            for cell in (
                "%load_ext divebook",
                CHARGE,
                f"%%dive\n{YAML.replace('note', 'charge').replace('value', 'n')}",
            ):
                assert client.execute_interactive(cell, timeout=40, allow_stdin=False)["content"]["status"] == "ok"
        yield clients


def test_two_real_kernels_that_run_one_cell_at_once_make_its_call_once(real_kernels, tmp_path):
    for client in real_kernels:
        client.execute(AT_ONCE, allow_stdin=False)
    runs = [client.execute("run = %dive run w", allow_stdin=False) for client in real_kernels]
    (tmp_path / "go").touch()
    for client, message_id in zip(real_kernels, runs, strict=True):
        while (reply := client.get_shell_msg(timeout=40))["parent_header"]["msg_id"] != message_id:
            pass
        assert reply["content"]["status"] == "ok", reply["content"]
    assert (tmp_path / "charges").read_text() == "1\n"
