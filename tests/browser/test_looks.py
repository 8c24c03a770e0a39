"""Every view in both themes and two widths: pictures to look at, and nothing serious that a machine can find."""

from tests.browser.test_saved import reopened

FLAKY = """\
tried = []

@divebook.action("Test.Flaky", idempotent=True)
async def flaky() -> str:
    tried.append(1)
    if len(tried) < 3:
        raise ValueError("the first two attempts fail")
    return "third time lucky"
"""
SHOWN = """\
%%dive
Name: shown
Agents: [{Name: writer, Model: scripted, Goal: Write}]
Workflows:
- Name: shown
  Bounds: {MaxLLMCalls: 7, MaxTokens: 100000, MaxSeconds: 3600}
  Steps:
  - Name: gather
    Each: {Items: [a, b, c, d, e, f], As: letter, Parallel: 3}
    Agent: writer
    Prompt: "about ${letter}"
    Store: said
  - {Name: flaky, Action: Test.Flaky, Retry: {Attempts: 3, Seconds: 0.05}}
  - Name: a_name_that_nobody_would_have_chosen_but_somebody_has_written
    Script: "'a value that is long enough to be cut off somewhere, ' * 20"
    Store: a_variable_whose_name_is_as_long_as_that_of_the_step_above_it
    Next:
      [{Step: one}, {Step: two}, {Step: three}, {Step: four}, {Step: five},
       {Step: six, Condition: "len(state.said) > 99"}]
  - {Name: one, Script: "1 // 0", Catch: [{Step: caught}]}
  - {Name: caught, Script: "2", End: true}
  - {Name: two, Each: {Items: "$(list(range(20)))", As: n}, Script: "n", End: true}
  - {Name: three, Action: Test.Call, Parameters: {name: three, gate: go}, End: true}
  - {Name: four, Action: Test.Call, Parameters: {name: four, gate: go}, Next: [{Step: last}]}
  - {Name: five, Script: "5", End: true}
  - {Name: six, Script: "6", End: true}
  - {Name: last, Script: "1 // 0"}
"""
QUESTIONS = """\
%%dive workflow questions
Steps:
  - Name: fork
    Script: "1"
    Next:
      [{Step: text}, {Step: choice}, {Step: many}, {Step: flag}, {Step: number}, {Step: date}, {Step: record},
       {Step: approval}, {Step: review}, {Step: checkpoint}, {Step: publish}]
  - {Name: text, Ask: "What should it be called, and why that name and not one that is more widely used?", End: true}
  - Name: choice
    Ask:
      Question: "Which licence?"
      ExpiresIn: 3600
      Schema: {type: string, enum: [MIT, Apache-2.0, MPL-2.0], title: Licence}
    End: true
  - Name: many
    Ask:
      Question: "Which country?"
      Optional: true
      Schema:
        {type: string, title: Country, enum: [Austria, Belgium, Chile, Denmark, Estonia, France, Ghana, Hungary]}
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
          address:
            type: object
            title: Address
            properties: {street: {type: string, title: Street}, number: {type: integer, title: Number}}
          tags: {type: array, items: {type: string}, title: Tags}
    End: true
  - {Name: approval, Ask: {Kind: confirmation, Question: "Publish it?", Message: "It cannot be taken back."}, End: true}
  - Name: review
    Ask:
      Kind: agent_review
      Question: "Is this summary right?"
      Data:
        output: "A summary of three lines.\\nIts second line.\\nAnd its third, which is by far the longest of them all."
    End: true
  - {Name: checkpoint, Ask: {Kind: checkpoint, Question: "Go on with the expensive part?"}, End: true}
  - Name: publish
    Action: Test.Publish
    Parameters: {title: Deep water, pages: 12, tags: [sea, cold], link: "https://example.org/a/rather/long/path?with=a&query=too"}
"""
PUBLISH = """\
@divebook.action("Test.Publish", idempotent=True, approval=True)
async def publish(title: str, pages: int, tags: list, link: str) -> str:
    "Puts a text where everybody can read it."
    return title
"""
STANDS = """\
while w.position != int(Path("stood").read_text()):
    await asyncio.sleep(0.02)
f"stands at {w.position}"
"""
QUICK = """\
%%dive workflow quick
Steps:
  - {Name: add, Script: "1 + 1", Store: sum}
"""
MISTAKEN = """\
%%dive workflow mistaken
Steps:
  - Name: first
    Promt: say something
  - {Name: second, Script: "1", Next: [{Step: thrid}]}
"""
CARDS = [
    "%dive run quick",
    "%dive runs",
    "%dive help",
    "%dive show exec_01m00000000000000000000000",
    MISTAKEN,
]


