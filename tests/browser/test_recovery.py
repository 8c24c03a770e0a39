"""What is left after a kernel was killed or interrupted: nothing that was finished is done again."""

import os
import signal

from tests.browser.test_live import WORKFLOW


def kill_kernel(notebook):
    """Kill the kernel while the second step of its run is held, and wait for the one that follows it."""
    notebook.until_calls("began", ["first", "second"])
    before = notebook.pids()[-1]
    os.kill(before, signal.SIGKILL)
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.until("inLab.kernel().status === 'idle'")


def test_run_all_after_a_killed_kernel_repeats_no_finished_call(lab):
    notebook = lab(WORKFLOW, "%dive run held", "%dive runs")
    notebook.run_through(1)
    notebook.run(2)
    kill_kernel(notebook)
    (notebook.folder / "go").touch()
    notebook.run_all()
    notebook.see(3, "completed")
    notebook.wait_idle()
    notebook.see(2, "completed")
    assert notebook.calls("began") == ["first", "second", "second", "third"]
    assert notebook.calls("ended") == ["first", "second", "third"]
    assert notebook.output(3).locator(".divebook-runs tr[data-run]").count() == 1


def test_run_all_once_more_makes_no_call(lab):
    notebook = lab(WORKFLOW, "%dive run held")
    (notebook.folder / "go").touch()
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.command("notebook:restart-run-all")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.until("inLab.outputs(2).length === 0")
    notebook.see(2, "completed")
    notebook.wait_idle()
    assert notebook.calls("began") == ["first", "second", "third"]


def test_an_interrupt_pauses_the_run_and_stops_run_all(lab):
    notebook = lab(WORKFLOW, "%dive run held", "open('later.txt', 'w').close()")
    notebook.run_all()
    notebook.until_calls("began", ["first", "second"])
    notebook.interrupt()
    notebook.output(2).get_by_role("button", name="Resume").wait_for()
    notebook.wait_idle()
    notebook.see(2, "is paused")
    notebook.see(2, "%dive resume exec_")
    assert not (notebook.folder / "later.txt").exists()
    (notebook.folder / "go").touch()
    notebook.output(2).get_by_role("button", name="Resume").click()
    notebook.output(2).locator(".db-root").wait_for(state="detached")
    notebook.see(2, "completed")
    assert notebook.calls("ended") == ["first", "second", "third"]
