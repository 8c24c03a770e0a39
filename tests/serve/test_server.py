"""Workflows as tools of MCP clients: of this protocol and of older ones, with questions, over restarts."""

import asyncio
import itertools
import sys
import threading
from typing import Annotated

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitResult, ErrorData, InputRequiredResult
from pydantic import Field

from divebook import Step, Workflow
from divebook.definitions import workflow
from divebook.errors import SetupError, StoreError
from divebook.events import catalog
from divebook.runtime.run import Run
from divebook.serve.server import key_beside, tool_names
from tests.runtime.worlds import environment
from tests.serve.clients import LEGACY, MODERN, accepting, called, talk

GREET = Workflow(
    "greet people",
    [Step("say", script="'Hello ' + inputs['who']", store="said")],
    description="Greets.",
    inputs=[{"name": "who", "type": "string", "description": "Whom"}, {"name": "n", "type": "int", "default": 2}],
    outputs=["said"],
)


@workflow
async def release(ctx, n: int = 1):
    if not await ctx.confirm("Release?"):
        return "no"
    colour = await ctx.ask("Which colour?")
    return f"{colour} {n}"


@workflow
async def counted(ctx):
    return await ctx.ask("How many?", Annotated[int, Field(ge=1)])


@workflow
async def fails(ctx):
    raise ValueError("no such thing, password=hunter2hunter2")


@workflow
async def for_ever(ctx):
    await ctx.wait_signal("never")


FLOWS = (GREET, release, counted, fails, for_ever)


@pytest.fixture
def here(tmp_path):
    with environment(*FLOWS, store=str(tmp_path / "e.db")) as made:
        yield made


def test_each_workflow_is_a_tool_with_the_schema_of_its_inputs(here):
    tools = {tool.name: tool for tool in talk(here, lambda client: client.list_tools()).tools}
    assert set(tools) == {"greet_people", "release", "counted", "fails", "for_ever", "divebook_status"}
    assert tools["greet_people"].description.startswith("Greets.")
    assert tools["greet_people"].input_schema == {
        "type": "object",
        "properties": {"who": {"type": "string", "description": "Whom"}, "n": {"type": "integer", "default": 2}},
        "required": ["who"],
        "additionalProperties": False,
    }


def test_names_that_would_be_one_tool_are_refused():
    with pytest.raises(SetupError, match="'a b' and 'a_b' would have the same tool name 'a_b'; rename one"):
        tool_names([Workflow("a_b", [Step("s", script="1")]), Workflow("a b", [Step("s", script="1")])])


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_a_call_runs_a_workflow_and_returns_its_outputs(here, mode):
    result = called(here, "greet_people", {"who": "Ann"}, mode=mode)
    (record,) = here.store.records()
    assert result.content[0].text == '{"said": "Hello Ann"}'
    assert result.structured_content == {
        "run_id": record.execution_id,
        "status": "completed",
        "outputs": {"said": "Hello Ann"},
    }


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_questions_go_to_the_person_of_the_client(here, mode):
    elicited, asked = accepting({"approved": True}, {"answer": "red"})
    result = called(here, "release", {"n": 3}, mode=mode, elicited=elicited)
    assert result.content[0].text == '{"result": "red 3"}'
    assert [params.message for params in asked] == ["Release?", "Which colour?"]
    assert len(here.store.records()) == 1


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_an_answer_that_does_not_fit_is_asked_again_with_what_was_wrong(here, mode):
    elicited, asked = accepting({"answer": 0}, {"answer": 7})
    result = called(here, "counted", mode=mode, elicited=elicited)
    assert result.content[0].text == '{"result": 7}'
    assert asked[0].requested_schema["properties"] == {"answer": {"type": "integer", "minimum": 1}}
    assert "does not fit" in asked[1].message
    assert asked[1].message.endswith("How many?")


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_a_question_that_is_declined_stays_open(here, mode):
    elicited, _ = accepting(None)
    result = called(here, "counted", mode=mode, elicited=elicited)
    (record,) = here.store.records()
    execution = here.run_of(record.execution_id)
    assert not result.is_error
    assert "ask_" in result.content[0].text
    here.answer(execution.open_questions[0].id, 4)
    assert execution.wait(20).outputs == {"result": 4}
    later = called(here, "divebook_status", {"run_id": execution.id}, mode=mode)
    assert later.structured_content["outputs"] == {"result": 4}


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_whoever_answers_first_has_answered(here, mode):
    """The person of the client is still thinking while somebody answers in a notebook."""

    async def elicited(context, params):
        (record,) = here.store.records()
        (question,) = here.run_of(record.execution_id).open_questions
        await asyncio.to_thread(here.answer, question.id, 5, by="ann")
        return ElicitResult(action="accept", content={"answer": 6})

    assert called(here, "counted", mode=mode, elicited=elicited).content[0].text == '{"result": 5}'


