"""Forty secrets that a definition names: tools, servers and models get them and repeat them, and nothing keeps them.

Each is put into arguments of tools, headers and variables of servers, headers and keys of models; each comes back in
results, errors, lists of tools, questions, and in what a model writes. Looked through is all that is left afterwards.
"""

import importlib.util
import io
import json
import logging
import threading
from base64 import b64encode
from contextlib import contextmanager, redirect_stderr
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.clients import CLIENTS
from divebook.cli.main import app
from divebook.definitions import ApprovalRule, definitions_from
from divebook.definitions.resources import AgentDefinition, ModelSettings
from divebook.documents import Policy
from divebook.runtime.loop import ENGINE
from divebook.text.passwords import REDACTED as HIDDEN
from tests.agents.model_server import ModelServer
from tests.planted import contents, traces, values
from tests.tools.conftest import defined

VALUES = values()
NAMED = "openai-chat:gpt-4o-mini"
PATIENCE = 60
PLAIN = "the harmless words of a result"


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class RefusedError(Exception):
    """Says more than its arguments."""

    def __init__(self, said):
        super().__init__(said, said.encode(), {"deep": [said]}, (said,))
        self.token, self.held = said, {said: said}

    def __str__(self):
        return f"refused with {self.held}"


def repeated(found):
    """Return secrets in the forms in which they come back."""
    texts = list(found)
    return {
        "as they are": texts,
        "a class of its own": Text(texts[0]),
        "deep": {"names": {text: {"k": [text, 1]} for text in texts}},
        "bytes": [text.encode() for text in texts],
        "in base64": [b64encode(f"ann:{text}".encode()).decode() for text in texts],
        "in an address": [f"https://x.example/?q={quote(text)}&w={quote(text, safe='')}" for text in texts],
        "in JSON in a text": json.dumps({"held": texts}),
        "on one line": [" ".join(text.split()) for text in texts],
        "plain": PLAIN,
    }


GIVEN = []


@tool
def tells(said: str, held: dict) -> dict:
    """Tell what it holds."""
    GIVEN.append((said, held))
    return repeated(held.values())


