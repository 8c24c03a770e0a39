"""Files that a run changes: a card that asks which to take over, and what has changed, live and saved."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def server(extended):
    return extended


PREPARED = """\
import os
os.environ["DIVEBOOK_ALLOW"] = "programs"
Path("app").mkdir(exist_ok=True)
Path("app/calc.py").write_text("def add(a, b):\\n    return a - b\\n")
Path("app/notes.txt").write_text("To do\\n")
"""
BOOK = """\
%%dive
Workspaces:
- {Name: app, Folder: app}
Workflows:
- Name: repair
  Workspace: app
  Steps:
  - Name: fix
    Action: Workspace.Shell
    Parameters: {Command: "sed -i s/-/+/ calc.py; echo ok >> notes.txt; seq 9 > new"}
  - {Name: take, Action: Workspace.Apply, Store: taken}
"""


def test_files_are_chosen_on_a_card_with_their_differences_and_stay_in_sight(lab, looks, folder):
    notebook = lab(PREPARED, BOOK, "run = %dive run repair --new")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.run(3)
    card = notebook.output(3).locator("article.card").first
    card.wait_for()
    card.locator(".difference .came", has_text="return a + b").wait_for()
    files = notebook.output(3).locator(".divebook-files")
    files.get_by_text("Changed files (3)").wait_for()
    looks.at(notebook, "files-card", card)
    looks.at(notebook, "files-changed", files)
    files.get_by_label("Files after").select_option(index=2)
    files.locator(".at").get_by_text("Copy %dive restore").wait_for()
    looks.at(notebook, "files-at-an-event", files)
    files.get_by_label("Files after").select_option("0")
    files.locator(".came", has_text="return a + b").wait_for()
    files.get_by_role("button", name="Split").click()
    looks.at(notebook, "files-side-by-side", files)
    files.get_by_role("button", name="Unified").click()
    files.get_by_label("compared with").select_option(index=1)
    looks.at(notebook, "files-compared", files)
    files.get_by_label("compared with").select_option("0")
    files.locator(".came", has_text="return a + b").wait_for()
    card.get_by_label("notes.txt").uncheck()
    card.get_by_role("button", name="Answer").click()
    notebook.wait_idle()
    notebook.see(3, "completed")
    app = Path(folder) / "app"
    assert "a + b" in (app / "calc.py").read_text()
    assert (app / "notes.txt").read_text() == "To do\n"
    notebook.save()
    notebook.reload()
    kept = notebook.output(3).locator(".divebook-files")
    kept.locator(".came", has_text="return a + b").wait_for()
    looks.at(notebook, "files-saved", kept)


def test_changed_files_are_taken_over_from_the_view(lab, looks, folder):
    untold = BOOK.replace("  - {Name: take, Action: Workspace.Apply, Store: taken}\n", "")
    notebook = lab(PREPARED, untold, "run = %dive run repair --new --background")
    notebook.run_through(1)
    notebook.run_through(2)
    notebook.run_through(3)
    files = notebook.output(3).locator(".divebook-files")
    # With keys only: the tree has a tab stop, J goes to the next file, and X leaves it out.
    tree = files.get_by_role("tree")
    tree.get_by_role("treeitem", name="calc.py").focus()
    for key in ("j", "j", "x"):
        notebook.page.keyboard.press(key)
    assert not files.get_by_label("Apply notes.txt").is_checked()
    files.get_by_role("button", name="Apply 2 files").click()
    files.get_by_text("calc.py, new").wait_for()
    looks.at(notebook, "files-taken-over", files)
    app = Path(folder) / "app"
    assert "a + b" in (app / "calc.py").read_text()
    assert (app / "notes.txt").read_text() == "To do\n"
    (app / "notes.txt").write_text("Done meanwhile\n")
    files.get_by_label("Apply notes.txt").check()
    files.get_by_role("button", name="Apply 3 files").click()
    files.get_by_text("Nothing was written: ").wait_for()
    assert (app / "notes.txt").read_text() == "Done meanwhile\n"


AGENT = """\
from divebook import Agent, ScriptedModel
from divebook.notebook.session import current_session
os.mkfifo("gate")
command = f"printf 'collected 14 items\\\\n\\\\033[32m10%%\\\\r50%%\\\\r\\\\n'; cat {Path('gate').resolve()}; echo done"
turns = [[{"call": {"shell": {"command": command}}}, "All pass."]]
current_session().environment.add_agent(Agent("tester", model=ScriptedModel(turns=turns), workspace="app",
                                              approvals=[{"tool": "shell"}]))
"""


def test_what_a_command_prints_is_seen_while_it_runs(lab, looks, folder):
    notebook = lab(PREPARED, BOOK, AGENT, "r = %dive ask tester 'Run the tests.'")
    for place in (1, 2, 3):
        notebook.run_through(place)
    notebook.run(4)
    printed = notebook.output(4).locator(".printed")
    printed.get_by_text("50%").wait_for()
    assert printed.inner_text() == "collected 14 items\n50%"
    looks.at(notebook, "command-runs", notebook.output(4))
    (Path(folder) / "gate").write_text("go on\n")
    notebook.wait_idle()
    notebook.see(4, "All pass.")
    printed.wait_for(state="hidden")
