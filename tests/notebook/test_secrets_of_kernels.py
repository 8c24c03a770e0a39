"""Secrets that only their form gives away, in what agents write, get and raise: no notebook has one afterwards."""

import json
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell, new_notebook, output_from_msg

from divebook.widgets.recording import MIME, read_saved
from tests.planted import told, traces

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

BEGIN = f"""
import logging, os, sys
os.environ["DIVEBOOK_ALLOW"] = "credentials"
%load_ext divebook
logging.basicConfig(level=logging.DEBUG, stream=sys.__stderr__)
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import divebook
from divebook.notebook.session import current_session
from tests.planted import told
TEXTS = [text for text, _ in told().values()]
GIVEN = []

@divebook.tool
def tells(said: list[str]) -> dict:
    "Tell what it was told, and more."
    GIVEN.append(said)
    logging.getLogger("divebook.of_the_test").warning("it was told %s", len(said))
    return {{"as they are": TEXTS, "deep": {{text: {{"k": [text]}} for text in TEXTS}}, "plain": "harmless words"}}

@divebook.tool
def breaks(said: list[str]) -> str:
    "Raise what it was told."
    try:
        {{}}["\\n".join(said)]
    except KeyError as error:
        raised = ValueError(said, *said)
        raised.add_note("\\n".join(said))
        raise raised from error

for name, call in (("teller", "tells"), ("breaker", "breaks")):
    model = divebook.ScriptedModel([{{"call": {{call: {{"said": TEXTS}}}}}}, "\\n".join(["I know:", *TEXTS])])
    agent = divebook.Agent(name, model=model, tools=[globals()[call]], approvals=[divebook.definitions.ApprovalRule()])
    current_session().environment.add_agent(agent)
"""
CELLS = [
    BEGIN,
    '%dive ask teller "Go"',
    '%dive ask breaker "Go"',
    "%dive inbox",
    "%dive list",
    "divebook.runs().frame()[['id', 'status', 'error']]",
    "GIVEN == [TEXTS]",
]


def outputs_of(heard):
    """Return the outputs of a cell as a front end saves them: what was updated as it was last."""
    outputs, places = [], {}
    for message in heard:
        name = message["content"].get("transient", {}).get("display_id")
        if message["msg_type"] == "update_display_data" and name in places:
            places[name].data = message["content"]["data"]
        elif message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
            outputs.append(output_from_msg(message))
            places[name] = outputs[-1]
    return outputs


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Run the cells in a kernel; return what is left by where it is: the notebook, messages to pages, stderr."""
    folder = tmp_path_factory.mktemp("told")
    book, messages = new_notebook(), []
    with (folder / "stderr").open("w") as errors:
        manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), stderr=errors)
        for source in CELLS:
            heard = []
            client.execute_interactive(source, output_hook=heard.append, timeout=60, allow_stdin=True)
            messages += [said["content"] for said in heard if said["msg_type"].startswith("comm_")]
            book.cells.append(new_code_cell(source, outputs=outputs_of(heard)))
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    nbformat.write(book, folder / "told.ipynb")
    held = (cell.outputs for cell in book.cells)
    packed = [one["data"].get(MIME) for outputs in held for one in outputs if "data" in one]
    return {
        "packed": json.dumps([read_saved(run) for run in packed if run]),
        "notebook": (folder / "told.ipynb").read_text(),
        "messages": json.dumps(messages, default=repr),
        "stderr": (folder / "stderr").read_text(),
    }


@pytest.mark.parametrize("what", told())
def test_a_secret_that_looks_like_one_is_in_no_notebook(left, what):
    text, secret = told()[what]
    hits = {where: trace[:30] for where, found in left.items() for trace in traces(secret) if trace in found}
    assert hits == {}, text[:40]


def test_the_tool_got_what_the_model_wrote_and_all_was_shown(left):
    shown = json.loads(left["notebook"])["cells"]
    assert shown[-1]["outputs"][0]["data"]["text/plain"] == ["True"]
    assert "I know:" in json.dumps(shown[1]["outputs"])
    assert "harmless words" in left["packed"]
    assert [output["output_type"] for output in shown[2]["outputs"]][-1] == "error"
    assert "ValueError" in json.dumps(shown[2]["outputs"])
    assert "it was told 36" in left["stderr"]
