"""Runs in the cells of a real kernel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.notebook.stopping import WORKFLOW

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

LASTING = {"text/plain", "text/html", "application/vnd.divebook.run+json"}


@pytest.fixture(autouse=True)
def workflow(kernel):
    kernel.text(WORKFLOW)


def printed(outputs):
    return "".join(output.get("text", "") for output in outputs)


def test_a_run_is_awaited_and_shown_once(kernel):
    status, outputs = kernel.run("%dive run talker word=x")
    assert status == "ok"
    (shown,) = [output["data"] for output in outputs if "data" in output]
    assert set(shown) == LASTING
    assert "talker: ✓ completed" in shown["text/plain"]


@pytest.mark.parametrize("takes_input", [True, False])
def test_models_stream_where_a_live_view_comes_up(kernel, takes_input):
    kernel.run("%dive run talker word=x", allow_stdin=takes_input)
    told = kernel.text("from divebook.notebook.session import current_session; print(current_session().streams_text)")
    assert told.strip() == str(takes_input)


def test_a_front_end_gets_a_live_view_that_is_replaced_at_the_end(kernel):
    begun = []
    code = "%dive run talker word=x seconds=1 --new"  # one that has ended before it is shown has no live view
    kernel.run(code, lambda content: begun.append(content.get("data", {})))
    assert any("application/vnd.jupyter.widget-view+json" in data for data in begun)


def test_programs_that_run_notebooks_get_no_live_view(kernel):
    begun = []
    code = "%dive run talker word=x --new"
    kernel.run(code, lambda content: begun.append(content.get("data", {})), allow_stdin=False)
    assert [set(data) for data in begun if data] == [LASTING]


SHOWS_WIDGETS = "from divebook.notebook.shell_state import shows_widgets; print(shows_widgets())"


@pytest.mark.parametrize(
    ("session", "parent", "file"), [(True, True, True), (False, True, True), (True, False, True), (True, True, False)]
)
def test_a_kernel_of_a_jupyter_server_has_a_page_although_its_cells_take_no_input(kernel, session, parent, file):
    start = f"import os; before = dict(os.environ); session, parent = {session}, {parent}"
    variables = """
os.environ.pop("JPY_SESSION_NAME", None)
if session:
    os.environ["JPY_SESSION_NAME"] = "/somewhere/n.ipynb"
if not parent:
    os.environ["JPY_PARENT_PID"] = "1"
