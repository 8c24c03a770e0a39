"""An agent's turn in a browser: it grows, its approval is answered in the chat, and it is saved as it was."""

from tests.browser import looks as looking
from tests.browser.test_saved import reopened

AGENTS = """\
from divebook.notebook.session import current_session

async def held():
    while not Path("go").exists():
        await asyncio.sleep(0.02)

def search(query: str) -> list[str]:
    "Find passages."
    return [f"{query} hunt by night", "their ears are not level"]

@divebook.tool(destructive=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {path}"

def grep(pattern: str, path: str) -> str:
    "Find lines."
    return "\\n".join(f"line {number} of {path} has {pattern}" for number in range(60))

HEAD = [
    [{"think": "Owls first. The reader may look at the rest.", "say": "I look for `owls`, and ask the reader.",
      "call": {"search": {"query": "owls"}}},
     {"call": {"assign_work": {"agent": "reader", "name": "ears", "description": "How do owls hear?",
                               "expected_output": "A sentence"}}}],
    {"say": "The **draft** is not needed any more.\\n\\n| Owl | Weight |\\n|--|--:|\\n| barn | 400 g |",
     "call": {"remove": {"path": "draft.txt"}}},
    "Owls hunt by night, and hear with ears that are not level.",
]
READER = [{"call": {"grep": {"pattern": "ears", "path": "owls.txt"}}}, "With ears that are not level."]
environment = current_session().environment
environment.add_agent(divebook.Agent("reader", model=divebook.ScriptedModel(turns=[READER]), tools=[grep]))
environment.add_agent(divebook.Agent(
    "researcher", model=divebook.ScriptedModel(turns=[HEAD], pace=held),
    tools=[search, "remove"], subordinates=["reader"],
))
"""
ASK = "r = %dive ask researcher 'How do owls hunt?'"

# Records where the button stands in the page at each frame, and where it is in the window.
WATCH = """
window.watched = new Set();
(function look() {
  const buttons = [...document.querySelectorAll("article.card .actions button")];
  const button = buttons.find((one) => one.textContent.includes("Approve"));
  const scroller = button?.closest(".jp-WindowedPanel-outer");
  if (scroller) watched.add(Math.round(button.getBoundingClientRect().top + scroller.scrollTop));
  requestAnimationFrame(look);
})()
"""
PUSH = """
(card) => {
  const before = document.createElement("div");
  before.style.height = "180px";
  card.closest(".exchange").before(before);
  return looks.drawn();
}
"""


def keeps_its_place(notebook, card):
    """Check that a card was shown at one place only, that its buttons are in the window, and that they stay there."""
    page, approve = notebook.page, card.get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    assert page.evaluate("watched.size") == 1
    card.evaluate("(card) => { card.scrollIntoView({ block: 'center' }); return looks.drawn(); }")
    box = approve.bounding_box()
    assert 0 < box["y"] < page.viewport_size["height"] - box["height"]
    card.evaluate(PUSH)  # something appears above it
    assert abs(approve.bounding_box()["y"] - box["y"]) <= 1


def see_turn(notebook):
    """Let the turn go on to its approval; return the chat."""
    view = notebook.output(2).locator(".db-root")
    view.locator(".divebook-turn").wait_for()  # a card that a chat does not take soon is shown above the chat
    (notebook.folder / "go").touch()
    view.locator(".divebook-turn .card-place article.card").wait_for()
    return view


def test_a_turn_is_watched_and_its_approval_is_answered_in_the_chat(lab, looks):
    notebook = lab(AGENTS, ASK, "print('then', r.variables['answer'])")
    notebook.run_through(1)
    notebook.run(2)
    chat = notebook.output(2).locator(".divebook-turn")
    chat.get_by_text("How do owls hunt?", exact=True).wait_for()
    chat.locator(".said.live").wait_for()  # what the model writes, as it comes
    notebook.shot("turn-writing", notebook.output(2).locator(".db-root"))
    notebook.page.set_viewport_size({"width": 1050, "height": 600})
    notebook.page.evaluate(looking.HELPERS)
    notebook.page.evaluate(WATCH)
    view = see_turn(notebook)
    keeps_its_place(notebook, chat.locator(".card-place article.card"))
    chat.locator(".call", has_text="search").locator("summary").click()
    chat.locator(".call .in").get_by_text("owls hunt by night").wait_for()
    chat.locator(".team").get_by_role("button", name="Open", exact=True).click()
    chat.locator(".team .call", has_text="grep").locator("summary").click()
    chat.get_by_role("button", name="Show 44 more lines").wait_for()
    second = chat.locator(".wrap > .chat > .exchange").nth(1)
    second.get_by_role("button", name="Sent messages").click()
    second.locator(".all").get_by_text("How do owls hunt?").wait_for()
    second.get_by_role("button", name="Changes since request 1").click()
    second.locator(".diff.added").get_by_text("With ears that are not level.").wait_for()
    reply = second.locator(".db-markdown").first
    assert reply.locator("strong").inner_text() == "draft"
    assert reply.locator("td").count() == 2
    chat.get_by_role("button", name="As a DataFrame").click()
    chat.get_by_text(".messages.loc[lambda said: said.agent").wait_for()
    looks.at(notebook, "turn", view)
    card = chat.locator(".card-place article.card")
    card.get_by_role("button", name="Approve", exact=True).click()
    notebook.wait_idle()
    notebook.see(2, "completed")
    notebook.run_through(3)
    notebook.see(3, "then Owls hunt by night")


def test_the_timeline_has_a_lane_for_the_agent_that_was_given_work(lab, looks):
    notebook = lab(AGENTS, f"{ASK} --background")
    notebook.run_through(1)
    notebook.run_through(2)
    view = see_turn(notebook)
    view.locator(".team").get_by_role("button", name="Show lane").click()
    view.locator(".db-chip", has_text="agent turns").wait_for()
    view.locator(".db-prompt article.card, .divebook-prompt .cards article.card").wait_for()  # one, and no second
    looks.at(notebook, "turn-timeline", view)
    view.get_by_role("tab", name="Chat").click()
    view.locator(".divebook-turn .card-place article.card").wait_for()


def test_a_saved_turn_is_a_table_for_those_who_do_not_trust_it_and_a_chat_for_the_extension(lab, tab, looks):
    notebook = lab(AGENTS, ASK)
    notebook.run_through(1)
    (notebook.folder / "go").touch()
    notebook.run(2)
    view = see_turn(notebook)
    view.locator(".card-place article.card").get_by_role("button", name="Approve", exact=True).click()
    notebook.wait_idle()
    notebook.see(2, "completed")
    notebook.save()
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        again.see(2, "With ears that are not level.")
        looks.at(again, f"turn-saved-{'trusted' if trusted else 'untrusted'}", again.output(2))