def test_a_run_while_it_runs(lab, looks):
    notebook = lab(FLAKY, SHOWN, "%dive run shown --no-check")
    for cell in (1, 2):
        notebook.run_through(cell)
    notebook.run(3)
    live = notebook.output(3).locator(".db-root")
    notebook.until_began({"three", "four"})
    live.locator(".db-chip", has_text="scripts").wait_for()
    looks.at(notebook, "live", live)
    live.locator(".db-table summary").click()
    live.locator(".db-row", has_text="M writer").first.click()
    live.locator(".db-detail .db-said").first.wait_for()
    looks.at(notebook, "live-details", live)
    live.locator(".step", has_text="two").click()
    live.locator(".db-chip", has_text="step two").wait_for()
    looks.at(notebook, "live-one-step", live)
    (notebook.folder / "go").touch()
    notebook.wait_idle()


def test_questions_of_every_kind(lab, looks):
    notebook = lab(PUBLISH, QUESTIONS, "r = %dive run questions --background")
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    view = notebook.output(3).locator(".db-root")
    view.get_by_text("11 open questions").wait_for()
    looks.at(notebook, "questions-folded", view)
    for card in view.locator("article.card").all():
        if card.locator(".head").get_attribute("aria-expanded") == "false":
            card.locator(".head").click()
    looks.at(notebook, "questions", view)
    for card in view.locator("article.card").all():
        for name in ("Edit", "Add Address", "Add entry", "Answer"):
            button = card.get_by_role("button", name=name, exact=True)
            if button.count() and not card.get_by_text("Country").count():
                button.first.click()
    view.get_by_label("Calls like this one").select_option(label="Allow them in every run for a day")
    looks.at(notebook, "questions-edited", view)


def test_stepping_through_a_run(lab, looks):
    cells = FLAKY, SHOWN, "r = %dive run shown --no-check", "w = r.replay()\nw", STANDS, "w.step_back().position"
    notebook = lab(*cells)
    (notebook.folder / "go").touch()
    for cell in (1, 2, 3, 4):
        notebook.run_through(cell)
    replay = notebook.output(4).locator(".divebook-replay")
    replay.locator("output.place").get_by_text("0 of ").wait_for()
    looks.at(notebook, "replay-beginning", replay)
    step_through(replay)
    follow_each_other(notebook, replay)
    looks.at(notebook, "replay", replay)
    replay.get_by_role("button", name="Go to the end").click()
    replay.locator(".event[aria-selected=true]", has_text="run failed").wait_for()
    looks.at(notebook, "replay-end", replay)
    go_to_what_matters(replay)
    looks.at(notebook, "replay-filtered", replay)
    see_what_the_model_saw(replay)
    looks.at(notebook, "replay-messages", replay)


def go_to_what_matters(replay):
    """Go back to where a variable changed, on to an error by its key, and list the events of one step."""
    replay.get_by_label("Variable whose changes to find").select_option("said")
    replay.get_by_role("button", name="Go to the previous change of the variable").click()
    replay.locator(".changed, .added").first.wait_for()
    assert "said" in replay.locator(".event[aria-selected=true]").inner_text()
    replay.locator(".events").press("e")
    replay.locator(".event[aria-selected=true]", has_text="failed").wait_for()
    replay.get_by_label("Filter events by step").select_option("flaky")
    replay.locator(".filter [role=status]", has_text=" of ").wait_for()
    assert {where.split()[-1] for where in replay.locator(".event .where").all_inner_texts()} == {"flaky"}
    ask_why(replay)


