"""Client connection to one MCP server, its transports, and the checks of the messages that the server sends.

Life cycle: `Connection.open` starts an asyncio task, which enters the contexts of the transport and of the SDK's
client. The same task must leave these contexts, so it lives as long as the connection. `open` waits until both sides
agree on a protocol. Requests from other tasks then use the client. The connection ends when it is closed, when its
server ends, or when the server sends too much. Running requests then fail with `BrokenError`, which has the last output
of the server, and states whether the request may have reached the server.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.request import getproxies

import anyio.to_thread
import httpx2
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.client import ConnectMode
from mcp.client.session import ElicitationFnT, SamplingFnT
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    Implementation,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    Tool,
    jsonrpc_message_adapter,
)
from mcp.types.methods import validate_server_result
from pydantic import ValidationError

from divebook._version import __version__
from divebook.definitions.servers import MCPServerDefinition
from divebook.documents.policy import ADDRESSES, Policy, addresses_of, expanded, resolved
from divebook.errors import SetupError
from divebook.text.redaction import logger, shared
from divebook.tools.mcp import guard
from divebook.tools.mcp.open_calls import check_results_of, require_variables

_log = logger(__name__)


AUTO: Final[ConnectMode] = "auto"


LEGACY: Final[ConnectMode] = "legacy"
"""Version of the protocol in which a server may send requests to its client during a tool call."""


HANDSHAKE = 30.0
"""Seconds that a server may take to start, or to list its tools."""


CLOSE_TIMEOUT = 5.0
"""Seconds that a server has to close the connection. The guard process (guard.py) needs half of them."""


MOST_NOTIFICATIONS = 10_000
"""Maximum number of notifications that a server may send between two responses."""


MOST_MALFORMED = 100
"""Number of invalid messages, such as printed text, after which the connection is closed."""


MOST_LEVELS = 150
"""Maximum depth of nested lists and objects in a message. The SDK's parser reads 200 levels."""


LARGEST = 16 * 1024 * 1024
"""Maximum size of one message of a server, in bytes."""


T = TypeVar("T")


