"""People who look elsewhere: a question is told in JupyterLab wherever they are, and a click brings them to it."""

import pytest

AUDIT = """\
%%dive
Workflows:
- Name: licence-audit
  Steps:
  - {Name: list, Action: Test.Call, Parameters: {name: listed}}
  - Name: judge
    Ask: {Question: "nodeenv 1.12.0 names no licence. What shall the report say?", Message: "It is asked once."}
    Store: said
  - {Name: write, Action: Test.Call, Parameters: {name: written}}
"""
FAR = "from IPython.display import HTML\nHTML('<div style=\"height: 3000px\">a long report</div>')"
TOLD = "licence-audit asks: nodeenv 1.12.0 names no licence."


@pytest.fixture(scope="module")
def server(servers):
    loud = {"@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}
    return servers(settings=loud, extended=True)


def toast(lab):
    return lab.page.locator(".Toastify__toast", has_text=TOLD)


def counted(lab):
    return lab.page.locator(".divebook-count")


def queued(lab, index):
    return lab.cell(index).locator(".divebook-queued")


def card(lab, index):
    return lab.output(index).locator("article.card", has_text="names no licence")


def begun(lab):
    """Return a notebook of which all cells were run: one asks, between a long output and a cell that is queued."""
    notebook = lab(AUDIT, FAR, "%dive run licence-audit", "print('then')")
    notebook.run_all()
    card(notebook, 3).wait_for()
    return notebook


def until_at_the_card(notebook):
    """Wait until a person is at the card."""
    notebook.until("document.activeElement.closest('article.card') !== null")
    assert is_in_view(card(notebook, 3))


def is_in_view(part):
    return part.evaluate("(e) => { const r = e.getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight; }")


def test_a_question_is_told_in_a_notification_that_leads_to_it(lab, looks):
    notebook = begun(lab)
    until_at_the_card(notebook)  # Run All brings there whoever has done nothing since
    notebook.page.evaluate("document.activeElement.blur(), inLab.panel().content.scrollToItem(2)")
    toast(notebook).wait_for()
    assert not is_in_view(card(notebook, 3))
    looks.at(notebook, "elsewhere-notification", toast(notebook))
    toast(notebook).get_by_role("button", name="Go to question").click()
    until_at_the_card(notebook)
    card(notebook, 3).get_by_role("textbox").fill("ask the author")
    card(notebook, 3).get_by_role("button", name="Answer", exact=True).click()
    notebook.wait_idle()
    assert notebook.calls("ended") == ["listed", "written"]
    assert notebook.errors == []


def test_status_bar_tab_and_queued_cells_show_that_somebody_is_asked(lab):
    notebook = begun(lab)
    page = notebook.page
    until_at_the_card(notebook)
    counted(notebook).get_by_text("? 1 question").wait_for()
    page.locator(".lm-TabBar-tab.divebook-asked", has_text="test.ipynb").wait_for()
    notebook.until("document.title.startsWith('(1?) ')")
    queued(notebook, 4).get_by_text("licence-audit asks: nodeenv 1.12.0").wait_for()
    assert [queued(notebook, index).count() for index in range(5)] == [0, 0, 0, 0, 1]
    page.evaluate("inLab.panel().content.scrollToItem(0)")
    notebook.shot("elsewhere-page")
    page.evaluate("document.activeElement.blur()")
    counted(notebook).click()
    until_at_the_card(notebook)
    card(notebook, 3).get_by_role("textbox").fill("ask the author")
    page.keyboard.press("Control+Enter")
    notebook.wait_idle()
    toast(notebook).wait_for(state="detached")
    counted(notebook).wait_for(state="hidden")
    page.locator(".divebook-asked").wait_for(state="detached")
    notebook.until("!document.title.startsWith('(')")
    queued(notebook, 4).first.wait_for(state="detached")


def test_a_page_that_was_loaded_anew_finds_what_its_kernel_asks(lab):
    notebook = begun(lab)
    counted(notebook).get_by_text("? 1 question").wait_for()
    notebook.reload()
    counted(notebook).get_by_text("? 1 question").wait_for()
    counted(notebook).click()
    notebook.cell(3).wait_for()
    notebook.interrupt()