def test_an_older_client_is_not_kept_from_a_result_by_a_form_that_nobody_fills(here):
    async def elicited(context, params):
        (record,) = here.store.records()
        (question,) = here.run_of(record.execution_id).open_questions
        await asyncio.to_thread(here.answer, question.id, 5)
        await asyncio.Event().wait()

    assert called(here, "counted", mode=LEGACY, elicited=elicited).content[0].text == '{"result": 5}'


@pytest.mark.parametrize("reading", [1, 2, 3, 4])
@pytest.mark.parametrize(("tool", "answer", "result"), [("counted", 5, 5), ("release", {"approved": True}, "red 1")])
def test_a_form_is_closed_whenever_its_question_is_answered_elsewhere(here, monkeypatch, tool, answer, result, reading):
    """The answer arrives after the server has read so many times that the question is open, and before it does anything
    with that. After the answer nothing happens in the run until the server asks again.
    """
    interrupts, readings = Run.open_questions.fget, itertools.count(1)
    is_answered = threading.Event()

    def read(execution):
        questions = interrupts(execution)
        is_first = bool(questions) and questions[0].question in ("How many?", "Release?")
        if is_first and next(readings) == reading:
            here.answer(questions[0].id, answer, execution.id).wait(20)
            is_answered.set()
        return questions

    async def elicited(context, params):
        if params.message == "Which colour?":
            return ElicitResult(action="accept", content={"answer": "red"})
        if is_answered.is_set():
            await asyncio.Event().wait()
        return ElicitResult(action="accept", content={"answer": 5, "approved": True})

    async def talking(client):
        return await asyncio.wait_for(client.call_tool(tool, {}), 20)

    monkeypatch.setattr(Run, "open_questions", property(read))
    assert talk(here, talking, mode=LEGACY, elicited=elicited).structured_content["outputs"] == {"result": result}


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_a_client_that_cannot_ask_gets_the_run_and_how_it_is_answered(here, mode):
    result = called(here, "counted", mode=mode)
    (record,) = here.store.records()
    (question,) = here.run_of(record.execution_id).open_questions
    assert not result.is_error
    assert result.structured_content == {"run_id": record.execution_id, "status": "waiting", "outputs": {}}
    assert f"divebook answer {question.id}@{record.execution_id} 1" in result.content[0].text
    here.answer(question.id, 4)
    later = called(here, "divebook_status", {"run_id": record.execution_id}, mode=mode)
    assert later.structured_content["outputs"] == {"result": 4}


def test_a_client_that_fails_to_ask_gets_the_run_as_well(here):
    async def elicited(context, params):
        return ErrorData(code=-32603, message="no window")

    result = called(here, "counted", mode=LEGACY, elicited=elicited)
    assert not result.is_error
    assert result.structured_content["status"] == "waiting"


def asked_for(result):
    assert isinstance(result, InputRequiredResult)
    return result.request_state, next(iter(result.input_requests))


async def begun(client):
    return asked_for(await client.session.call_tool("counted", {}, allow_input_required=True))


def again(state, responses):
    """Return a call that is made again with a state and answers."""

    async def talking(client):
        return await client.session.call_tool(
            "counted", {}, input_responses=responses, request_state=state, allow_input_required=True
        )

    return talking


def refused(call):
    """Return a call that is refused, and gives why."""

    async def talking(client):
        with pytest.raises(MCPError) as error:
            await call(client)
        return str(error.value)

    return talking


def test_a_server_that_was_started_again_takes_the_answer(tmp_path):
    with environment(*FLOWS, store=str(tmp_path / "e.db")) as here:
        state, name = talk(here, begun, elicited=accepting()[0])
    with environment(*FLOWS, store=str(tmp_path / "e.db")) as there:
        result = talk(there, again(state, {name: ElicitResult(action="accept", content={"answer": 9})}))
        assert result.structured_content["outputs"] == {"result": 9}
        assert len(there.store.records()) == 1


def test_a_state_that_was_changed_or_is_of_another_store_is_refused(here, tmp_path):
    state, _ = talk(here, begun, elicited=accepting()[0])
    with environment(*FLOWS, store=str(tmp_path / "other.db")) as there:
        for where, wrong in ((here, f"{state[:-4]}AAAA"), (there, state)):
            assert "requestState" in talk(where, refused(again(wrong, {})))


