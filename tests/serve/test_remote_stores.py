"""The server over a store on another machine, whose answers take time: no client waits for the calls of another one."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from mcp.client import Client
from mcp.types import ElicitResult

from divebook.definitions import workflow
from divebook.engine.inbox import ANSWER, Message, answer_payload
from divebook.serve import WorkflowServer
from tests.runtime.worlds import environment
from tests.serve.clients import LEGACY, MODERN, accepting, called
from tests.store.remote import RemoteStore


@workflow
async def counted(ctx):
    return await ctx.ask("How many?", int)


class WatchedStore(RemoteStore):
    """Notes its calls that were made on a thread with an event loop, which they would have held up."""

    location = "remote://server"

    def __init__(self):
        super().__init__()
        self.on_a_loop, self.calls = [], Counter()

    def forwarded(self, name, call, given, options):
        self.calls[name] += 1
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().forwarded(name, call, given, options)
        self.on_a_loop.append(name)
        raise AssertionError(f"{name} was called on an event loop")


@pytest.fixture
def store():
    made = WatchedStore()
    yield made
    assert made.on_a_loop == []


@pytest.fixture
def here(store):
    with environment(counted, store=store) as made:
        yield made


@pytest.fixture
def earlier(store):
    """An execution that an earlier server has started, and that waits for an answer."""
    with environment(counted, store=store) as there:
        return there.start("counted").wait(20).id


def kept(store, execution, text="5"):
    """Keep an answer as a process does that dies before its execution goes on."""
    ((_, question),) = store.asking()
    payload = answer_payload({"text": text, "data": int(text)}, "ann")
    store.post(Message(execution, ANSWER, question, payload, "ann 1", 1))


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_questions_are_asked_and_answered(here, mode):
    elicited, asked = accepting({"answer": "x"}, {"answer": 7})
    assert called(here, "counted", mode=mode, elicited=elicited).structured_content["outputs"] == {"result": 7}
    assert len(asked) == 2


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
def test_whoever_answers_first_has_answered(here, store, mode):
    def answer():
        ((execution, question),) = store.asking()
        here.answer(question, 5, execution)

    async def elicited(context, params):
        await asyncio.to_thread(answer)
        return ElicitResult(action="accept", content={"answer": 6})

    assert called(here, "counted", mode=mode, elicited=elicited).structured_content["outputs"] == {"result": 5}


@pytest.mark.parametrize("wait", [0.0, 20.0])
def test_a_run_of_an_earlier_server_is_listed_and_reported(here, earlier, wait):
    assert earlier in called(here, "divebook_status").content[0].text
    result = called(here, "divebook_status", {"run_id": earlier}, wait=wait)
    assert f"@{earlier} 1" in result.content[0].text


def test_a_run_of_an_earlier_server_is_recovered(here, store, earlier):
    kept(store, earlier)
    result = called(here, "divebook_status", {"run_id": earlier})
    assert result.structured_content["outputs"] == {"result": 5}


@asynccontextmanager
async def two_clients(here, wait=20.0):
    server = WorkflowServer(here, wait=wait).protocol
    elicited, _ = accepting({"answer": 7})
    async with Client(server, elicitation_callback=elicited) as one, Client(server) as other:
        yield one, other


SLOW = {
    "_lists.records": ("divebook_status", lambda execution: {}),
    "_lists.record": ("divebook_status", lambda execution: {"run_id": execution}),
    "_lists.orphans": ("divebook_status", lambda execution: {"run_id": execution}),
    "_acquire": ("divebook_status", lambda execution: {"run_id": execution}),
    "_write": ("counted", lambda execution: {}),
    "_post": ("counted", lambda execution: {}),
}


@pytest.mark.parametrize("call", SLOW)
def test_other_clients_are_served_while_the_store_is_slow(here, store, earlier, call):
    """The call of the store has no answer before another client has one of the server."""
    kept(store, earlier)
    tool, arguments = SLOW[call]

    async def main():
        async with two_clients(here) as (one, other):
            with store.gates[call].closed() as gate:
                slow = asyncio.ensure_future(one.call_tool(tool, arguments(earlier)))
                assert await asyncio.to_thread(gate.reached.wait, 20)
                assert "counted" in [entry.name for entry in (await other.list_tools()).tools]
                assert not slow.done()
            return await slow

    assert not asyncio.run(main()).is_error


def test_a_call_waits_no_longer_than_it_may_for_a_slow_store(here, store, earlier):
    """The recovery of the run ends after the calls that wait for it, which share it."""
    kept(store, earlier)

    async def main():
        async with two_clients(here, wait=0.0) as clients:
            with store.gates["_lists.orphans"].closed() as gate:
                results = [await client.call_tool("divebook_status", {"run_id": earlier}) for client in clients]
                assert await asyncio.to_thread(gate.reached.wait, 20)
            return [result.structured_content["status"] for result in results]

    assert asyncio.run(main()) == ["waiting", "waiting"]
    assert here.run_of(earlier).wait(20).outputs == {"result": 5}
    assert store.calls["_lists.orphans"] == 1
