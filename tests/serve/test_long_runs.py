"""Runs that take longer than a call: of clients that go away, of several clients, and of other processes."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from mcp.client import Client

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.resources import ApprovalRule
from divebook.serve import WorkflowServer, server
from tests.runtime.worlds import HeldEnd, environment
from tests.serve.clients import LEGACY, MODERN, accepting, called, talk
from tests.tools.conftest import defined


@step
def held():
    return LATCHES["here"].wait(60)


@workflow
async def blocked(ctx):
    return await held()


LATCHES = {}


@pytest.fixture
def here(tmp_path):
    with environment(blocked, store=str(tmp_path / "e.db")) as made:
        yield made


@pytest.fixture
def latch(request):
    """An event for which `blocked` waits."""
    LATCHES["here"] = threading.Event()
    yield LATCHES["here"]
    LATCHES.pop("here").set()


@pytest.mark.parametrize("wait", [0.0, 0.05])
def test_a_call_waits_no_longer_than_it_may_and_its_run_is_in_the_store(here, latch, wait):
    first = called(here, "blocked", {}, wait=wait)
    assert (first.is_error, first.structured_content["status"]) == (False, "running")
    assert "It continues" in first.content[0].text
    assert here.store.record(first.structured_content["run_id"]).status == "running"
    latch.set()
    later = called(here, "divebook_status", {"run_id": first.structured_content["run_id"]})
    assert later.structured_content["outputs"] == {"result": True}


def test_a_result_is_of_one_moment_if_the_run_ends_while_it_is_made(here, latch, monkeypatch):
    form = server.json_form

    def form_at_the_end(outputs):
        latch.set()
        (record,) = here.store.records()
        here.run_of(record.execution_id).wait(20)
        return form(outputs)

    monkeypatch.setattr(server, "json_form", form_at_the_end)
    result = called(here, "blocked", {}, wait=0.05)
    assert (result.structured_content["status"], result.structured_content["outputs"]) == ("running", {})
    assert "It continues" in result.content[0].text


def test_a_run_outlives_a_client_that_goes_away_in_its_call(here, latch):
    begun = threading.Event()
    leave = here.store.subscribe(lambda execution, events: begun.set())

    async def talking(client):
        call = asyncio.ensure_future(client.call_tool("blocked", {}))
        await asyncio.to_thread(begun.wait, 20)
        call.cancel()

    talk(here, talking)
    leave()
    latch.set()
    (record,) = here.store.records()
    assert here.run_of(record.execution_id).wait(20).outputs == {"result": True}


def test_two_clients_hear_of_one_run(here, latch):
    async def both():
        async with (
            Client(WorkflowServer(here, wait=20.0).protocol) as one,
            Client(WorkflowServer(here, wait=0.0).protocol) as other,
        ):
            found = await other.call_tool("blocked", {})
            name = {"run_id": found.structured_content["run_id"]}
            calls = [asyncio.ensure_future(one.call_tool("divebook_status", name)) for _ in range(2)]
            assert name["run_id"] in (await other.call_tool("divebook_status", {})).content[0].text
            latch.set()
            return [result.structured_content["status"] for result in await asyncio.gather(*calls)]

    assert asyncio.run(both()) == ["completed", "completed"]


def test_a_run_of_another_process_is_waited_for(tmp_path):
    """The program reads from a pipe, so that it runs until this test has written."""
    definitions, pipe, store = tmp_path / "flows.py", tmp_path / "pipe", str(tmp_path / "e.db")
    os.mkfifo(pipe)
    definitions.write_text(
        "from pathlib import Path\nfrom divebook.definitions import step, workflow\n"
        "@step\ndef read(path):\n    return Path(path).read_text()\n"
        "@workflow\nasync def reads(ctx, path: str):\n    return await read(path)\n"
    )
    command = [sys.executable, "-m", "divebook", "run", str(definitions), "--store", store, "-v", f"path={pipe}"]
    reads = Workflow("reads", [Step("say", script="1")])
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as program, pipe.open("w") as written:
        with environment(reads, store=store) as here:
            (record,) = here.store.records()
            name = {"run_id": record.execution_id}
            assert called(here, "divebook_status", name, wait=0.0).structured_content["status"] == "running"

            async def talking(client):
                call = asyncio.ensure_future(client.call_tool("divebook_status", name))
                written.write("written")
                written.close()
                return await call

            assert talk(here, talking).structured_content["outputs"] == {"result": "written"}
        assert program.wait(20) == 0


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_a_server_asks_a_client_through_a_run(mode):
    """The call of the server that asks is under way until the client has answered."""
    agent = Agent("a", model=ScriptedModel([{"call": {"go": {}}}, "done"]), servers=["s"])
    flow = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")], outputs=["said"])
    elicited, asked = accepting({"answer": '{"colour": "red"}'})
    servers = [defined("rough.py", "asks")]
    with environment(flow, agents=[agent], servers=servers, approvals=[ApprovalRule()]) as here:
        result = called(here, "ask", mode=mode, elicited=elicited, wait=60.0)
        assert result.structured_content["outputs"] == {"said": "done"}
        assert "Which colour?" in asked[0].message
        (record,) = here.store.records()
        assert "red" in str(here.run_of(record.execution_id).conversation)


@pytest.mark.parametrize("wait", [0.05, 20])
def test_a_client_is_told_of_no_end_that_is_not_in_the_store_yet(wait):
    store = HeldEnd()
    with environment(Workflow("quick", [Step("add", script="1 + 1", store="n")]), store=store) as made:

        def open_later():
            assert store.reached.wait(20)
            if wait < 1:
                assert is_told.wait(20)
            store.opened.set()

        is_told, opening = threading.Event(), threading.Thread(target=open_later)
        opening.start()
        result = called(made, "quick", {}, wait=wait)
        is_told.set()
        opening.join(20)
        assert result.structured_content["status"] == ("running" if wait < 1 else "completed")
