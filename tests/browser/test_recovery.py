"""What is left after a kernel was killed or interrupted: nothing that was finished is done again."""

import os
import signal

from tests.browser.test_live import WORKFLOW


def kill_kernel(notebook):
    """Kill the kernel while the second step of its run is held, and wait for the one that follows it."""
    notebook.until_calls("began", ["first", "second"])
    before = notebook.pids()[-1]
    os.kill(before, signal.SIGKILL)
    notebook.page.get_by_role("button", name="Ok").click()
    notebook.until("inLab.kernel().status === 'idle'")


def test_a_killed_kernel_costs_no_finished_call(lab):
    notebook = lab(WORKFLOW, "%dive run held", "%dive recover --all")
    notebook.run_through(1)
    notebook.run(2)
    kill_kernel(notebook)
    (notebook.folder / "go").touch()
    notebook.run_through(0)
    notebook.see(0, "interrupted")
    notebook.run_through(1)
    notebook.run_through(3)
    notebook.until_calls("ended", ["first", "second", "third"])
    assert notebook.calls("began") == ["first", "second", "second", "third"]


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
