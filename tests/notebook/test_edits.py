"""A cell that is run again after its functions were edited shows no old result, and repeats nothing else."""

import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from divebook.errors import CodeChangedError, ExecutionError
from divebook.notebook import code_change_choice, magics
from divebook.notebook.rerun import CellPlace
from divebook.notebook.session import current_session
from divebook.notebook.shell_state import FrontEnd, notebook_of, present_front_end

FUNCTIONS = """
from divebook.definitions import step, workflow
MADE = []
def helper(x):
    return x + 1
@step
def first(x):
    MADE.append("first")
    return x
@step
def inc(x):
    MADE.append("inc")
    return helper(x)
@step
def after(x):
    MADE.append("after")
    return x
@workflow
async def flow(ctx, n: int = 1):
    return await after(await inc(await first(n)))
"""


def place(**told):
    return CellPlace({"notebook": "", "cell": "", "source": "s", "kernel": "", **told}, 1)


HERE = place(notebook="n.ipynb", cell="c1")


def start(where=HERE, inputs=None, **wishes):
    session = current_session()
    wishes.setdefault("on_edit", "again")
    return session.start_at(where, session.workflow("flow"), inputs or {"n": 1}, **wishes).wait(20)


@pytest.fixture
def edit(cell, shell):
    """Return ``edit(old, new)``, which runs the defining cell with a change and forgets what was called."""

    def run(old="", new=""):
        assert old in FUNCTIONS
        made = shell.user_ns.get("MADE")
        cell(FUNCTIONS.replace(old, new) if old else FUNCTIONS)
        if made is not None:
            shell.user_ns["MADE"] = made
            made.clear()

    run()
    return run


def made(shell):
    return shell.user_ns["MADE"]


def test_what_comes_before_the_edited_function_is_reused(edit, shell):
    old = start()
    edit("return x + 1", "return x + 100")
    run = start()
    assert (run.outputs["result"], made(shell)) == (101, ["inc", "after"])
    assert f"function helper changed since run {old.id} of this cell" in run.internals.options.remark
    assert f"the new run {run.id} reuses the first 1 call of that run" in run.internals.options.remark
    assert f"%dive show {old.id}" in run.internals.options.remark
    record = run.store.record(run.id)
    assert (record.origin, record.parent, record.notebook, record.cell) == ("fork", old.id, "n.ipynb", "c1/1")
    again = start()
    assert (again.id, made(shell)) == (run.id, ["inc", "after"])


def test_where_the_first_call_was_edited_the_run_is_a_new_one(edit, shell):
    start()
    edit("    return x\n@step\ndef inc", "    return x * 2\n@step\ndef inc")
    run = start()
    assert (run.outputs["result"], made(shell)) == (3, ["first", "inc", "after"])
    assert "step first changed" in run.internals.options.remark
    assert "is a new run" in run.internals.options.remark


def test_an_edit_that_the_run_has_not_called_leaves_its_result(edit, shell):
    old = start()
    edit("MADE = []", "MADE = []\ndef unused():\n    return 5")
    assert (start().id, made(shell)) == (old.id, [])


def test_a_person_is_offered_both(edit, shell):
    old = start()
    edit("return x + 1", "return x + 100")
    told = r"helper changed .*--changed again .*reuses 1 call; 2 completed calls repeated.*--changed keep"
    with pytest.raises(ExecutionError, match=told):
        start(on_edit="ask")
    assert made(shell) == []
    assert start(on_edit="keep").id == old.id
    assert start(on_edit="ask").id == old.id, "it was kept, and nothing was edited since"
    edit("return x + 1", "return x + 200")
    with pytest.raises(CodeChangedError):
        start(on_edit="ask")
    assert start(on_edit="again").outputs["result"] == 201


class Page:
    """A browser that presses one button in each offer, or interrupts, or is not there."""

    def __init__(self, monkeypatch, presses):
        self.offered = []
        monkeypatch.setattr(code_change_choice, "ChoiceOutput", self._shown)
        monkeypatch.setattr(code_change_choice, "GREETING_TIMEOUT", 0.0)
        self._presses = presses

    def _shown(self, error):
        self.offered.append(error)
        presses_stop = self._presses is KeyboardInterrupt
        is_watched = bool(self._presses) and not presses_stop
        output = SimpleNamespace(choice=self._presses or "", is_watched=is_watched, remove=lambda: None)
        output.view = SimpleNamespace(greeted=Stopped() if presses_stop else threading.Event())
        if output.is_watched:
            output.view.greeted.set()
        return output


