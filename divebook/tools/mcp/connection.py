"""One connection to an MCP server, held by a task of its own: what was entered in a task has to be left in it.

A connection ends when it is closed, when its server ends, or when that floods us; calls that are under way then fail
with `BrokenError`, which says what the server said last, and whether the call may have reached it.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.client import ConnectMode
from mcp.client.session import ElicitationFnT, SamplingFnT
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    Implementation,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from divebook._version import __version__
from divebook.text.redaction import shared
from divebook.tools.mcp.messages import readable
from divebook.tools.mcp.results import check_results_of

T = TypeVar("T")

AUTO: Final[ConnectMode] = "auto"
LEGACY: Final[ConnectMode] = "legacy"
"""The protocol of 2025, in which a server may ask while a call is under way."""
HANDSHAKE = 30.0
"""Seconds that a server may take to start, and to list what it has."""
GOODBYE = 5.0
"""Seconds that a server has to let go of us, which a guard needs half of."""
MOST_NOTIFICATIONS = 10_000
"""How much it may tell between two answers."""
MOST_MALFORMED = 100
"""Messages that are none, such as what a server prints, before the connection is given up."""
MOST_LEVELS = 150
"""Levels of a message that are read; the SDK reads 200."""
_LEFT_OUT = "[left out: nested too deeply]"
_LONGEST = 10_000
_ERROR_RESPONSE = "Server returned an error response"
"""What the SDK says of an HTTP status that is an error, whose number another answer may have replaced by then."""
_SESSION_TERMINATED = "Session terminated"


class BrokenError(Exception):
    """The connection has ended."""

    def __init__(self, cause: str, *, was_sent: bool) -> None:
        self.cause, self.was_sent = cause, was_sent
        super().__init__(cause)


class RefusedError(Exception):
    """The server does not do what it was asked, or answers with what is no answer.

    Parameters
    ----------
    is_answer
        Whether it has understood who asks, and what: a model that called a tool may do better then.
    """

    def __init__(self, cause: str, *, is_answer: bool = False) -> None:
        self.is_answer = is_answer
        super().__init__(cause)


class Told:
    """What a transport knows of its server besides the messages: its last words, or the status of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.status = 0


Opened = Callable[[Told], AbstractAsyncContextManager[Any]]
"""Opens a transport and yields its two streams."""


class _Heard:
    """The messages of a server, counted; tells when there are no more."""

    def __init__(self, stream: Any, end: Callable[[str], None], server: str) -> None:
        self._stream, self._end, self._server = stream, end, server
        self._notifications = self._malformed = 0

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> _Heard:
        return self

    async def __anext__(self) -> Any:
        try:
            item = readable(await self._stream.__anext__(), self._server)
        except StopAsyncIteration:
            self._end("")
            raise
        if _is_too_deep(item):
            item = _with_less(item)
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
            self._notifications = 0
        if self._malformed > MOST_MALFORMED:
            self._end(f"more than {MOST_MALFORMED} of its messages were no JSON-RPC; it must print nothing else")
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
    return isinstance(item, ValidationError) and "recursion limit" in str(item.errors(include_input=False)[0]["msg"])


def _with_less(error: ValidationError) -> SessionMessage | ValidationError:
    """Return a message without the parts that are nested more deeply than the SDK reads, or the error if that fails.

    A list of tools is one message: without this, one deep schema would hide all tools of its server.
    """
    try:
        whole = json.loads(error.errors()[0]["input"])
    except (ValueError, RecursionError):
        return error
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


