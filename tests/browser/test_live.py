"""Runs in a browser: what moves, what is answered where, and what outlasts reloading the page."""

import re

import pytest

WORKFLOW = """\
%%dive workflow held
Steps:
  - {Name: first, Action: Test.Call, Parameters: {name: first}}
  - {Name: second, Action: Test.Call, Parameters: {name: second, gate: go}}
  - {Name: third, Action: Test.Call, Parameters: {name: third}, Store: last}
"""
ASKING = """\
%%dive workflow asking
Steps:
  - {Name: before, Action: Test.Call, Parameters: {name: before}}
  - {Name: approve, Ask: {Kind: confirmation, Question: "Publish it?"}, Store: approved}
  - {Name: after, Action: Test.Call, Parameters: {name: after}}
"""
MANY = """\
%%dive workflow many
Steps:
  - Name: ask
    Each: {Items: "$(list(range(20)))", As: number, Parallel: 20}
    Ask: {Kind: confirmation, Question: "Publish number ${number}?"}
    Store: approved
"""
WRITING = """\
from divebook.notebook.session import current_session

gates = iter(["first", "second"])

async def held():
    gate = Path(next(gates))
    while not gate.exists():
        await asyncio.sleep(0.02)

model = divebook.ScriptedModel(["Roses are red"], pace=held)
current_session().environment.add_agent(divebook.Agent("poet", model=model))
"""
POEM = """\
%%dive workflow poem
Steps:
  - {Name: write, Agent: poet, Prompt: Write a poem, Store: poem}
  - {Name: keep, Action: Test.Call, Parameters: {name: keep, gate: end}}
"""


def approve(lab, index):
    lab.output(index).locator("article.card").get_by_role("button", name="Approve", exact=True).click()


SHORT = """\
%%dive workflow short
Steps:
  - {Name: add, Script: 1 + 1, Store: n}
"""
EXPIRING = """\
%%dive workflow expiring
Steps:
  - {Name: ask, Ask: {Question: "Deploy?", Kind: confirmation, ExpiresIn: 100, Default: false}, Store: ok}
"""


def test_bars_appear_while_a_workflow_runs(lab):
    notebook = lab(WORKFLOW, "%dive run held")
    notebook.run_through(1)
    notebook.run(2)
    notebook.output(2).locator(".db-status[data-status=running]").wait_for()
    notebook.output(2).locator(".db-table summary").click()
    table = notebook.output(2).locator(".db-table")
    table.get_by_text("second").first.wait_for()
    assert table.get_by_text("third").count() == 0
    assert notebook.is_busy(2)
    (notebook.folder / "go").touch()
    notebook.wait_idle()
    notebook.see(2, "completed")
    notebook.output(2).locator(".db-root").first.wait_for(state="detached")


def test_a_text_appears_while_a_model_writes_it(lab):
    notebook = lab(WRITING, POEM, "r = %dive run poem", "print('then', r.variables['poem'])")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.run(3)
    tail = notebook.output(3).locator(".db-tail")
    tail.get_by_text("Roses", exact=True).wait_for()
    assert notebook.is_busy(3)
    notebook.shot("writing", notebook.output(3))
    (notebook.folder / "first").touch()
    tail.get_by_text("Roses are", exact=True).wait_for()
    (notebook.folder / "second").touch()
    notebook.until_calls("began", ["keep"])
    tail.wait_for(state="detached")
    (notebook.folder / "end").touch()
    notebook.wait_idle()
    notebook.run_through(4)
    notebook.see(4, "then Roses are red")


def test_a_question_is_answered_while_its_cell_waits(lab):
    notebook = lab(ASKING, "r = %dive run asking", "print('then', r.status)")
    notebook.run_through(1)
    notebook.run(2)
    notebook.run(3)
    notebook.see(2, "Publish it?")
    assert notebook.is_busy(2)
    approve(notebook, 2)
    notebook.see(3, "then completed")
    assert notebook.calls("ended") == ["before", "after"]


def test_a_question_is_answered_after_its_cell_has_ended(lab):
    notebook = lab(ASKING, "r = %dive run asking --background", "print('then', r.wait().status)")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    approve(notebook, 2)
    notebook.output(2).locator(".db-root").wait_for(state="detached")
    notebook.see(2, "completed")
    notebook.run_through(3)
    notebook.see(3, "then completed")
    assert notebook.calls("ended") == ["before", "after"]


def test_a_cell_that_assigns_a_completed_run_shows_it_again(lab):
    notebook = lab(SHORT, "run = %dive run short", "run.status, divebook.last is run")
    notebook.run_through(1)
    for _ in range(2):
        notebook.run_through(2)
        notebook.output(2).get_by_text("1 variable").wait_for()
    assert "this cell's run has completed" in notebook.output(2).inner_text()
    notebook.run_through(3)
    notebook.output(3).get_by_text("('completed', True)").wait_for()


