"""Runs that go on without this kernel, or that a worker is to take."""

from types import SimpleNamespace

from divebook.notebook import magics, verdict
from divebook.notebook.frontend import FrontEnd


def test_a_run_that_goes_on_is_shown_live_also_where_a_worker_is_to_drive_it(cell, session, monkeypatch):
    shown = []
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(has_kernel=True, takes_input=True))
    monkeypatch.setattr(verdict, "show_live", lambda run, _: SimpleNamespace(leave=lambda: shown.append(run.id)))
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Type: wait, Seconds: 60}\n")
    waits, sleeps = session.environment.enqueue("w"), session.environment.start("w")
    assert [cell(f"%dive show {one.id}")[0].id for one in (waits, sleeps)] == shown == [waits.id, sleeps.id]
    told = cell(f"%dive show {waits.id}")[0].static_bundle()["text/plain"]
    assert f"%dive show {waits.id}" in told
    assert "%dive resume" not in told
    for one in (waits, sleeps):
        one.cancel()
    shown.clear()
    assert cell(f"%dive show {sleeps.id}")[0].status == "cancelled"
    assert shown == []
