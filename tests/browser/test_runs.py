"""The run browser: what runs, waits, failed or was stopped is found, opened, taken up and tagged in one place."""

BOOK = """\
%%dive
Agents: [{Name: writer, Model: scripted, Goal: Write}]
Workflows:
- Name: label-tickets
  Inputs: [{Name: rows, Default: [1, 2, 3]}]
  Steps:
  - {Name: draft, Agent: writer, Prompt: "about it"}
  - {Name: parse, Each: {Items: "$(inputs.rows)", As: row}, Script: "{1: 'a', 2: 'b'}[row]", Store: labels}
- Name: publish
  Steps:
  - {Name: approve, Ask: {Kind: confirmation, Question: "Publish it?"}}
- Name: hello
  Inputs: [{Name: who, Default: you}]
  Steps: [{Name: greet, Script: "f'hello {inputs.who}'", Store: said}]
- Name: long
  Steps: [{Name: call, Action: Test.Call, Parameters: {name: long, gate: go}}]
"""
START = """\
runs = [divebook.run("hello", {"who": "ann"}).wait().tag("baseline"),
        divebook.run("label-tickets").wait().tag("tickets"),
        divebook.run("publish").wait(), divebook.run("long"), divebook.run("hello").wait()]
"""


def browser(notebook, index=3):
    view = notebook.output(index).locator(".divebook-runs")
    view.wait_for()
    return view


def row(view, text):
    return view.locator("tr[data-run]", has_text=text)


def test_runs_are_found_opened_taken_up_and_tagged(lab):
    notebook = lab(BOOK, START, "%dive runs")
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    view = browser(notebook)
    failed = row(view, "label-tickets")
    failed.get_by_text("KeyError").wait_for()
    view.locator("tr[data-run]").nth(4).wait_for()
    assert view.locator("tr[data-run]").count() == 5
    view.locator(".seg button", has_text="Completed 2").click()
    row(view, "publish").wait_for(state="detached")
    view.locator(".seg button", has_text="All 5").click()
    view.get_by_label("Search runs").fill("keyerror")
    row(view, "publish").wait_for(state="detached")
    view.get_by_label("Search runs").fill("")
    row(view, "publish").wait_for()
    view.get_by_label("Tag", exact=True).select_option("baseline")
    row(view, "publish").wait_for(state="detached")
    view.get_by_label("Tag", exact=True).select_option("")
    row(view, "long").get_by_role("button", name="Cancel long").click()
    view.get_by_role("button", name="Cancel the run").click()
    row(view, "long").locator(".st.cancelled").wait_for()
    view.locator(".seg button", has_text="Failed 1").click()
    view.get_by_role("button", name="Save filter").click()
    view.get_by_label("Name of the filter").fill("broken")
    view.get_by_label("Name of the filter").press("Enter")
    view.locator(".seg button", has_text="All 5").click()
    row(view, "publish").wait_for()
    view.get_by_label("Saved filters").select_option("broken")
    row(view, "publish").wait_for(state="detached")
    view.get_by_role("button", name="Delete filter").click()
    view.locator(".seg button", has_text="All 5").click()
    row(view, "hello").first.get_by_label("Select hello").check()
    row(view, "hello").last.get_by_label("Select hello").check()
    view.get_by_role("button", name="Compare 2").click()
    notebook.see(3, "First difference")
    view.get_by_role("button", name="Clear selection").click()
    row(view, "publish").get_by_label("Select publish").check()
    view.get_by_role("button", name="Tag …").click()
    view.get_by_label("Tag", exact=True).last.fill("soon")
    view.get_by_role("button", name="Add").click()
    row(view, "publish").locator(".tag", has_text="soon").wait_for()
    view.locator("article.card").get_by_role("button", name="Approve", exact=True).click()
    row(view, "publish").locator(".st.completed").wait_for()
    failed.get_by_role("button", name="Open label-tickets").click()
    notebook.output(3).locator(".divebook.db-root").wait_for()
    failed.get_by_role("button", name="Close label-tickets").click()
    notebook.output(3).locator(".divebook.db-root").wait_for(state="detached")
    assert notebook.errors == []


def test_how_the_run_browser_looks(lab, looks):
    notebook = lab(BOOK, START, "%dive runs")
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    view = browser(notebook)
    row(view, "label-tickets").get_by_text("KeyError").wait_for()
    looks.at(notebook, "runs", view)
    for width in (700, 1050, 1400):
        notebook.page.set_viewport_size({"width": width, "height": 1000})
        notebook.page.evaluate("looks.drawn()")
        view.evaluate("(view) => view.scrollIntoView({ block: 'start' })")
        for line in view.locator("tr[data-run]").all():  # two lines, also with an error
            assert line.bounding_box()["height"] < 56
        box = view.get_by_role("region", name="Inbox").bounding_box()
        assert box["y"] + 100 < 1000  # in the window, however many runs there are
    error = row(view, "label-tickets").locator("button.about")
    error.click()
    assert error.get_attribute("aria-expanded") == "true"
    row(view, "publish").get_by_label("Select publish").check()
    row(view, "label-tickets").get_by_label("Select label-tickets").check()
    looks.at(notebook, "runs-chosen", view)
    view.get_by_label("Search runs").fill("tickts")
    view.get_by_text("No matching runs").wait_for()
    looks.at(notebook, "runs-no-match", view)
    assert notebook.errors == []