class Connection:
    """Client connection to one MCP server. Call `open` once, then `ask` until `has_ended`.

    Parameters
    ----------
    open_transport
        Opens the connection to the server: pipes or HTTP.
    elicit, sample
        Callbacks that answer the server's questions to a person, and its requests for a model's answer.
    mode
        Version of the protocol, as for `mcp.Client`.
    patience
        Seconds until the server must have agreed on a protocol. They include the time of a person who must sign in.
    server
        Name of the server, for warnings.
    """

    def __init__(
        self,
        open_transport: OpenTransport,
        elicit: ElicitationFnT,
        sample: SamplingFnT | None = None,
        *,
        mode: ConnectMode = AUTO,
        patience: float = HANDSHAKE,
        server: str = "",
    ) -> None:
        self._server = server
        self._open_transport = open_transport
        self._elicit = elicit
        self._sample = sample
        self._mode = mode
        self._patience = patience
        # `_fault` is the exception that ended the connection, `_complaint` the reason that this class has found. The
        # complaint is shown first.
        self._status = TransportStatus()
        self._fault: BaseException | None = None
        self._complaint = ""
        # `_ending` is set before the connection is closed, `_ready` gets the client after the handshake.
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        """True if the connection has ended or is about to end, so that it accepts no more requests."""
        return self._ending.is_set()

    async def connect(self) -> None:
        """Connect to the server and agree on a protocol version. Raise `BrokenError` if this fails or takes too
        long.
        """
        context = contextvars.Context()  # the connection is of no turn
        self._task = asyncio.create_task(self._hold(), context=context)
        # The task ends first if the server cannot be started or refuses the handshake.
        tasks: set[asyncio.Future[Any]] = {self._ready, self._task}
        try:
            await asyncio.wait(tasks, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._ready.done() and not self._task.done():  # it takes too long, or nobody waits any more
                self._complaint = f"initialization failed: no answer within {self._patience:g} seconds"
                self._task.cancel()
        if not self._ready.done():
            await self.close()
            raise BrokenError(self._cause("initialization failed"), was_sent=False)

    async def _hold(self) -> None:
        try:
            async with Client(
                self._transport(),
                mode=self._mode,
                cache=None,
                client_info=Implementation(name="divebook", version=__version__),
                elicitation_callback=self._elicit,
                sampling_callback=self._sample,
            ) as client:
                # Before the first request can use the session.
                check_results_of(client.session)
                self._ready.set_result(client)
                # This task must leave the contexts that it has entered, so it waits here for the whole life of the
                # connection.
                await self._ending.wait()
        except Exception as error:  # noqa: BLE001 - whatever ends a connection is said by the calls that need it
            self._fault = error
        finally:
            self._ending.set()

    def _transport(self) -> Transport:
        @asynccontextmanager
        async def transport() -> AsyncIterator[tuple[Any, Any]]:
            async with self._open_transport(self._status) as (reading, writing):
                yield _ServerMessages(reading, self._end, self._server), writing

        return transport()

    def _end(self, complaint: str) -> None:
        # The first complaint is the cause, later ones are its consequences.
        self._complaint = self._complaint or complaint
        self._ending.set()

    def end(self) -> None:
        """Start to close the connection, without waiting until it is closed."""
        self._end("")

    async def close(self) -> None:
        """Close the connection, and end the server process if this connection started one. A second call has no
        effect.
        """
        self._ending.set()
        if self._task is not None:
            # `asyncio.wait` leaves the task running at the time limit, so a slow server is cancelled only below.
            _, unfinished = await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
            if unfinished:  # a server over HTTP need not answer that we go
                self._task.cancel()
                await asyncio.wait(unfinished)

    @property
    def client(self) -> Client:
        """The SDK's client object for requests over the open connection."""
        return self._ready.result()

    async def ask(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """Send a request to the server and return the result. The function `request` sends it, with the SDK's client as
        its argument.

        Raises
        ------
        BrokenError
            The connection ended.
        RefusedError
            The server refuses the request, or its answer violates the protocol.
        """
        if self.has_ended:
            raise BrokenError("not connected", was_sent=False)
        request_task = asyncio.ensure_future(request(self.client))
        # Read the exception even if no caller waits any more; otherwise asyncio logs that it was never retrieved.
        request_task.add_done_callback(lambda task: task.cancelled() or task.exception())
        end_task = asyncio.ensure_future(self._ending.wait())
        tasks: set[asyncio.Future[Any]] = {request_task, end_task}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # The connection has ended first: the request will never be answered.
            if not request_task.done():
                raise await self._broken_error("the connection ended")
            return request_task.result()
        except MCPError as error:
            raise await self._error_of(error) from error
        except ValidationError as error:
            cause = f"its answer violates the MCP protocol: {error.errors()[0]['msg']}"
            raise RefusedError(cause, is_answer=True) from error
        finally:
            request_task.cancel()
            end_task.cancel()

    async def _error_of(self, error: MCPError) -> BrokenError | RefusedError:
        # The codes of the error itself come first: the recorded status may belong to another response.
        if error.code == CONNECTION_CLOSED:
            return await self._broken_error(f"the connection ended: {error.message}")
        if error.message == _SESSION_TERMINATED:  # the server has forgotten us, so it has done nothing
            await self.close()
            return BrokenError("the server has ended the session", was_sent=False)
        # The server, or a proxy before it, has failed with the request in hand: the call may have taken effect.
        if self._status.status >= 500 or (error.message == _ERROR_RESPONSE and not self._status.status):
            return BrokenError(self._status.text or "HTTP error", was_sent=True)  # what came of it is not known
        # The server has refused the request before it did anything: no valid sign-in, no permission, too many requests.
        if self._status.status in (401, 403, 429):
            return RefusedError(self._status.text)
        cause = "not supported" if error.code == METHOD_NOT_FOUND else shared().text(error.message)[:_LONGEST]
        return RefusedError(cause, is_answer=True)

    async def _broken_error(self, reason: str) -> BrokenError:
        await self.close()
        # Only a failed connect proves that the request did not reach the server. The SDK wraps it in exception groups.
        was_sent = not isinstance(_innermost(self._fault), httpx2.ConnectError | httpx2.ConnectTimeout)
        return BrokenError(self._cause(reason), was_sent=was_sent)

    def _cause(self, reason: str) -> str:
        """Return a text with the reason why the connection ended, and the last error output of the server."""
        fault = _innermost(self._fault)
        cause = self._complaint or (f"{reason}: {str(fault) or type(fault).__name__}" if fault is not None else reason)
        cause = cause.removesuffix(": Connection closed")  # which says nothing
        return f"{cause} ({self._status.text})" if self._status.text else cause


class BrokenError(Exception):
    """Error of a request that was not answered because the connection to the server has ended. `was_sent` is True if
    the server may have received the request.
    """

    def __init__(self, cause: str, *, was_sent: bool) -> None:
        self.cause = cause
        self.was_sent = was_sent
        super().__init__(cause)


class RefusedError(Exception):
    """Error of a request that the server refuses, or that it answers in violation of the protocol.

    Parameters
    ----------
    is_answer
        True if the server has processed the request. A model that called a tool can then correct its call.
    """

    def __init__(self, cause: str, *, is_answer: bool = False) -> None:
        self.is_answer = is_answer
        super().__init__(cause)


class TransportStatus:
    """Latest information about the server apart from its messages: the last error output of its process, or its last
    HTTP status.
    """

    def __init__(self) -> None:
        self.text = ""
        self.status = 0


OpenTransport = Callable[[TransportStatus], AbstractAsyncContextManager[Any]]
"""Function that opens a transport and yields its input and output stream."""


def checked_transport(policy: Policy) -> httpx2.AsyncBaseTransport | None:
    """Return an HTTP transport that connects only to addresses that the access policy allows.

    Return None if the policy allows all addresses, or if a proxy resolves the names.
    """
    # With a proxy, this process does not see the addresses to which requests go.
    return None if ADDRESSES in policy.allowed or getproxies() else _CheckedAddresses(policy)


class _CheckedAddresses(httpx2.AsyncHTTPTransport):
    """HTTP transport that resolves a host name once, checks all of its addresses with the access policy, and connects
    to one of them.

    A later, different answer of a name server has therefore no effect
    (test_a_name_that_leads_to_this_machine_the_second_time_is_not_connected_to).
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send an HTTP request to the first address of the host that accepts the connection.

        The name of the host stays in the request and in the verification of the certificate.
        """
        # Resolved in a thread, because the look-up of a name blocks.
        host = request.url.host
        *first_addresses, last = await anyio.to_thread.run_sync(addresses_of, self._policy, host)
        for address in first_addresses:
            try:
                return await super().handle_async_request(_at(address, request))
            # No connection means that nothing was sent, so the next address may be tried.
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await super().handle_async_request(_at(last, request))


def _at(address: str, request: httpx2.Request) -> httpx2.Request:
    return httpx2.Request(
        request.method,
        # "fe80::1%eth0" -> "fe80::1": a URL cannot hold the zone of an address.
        request.url.copy_with(host=address.partition("%")[0]),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


_TOOLS: Final = "tools"


_LISTED: Final = "tools/list"


_STRICTEST: Final = "2025-11-25"
"""Version of the protocol with the strictest rules for tool definitions."""


_LONGEST_NAME = 100


DEEPEST = 100
"""Maximum depth of lists and objects in a tool definition, and in a message that `_parse_again` parses again."""


_TOO_DEEP = f"nested deeper than {DEEPEST} levels"


def readable(item: Any, server: str) -> Any:
    """Return a message of a server in a form that the MCP SDK can read. Invalid tools, and parts that are nested too
    deeply, are removed.

    A message that is nested too deeply for the SDK's parser is parsed by another one. Tools of a list that violate the
    protocol are removed, with a warning that names the tool and its server.
    """
    was_refused = isinstance(item, ValidationError)
    if was_refused:
        item = _parse_again(item)
    message = getattr(item, "message", None)
    if not isinstance(message, JSONRPCResponse):
        return item
    if isinstance(message.result.get(_TOOLS), list):
        message.result[_TOOLS] = list(_valid_tools(message.result[_TOOLS], server))
    # Deep tools have been removed by now. Any other answer that is too deep becomes an error of its request.
    if was_refused and _is_deep(message.result):  # the SDK would end the connection
        error = ErrorData(code=INTERNAL_ERROR, message=f"its answer is {_TOO_DEEP}")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
    return item


def _parse_again(error: ValidationError) -> SessionMessage | ValidationError:
    """Parse a message with Python's JSON parser, after the SDK has refused it as invalid JSON. Return the message, or
    the SDK's error if this parser fails too.
    """
    (first, *_) = error.errors(include_url=False)
    # Other errors concern a message that is valid JSON and breaks the protocol.
    if first["type"] != "json_invalid" or not isinstance(first["input"], str | bytes):
        return error
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(json.loads(first["input"]), by_name=False))
    except (ValueError, RecursionError):
        return error


def _is_deep(value: Any) -> bool:
    """Return True if a value has more than `DEEPEST` levels of lists and objects."""
    level = [value]
    depth = 0
    # Level by level instead of recursively, so that the depth of a message cannot exceed the recursion limit.
    while level and depth <= DEEPEST:
        inside = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [part for parts in inside for part in parts]
        depth = depth + 1
    return bool(level)


def _valid_tools(tools: list[Any], server: str) -> Iterator[Any]:
    for number, item in enumerate(tools, start=1):
        tool = _with_type(item)
        fault = _fault(tool)
        if fault is None:
            yield tool
            continue
        name = item.get("name") if isinstance(item, dict) else None
        label = repr(name[:_LONGEST_NAME]) if isinstance(name, str) else f"number {number}"
        _log.warning(
            "tool %s of MCP server %s is skipped, because it violates the MCP protocol: %s", label, server, fault
        )


def _fault(tool: Any) -> str | None:
    """Return the reason why a server's definition of a tool violates the MCP protocol. Return None if the definition is
    valid.
    """
    # Validation of a deep value could exceed the recursion limit.
    if _is_deep(tool):
        return _TOO_DEEP
    # Checked with the model of the SDK and with the strictest version of the protocol.
    try:
        Tool.model_validate(tool, by_name=False)
        validate_server_result(_LISTED, _STRICTEST, {_TOOLS: [tool]})
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_input=False)
        location = ".".join(str(part) for part in first["loc"] if part not in (_TOOLS, 0))
        return f"{location}: {first['msg']}" if location else first["msg"]
    return None


def _with_type(tool: Any) -> Any:
    """Return a tool definition whose input schema has ``"type": "object"``, which many servers leave out."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict) or schema.get("type") is not None:
        return tool
    return {**tool, "inputSchema": {**schema, "type": "object"}}


_LEFT_OUT = "[left out: nested too deeply]"


_LONGEST = 10_000


_ERROR_RESPONSE = "Server returned an error response"
"""Text of the SDK's error for an HTTP error status. The recorded status may belong to another response by then."""


_SESSION_TERMINATED = "Session terminated"


class _ServerMessages:
    """Stream of the messages of a server. It ends the connection if too many messages are invalid, or if too many
    notifications arrive between two answers.
    """

    def __init__(self, stream: Any, end: Callable[[str], None], server: str) -> None:
        self._stream = stream
        self._end = end
        self._server = server
        self._notifications = self._malformed = 0

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> _ServerMessages:
        return self

    async def __anext__(self) -> Any:
        try:
            item = readable(await self._stream.__anext__(), self._server)
        except StopAsyncIteration:
            self._end("")
            raise
        # The item is the error of the SDK's parser, which still has the text of the message.
        if _is_too_deep(item):
            item = _without_deep_parts(item)
            if isinstance(item, Exception):
                self._end("one of its messages is nested too deeply to be read")
        self._count(item)
        return item

    def _count(self, item: Any) -> None:
        message = getattr(item, "message", None)
        if isinstance(item, Exception):
            self._malformed += 1
        elif isinstance(message, JSONRPCNotification):
            self._notifications += 1
        elif isinstance(message, JSONRPCResponse):
            # A response shows progress. Only a stream of notifications between two responses is suspicious.
            self._notifications = 0
        if self._malformed > MOST_MALFORMED:
            self._end(
                f"more than {MOST_MALFORMED} of its messages were not JSON-RPC; the server must print only JSON-RPC "
                "messages"
            )
        if self._notifications > MOST_NOTIFICATIONS:
            self._end(f"it sent more than {MOST_NOTIFICATIONS} notifications between two answers")

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)