"""
    kernel.text(f"{start}\n{variables}\n0")
    place = "from ipykernel.connect import get_connection_file; print(get_connection_file())"
    runtime = Path(kernel.text(place).strip()).with_name(f"jpserver-{os.getpid()}.json")
    if file:
        runtime.write_text("{}")
    try:
        (shown,) = kernel.run(SHOWS_WIDGETS, allow_stdin=False)[1]
        assert shown["text"].strip() == str(session and parent and file)
    finally:
        runtime.unlink(missing_ok=True)
        kernel.text("os.environ.clear(); os.environ.update(before); 0")


def test_a_question_in_a_cell_without_input_waits_only_if_a_page_shows_it(kernel):
    kernel.text("%%dive workflow asks\nSteps:\n  - {Name: ask, Ask: Sure?, Store: sure}\n")
    kernel.text("import os; os.environ['JPY_SESSION_NAME'] = '/somewhere/n.ipynb'; 0")
    place = "from ipykernel.connect import get_connection_file; print(get_connection_file())"
    runtime = Path(kernel.text(place).strip()).with_name(f"jpserver-{os.getpid()}.json")
    runtime.write_text("{}")
    displays = []
    try:
        status, outputs = kernel.run(
            "%dive run asks", lambda content: displays.append(content.get("data", {})), allow_stdin=False
        )
    finally:
        runtime.unlink()
        kernel.text("del os.environ['JPY_SESSION_NAME']; 0")
    assert any("application/vnd.jupyter.widget-view+json" in data for data in displays)
    assert status == "ok"
    assert any("waiting" in output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.parametrize("program", ["nbconvert", "execute"])
def test_programs_that_a_cell_of_a_server_starts_have_no_page(program, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SHOWS_WIDGETS)])
    nbformat.write(notebook, tmp_path / "n.ipynb")
    (tmp_path / f"jpserver-{os.getpid()}.json").write_text("{}")
    server = {"JPY_SESSION_NAME": "/somewhere/n.ipynb", "JPY_PARENT_PID": str(os.getpid())}
    environment = {**os.environ, **server, "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    options = ["--to", "notebook", "--execute"] if program == "nbconvert" else []
    command = [sys.executable, "-m", "jupyter", program, *options, "--inplace", "n.ipynb"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    (cell,) = nbformat.read(tmp_path / "n.ipynb", 4).cells
    assert cell.outputs[0].text.strip() == "False"


def test_the_same_cell_shows_its_run_again_and_runs_nothing(kernel):
    first, again, anew = (kernel.run(f"%dive run talker word=again {flag}".strip()) for flag in ("", "", "--new"))
    assert (printed(first[1]), printed(anew[1])) == ("begin again\nend again\n", "begin again\nend again\n")
    assert printed(again[1]).startswith("this cell's run has completed at ")
    shown = [[output["data"] for output in outputs if "data" in output] for _, outputs in (first, again)]
    assert [data["text/plain"] for data in shown[0]] == [data["text/plain"] for data in shown[1]]


def test_a_loop_in_a_cell_makes_several_runs_and_gets_each_back(kernel):
    code = "ids = []\nfor _ in range(2):\n    r = %dive run talker word=loop\n    ids.append(r.id)"
    kernel.run(code)
    first = kernel.text("ids")
    assert len(set(eval(first))) == 2
    kernel.run(code)
    assert kernel.text("ids") == first


def test_the_same_cell_goes_on_with_a_run_that_was_interrupted(kernel):
    kernel.run_and_interrupt("%dive run talker word=y seconds=0.7", when="begin y")
    status, outputs = kernel.run("%dive run talker word=y seconds=0.7")
    assert status == "ok"
    assert " continues at step nap; --new starts a new run" in printed(outputs)
    assert printed(outputs).endswith("end y\n")
    assert "begin y" not in printed(outputs)


def test_a_definition_that_changed_under_an_unfinished_run_is_told(kernel):
    kernel.run_and_interrupt("%dive run talker word=z seconds=0.7", when="begin z")
    kernel.text(WORKFLOW.replace("print('end'", "print('the end'"))
    status, outputs = kernel.run("%dive run talker word=z seconds=0.7")
    (error,) = [output for output in outputs if "traceback" in output]
    assert status == "error"
    assert "The definition of 'talker' changed since run exec_" in error["traceback"][0]
    assert "--changed reuse (1 operation reused, 0 live)" in error["traceback"][0]
    status, outputs = kernel.run("%dive run talker word=z seconds=0.7")
    assert status == "error"


def test_the_kernels_loop_stays_free_while_a_cell_waits(kernel):
    kernel.text("""