def ask_why(replay):
    """Ask by keyboard why a variable has its value, go to the event that set it, and see what a fork repeats."""
    replay.get_by_role("button", name="Why said has this value").press("Enter")
    replay.locator(".causes li").first.wait_for()
    cause = int(replay.locator(".causes .number").first.inner_text())
    replay.get_by_role("button", name=f"Go to event {cause}", exact=True).first.press("Enter")
    replay.get_by_text(f"State after event {cause}", exact=True).wait_for()
    replay.get_by_role("button", name="Fork from here").press("Enter")
    replay.locator(".fork .price", has_text=f"{cause} events shared. Repeats").wait_for()


def follow_each_other(notebook, replay):
    """The object stands where somebody has gone in the page, and the page where a cell goes; so does the graph."""
    stood = int(replay.locator(".event[aria-selected=true] .number").inner_text())
    (notebook.folder / "stood").write_text(str(stood))
    notebook.run_through(5)
    notebook.see(5, f"stands at {stood}")
    notebook.run_through(6)
    replay.get_by_text(f"State after event {stood - 1}", exact=True).wait_for()
    replay.locator(".db-beside canvas").first.wait_for()
    step = replay.locator(".event[aria-selected=true] .where").inner_text().split()[-1].partition("[")[0]
    replay.locator(".step.here .name").get_by_text(step, exact=True).wait_for()


def see_what_the_model_saw(replay):
    """Go back to a call of the model, and read what it was sent."""
    replay.get_by_label("Filter events by step").select_option("all steps")
    replay.get_by_role("button", name="Go to the start").click()
    replay.locator(".events").press("m")
    replay.locator(".event[aria-selected=true]", has_text="model call started").wait_for()
    replay.get_by_role("tab", name="Messages").click()
    replay.locator(".said.user", has_text="about ").wait_for()  # of the item that came first: three run side by side


def step_through(replay):
    """Go forward from the beginning, set a breakpoint, play up to it, and go one back."""
    replay.get_by_role("button", name="Go to the start").click()
    forward = replay.get_by_role("button", name="Next event")
    forward.click()
    forward.click()
    replay.get_by_text("State after event 2").wait_for()
    replay.locator(".breakpoints > summary").click()
    replay.get_by_label("Type of breakpoint").select_option("step")
    replay.get_by_label("Value of breakpoint").select_option("flaky")
    replay.get_by_role("button", name="Add", exact=True).click()
    replay.get_by_label("Speed").select_option("500")
    replay.get_by_role("button", name="Play", exact=True).click()
    replay.get_by_role("button", name="Play", exact=True).wait_for()
    assert replay.locator(".event[aria-selected=true] .where").inner_text().split()[-1].endswith("flaky")
    stopped = int(replay.locator(".event[aria-selected=true] .number").inner_text())
    replay.get_by_role("button", name="Previous event").click()
    replay.get_by_text(f"State after event {stopped - 1}").wait_for()


def test_cards_of_the_magics(lab, looks):
    notebook = lab(PUBLISH, QUESTIONS, QUICK, "r = %dive run questions --background", *CARDS)
    for cell in range(1, len(CARDS) + 5):
        notebook.run_through(cell)
    for number in range(len(CARDS)):
        looks.at(notebook, f"card-{number}", notebook.output(number + 5))


def test_a_saved_run_without_kernel_and_extension(lab, tab, looks):
    notebook = lab(FLAKY, SHOWN, "%dive run shown")
    (notebook.folder / "go").touch()
    for cell in (1, 2, 3):
        notebook.run_through(cell)
    notebook.save()
    for trusted in (True, False):
        again = reopened(tab, notebook.folder, trusted=trusted)
        again.see(3, "failed")
        looks.at(again, f"saved-{'trusted' if trusted else 'untrusted'}", again.output(3))
