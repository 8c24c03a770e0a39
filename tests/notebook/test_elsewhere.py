"""Runs that go on without this kernel, or that a worker is to take."""

from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from divebook.errors import InputError, StartKeyTakenError, StartKeyWarning
from divebook.notebook import magics, run_in_cell
from divebook.notebook.shell_state import FrontEnd
from divebook.queues import Worker


def test_a_run_that_goes_on_is_shown_live_also_where_a_worker_is_to_drive_it(cell, session, monkeypatch):
    shown = []
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(has_kernel=True, takes_input=True))
    monkeypatch.setattr(run_in_cell, "show_live", lambda run, _: SimpleNamespace(leave=lambda: shown.append(run.id)))
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Type: wait, Seconds: 60}\n")
    waits, sleeps = session.environment.enqueue("w"), session.environment.start("w")
    assert [cell(f"%dive show {one.id}")[0].id for one in (waits, sleeps)] == shown == [waits.id, sleeps.id]
    told = cell(f"%dive show {waits.id}")[0].internals.static_bundle()["text/plain"]
    assert f"%dive show {waits.id}" in told
    assert "%dive resume" not in told
    for one in (waits, sleeps):
        one.cancel()
    sleeps.wait(20)
    shown.clear()
    assert cell(f"%dive show {sleeps.id}")[0].status == "cancelled"
    assert shown == []


ADD = "%%dive workflow add\nInputs: [{Name: n, Type: int}]\nSteps: [{Name: s, Script: inputs.n + 1, Store: out}]\n"


def test_a_cell_leaves_a_run_to_a_worker_and_enqueues_it_once(cell, session, monkeypatch):
    place = {"cell": "c1", "notebook": "n.ipynb", "source": "s", "kernel": "k"}
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(cell=place, count=7))
    cell(ADD)
    run, _ = cell("%dive enqueue add n=2 --queue sums --priority 4 --tag mine --note 'for later'")
    assert (run.status, run.state.queue, run.state.priority) == ("enqueued", "sums", 4)
    record = session.environment.store.record(run.id)
    assert (record.tags, record.note, record.notebook) == (("mine",), "for later", "n.ipynb")
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(cell=place, count=8))
    assert cell("%dive enqueue add n=2 --queue sums")[0].id == run.id
    assert cell("%dive enqueue add n=2 --queue sums --new")[0].id != run.id
    with Worker(session.environment, ["sums"]):
        assert run.wait(20).variables == {"out": 3}


def test_a_cell_lists_what_waits_and_says_who_is_there(cell, session):
    cell(ADD)
    assert cell("%dive queue")[1].startswith("no running worker; start a worker with !divebook worker FILE\n")
    run, _ = cell("%dive enqueue add n=2 --at 2099-01-01T08:00 --key once")
    with pytest.warns(StartKeyWarning, match=r"other inputs \(n: 2, now 3\)"):
        assert cell("%dive enqueue add n=3 --key once")[0].id == run.id
    assert cell("%dive enqueue add n=3 --key once --on-conflict return")[0].id == run.id
    with pytest.raises(StartKeyTakenError, match="n: 2, now 3"):
        cell("%dive enqueue add n=3 --key once --on-conflict refuse")
    (row,) = cell("%dive queue")[0].to_dict("records")
    assert (row["queue"], row["execution_id"], row["key"], row["due"].year) == ("default", run.id, "once", 2099)
    assert row["why"] == "no running worker can run it"
    with Worker(session.environment):
        frame, told = cell("%dive queue")
        assert "default; 0 of at most 8 runs" in told
        assert frame["why"].isna().all()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--priority high", "--priority must be an integer, not 'high'"),
        ("--at tomorrow", "--at 'tomorrow' is not a time; write --at 2026-05-01T08:00"),
    ],
)
def test_what_makes_no_sense_of_a_queue_is_said(cell, option, told):
    cell(ADD)
    with pytest.raises((InputError, UsageError), match=told):
        cell(f"%dive enqueue add n=2 {option}")
