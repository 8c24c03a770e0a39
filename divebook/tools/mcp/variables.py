"""Permission check for the variables and files that the definition of a server names; loads no library."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio

from divebook.documents.policy import Policy, require_allowed, require_expandable
from divebook.workflow.json_schemas import complaint
from divebook.workflow.servers import Elicit, MCPServerDefinition

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult


def require_variables(server: MCPServerDefinition, policy: Policy) -> None:
    """Raise `SetupError` unless a policy allows every ``$NAME``, ``env://NAME`` and ``file://PATH`` of a server."""
    texts = [*server.args, *server.env.values(), *server.headers.values(), server.authorization_token or ""]
    for text in texts:
        require_expandable(text, policy)
    client = [] if server.oauth is None else [server.oauth.client_id, server.oauth.client_secret]
    require_allowed([*texts, *client], policy)


# Calls of one server that are under way, and the requests that the server makes to its client during them.
#
# The protocol of 2025 does not say during which call a server asks. A request goes to the call with the fewest open
# requests, and of those to the oldest. So two calls that ask at the same time have a question each, and none waits for
# the answer to the other one (``test_rows_side_by_side_each_ask`` in ``tests/tools/test_mcp_questions.py``).


T = TypeVar("T")


class _Request(NamedTuple):
    asked: Mapping[str, Any]
    answer: asyncio.Future[Mapping[str, Any]]

    def refuse(self) -> None:
        """Tell the server that there is no answer, unless it has one."""
        if not self.answer.done():
            self.answer.set_result({"action": "cancel", "error": "the call ended before there was an answer"})


class _OpenCall:
    """One call under way."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[_Request] = asyncio.Queue()
        self.open = 0
        """Number of its requests without an answer."""

    def put(self, request: _Request) -> None:
        self.open += 1
        self.requests.put_nowait(request)


class OpenCalls:
    """The calls of one server during which it may ask."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    async def ask(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a request of the server, which is asked in the task of one of the calls."""
        request = _Request(asked, asyncio.get_running_loop().create_future())
        self._pass(request)
        return await request.answer

    def _pass(self, request: _Request) -> None:
        if self._calls:
            min(self._calls, key=lambda call: call.open).put(request)
        else:
            request.refuse()

    async def answering(self, calling: Coroutine[Any, Any, T], elicit: Elicit) -> T:
        """Return the outcome of a call; what the server asks meanwhile is asked by `elicit`, in the task of the call.

        Requests that are left when the call ends belong to another call, if there is one; else they are refused.
        """
        own = _OpenCall()
        self._calls.append(own)
        call, request = asyncio.ensure_future(calling), asyncio.ensure_future(own.requests.get())
        try:
            while True:
                await _first_of(call, request)
                if call.done():
                    return call.result()
                present = request.result()
                request = asyncio.ensure_future(own.requests.get())
                await _answer(present, call, elicit)
                own.open -= 1
        finally:
            call.cancel()
            self._calls.remove(own)
            if request.done() and not request.cancelled():
                self._pass(request.result())
            request.cancel()
            while not own.requests.empty():
                self._pass(own.requests.get_nowait())


async def _answer(request: _Request, call: asyncio.Future[Any], elicit: Elicit) -> None:
    """Ask what a server wants to know, and pass the answer on; close the question when the call ends before that."""
    asking = asyncio.ensure_future(elicit(request.asked))
    try:
        await _first_of(call, asking)
        if not asking.done():
            await elicit.withdraw()
            await asyncio.wait({asking})
        elif not request.answer.done():  # else the connection has ended meanwhile
            request.answer.set_result(asking.result())
    finally:
        request.refuse()
        if not asking.done():
            asking.cancel()
            with anyio.CancelScope(shield=True):  # its strand is counted before the call ends
                await asyncio.wait({asking})


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


# Checks of tool results by the output schema that their server has declared, in bounded work.
#
# The SDK checks results with jsonschema as it is, whose patterns and nested schemas stop the whole process for as long
# as a server likes. Its session is given another check.


def check_results_of(session: ClientSession) -> None:
    """Replace the check of a session's tool results by `require_fitting`."""
    session.validate_tool_result = partial(require_fitting, session)  # type: ignore[method-assign]


async def require_fitting(session: ClientSession, name: str, result: CallToolResult) -> None:
    """Raise RuntimeError, as the SDK does, for a result that does not fit what its tool has declared."""
    schemas = session._tool_output_schemas  # noqa: SLF001 - known to nobody else, and filled by each list of tools
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