class Stopped(threading.Event):
    """Somebody presses the button that interrupts the kernel while this is waited for."""

    def is_set(self):
        signal.raise_signal(signal.SIGINT)
        return False


@pytest.fixture
def edited(edit, shell, monkeypatch):
    """Return a run whose function was edited, in a cell of a front end that shows widgets."""
    front_end = FrontEnd(has_kernel=True, takes_input=True, cell=HERE.cell, count=7)
    old = start()
    edit("return x + 1", "return x + 100")
    monkeypatch.setattr(magics, "present_front_end", lambda _shell: front_end)
    monkeypatch.setattr(magics, "wait_in_cell", lambda begun, *_: code_change_choice.wait_for_choice(begun))
    return old


@pytest.mark.parametrize(("pressed", "result"), [("again", 101), ("keep", 2)])
def test_pressing_a_button_does_what_it_says(edited, shell, monkeypatch, capsys, pressed, result):
    page = Page(monkeypatch, pressed)
    run = shell.run_line_magic("dive", "run flow n=1").wait(20)
    assert (run.outputs["result"], run.id == edited.id) == (result, pressed == "keep")
    (error,) = page.offered
    assert error.told.endswith(
        f"function helper changed since run {edited.id} of this cell, so that run is not shown as the result "
        "of the cell."
    )
    assert list(error.choices) == ["again", "keep"]
    assert f"run {edited.id}" in capsys.readouterr().out or pressed == "keep"


@pytest.mark.parametrize("presses", [None, KeyboardInterrupt])
@pytest.mark.parametrize("option", ["", "--strict", "--background"])
def test_where_no_button_is_pressed_the_cell_fails_and_names_the_commands(edited, shell, monkeypatch, presses, option):
    page = Page(monkeypatch, presses)
    with pytest.raises(CodeChangedError, match=r"Add one of: --changed again \(.*\), --changed keep"):
        shell.run_line_magic("dive", f"run flow n=1 {option}")
    assert len(page.offered) == (not option)
    assert made(shell) == []


def test_an_offer_is_understood_without_a_kernel(edited):
    with pytest.raises(CodeChangedError) as caught:
        start(on_edit="ask")
    bundle = code_change_choice.static_bundle(caught.value)
    assert (
        "<code>--changed again</code>: runs the workflow from the first call that the change can affect"
        in bundle["text/html"]
    )
    assert "<code>--changed keep</code>: shows the old run unchanged" in bundle["text/html"]
    assert "  --changed again: runs the workflow from the first call" in bundle["text/plain"]


def test_a_run_that_failed_is_mended_where_it_is(edit, shell):
    edit("return helper(x)", "raise ValueError(x)")
    failed = start()
    assert failed.status == "failed"
    edit()
    run = start(on_edit="ask")
    assert (run.id, run.outputs["result"], made(shell)) == (failed.id, 2, ["inc", "after"])


def test_a_run_that_was_mended_is_shown_and_nothing_is_asked(cell, shell):
    """Whoever goes on with it keeps what it did, though the call that completed had used what was edited."""
    twice = FUNCTIONS.replace("await first(n)", "await inc(n)")
    cell(twice.replace("return x + 1", "return {1: 2}[x]"))
    failed = start()
    assert failed.status == "failed"
    cell(twice)
    with pytest.raises(CodeChangedError, match="continues the old run, with its 1 completed call,"):
        start(on_edit="ask")
    mended = start(on_edit="keep")
    assert (mended.id, mended.outputs["result"], made(shell)) == (failed.id, 3, ["inc", "after"])
    assert start(on_edit="ask").id == failed.id
    assert made(shell) == ["inc", "after"]
    cell(twice.replace("return x + 1", "return x + 10"))
    with pytest.raises(CodeChangedError, match="its start; 3 completed calls repeated"):
        start(on_edit="ask")


def test_what_was_edited_before_its_call_counts_as_called_with_the_new_code(edit, shell):
    edit(
        "return await after(await inc(await first(n)))",
        "n = await first(n); await ctx.ask('Go on?'); return await inc(n)",
    )
    waiting = start()
    assert waiting.status == "waiting"
    shell.run_cell(
        FUNCTIONS.replace("return x + 1", "return x + 100").replace(
            "return await after(await inc(await first(n)))",
            "n = await first(n); await ctx.ask('Go on?'); return await inc(n)",
        )
    )
    assert waiting.answer(waiting.open_questions[0].id, "yes").wait(20).outputs["result"] == 101
    calls = list(made(shell))
    again = start(on_edit="ask")
    assert (again.id, again.outputs["result"], made(shell)) == (waiting.id, 101, calls)