class Connection:
    """A connection over a transport; `open` it once, then call until it `has_ended`.

    Parameters
    ----------
    mode
        Which protocol is spoken, as `mcp.Client` has it.
    patience
        Seconds that it may take until the server has agreed, or a person if it asks one.
    server
        The name of the server, for warnings.
    """

    def __init__(
        self,
        opened: Opened,
        elicited: ElicitationFnT,
        sampled: SamplingFnT | None = None,
        *,
        mode: ConnectMode = AUTO,
        patience: float = HANDSHAKE,
        server: str = "",
    ) -> None:
        self._server = server
        self._opened, self._elicited, self._sampled = opened, elicited, sampled
        self._mode, self._patience = mode, patience
        self._told = Told()
        self._fault: BaseException | None = None
        self._complaint = ""
        self._ending = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether no call can be made any more."""
        return self._ending.is_set()

    async def open(self) -> None:
        """Connect and agree on a protocol; raises `BrokenError`."""
        own = contextvars.Context()  # the connection is of no turn
        self._task = asyncio.create_task(self._hold(), context=own)
        waited: set[asyncio.Future[Any]] = {self._ready, self._task}
        try:
            await asyncio.wait(waited, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
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
                elicitation_callback=self._elicited,
                sampling_callback=self._sampled,
            ) as client:
                check_results_of(client.session)
                self._ready.set_result(client)
                await self._ending.wait()
        except Exception as error:  # noqa: BLE001 - whatever ends a connection is said by the calls that need it
            self._fault = error
        finally:
            self._ending.set()

    def _transport(self) -> Transport:
        @asynccontextmanager
        async def transport() -> AsyncIterator[tuple[Any, Any]]:
            async with self._opened(self._told) as (reading, writing):
                yield _Heard(reading, self._end, self._server), writing

        return transport()

    def _end(self, complaint: str) -> None:
        self._complaint = self._complaint or complaint
        self._ending.set()

    def end(self) -> None:
        """Have the connection end, without waiting for it."""
        self._end("")

    async def close(self) -> None:
        """End the connection, and with it a server that was started for it; calling it twice is the same as once."""
        self._ending.set()
        if self._task is not None:
            _, stays = await asyncio.wait({self._task}, timeout=GOODBYE)
            if stays:  # a server over HTTP need not answer that we go
                self._task.cancel()
                await asyncio.wait(stays)

    @property
    def client(self) -> Client:
        """The SDK's client of the open connection."""
        return self._ready.result()

    async def ask(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """Make a request.

        Raises
        ------
        BrokenError
            The connection ended.
        RefusedError
            The server refuses, or its answer breaks the protocol.
        """
        if self.has_ended:
            raise BrokenError("not connected", was_sent=False)
        asking = asyncio.ensure_future(request(self.client))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # also where nobody waits any more
        ending = asyncio.ensure_future(self._ending.wait())
        waited: set[asyncio.Future[Any]] = {asking, ending}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise await self._broken("the connection ended")
            return asking.result()
        except MCPError as error:
            raise await self._failed(error) from error
        except ValidationError as error:
            cause = f"its answer does not keep to the protocol: {error.errors()[0]['msg']}"
            raise RefusedError(cause, is_answer=True) from error
        finally:
            asking.cancel()
            ending.cancel()

    async def _failed(self, error: MCPError) -> BrokenError | RefusedError:
        if error.code == CONNECTION_CLOSED:
            return await self._broken(f"the connection ended: {error.message}")
        if error.message == _SESSION_TERMINATED:  # the server has forgotten us, so it has done nothing
            await self.close()
            return BrokenError("the server has ended the session", was_sent=False)
        if self._told.status >= 500 or (error.message == _ERROR_RESPONSE and not self._told.status):
            return BrokenError(self._told.text or "HTTP error", was_sent=True)  # what came of it is not known
        if self._told.status in (401, 403, 429):
            return RefusedError(self._told.text)
        cause = "not supported" if error.code == METHOD_NOT_FOUND else shared().text(error.message)[:_LONGEST]
        return RefusedError(cause, is_answer=True)

    async def _broken(self, what: str) -> BrokenError:
        await self.close()
        was_sent = not isinstance(_innermost(self._fault), httpx2.ConnectError | httpx2.ConnectTimeout)
        return BrokenError(self._cause(what), was_sent=was_sent)

    def _cause(self, what: str) -> str:
        """Return why the connection ended, with what is known besides."""
        fault = _innermost(self._fault)
        said = self._complaint or (f"{what}: {str(fault) or type(fault).__name__}" if fault is not None else what)
        said = said.removesuffix(": Connection closed")  # which says nothing
        return f"{said} ({self._told.text})" if self._told.text else said


def _innermost(error: BaseException | None) -> BaseException | None:
    """Return the first error of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
