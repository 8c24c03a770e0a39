"""MCP servers of an environment. A server is started at its first request and ended with the environment.

Loading the SDK takes a third of a second, so it is loaded in a thread when a server is first needed. Each connection
lives on the engine's event loop, in a task of its own (`divebook.tools.mcp.connection`).

Life cycle: the first request opens a connection, and requests of other calls wait for it meanwhile. `IDLE` seconds
after the last call the connection is closed, and the next request opens a new one. If a connection ends during a
request, the request is repeated once on a new connection, provided that it had not been sent or is repeatable.
Otherwise the outcome of the call is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from divebook.definitions import json_schemas
from divebook.definitions.servers import (
    SCHEME,
    Answers,
    CallOutcome,
    Discovered,
    Elicit,
    MCPServerDefinition,
    OfferedTool,
)
from divebook.documents.policy import APPROVALS
from divebook.errors import AlreadyRegisteredError, NotFoundError, OutcomeUnknownError, ServerError, SetupError
from divebook.stores.codec import Sealing
from divebook.text.redaction import clean_libraries, shared
from divebook.tools.mcp.open_calls import OpenCalls, require_variables

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

    from divebook.documents import Document, Policy
    from divebook.tools.mcp.connection import Connection

T = TypeVar("T")

IDLE = 300.0
"""Seconds after the last call until a server is stopped. The next call starts it again."""
CLOSING = 6.0
"""Seconds that all servers together may take to end when their environment is closed."""


class OnEngine(Protocol):
    """Type of a function that runs a coroutine on the event loop of the engine. It is called in other threads, and
    blocks until the coroutine has returned.
    """

    def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `work` creates on the event loop of the engine, and return its result."""


