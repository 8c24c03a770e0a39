"""What explains runs in a notebook: why, inspect, verify, two runs compared (N and P lead on), a page opened."""

import pytest

from tests.browser.test_saved import reopened

DEFINED = """\
%%dive
Name: sums
Agents: [{Name: writer, Model: scripted, Goal: Write}]
Workflows:
- Name: sums
  Inputs: [{Name: n}]
  Outputs: [{Name: told}]
  Steps:
  - {Name: add, Script: "inputs.n + 1", Store: total}
  - {Name: each, Each: {Items: "$(list(range(state.total)))", As: k, Parallel: 2}, Script: "k * 2", Store: twice}
  - {Name: say, Agent: writer, Prompt: "Tell about ${state.total} of ${state.twice}", Store: told}
"""
RUNS = ["one = %dive run sums n=2", "two = %dive run sums n=4", "one.to_html('run.html')"]
SHOWN = {
    "why": "%dive why told $one.id",
    "inspect": "%dive inspect $one.id",
    "verify": "%dive verify $one.id",
    "compare": "%dive compare $one.id $two.id",
    "open": "%dive open run.html",
}


@pytest.fixture(scope="module")
def server(extended):
    return extended


def test_why_inspect_verify_compare_and_open(lab, tab, looks):
    cells = DEFINED, *RUNS, *SHOWN.values()
    notebook = lab(*cells)
    for cell in range(1, 1 + len(cells)):
        notebook.run_through(cell)
    for number, text in enumerate(
        ("passed at the start", "activities on the critical path", "0 calls made", "First", "Replay"), 5
    ):
        notebook.see(number, text)
    go_through(notebook, notebook.output(8))
    for number, name in ((6, "inspect"), (8, "compare")):
        looks.at(notebook, f"explained-{name}", notebook.output(number))
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=False)
    again.output(8).get_by_text("First difference:").wait_for()
    go_through(again, again.output(8))


def go_through(notebook, compared):
    """Go to the next difference and back, by button and by key. The outcome stands above the buttons."""
    above = compared.locator(".db-way").evaluate("(bar) => bar.previousElementSibling.textContent")
    shown = compared.locator(".db-way .map button").count()
    assert f"{shown} differences" in above
    compared.get_by_role("button", name="Next difference").click()
    first = compared.locator(".divebook-difference.db-at")
    assert "input n" in first.inner_text()
    notebook.page.keyboard.press("n")
    compared.locator("[role=status]", has_text="2 of ").wait_for()
    notebook.page.keyboard.press("p")
    compared.locator("[role=status]", has_text="1 of ").wait_for()
