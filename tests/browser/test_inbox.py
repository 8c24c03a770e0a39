"""The inbox in a browser: questions of several executions, answered in one place."""

from tests.browser.test_saved import reopened

BOOK = """\
%%dive
Workflows:
- Name: publish
  Steps:
  - {Name: approve, Ask: {Kind: confirmation, Question: "Publish it?", Message: "It cannot be taken back."}}
  - {Name: note, Action: Test.Call, Parameters: {name: published}}
- Name: order
  Steps:
  - Name: amount
    Ask: {Question: "How many?", ExpiresIn: 2h, Schema: {type: integer, minimum: 1, maximum: 9, title: Number}}
    Store: count
  - {Name: note, Action: Test.Call, Parameters: {name: ordered}}
"""
START = "publish = %dive run publish --background\norder = %dive run order --background"


def card(lab, index, text):
    return lab.output(index).locator(".divebook-inbox article.card", has_text=text)


def test_two_questions_of_two_executions_are_answered_from_the_inbox(lab):
    notebook = lab(BOOK, START, "%dive inbox", "print('then', publish.wait().status, order.wait().variables)")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    notebook.run_through(3)
    notebook.see(3, "2 open questions")
    card(notebook, 3, "publish").get_by_role("button", name="Approve", exact=True).click()
    notebook.see(3, "1 open question")
    notebook.output(3).locator(".divebook-inbox .closed li", has_text="approved").wait_for()
    order = card(notebook, 3, "order")
    order.locator("input[type=number]").fill("4")
    order.get_by_role("button", name="Answer", exact=True).click()
    notebook.output(3).locator(".divebook-inbox").wait_for(state="detached")
    notebook.see(3, "No open questions")
    notebook.run_through(4)
    notebook.see(4, "then completed {'count': 4}")
    assert sorted(notebook.calls("ended")) == ["ordered", "published"]
    assert notebook.errors == []


def test_what_is_answered_elsewhere_and_asked_later_appears(lab):
    notebook = lab(
        BOOK,
        "publish = %dive run publish --background",
        "%dive inbox",
        "order = %dive run order --background",
        "publish.answer(publish.open_questions[0].id, True, by='ann').wait().status",
    )
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    notebook.run_through(3)
    notebook.see(3, "1 open question")
    notebook.run_through(4)
    card(notebook, 3, "How many?").wait_for()
    notebook.run_through(5)
    notebook.output(3).locator(".divebook-inbox .closed li", has_text="by ann").wait_for()


def test_the_inbox_with_and_without_its_kernel(lab, tab, looks):
    notebook = lab(BOOK, START, "%dive inbox")
    for index in (1, 2, 3):
        notebook.run_through(index)
    notebook.see(3, "2 open questions")
    inbox = notebook.output(3).locator(".divebook-inbox")
    looks.at(notebook, "inbox", inbox)
    card(notebook, 3, "publish").get_by_role("button", name="Approve", exact=True).click()
    notebook.output(3).locator(".closed li").wait_for()
    looks.at(notebook, "inbox-answered", inbox)
    notebook.page.evaluate("inLab.kernel().shutdown()")
    notebook.see(3, "The kernel stopped.")
    answer = card(notebook, 3, "order").get_by_role("button", name="Answer", exact=True)
    assert answer.get_attribute("aria-disabled") == "true"
    looks.at(notebook, "inbox-detached", inbox)
    notebook.save()
    again = reopened(tab, notebook.folder, trusted=True)
    again.see(3, "%dive answer")
    looks.at(again, "inbox-saved", again.output(3).locator(".jp-RenderedHTMLCommon"))