def test_an_edited_workflow_is_run_anew(edit, shell):
    old = start()
    edit("return await after(await inc(await first(n)))", "return await inc(n)")
    run = start()
    assert (run.id != old.id, run.outputs["result"], made(shell)) == (True, 2, ["inc"])


def test_notebooks_that_are_not_named_share_only_what_is_equal(edit, shell):
    old = start(place(kernel="k1"))
    same = start(place(kernel="k2"))
    assert same.id == old.id
    assert (
        "of the same cell in another notebook (its name is unknown), with the same inputs and code,"
        in same.internals.options.remark
    )
    assert start(place(kernel="k3"), {"n": 2}).id != old.id
    edit("return x + 1", "return x + 100")
    other = start(place(kernel="k4"))
    assert (other.outputs["result"], made(shell)) == (101, ["first", "inc", "after"])
    assert other.internals.options.remark == ""


def test_one_kernel_is_one_notebook(edit, shell):
    start(place(kernel="k1"))
    edit("return x + 1", "return x + 100")
    run = start(place(kernel="k1"))
    assert (run.outputs["result"], made(shell)) == (101, ["inc", "after"])


def test_notebooks_of_different_names_share_nothing(edit):
    old = start(place(notebook="a.ipynb"))
    assert start(place(notebook="b.ipynb")).id != old.id
    assert start(place(notebook="a.ipynb")).id == old.id


def test_a_renamed_notebook_keeps_its_runs_and_a_copied_one_begins_its_own(edit, shell, tmp_path):
    first, copy, renamed = (str(tmp_path / name) for name in ("a.ipynb", "copy.ipynb", "b.ipynb"))
    Path(first).touch()
    old = start(place(notebook=first, cell="c1", kernel="k1"))
    own = start(place(notebook=copy, cell="c1", kernel="k2"))
    assert own.id != old.id
    own.environment.store.delete(own.id)
    Path(first).rename(renamed)
    made(shell).clear()
    found = start(place(notebook=renamed, cell="c1", kernel="k3"))
    assert (found.id, made(shell)) == (old.id, [])
    assert found.internals.options.remark.startswith("this cell's run has completed")
    assert start(place(notebook=renamed, cell="c2", kernel="k3")).id != old.id


@pytest.mark.parametrize("name", ["__vsc_ipynb_file__", "PAPERMILL_INPUT_PATH"])
def test_the_notebook_is_what_the_front_end_or_the_parameters_tell(shell, monkeypatch, name):
    monkeypatch.setenv("JPY_SESSION_NAME", "from/jupyter.ipynb")
    assert notebook_of(shell) == "from/jupyter.ipynb"
    shell.user_ns[name] = "from/elsewhere.ipynb"
    assert notebook_of(shell) == "from/elsewhere.ipynb"


def test_what_to_do_about_edits_is_one_of_two(cell, edit):
    with pytest.raises(UsageError, match="--changed must be one of again, keep, reuse, not 'no'"):
        cell("%dive run flow --changed no")


def test_runs_are_found_by_what_was_said_of_them(cell, edit):
    cell("%dive run flow n=1")
    cell("r = %dive run flow n=1 --tag first --tag 'second one' --note 'to be kept'")
    found = cell("%dive runs --tag 'second one'")[0].frame()
    assert len(found) == 1
    assert cell("r.store.record(r.id).note")[0] == "to be kept"
    assert len(cell("%dive runs --notebook nowhere.ipynb")[0]) == 0
    assert len(cell("%dive runs --origin run")[0]) == 2


def test_a_front_end_without_a_kernel_names_no_cell(shell):
    assert isinstance(present_front_end(shell), FrontEnd)
    assert present_front_end(shell).cell is None


COUNTED = """
from enum import Enum
from divebook.definitions import workflow
CONVERTED = []
class Colour(Enum):
    RED = "red"
    @classmethod
    def _missing_(cls, value):
        CONVERTED.append(value)
        return cls.RED
@workflow
async def paint(ctx, colour: Colour):
    return colour.value
"""


def test_the_inputs_of_a_cell_are_converted_once(cell, shell):
    """The search for the earlier run, the start key and the start share the converted inputs."""
    cell(COUNTED)
    session = current_session()
    run = session.start_at(HERE, session.workflow("paint"), {"colour": "rot"}).wait(20)
    assert (run.status, run.outputs["result"], shell.user_ns["CONVERTED"]) == ("completed", "red", ["rot"])
    again = session.start_at(HERE, session.workflow("paint"), {"colour": "rot"})
    assert (again.id, shell.user_ns["CONVERTED"]) == (run.id, ["rot", "rot"])
