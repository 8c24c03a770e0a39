"""Every view in both themes: pictures of it, and what a checker of accessibility says."""

import json

import pytest

from tests.browser.server import ROOT

AXE = ROOT / "widgets" / "node_modules" / "axe-core" / "axe.min.js"

SHOWN = """\
%%dive
Name: shown
Agents: [{Name: writer, Model: scripted, Goal: Write}]
Workflows:
- Name: shown
  Bounds: {MaxLLMCalls: 20}
  Steps:
  - Name: gather
    Each: {Items: [a, b, c, d, e, f], As: letter, Parallel: 3}
    Agent: writer
    Prompt: "about ${letter}"
    Store: said
  - {Name: call, Action: Test.Call, Parameters: {name: call}}
  - {Name: held, Action: Test.Call, Parameters: {name: held, gate: go}}
  - {Name: fail, Script: "1 // 0"}
"""
QUESTIONS = """\
%%dive workflow questions
Steps:
  - Name: fork
    Script: "1"
    Next:
      [{Step: text}, {Step: choice}, {Step: flag}, {Step: number},
       {Step: date}, {Step: record}, {Step: approval}, {Step: review}]
  - {Name: text, Ask: "What should it be called, and why that name and not one that is more widely used?", End: true}
  - Name: choice
    Ask: {Question: "Which licence?", Schema: {type: string, enum: [MIT, Apache-2.0, MPL-2.0], title: Licence}}
    End: true
  - {Name: flag, Ask: {Question: "Public?", Schema: {type: boolean, title: Public}}, End: true}
  - Name: number
    Ask: {Question: "How many?", Schema: {type: integer, minimum: 1, maximum: 9, title: Number}}
    End: true
  - {Name: date, Ask: {Question: "When?", Schema: {type: string, format: date, title: Day}}, End: true}
  - Name: record
    Ask:
      Question: "Who is it for?"
      Schema:
        type: object
        required: [name]
        properties:
          name: {type: string, title: Name, description: As on the invoice}
          kind: {type: string, enum: [person, company], title: Kind}
          tags: {type: array, items: {type: string}, title: Tags}
    End: true
  - {Name: approval, Ask: {Kind: confirmation, Question: "Publish it?", Message: "It cannot be taken back."}, End: true}
  - {Name: review, Ask: {Kind: agent_review, Question: "Is this summary right?"}}
"""


@pytest.fixture
def axe(require):
    """Return ``axe(lab, selector)``, which fails if a part of the page has serious faults of accessibility."""
    require("axe-core (python widgets/frontend.py check installs it)", AXE.exists())
    script = AXE.read_text(encoding="utf-8")

    def check(lab, selector):
        lab.page.evaluate(f"window.axe === undefined && (0, eval)({json.dumps(script)})")
        found = lab.page.evaluate("(selector) => axe.run(selector).then((result) => result.violations)", selector)
        told = [
            f"{fault['impact']}: {fault['id']}: {node['html'][:160]}: {node['failureSummary'][:400]}"
            for fault in found
            for node in fault["nodes"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert told == []

    return check


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_views_are_accessible_in_both_themes(lab, tab, axe, theme):
    notebook = lab(SHOWN, QUESTIONS, "%dive run shown", "r = %dive run questions --background")
    notebook.page.set_viewport_size({"width": 1280, "height": 2600})
    notebook.be(theme)
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.run(3)
    live = notebook.output(3)
    notebook.until_calls("ended", ["call"])
    live.locator(".db-table summary").click()
    live.get_by_text("Test.Call").first.wait_for()
    live.locator(".db-row", has_text="model").first.click()
    live.locator(".db-detail").wait_for()
    notebook.shot(f"live-{theme}", live)
    axe(notebook, ".db-root")
    (notebook.folder / "go").touch()
    notebook.see(3, "failed")
    notebook.wait_idle()
    notebook.run_through(4)
    prompt = notebook.output(4)
    prompt.get_by_text("8 open questions").wait_for()
    for card in prompt.locator("article.card").all():
        if card.locator(".head").get_attribute("aria-expanded") == "false":
            card.locator(".head").click()
    notebook.shot(f"questions-{theme}", prompt)
    axe(notebook, ".db-root")
    notebook.save()
    again = tab(notebook.folder / "test.ipynb")
    again.be(theme)
    again.page.set_viewport_size({"width": 1280, "height": 1800})
    again.see(3, "failed")
    again.shot(f"saved-{theme}", again.output(3))
    axe(again, ".jp-Notebook .jp-RenderedHTMLCommon")
