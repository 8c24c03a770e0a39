"""Cards of questions as a person meets them: an unknown outcome, several of a kind, and what is told of closed ones."""

PAY = """\
@divebook.action("Pay")
async def pay(amount: int, to: str) -> str:
    Path("paying").touch()
    await asyncio.sleep(60)
"""
BOOK = """\
%%dive
Workflows:
- Name: settle
  Steps:
  - {Name: pay, Action: Pay, Parameters: {amount: 5, to: Ann}, Store: receipt}
  - {Name: note, Action: Test.Call, Parameters: {name: noted}}
- Name: tidy
  Steps:
  - Name: file
    Each: {Items: [a.txt, b.txt, c.txt], As: name, Parallel: 3}
    Ask:
      Kind: confirmation
      Question: "May ${name} be deleted?"
      Data: {size: 12 kB, changed: 2 years ago}
"""
STOPPED = """\
run = %dive run settle --background
while not Path("paying").exists():
    await asyncio.sleep(0.05)
run.cancel().wait()
"""


def cards(lab, index):
    return lab.output(index).locator("article.card")


def test_an_unknown_outcome_is_asked_in_words_and_no_button_stands_out(lab, looks):
    notebook = lab(PAY, BOOK, STOPPED, "await get_ipython().run_line_magic('dive', 'resume ' + run.id)")
    for index in (1, 2, 3):
        notebook.run_through(index)
    notebook.run(4)
    notebook.see(4, "Did the call to Pay go through?")
    card = cards(notebook, 4).first
    card.wait_for()
    looks.at(notebook, "card-unknown-outcome", card)
    assert card.locator(".primary").count() == 0
    assert "amount = 5" in card.inner_text()
    card.get_by_role("button", name="It went through").click()
    notebook.wait_idle()
    notebook.see(4, "completed")
    assert notebook.calls("ended") == ["noted"]


def test_one_answer_is_given_to_all_of_a_kind(lab, looks):
    notebook = lab(BOOK, "run = %dive run tidy")
    notebook.run_through(1)
    notebook.run(2)
    cards(notebook, 2).nth(2).wait_for()
    live = notebook.output(2).locator(".divebook-prompt")
    looks.at(notebook, "cards-of-a-kind", live)
    first = cards(notebook, 2).first
    first.get_by_role("button", name="Answer all 3 similar questions").click()
    looks.at(notebook, "cards-of-a-kind-offered", first)
    first.get_by_role("button", name="Deny 3").click()
    notebook.wait_idle()
    notebook.see(2, "denied (by ")
    assert notebook.errors == []