def test_the_time_of_a_question_runs_down_while_its_run_waits(lab):
    notebook = lab(EXPIRING, "run = %dive run expiring")
    notebook.run_through(1)
    notebook.run(2)
    clock = notebook.output(2).locator(".divebook-prompt .clock")
    clock.get_by_text(re.compile("^default answer in ")).wait_for()
    before = clock.inner_text()
    notebook.page.wait_for_function(
        "([clock, before]) => clock.textContent !== before", arg=[clock.element_handle(), before]
    )
    assert re.fullmatch(r"default answer in 1 min \d\d s: denied", clock.inner_text()) is not None
    notebook.output(2).get_by_role("button", name="Deny").click()
    notebook.see(2, "completed")


def test_a_page_that_is_loaded_anew_shows_the_run_and_its_question(lab):
    notebook = lab(ASKING, "r = %dive run asking", "print('then', r.status)")
    notebook.run_through(1)
    notebook.run(2)
    notebook.see(2, "Publish it?")
    notebook.save()
    notebook.reload()
    notebook.see(2, "Publish it?")
    approve(notebook, 2)
    notebook.output(2).locator(".db-status[data-status=completed]").wait_for()
    notebook.wait_idle()
    notebook.run_through(3)
    notebook.see(3, "then completed")
    assert notebook.calls("ended") == ["before", "after"]


def test_two_tabs_show_one_run_and_either_answers(lab, tab):
    notebook = lab(ASKING, "r = %dive run asking --background")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    notebook.save()
    other = tab(notebook.folder / "test.ipynb")
    other.see(2, "Publish it?")
    approve(other, 2)
    other.output(2).locator(".db-status[data-status=completed]").wait_for()
    notebook.output(2).locator(".db-root").wait_for(state="detached")
    notebook.see(2, "completed")
    assert notebook.calls("ended") == ["before", "after"]


def test_twenty_questions_are_answered_one_after_the_other(lab):
    notebook = lab(MANY, "r = %dive run many")
    notebook.run_through(1)
    notebook.run(2)
    notebook.see(2, "20 open questions")
    cards = notebook.output(2).locator(".divebook-prompt article.card:not([hidden])")
    for left in range(20, 0, -1):
        card = cards.first
        if card.locator(".head").get_attribute("aria-expanded") == "false":
            card.locator(".head").click()
        card.get_by_role("button", name="Approve", exact=True).click()
        notebook.until(f"document.querySelectorAll('.divebook-prompt article.card').length < {left}")
    notebook.wait_idle()
    notebook.see(2, "completed")


def test_the_view_is_dark_in_a_dark_theme(lab):
    notebook = lab(ASKING, "r = %dive run asking --background")
    notebook.be("Dark")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.see(2, "Publish it?")
    paper = notebook.output(2).locator(".db-root").evaluate("(root) => getComputedStyle(root).backgroundColor")
    assert max(int(part) for part in paper.removeprefix("rgb(").removesuffix(")").split(",")) < 80


def edit_in(notebook, index, old, new):
    """Change the text of a cell."""
    change = "([index, old, other]) => { const cell = inLab.panel().content.widgets[index].model.sharedModel;"
    change += " cell.setSource(cell.getSource().replace(old, other)); }"
    notebook.page.evaluate(change, [index, old, new])


FUNCTIONS = """\
from divebook.definitions import step, workflow

@step
async def fetch(x):
    return await call("fetch") and x

@step
async def add(x):
    return await call("add") and x + 1

@workflow
async def edited(ctx):
    return await add(await fetch(1))
"""


@pytest.mark.parametrize("key", ["Enter", "Tab"])
def test_after_an_edit_buttons_run_it_again_or_keep_the_old_run(lab, looks, key):
    """With the keyboard alone: Enter presses the first button, Tab goes to the second."""
    notebook = lab(FUNCTIONS, "%dive run edited", "print('later')")
    for cell in (1, 2):
        notebook.run_through(cell)
    edit_in(notebook, 1, "x + 1", "x + 100")
    notebook.run_through(1)
    notebook.run(2)
    card = notebook.output(2).locator(".divebook-offer")
    card.get_by_text("step add changed since run exec_").wait_for()
    again = card.get_by_role("button", name="Run again", exact=True)
    keep = card.get_by_role("button", name="Keep the old run", exact=True)
    looks.at(notebook, "offer", card)
    notebook.run(3)  # waits for the choice, like every later cell of Run All
    again.focus()
    if key == "Tab":
        notebook.page.keyboard.press("Tab")
        assert keep.evaluate("(one) => one === document.activeElement")
    notebook.page.keyboard.press("Enter")
    notebook.see(3, "later")
    card.wait_for(state="detached")
    notebook.wait_idle()
    notebook.see(2, "101" if key == "Enter" else "was not run again")
    assert notebook.calls("ended") == ["fetch", "add", *(["add"] if key == "Enter" else [])]