def test_no_execution_of_another_workflow_is_shown(here):
    other = Workflow("secret", [Step("say", script="1")])
    execution = here.start(other).wait(20)
    result = called(here, "divebook_status", {"run_id": execution.id})
    assert result.is_error
    assert "belongs to a workflow that this server does not offer" in result.content[0].text


def test_a_run_that_takes_long_goes_on_and_is_looked_at_again(here):
    first = called(here, "for_ever", wait=20.0)
    execution = here.run_of(first.structured_content["run_id"])
    assert first.structured_content["status"] == "waiting"
    assert execution.id in called(here, "divebook_status").content[0].text
    execution.signal("never")
    execution.wait(20)
    assert called(here, "divebook_status", {"run_id": execution.id}).structured_content["status"] == "completed"
    assert called(here, "divebook_status").content[0].text == "No run is open."


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_a_run_that_waits_asks_even_if_its_call_does_not_wait(here, mode):
    execution = here.start("counted").wait(20)
    elicited, asked = accepting(None)
    called(here, "divebook_status", {"run_id": execution.id}, mode=mode, elicited=elicited, wait=0.0)
    assert [params.message for params in asked] == ["How many?"]


def test_workflows_that_are_registered_later_are_served(here):
    async def talking(client):
        here.add_workflow(Workflow("later", [Step("say", script="1", store="n")], outputs=["n"]))
        assert "later" in [tool.name for tool in (await client.list_tools()).tools]
        return await client.call_tool("later", {})

    assert talk(here, talking).structured_content["outputs"] == {"n": 1}


def test_a_failure_is_an_error_of_the_tool_without_secrets(here):
    result = called(here, "fails")
    assert result.is_error
    assert "no such thing" in result.content[0].text
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("greet_people", {}, 'input "who" is required by workflow '),
        ("greet_people", {"who": "a", "when": 1}, 'unknown input "when"'),
        ("divebook_status", {"run_id": "exec_no"}, "exec_no"),
        ("nonsense", {}, "there is no tool 'nonsense'"),
    ],
)
def test_what_cannot_be_called_is_told_to_the_model(here, tool, arguments, told):
    async def talking(client):
        return await client.session.call_tool(tool, arguments)

    result = talk(here, talking)
    assert result.is_error
    assert told in result.content[0].text


def test_a_client_hears_how_far_its_run_is(here):
    heard = []

    async def progress(done, total, message):
        heard.append(done)

    talk(here, lambda client: client.call_tool("greet_people", {"who": "Ann"}, progress_callback=progress))
    execution = here.run_of(here.store.records()[0].execution_id)
    ended = [event for event in execution.history() if isinstance(event.data, catalog.OperationCompleted)]
    assert heard == list(range(1, len(ended) + 1))


def test_the_key_is_its_owners_and_a_broken_one_is_named(tmp_path):
    key = key_beside(str(tmp_path / "e.db"))
    path = tmp_path / "e.db.mcp-key"
    assert key == key_beside(str(tmp_path / "e.db")) == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert key_beside("memory:") != key_beside("memory:")
    path.write_bytes(b"short")
    with pytest.raises(
        StoreError, match=r"e\.db\.mcp-key is not a key file of an MCP server, because it has 5 bytes.*delete the file"
    ):
        key_beside(str(tmp_path / "e.db"))


def test_the_command_serves_a_file_over_its_standard_streams(tmp_path):
    definitions = tmp_path / "flows.py"
    definitions.write_text(
        "from divebook.definitions import workflow\n"
        "@workflow\nasync def greet(ctx, who: str):\n"
        "    print('on the wire this would break it')\n"
        "    return f'{who}, {await ctx.ask(\"How are you?\")}'\n"
    )
    command = ["-m", "divebook", "mcp", str(definitions), "--store", str(tmp_path / "e.db")]
    program = StdioServerParameters(command=sys.executable, args=command)
    elicited, _ = accepting({"answer": "fine"})

    async def connected():
        with (tmp_path / "errors").open("w") as errors:
            async with Client(stdio_client(program, errors), elicitation_callback=elicited) as client:
                return await client.call_tool("greet", {"who": "Ann"})

    assert asyncio.run(connected()).content[0].text == '{"result": "Ann, fine"}'
    assert "would break it" in (tmp_path / "errors").read_text()
