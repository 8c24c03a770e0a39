"""Permission checks and routing of requests for calls of MCP tools. This module does not load the MCP SDK.

Three parts: the permission check of server definitions, the routing of requests that a server sends during a call, and
the validation of tool results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio

from divebook.definitions.json_schemas import complaint
from divebook.definitions.servers import Elicit, MCPServerDefinition
from divebook.documents.policy import Policy, require_allowed, require_expandable

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult


def require_variables(server: MCPServerDefinition, policy: Policy) -> None:
    """Raise `SetupError` if the definition of a server refers to an environment variable, secret or file (``$NAME``,
    ``env://NAME``, ``file://PATH``) that the policy does not allow.
    """
    texts = [*server.args, *server.env.values(), *server.headers.values(), server.authorization_token or ""]
    for text in texts:
        require_expandable(text, policy)
    client = [] if server.oauth is None else [server.oauth.client_id, server.oauth.client_secret]
    require_allowed([*texts, *client], policy, Path(server.folder))


# --- requests of a server during calls ------------------------------------------------------------------------------
# In the protocol of 2025, a server's request does not name the call it belongs to. It is assigned to the call with the
# fewest open requests, and of those to the oldest. Two concurrent calls that ask thus have a question each, and neither
# waits for the answer to the other (``test_rows_side_by_side_each_ask`` in ``tests/tools/test_mcp_questions.py``).


T = TypeVar("T")


class _Request(NamedTuple):
    payload: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]

    def refuse(self) -> None:
        """Refuse this request of a server, unless it is answered already."""
        if not self.answer.done():
            self.answer.set_result({"action": "cancel", "error": "the call ended before there was an answer"})


class _OpenCall:
    """A running call of a tool, with the requests (questions) that the server has sent during the call."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[_Request] = asyncio.Queue()
        self.open = 0
        """Number of requests of the server that have no answer yet."""

    def put(self, request: _Request) -> None:
        self.open += 1
        self.requests.put_nowait(request)


class OpenCalls:
    """The running tool calls of one MCP server. A request of the server does not name the call that it belongs to, so
    that one of the running calls is chosen to answer it.
    """

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    async def ask(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass a request of the server, such as a question to a person, to a running tool call that answers it. Return
        the answer.
        """
        request = _Request(payload, asyncio.get_running_loop().create_future())
        self._pass(request)
        return await request.answer

    def _pass(self, request: _Request) -> None:
        if self._calls:
            # Of calls with equally few open requests, `min` takes the first in the list, which is the oldest.
            min(self._calls, key=lambda call: call.open).put(request)
        else:
            request.refuse()

    async def answering(self, work: Coroutine[Any, Any, T], elicit: Elicit) -> T:
        """Run a tool call and return its result. While it runs, `elicit` answers the requests that the server sends.

        Requests that are open when the call ends are passed to another call. Without another call they are refused.
        """
        open_call = _OpenCall()
        self._calls.append(open_call)
        call = asyncio.ensure_future(work)
        # Fetched in the background, so that the end of the call and a new request can be awaited together.
        request = asyncio.ensure_future(open_call.requests.get())
        try:
            while True:
                await _first_of(call, request)
                if call.done():
                    return call.result()
                current = request.result()
                request = asyncio.ensure_future(open_call.requests.get())
                # Answered one after the other: a person sees one question of a call at a time.
                await _answer(current, call, elicit)
                open_call.open -= 1
        finally:
            # First remove this call, so that `_pass` cannot assign the remaining requests to it again.
            call.cancel()
            self._calls.remove(open_call)
            if request.done() and not request.cancelled():
                self._pass(request.result())
            request.cancel()
            while not open_call.requests.empty():
                self._pass(open_call.requests.get_nowait())


async def _answer(request: _Request, call: asyncio.Future[Any], elicit: Elicit) -> None:
    """Answer a request of the server with the answer of a person, which `elicit` returns. If the tool call ends first,
    withdraw the question to the person and refuse the request.
    """
    answer_task = asyncio.ensure_future(elicit(request.payload))
    try:
        await _first_of(call, answer_task)
        if not answer_task.done():
            # The withdrawn question ends `answer_task` with the default answer, which does not reach the server any
            # more.
            await elicit.withdraw()
            await asyncio.wait({answer_task})
        elif not request.answer.done():  # done already if the connection has ended
            request.answer.set_result(answer_task.result())
    finally:
        request.refuse()
        if not answer_task.done():
            answer_task.cancel()
            with anyio.CancelScope(shield=True):  # it must be counted as ended before the call ends
                await asyncio.wait({answer_task})


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


# --- validation of results ------------------------------------------------------------------------------------------
# The SDK validates results with plain jsonschema. Patterns and nested schemas of a server could block the whole
# process. The session gets a validation with bounded work instead.


def check_results_of(session: ClientSession) -> None:
    """Change a session of the SDK so that it validates the results of tools with `require_fitting`."""
    session.validate_tool_result = partial(require_fitting, session)  # type: ignore[method-assign]


async def require_fitting(session: ClientSession, name: str, result: CallToolResult) -> None:
    """Raise RuntimeError, as the SDK does, if the result of a tool call violates the output schema that the tool
    declares. Do nothing for a tool without an output schema.
    """
    schemas = session._tool_output_schemas  # noqa: SLF001 - known to nobody else, and filled by each list of tools
    # The server was called without a list of its tools before, for example in a resumed turn.
    if name not in schemas:
        await session.list_tools()
    schema = schemas.get(name)
    if schema is None:
        return
    if result.structured_content is None and "structured_content" not in result.model_fields_set:
        raise RuntimeError(f"Tool {name} has an output schema but did not return structured content")
    wrong = complaint(schema, result.structured_content)
    if wrong is not None:
        raise RuntimeError(f"Invalid structured content returned by tool {name}: {wrong}")