class Server:
    """One MCP server of an environment. It opens the connection at the first request, shares it between all requests,
    and closes it. Implements `ToolServer`.

    Parameters
    ----------
    on_engine
        Runs requests of other threads on the engine's event loop, on which the connection lives.
    sealing
        Encryption of OAuth tokens in a file; None to store them as plain text.
    idle
        Seconds after the last request until the connection is closed.
    """

    def __init__(
        self,
        definition: MCPServerDefinition,
        policy: Policy,
        on_engine: OnEngine,
        *,
        sealing: Sealing | None = None,
        idle: float = IDLE,
    ) -> None:
        self.definition = definition
        self._on_engine = on_engine
        self.policy = policy
        self._idle_after = idle
        self._sealing = sealing or Sealing()
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._open_requests = 0
        self._open_calls = OpenCalls()
        self._stop_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """Name of the server in definitions, errors and ids of its resources."""
        return self.definition.name

    @property
    def timeout(self) -> float:
        """Time limit of one call of a tool of the server, in seconds."""
        return self.definition.timeout

    @property
    def sampling(self) -> str | None:
        """Name of the agent that answers the server's sampling requests (requests for a model's response). None if such
        requests are refused.
        """
        return self.definition.sampling

    @cached_property
    def _credentials(self) -> httpx2.Auth | None:
        from divebook.tools.mcp.oauth import provider_of

        return provider_of(self.definition, self.policy, self._sealing)

    @property
    def is_running(self) -> bool:
        """True if a connection to the server is open."""
        return self._connection is not None and not self._connection.has_ended

    @property
    def is_trusted(self) -> bool:
        """True if the server's hints about its tools may relax approval rules: definition and policy both allow it."""
        return self.definition.trusted and APPROVALS in self.policy.allowed

    def check(self) -> None:
        """Raise `SetupError` if the server's definition names a variable or file that the policy does not allow."""
        require_variables(self.definition, self.policy)

    # --- for people and their code -----------------------------------------------------------------------------------

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources of the server: id (for ``documents.get``), name, description and media type of each."""
        return self._run_on_engine("list_resources", lambda module, client: module.resources(client, self.name))

    def read(self, address: str) -> Document:
        """Return the resource of the server with this address, as a document."""
        document: Document = self._run_on_engine(
            "read_resource", lambda module, client: module.read(client, self.name, address)
        )
        return document

    def tools(self) -> tuple[OfferedTool, ...]:
        """Return the tools that the server offers now, without those that a model could not use. Raise `ServerError` if
        the server cannot be reached.
        """
        return self._on_engine(self.discover).tools

    def prompts(self) -> list[dict[str, Any]]:
        """Return name, description and argument names of each prompt template of the server."""
        return self._run_on_engine("list_prompts", lambda module, client: module.prompts(client))

    def prompt(self, name: str, **arguments: str) -> list[dict[str, Any]]:
        """Return a prompt template of the server with its arguments filled in, as the role and content of each
        message.
        """
        return self._run_on_engine("get_prompt", lambda module, client: module.prompt(client, name, arguments))

    def _run_on_engine(self, operation: str, request: Callable[[Any, Client], Awaitable[T]]) -> T:
        async def work() -> T:
            await _load()
            from divebook.tools.mcp import calls as resources

            return await self.ask(operation, partial(request, resources))

        return self._on_engine(work)

    # --- for the engine ----------------------------------------------------------------------------------------------

    async def discover(self) -> Discovered:
        """Return the tools that the server offers now and its instructions, in the form for agents. Raise `ServerError`
        if the server cannot be reached.
        """
        configuration = self.definition.tool_configuration
        # A server without usable tools is not even started.
        if configuration is not None and not configuration.enabled:
            return Discovered()
        await _load()
        from divebook.tools.mcp.calls import discover_tools

        # The policy decides whether the trust of the definition counts.
        definition = replace(self.definition, trusted=self.is_trusted)
        return await self.ask("list_tools", lambda client: discover_tools(client, definition))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        answers: Answers | None = None,
        state: str | None = None,
        elicit: Elicit | None = None,
        repeatable: bool = False,
    ) -> CallOutcome:
        """Call a tool of the server and return its outcome. Parameters and errors are those of `ToolServer.call`."""
        # The name comes from a model or a log, and the definition may have changed since the tools were listed.
        if not self.definition.allows(tool):
            raise self._error("call_tool", f"tool {tool} is not allowed by the ToolConfiguration of the server")
        await _load()
        from divebook.tools.mcp.calls import call_tool, with_advice
        from divebook.tools.mcp.connection import RefusedError

        def request(client: Client) -> Awaitable[CallOutcome]:
            return call_tool(client, tool, arguments, answers, state, sampler=self.sampling)

        try:
            calling = self._ask_with_retry("call_tool", request, repeatable=repeatable)
            # A call without a handler is not registered, so no request of the server is passed to it.
            if elicit is not None:
                calling = self._open_calls.answering(calling, elicit)
            return with_advice(await calling, self.name)
        except RefusedError as error:
            failure = self._error("call_tool", str(error))
            # An error that the server answered with is the result of the call, which the model gets.
            if not error.is_answer:
                raise failure from error
            return with_advice(CallOutcome(str(failure), is_error=True), self.name)

    async def _elicit(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK names both
        """Answer an elicitation request (a question to a person) that the server sends during a tool call."""
        from divebook.tools.mcp.calls import request_of, response_of

        return response_of(await self._open_calls.ask(request_of(params)))

    async def _sample(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK names both
        """Answer a sampling request (a request for a model's answer) that the server sends during a tool call."""
        from divebook.tools.mcp.calls import NOT_ALLOWED, is_plain, sampled_of, sampling_of

        # Outside of a call, neither a turn nor a budget exists to which the request could belong.
        if not (self._open_calls and self.sampling and is_plain(params)):
            return sampled_of({"error": NOT_ALLOWED.format("sampling outside a call, of more than texts, or of tools")})
        return sampled_of(await self._open_calls.ask(sampling_of(params, self.sampling)))

    async def ask(self, operation: str, request: Callable[[Client], Awaitable[T]]) -> T:
        """Send a request without side effects to the server, which is started first if necessary. Return the answer;
        raise `ServerError` if there is none.
        """
        await _load()
        from divebook.tools.mcp.connection import HANDSHAKE, RefusedError

        try:
            # Tool calls have a time limit of their own, which the engine applies.
            return await self._ask_with_retry(operation, request, limit=HANDSHAKE)
        except RefusedError as error:
            raise self._error(operation, str(error)) from error

    async def _ask_with_retry(
        self,
        operation: str,
        request: Callable[[Client], Awaitable[T]],
        *,
        repeatable: bool = True,
        limit: float | None = None,
    ) -> T:
        """Send a request to the server and return the answer. If the connection has ended and the request may be
        repeated safely, send it again.

        Repeating is safe if the request was not sent or is `repeatable`. Otherwise the outcome is unknown.
        """
        from divebook.tools.mcp.connection import BrokenError

        with self._in_use():
            try:
                return await self._ask_once(operation, request, limit)
            except BrokenError as error:
                # The server may have executed the request. Only a repeatable one can be sent again without harm.
                if error.was_sent and not repeatable:
                    raise OutcomeUnknownError(str(self._error(operation, error.cause))) from error
            # The second and last attempt, on a new connection.
            try:
                return await self._ask_once(operation, request, limit)
            except BrokenError as error:
                raise self._error(operation, error.cause) from error

    async def _ask_once(self, operation: str, request: Callable[[Client], Awaitable[T]], limit: float | None) -> T:
        connection = await self._current_connection(operation)
        try:
            async with asyncio.timeout(limit):
                return await connection.ask(request)
        except TimeoutError as error:
            raise self._error(operation, f"no answer within {limit:g} seconds") from error

    def _error(self, operation: str, cause: str) -> ServerError:
        return ServerError(operation, self.name, shared().text(cause))

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._open_requests += 1
        # The idle time starts anew with each request, so the pending end of the connection is cancelled.
        if self._stop_timer is not None:
            self._stop_timer.cancel()
        try:
            yield
        finally:
            self._open_requests -= 1
            # The last request starts the idle time.
            if not self._open_requests:
                # In a context of its own: that of the caller may hold the messages of a run until then.
                loop = asyncio.get_running_loop()
                self._stop_timer = loop.call_later(self._idle_after, self._stop, context=Context())

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.end()

    async def _current_connection(self, operation: str) -> Connection:
        # The lock makes concurrent first requests share one connection.
        async with self._opening:
            if self._connection is not None and not self._connection.has_ended:
                return self._connection
            if self._is_closed:
                raise self._error(operation, "not connected: its environment is closed")
            self._connection = await self._open_connection(operation)
            return self._connection

    async def _open_connection(self, operation: str) -> Connection:
        from divebook.tools.mcp.connection import AUTO, HANDSHAKE, LEGACY, BrokenError, Connection, opener
        from divebook.tools.mcp.oauth import PATIENCE

        try:
            # In a thread, because it looks up host names and may read files.
            open_transport = await anyio.to_thread.run_sync(opener, self.definition, self.policy, self._credentials)
            mode = LEGACY if self.definition.asks_within_calls else AUTO
            # With OAuth, opening includes the time in which a person signs in.
            patience = HANDSHAKE if self.definition.oauth is None else HANDSHAKE + PATIENCE
            sample = None if self.sampling is None else self._sample
            connection = Connection(
                open_transport, self._elicit, sample, mode=mode, patience=patience, server=self.name
            )
            await connection.connect()
        except (SetupError, OSError) as error:
            raise self._error(operation, f"not connected: {error}") from error
        except BrokenError as error:
            raise self._error(operation, f"not connected: {error.cause}") from error
        return connection

    async def close(self) -> None:
        """Close the connection to the server for good. Later requests raise an error."""
        # Set before the lock is acquired: a request that waits for the lock must not open a new connection afterwards.
        self._is_closed = True
        if self._stop_timer is not None:
            self._stop_timer.cancel()
        async with self._opening:
            if self._connection is not None:
                await self._connection.close()


# A list instead of a flag: it keeps the modules, and is filled only after the import has succeeded.
_LOADED: list[object] = []
"""Modules that use the MCP SDK, once they are loaded."""


async def _load() -> None:
    """Load the MCP SDK in a thread, so that the event loop stays free for other executions."""
    if not _LOADED:
        _LOADED.extend(await anyio.to_thread.run_sync(_modules))


def _modules() -> tuple[object, ...]:
    from divebook.tools.mcp import calls, connection, oauth

    json_schemas.load()
    clean_libraries("mcp", "client", "httpx2", "httpcore2")  # "client" is how the SDK calls its session

    return calls, connection, oauth


class Servers(Mapping[str, Server]):
    """The MCP servers of an environment, by name."""

    def __init__(self, on_engine: OnEngine, sealing: Sealing | None = None) -> None:
        self._on_engine = on_engine
        self._sealing = sealing
        self._servers: dict[str, Server] = {}
        self._replaced: list[Server] = []

    def add(self, definition: MCPServerDefinition, policy: Policy, *, replace: bool = False) -> None:
        """Add an MCP server to the environment. A server with an equal definition is kept. A different definition of
        the same name is an error without `replace`.

        The policy decides which programs may be started and which addresses may be reached for the server.
        """
        existing = self._servers.get(definition.name)
        if existing is not None and existing.definition == definition:
            # The folder is not part of the comparison of definitions, but its relative paths depend on it.
            if existing.definition.folder == definition.folder:
                return
            replace = True
        if existing is not None:
            if not replace:
                raise AlreadyRegisteredError("mcp server", definition.name)
            # Running calls may still use the replaced server, so it is stopped when the environment is closed.
            self._replaced.append(existing)
        self._servers[definition.name] = Server(definition, policy, self._on_engine, sealing=self._sealing)

    def merge_from(self, servers: Servers) -> None:
        """Add the MCP servers of another environment to this one. Each server keeps its access policy and gets a new
        connection.
        """
        for server in servers.values():
            self.add(server.definition, server.policy, replace=True)

    def __getitem__(self, name: str) -> Server:
        if name not in self._servers:
            raise NotFoundError("mcp server", name, self._servers)
        return self._servers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    async def close(self) -> None:
        """Close the connections to all servers concurrently, also to servers that were replaced. Waits at most
        `CLOSING` seconds.
        """
        tasks = [asyncio.ensure_future(server.close()) for server in (*self._servers.values(), *self._replaced)]
        if tasks:
            # A server that does not end in time is not waited for: its guard process ends it.
            await asyncio.wait(tasks, timeout=CLOSING)


class ServedDocuments:
    """Read-only document repository whose documents are the resources of MCP servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def get(self, path: str) -> Document:
        """Return the resource of a server with the id ``mcp://server/address``, as a document."""
        # "mcp://files/notes.txt" -> "files", "notes.txt"
        server, _, address = path.removeprefix(SCHEME).partition("/")
        return self._servers[server].read(address)

    def list(self, prefix: str) -> list[str]:
        """Return the ids of all resources that begin with a prefix. If the prefix is only ``mcp://``, the resources of
        all servers are listed.
        """
        name, slash, _ = prefix.removeprefix(SCHEME).partition("/")
        # A prefix without a slash may be the beginning of several names: "mcp://fi".
        servers = [self._servers[name]] if name and (slash or name in self._servers) else list(self._servers.values())
        ids = [resource["id"] for server in servers for resource in server.resources()]
        return sorted(path for path in ids if path.startswith(prefix))