def _is_too_deep(item: Any) -> bool:
    """Return True if `item` is the error with which the SDK's parser refuses a message that is nested too deeply."""
    return isinstance(item, ValidationError) and "recursion limit" in str(item.errors(include_input=False)[0]["msg"])


def _without_deep_parts(error: ValidationError) -> SessionMessage | ValidationError:
    """Return a message, which is nested too deeply for the SDK, with its deepest parts removed. If the rest is invalid
    too, return the SDK's error.

    A list of tools is one message: without this, one deep schema would hide all tools of its server.
    """
    try:
        whole = json.loads(error.errors()[0]["input"])
    except (ValueError, RecursionError):
        return error
    # Level by level instead of recursively, so that the depth cannot exceed Python's recursion limit.
    level = [whole]
    for depth in range(MOST_LEVELS):
        last = depth == MOST_LEVELS - 1
        below = []
        for part in level:
            for key, value in list(part.items() if isinstance(part, dict) else enumerate(part)):
                if isinstance(value, dict | list) and last:
                    part[key] = _LEFT_OUT
                elif isinstance(value, dict | list):
                    below.append(value)
        level = below
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(whole, by_name=False))
    except ValidationError as invalid:
        return invalid


def _innermost(error: BaseException | None) -> BaseException | None:
    """Return the first exception that is inside nested exception groups. Anything else, such as a plain exception or
    None, is returned unchanged.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def opener(definition: MCPServerDefinition, policy: Policy, auth: httpx2.Auth | None) -> OpenTransport:
    """Return a function that opens the connection to an MCP server, by pipes to its process or by HTTP.

    Raise `SetupError` if the definition of the server is incomplete or the policy forbids it.
    """
    require_variables(definition, policy)  # also of a server that is read as a document, which no start has checked

    def resolve_text(text: str) -> Any:
        return resolved(expanded(text, policy), policy, Path(definition.folder))

    if definition.type == "stdio":
        command = _required(definition.command, "command", definition)
        policy.program(command, "Command")
        # The values are resolved at each start of the server, so that changed variables count.
        return lambda status: _over_pipes(
            [command, *map(resolve_text, definition.args)],
            _environ(definition, resolve_text),
            status,
        )
    if definition.type == "http":
        url = _required(definition.url, "url", definition)
        addresses_of(policy, httpx2.URL(url).host)
        return lambda status: _over_http(
            url,
            status,
            headers=_headers(definition, resolve_text),
            auth=auth,
            policy=policy,
            limit=definition.timeout,
        )
    raise SetupError(f"unsupported mcp server type: {definition.type}; write Type: stdio or Type: http")


def _required(value: str | None, key: str, definition: MCPServerDefinition) -> str:
    if not value:
        raise SetupError(
            f"{key} is required for {definition.type} mcp server {definition.name}; add {key} to its definition"
        )
    return value


def _environ(definition: MCPServerDefinition, resolve_text: Callable[[str], str]) -> dict[str, str]:
    # Known from now on as secrets, which are redacted in errors and logs.
    environ = {name: resolve_text(value) for name, value in definition.env.items()}
    shared().know_all(environ)
    return environ


def _headers(definition: MCPServerDefinition, resolve_text: Callable[[str], str]) -> dict[str, str]:
    headers = {name: resolve_text(value) for name, value in definition.headers.items()}
    if definition.authorization_token:
        token = resolve_text(definition.authorization_token)
        shared().know(token)
        # The token may be written with its "Bearer " or without.
        headers["Authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
    shared().know_all(headers)
    return headers


@asynccontextmanager
async def _over_pipes(
    command: list[str], environ: Mapping[str, str], status: TransportStatus
) -> AsyncIterator[tuple[Any, Any]]:
    if sys.platform != "win32":  # there the SDK keeps a server and its children in a job object
        # -I and -S leave out the environment and the site packages, which makes the guard start faster.
        command = [sys.executable, "-I", "-S", guard.__file__, str(LARGEST), *command]
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(environ))
    # The SDK needs a real file for the error output. It is read once, after the server has ended.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            async with stdio_client(parameters, errlog=errors) as streams:
                yield streams
        finally:
            # The error output may contain secrets, so it is redacted before anything shows it.
            errors.seek(0)
            status.text = shared().text(" ".join(errors.read().split()))


@asynccontextmanager
async def _over_http(
    url: str,
    status: TransportStatus,
    *,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    policy: Policy,
    limit: float,
) -> AsyncIterator[tuple[Any, Any]]:
    host = httpx2.URL(url).host

    async def admit(request: httpx2.Request) -> None:  # OAuth goes on at addresses that the server names
        if request.url.host != host:
            await anyio.to_thread.run_sync(addresses_of, policy, request.url.host)

    async def note_status(response: httpx2.Response) -> None:
        # Other requests of the SDK, such as the stream of events, do not belong to a call.
        if response.request.method == "POST" and response.status_code != HTTPStatus.ACCEPTED:  # else of no call
            status.status = response.status_code if response.is_error else 0
            status.text = f"HTTP {status.status}{_ADVICE.get(status.status, '')}" if status.status else ""
        if "content-encoding" in response.headers:  # a small answer would become one that fills our memory
            response.stream = _LimitedBody(response.stream, 0, "a compressed answer, which was not requested")
        elif not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _LimitedBody(response.stream, LARGEST, f"an answer of more than {LARGEST} bytes")

    async with (
        httpx2.AsyncClient(
            # Compressed answers are not requested, because their real size is not known before they are unpacked.
            headers={**headers, "Accept-Encoding": "identity"},
            auth=auth,
            # Longer than a call may take: the time limit of the call ends it first, with a clearer error.
            timeout=httpx2.Timeout(HANDSHAKE, read=limit + HANDSHAKE),
            transport=checked_transport(policy),
            event_hooks={"request": [admit], "response": [note_status]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams,
    ):
        yield streams


_ADVICE = {
    401: ": check its AuthorizationToken, Headers or OAuth",
    403: ": check what its AuthorizationToken or OAuth Scopes allow",
    404: ": check its URL",
}


class _LimitedBody(httpx2.AsyncByteStream):
    """Body of an HTTP response that raises an error when it exceeds a maximum size. The SDK itself limits only event
    streams.
    """

    def __init__(self, stream: Any, most: int, more: str) -> None:
        self._stream = stream
        self._most = most
        self._more = more

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = self._most
        async for chunk in self._stream:
            remaining -= len(chunk)
            if remaining < 0:
                raise httpx2.StreamError(f"the server sent {self._more}")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