@tool
def breaks(held: dict) -> str:
    """Raise what it holds, with a note and two causes."""
    text = " and ".join(held.values())
    try:
        try:
            {}[text]
        except KeyError as error:
            raise ValueError(text, text.encode()) from error
    except ValueError as error:
        raised = RefusedError(text)
        raised.add_note(text)
        raise raised from error


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Name the secrets, half of them by variables and half by files."""
    folder = tmp_path_factory.mktemp("named")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        found = {}
        for number, (what, secret) in enumerate(VALUES.items()):
            if number % 2:
                (folder / f"held-{number}").write_text(f"{secret}\n")
            else:
                patched.setenv(f"HELD_{number}", secret)
            found[what] = f"file://held-{number}" if number % 2 else f"env://HELD_{number}"
        patched.setenv("OPENAI_API_KEY", "another-key-41c9")
        yield found


def definitions(references):
    tools = [{"Name": name, "Parameters": {"held": references}} for name in ("tells", "breaks")]
    return definitions_from({"Tools": tools})


def world(folder, references, server):
    """Return an environment in which everything gets the secrets."""
    variables = {f"LEAK_{number}": reference for number, reference in enumerate(references.values())}
    leaky = defined("leaky.py", name="leaky", env=variables)
    headers = {f"X-{n}": [ref] for n, (what, ref) in enumerate(references.items()) if VALUES[what].isprintable()}
    headers = {name: given for name, given in headers.items() if name != "X-37"}  # no header holds a "ü"
    settings = ModelSettings(request_headers=headers)

    def wire(name, key, **more):
        return Agent(AgentDefinition(name, api_key=key, model_settings=settings, **more), model=NAMED)

    def scripted(name, call, **more):
        return Agent(AgentDefinition(name, **more), model=ScriptedModel([{"call": {call: {}}}, "done"]))

    agents = [
        wire("teller", references["OpenAI project"], tools=("tells",), servers=("leaky",), cache="1d"),
        wire("stranger", references["Anthropic"]),
        scripted("breaker", "breaks", tools=("breaks",)),
        scripted("dying", "dies", servers=("leaky",)),
        scripted("asking", "asks", servers=("leaky",)),
    ]
    made = Environment(
        store=str(folder / "runs.db"),
        agents=agents,
        tools=[tells, breaks],
        servers=[leaky],
        policy=Policy("programs", "addresses", "environment"),
        approvals=[ApprovalRule()],
    )
    made.define(definitions(references))
    return made


def replies():
    """Return what the model answers, which has seen all headers: it repeats the secrets in arguments and in words."""
    said = " | ".join(VALUES.values())
    calls = [{"call": {name: {}}} for name in ("says", "fails", "refuses")]
    return [{"call": {"tells": {"said": f"{PLAIN}: {said}"}}}, *calls, f"I know {said}"]


@contextmanager
def logged():
    """Hear all that is logged meanwhile."""
    heard, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(heard), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield heard
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@pytest.fixture(scope="module")
def left(references, tmp_path_factory):
    """Run everything once; return all that is left of it, by where it was found."""
    if importlib.util.find_spec("openai") is None:
        pytest.skip("the library openai is not here")
    folder = tmp_path_factory.mktemp("left")
    told = io.StringIO()
    with (
        logged() as records,
        ModelServer(key=VALUES["OpenAI project"], replies=replies()) as server,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("OPENAI_BASE_URL", server.url)
        with redirect_stderr(told), world(folder, references, server) as here:
            found = {}
            for name in here.definitions.agents:
                flow = Workflow(f"ask {name}", [Step("ask", prompt="Go", agent=name, store="said")])
                found[name] = ended(here.create(flow))
            sinks = {
                f"{where} of {name}": text for name, run in found.items() for where, text in shown(run, here, folder)
            }
        sinks |= {
            f"{what} of {name}": text for name, run in found.items() for what, text in told_by_commands(run, folder)
        }
        ENGINE.submit(CLIENTS.close()).result(PATIENCE)
    sinks |= {"log records": records.getvalue(), "stderr": told.getvalue()}
    sinks |= {f"file {path.name}": contents(path) for path in folder.rglob("*") if path.is_file()}
    return found, server, sinks


def ended(execution):
    """Run an execution to its end, or to a question that no call under way waits for."""
    asked = threading.Event()
    execution.subscribe(lambda events: any(e.event_type == "interrupt_raised" for e in events) and asked.set())
    execution.start()
    if execution.workflow.name == "ask asking":  # whose server waits for the answer during its call
        assert asked.wait(PATIENCE)
        (question,) = execution.open_questions
        execution.answer(question.id, {"say": "yes"})
    return execution.wait(PATIENCE)


def shown(run, here, folder):
    """Yield all that is shown or handed out of a run."""
    seen = run
    yield "bundle", repr(seen._repr_mimebundle_())
    yield "saved", repr(seen.internals.static_bundle())
    yield "text", repr(seen) + str(seen) + repr(run) + str(run.error)
    for frame in ("messages", "tool_calls", "model_calls", "operations", "events", "steps", "items", "questions"):
        yield f"frame {frame}", getattr(run, frame).to_csv()
    yield "frame costs", run.costs("tool").to_csv()
    yield "requests", repr(run.requests)
    yield "conversation", repr(run.conversation)
    yield "data", repr([run.variables, run.outputs, run.inputs])
    here.run_of(run.id).export(folder / f"{run.id}.jsonl")


def told_by_commands(run, folder):
    """Yield what commands say of a run: each knows nothing of what this process has looked up."""
    for command in (["show", run.id], ["show", run.id, "--events"], ["show", run.id, "--json"], ["export", run.id]):
        result = CliRunner().invoke(app, [*command, "--store", str(folder / "runs.db")])
        assert result.output
        yield " ".join(command[:1] + command[2:]), result.output + result.stderr


@pytest.mark.parametrize("what", VALUES)
def test_a_secret_that_is_named_is_nowhere_afterwards(left, what):
    *_, sinks = left
    hits = {where: trace[:30] for where, text in sinks.items() for trace in traces(VALUES[what]) if trace in text}
    assert hits == {}


def test_what_the_secrets_are_for_has_got_them(left):
    found, server, _ = left
    assert [(f"{PLAIN}: {' | '.join(HIDDEN for _ in VALUES)}", VALUES)] == GIVEN
    assert len(set(server.headers[0].values()) & set(VALUES.values())) >= 30
    ends = {name: (run.status, [question.kind for question in run.open_questions]) for name, run in found.items()}
    failed, completed = ("failed", []), ("completed", [])
    assert ends == {
        "teller": completed,
        "stranger": failed,
        "breaker": failed,
        "asking": completed,
        "dying": ("waiting", ["outcome_unknown"]),
    }


def test_each_place_was_looked_into(left):
    *_, sinks = left
    mute = {"stderr", "file runs.db-shm", "file runs.db-wal"}
    assert [where for where, text in sinks.items() if len(text) < 12 and where not in mute] == []
    assert [
        where for where in ("file runs.db", "export of teller", "frame messages of teller") if PLAIN not in sinks[where]
    ] == []
    for said in ("file runs.db", "bundle of breaker", "show of breaker", "text of breaker"):
        assert "refused with" in sinks[said]
    assert [len(text) > 100 for where, text in sinks.items() if where.endswith(".response")] == [True] * 5
    assert ", and out of paper" in sinks["file runs.db"]
    assert "Use [redacted] |" in sinks["file runs.db"]
    assert "Is it [redacted] |" in sinks["show --events of asking"]
    assert "invalid key: [redacted]" in sinks["text of stranger"]
