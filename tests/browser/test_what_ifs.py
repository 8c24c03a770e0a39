"""What-ifs in the page: a blocked call gets a result, causes are shown as a graph, and views show in forced colours."""

import pytest

from tests.browser.test_files import BOOK, PREPARED

PAY = """\
@divebook.action("Test.Pay")
def pay(amount: int) -> dict:
    return {"id": amount * 100, "paid": True}
"""
FLOW = """\
%%dive workflow order
Inputs: [{Name: amount, Type: int, Default: 3}]
Outputs: [{Name: receipt}]
Steps:
  - {Name: price, Script: "inputs.amount * 2", Store: price}
  - {Name: fee, Script: "state.price + 1", Store: fee}
  - {Name: pay, Action: Test.Pay, Parameters: {amount: "$(state.fee)"}, Store: payment}
  - {Name: tell, Script: "f'paid {state.payment} for {state.price}'", Store: receipt}
"""
WHY = "%dive why receipt $run.id"
VIEWS = {
    "replay": "run.replay()",
    "compare": "%dive compare $run.id $other.id",
    "runs": "%dive runs",
    "files": "repair = %dive run repair --new",
}


@pytest.fixture(scope="module")
def server(extended):
    return extended


def test_a_blocked_call_gets_a_result_and_the_what_if_continues(lab, looks):
    notebook = lab(PAY, FLOW, "run = %dive run order", "run.what_if({'inputs': {'amount': 5}})")
    for cell in (1, 2, 3, 4):
        notebook.run_through(cell)
    shown = notebook.output(4)
    shown.get_by_text("1 call was blocked").wait_for()
    shown.get_by_role("button", name="Enter a result").click()
    field = shown.get_by_label("Result of action Test.Pay, step pay")
    field.fill('{"id": 7, "paid": true}')
    shown.get_by_text("is an object").wait_for()
    looks.at(notebook, "what-if-blocked", shown.locator(".db-blocked"))
    shown.get_by_role("button", name="Continue the what-if").click()
    notebook.wait_idle()
    notebook.see(5, "what-if")
    below = notebook.output(5)
    assert "were blocked" not in below.inner_text()
    assert "was blocked" not in below.inner_text()
    assert "'id': 7" in below.inner_text()
    notebook.shot("what-if-continued", below)
    source = notebook.cell(5).locator(".jp-InputArea").inner_text()
    assert ".what_if(" in source
    assert not (notebook.folder / "calls.txt").exists()


def test_causes_are_a_graph_and_one_click_leads_to_an_event(lab, looks):
    notebook = lab(PAY, FLOW, "run = %dive run order", WHY)
    for cell in (1, 2, 3, 4):
        notebook.run_through(cell)
    shown = notebook.output(4)
    shown.get_by_role("button", name="Graph").click()
    graph = shown.locator(".causegraph")
    graph.locator(".node", has_text="inputs.amount").wait_for()
    looks.at(notebook, "why-graph", shown.locator(".divebook-replay"))
    graph.locator("button.node", has_text="fee").click()
    shown.locator(".place", has_text="event ").wait_for()
    looks.at(notebook, "replay-with-graph", shown.locator(".divebook-replay"))
    shown.get_by_role("button", name="What-if from here").click()
    shown.locator(".fork", has_text="What-if at event").wait_for()
    looks.at(notebook, "replay-what-if", shown.locator(".divebook-replay"))
    shown.get_by_role("button", name="What-if in a new cell").click()
    assert "what_if(at=" in notebook.cell(5).locator(".jp-InputArea").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_show_their_states_in_forced_colours(lab, scheme):
    cells = [PREPARED, PAY, FLOW, BOOK, "run = %dive run order", "other = %dive run order amount=4"]
    notebook = lab(*cells, *VIEWS.values())
    for cell in range(1, len(cells) + len(VIEWS)):
        notebook.run_through(cell)
    notebook.run(len(cells) + len(VIEWS))  # asks which files to apply, and waits
    places = dict(zip(VIEWS, range(1 + len(cells), 1 + len(cells) + len(VIEWS)), strict=True))
    replay = notebook.output(places["replay"])
    replay.get_by_role("button", name="Next event").click()
    notebook.cell(places["files"]).scroll_into_view_if_needed()  # what is out of sight is not drawn
    notebook.output(places["files"]).get_by_text("Changed files (3)").first.wait_for()
    notebook.page.emulate_media(forced_colors="active", color_scheme=scheme)
    try:
        notebook.page.wait_for_timeout(500)  # canvases are drawn again with the colours of the person
        for name, place in places.items():
            notebook.shot(f"forced-{name}-{scheme}", notebook.output(place))
        # Backgrounds are replaced, so what is chosen has a line.
        for chosen in ("[role=option][aria-selected=true]", "[role=tab][aria-selected=true]"):
            style = replay.locator(chosen).first.evaluate("(node) => getComputedStyle(node).outlineStyle")
            assert style == "solid"
        ink, paper = replay.locator(".divebook-replay").evaluate(
            "(view) => ['color', 'backgroundColor'].map((name) => getComputedStyle(view)[name])"
        )
        assert ink != paper
    finally:
        notebook.page.emulate_media(forced_colors="none", color_scheme="light")