import asyncio
ticks = []
async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(.02)
task = asyncio.ensure_future(tick())
0
""")
    kernel.run("%dive run talker word=x seconds=0.3")
    assert int(kernel.text("task.cancel()\nlen(ticks)").removeprefix("True")) >= 5


def test_awaiting_and_blocking_both_work_in_a_cell(kernel):
    kernel.text("import divebook\n0")
    assert kernel.text("(await divebook.run('talker', {'word': 'x'})).status").endswith("'completed'")
    assert kernel.text("divebook.run('talker', {'word': 'x'}).wait().status").endswith("'completed'")


def test_it_works_under_magics_that_run_cells_themselves(kernel):
    assert kernel.run("%%capture captured\nr = %dive run talker word=x\n")[0] == "ok"
    assert kernel.text("r.status, captured.stdout") == r"('completed', 'begin x\nend x\n')"
    assert kernel.run("%%time\nr = %dive run talker word=y\n")[0] == "ok"
    assert "'y'" in kernel.text("r.inputs")


def test_what_a_run_prints_appears_below_the_cell_that_started_it(kernel):
    kernel.run("slow = %dive run talker word=slow seconds=0.2 --background")
    status, outputs = kernel.run("%dive run talker word=quick")
    assert (status, printed(outputs)) == ("ok", "begin quick\nend quick\n")
    assert printed(kernel.run("slow.wait()\n0")[1]) == ""


def test_a_problem_in_a_cell_is_an_error_without_traceback(kernel):
    status, outputs = kernel.run("%%dive workflow w\nSteps:\n  - {Name: s, Scrip: 1}\n")
    assert status == "error"
    (error,) = [output for output in outputs if "traceback" in output]
    assert error["ename"] == "DefinitionError"
    assert error["traceback"][0].startswith("DefinitionError: cell line 3, column 15: unknown key 'Scrip'")


def test_an_interrupt_pauses_the_run_durably_and_fails_the_cell(kernel):
    status, outputs = kernel.run_and_interrupt("%dive run talker word=x seconds=60", when="begin x")
    assert status == "error"
    (error,) = [output for output in outputs if "traceback" in output]
    assert error["ename"] == "ExecutionPausedError"
    told, advice = error["traceback"]
    assert told.startswith("interrupted: run exec_")
    assert told.endswith(" is paused; 1 completed call saved")
    execution_id = advice.removeprefix("Run the cell again to continue, or: %dive resume ")
    assert kernel.text(f"r = %dive show {execution_id}\nr.status, list(r.steps.status)") == (
        "('paused', ['completed', 'running'])"
    )


def test_an_interrupt_while_the_kernel_is_blocked_does_the_same(kernel):
    code = "def f():\n    return get_ipython().run_line_magic('dive', 'run talker word=x seconds=60')\nf()"
    status, outputs = kernel.run_and_interrupt(code, when="begin x")
    assert status == "error"
    (error,) = [output for output in outputs if "traceback" in output]
    assert error["ename"] == "ExecutionPausedError"


def test_an_interrupted_run_is_resumed(kernel):
    _, outputs = kernel.run_and_interrupt("%dive run talker word=x seconds=0.5", when="begin x")
    (error,) = [output for output in outputs if "traceback" in output]
    execution_id = error["traceback"][1].split()[-1]
    status, outputs = kernel.run(f"%dive resume {execution_id}")
    assert (status, printed(outputs)) == ("ok", "end x\n")


def test_a_model_defined_in_a_cell_comes_back_as_the_newest_class_of_that_name(kernel):
    kernel.text("""
import divebook
from pydantic import BaseModel
from divebook.definitions import step, workflow

@divebook.allow
class Order(BaseModel):
    number: int

@step
def order():
    return Order(number=1)

@workflow
async def ordering(ctx):
    return await order()

ordered = divebook.run("ordering").wait()
0
""")
    assert kernel.text("type(ordered.outputs['result']) is Order") == "True"
    assert (
        kernel.text("class Order(BaseModel):\n    number: int\n    more: int = 4\nordered.outputs['result']")
        == "Order(number=1, more=4)"
    )
    assert "Order(number=1)" in kernel.text("str(ordered)")


def test_a_fresh_kernel_replays_a_run_from_the_notebook_alone(kernel, tmp_path):
    kernel.run("r = %dive run talker word=x")
    (shown,) = [output["data"] for output in kernel.run("r")[1]]
    cell = {"cell_type": "code", "outputs": [{"output_type": "display_data", "data": shown}]}
    (tmp_path / "old.ipynb").write_text(json.dumps({"cells": [cell]}))
    kernel.text("import divebook.notebook.session as own; own.open_session('memory:'); 0")
    told = kernel.text(
        f"runs = %dive open {tmp_path / 'old.ipynb'}\nruns[0].status, len(runs[0].steps), runs[0].inputs['word']"
    )
    assert told == "('completed', 3, 'x')"
    kernel.text("own.reset_session(); 0")
