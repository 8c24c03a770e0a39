"""The command line as a process of its own: interrupts, other processes, odd terminals."""

import os
import re
import signal

import pytest

from divebook.stores import open_store
from divebook.stores.sqlite import connections
from tests.cli.conftest import write


def read_until(stream, text):
    """Return the lines up to the one with `text` in it."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return lines
    pytest.fail(f"{text!r} never came:\n{''.join(lines)}")


def test_python_m_divebook_is_the_command(process):
    out, _ = process("version").communicate(timeout=60)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", out)


def test_an_interrupt_cancels_durably_and_says_how_to_go_on(process, divebook, slow, folder):
    run = process("run", slow)
    read_until(run.stderr, "running  main  rest")
    os.killpg(run.pid, signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    (record,) = open_store().records()
    assert run.returncode == 130
    assert out.startswith(f"slow: ◼ cancelled\n  {record.execution_id}\n")
    assert f"to continue: divebook resume {record.execution_id} -d {slow}" in out
    assert record.status == "cancelled"


def test_what_an_interrupt_cancelled_can_be_resumed(process, divebook, folder):
    path = write(
        folder / "a.yaml",
        "Workflows: [{Name: a, Steps: [{Name: one, Script: 20 + 1, Store: n}, {Name: two, Action: Hold, Store: m}]}]",
    )
    code = (
        "import asyncio, os\nfrom divebook import action\n@action('Hold', idempotent=True)\nasync def hold():\n"
        "    await asyncio.sleep(0 if os.path.exists('go') else 600)\n    return 'held'\n"
    )
    write(folder / "hold.py", code)
    run = process("run", path, "--actions", "hold.py")
    read_until(run.stderr, "running  main  two")
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    write(folder / "go", "")
    again = out.splitlines()[-1].removeprefix("to continue: divebook ").split()
    resumed = divebook(*again)
    assert resumed.exit_code == 0, resumed.stderr
    assert "m = held" in resumed.stdout
    assert "n = 21" in resumed.stdout
    assert "one" not in resumed.stderr


def test_a_call_with_unknown_outcome_leaves_a_question_and_exit_code_3(process, divebook, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: pay, Action: Pay}]}]")
    code = (
        "import asyncio\nfrom divebook import action\n@action('Pay')\nasync def pay():\n    await asyncio.sleep(600)\n"
    )
    write(folder / "pay.py", code)
    run = process("run", path, "--actions", "pay.py")
    read_until(run.stderr, "running  main  pay")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    resumed = divebook("resume", open_store().records()[0].execution_id, "--actions", "pay.py")
    assert resumed.exit_code == 3
    assert resumed.stdout.startswith("a: … waiting\n")
    assert "asks: " in resumed.stdout


def test_a_second_interrupt_leaves_at_once(process, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: stuck, Action: Stuck}]}]")
    code = "import time\nfrom divebook import action\n@action('Stuck')\ndef stuck():\n    time.sleep(600)\n"
    write(folder / "stuck.py", code)
    run = process("run", path, "--actions", "stuck.py")
    read_until(run.stderr, "running  main  stuck")
    run.send_signal(signal.SIGINT)
    read_until(run.stderr, "Ctrl-C again")
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "can be resumed" in err
    assert open_store().records()[0].status == "running"


def test_an_execution_of_another_process_can_be_cancelled(process, divebook, folder):
    path = write(
        folder / "a.yaml",
        "Workflows: [{Name: a, Steps: [{Name: hold, Action: Hold}, {Name: after, Script: '1'}]}]",
    )
    code = (
        "import asyncio, os\nfrom divebook import action\n@action('Hold')\nasync def hold():\n"
        "    while not os.path.exists('go'):\n        await asyncio.sleep(0.01)\n"
    )
    write(folder / "hold.py", code)
    run = process("run", path, "--actions", "hold.py")
    read_until(run.stderr, "running  main  hold")
    execution_id = open_store().records()[0].execution_id
    cancelled = divebook("cancel", execution_id)
    write(folder / "go", "")
    out, _ = run.communicate(timeout=60)
    assert cancelled.stdout == f"cancelled  {execution_id}\n"
    assert run.returncode == 130
    assert out.startswith(f"a: ◼ cancelled\n  {execution_id}\n")


def test_output_that_the_terminal_cannot_show_is_escaped(process, folder):
    path = write(folder / "a.yaml", "Workflows: [{Name: a, Steps: [{Name: s, Script: '\"né→\"', Store: out}]}]")
    out, _ = process("run", path, PYTHONIOENCODING="ascii", PYTHONUTF8="0").communicate(timeout=60)
    assert r"out = n\xe9\u2192" in out


def test_a_read_only_store_can_be_looked_at_and_not_run_on(divebook, hello, monkeypatch):
    divebook("run", hello, "-v", "who=you")
    open_store().close()
    writable = os.access
    monkeypatch.setattr(connections.os, "access", lambda path, mode: mode != os.W_OK and writable(path, mode))
    assert "hello" in divebook("runs").stdout
    refused = divebook("run", hello, "-v", "who=me")
    assert refused.exit_code == 2
    assert " is read-only: " in refused.stderr
    assert "is not writable" in refused.stderr
    open_store().close()


def test_what_is_no_store_is_refused_and_left_alone(divebook, hello, folder):
    write(folder / "notes.db", "these are my notes " * 100)
    refused = divebook("run", hello, "-v", "who=me", "--store", "notes.db")
    assert refused.exit_code == 2
    assert "is not a divebook store" in refused.stderr
    assert (folder / "notes.db").read_text().startswith("these are my notes")
