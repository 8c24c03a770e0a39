"""MCP servers of an environment: each starts at its first request and ends with the environment.

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
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from divebook.documents.policy import APPROVALS
from divebook.errors import AlreadyRegisteredError, NotFoundError, OutcomeUnknownError, ServerError, SetupError
from divebook.store.encryption import Sealing
from divebook.text.redaction import clean_libraries, shared
from divebook.tools.mcp.open_calls import OpenCalls, require_variables
from divebook.workflow import json_schemas
from divebook.workflow.servers import SCHEME, Answers, CallOutcome, Discovered, Elicit, MCPServerDefinition, OfferedTool

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

    from divebook.documents import Document, Policy
    from divebook.tools.mcp.connection import Connection

T = TypeVar("T")

IDLE = 300.0
"""Seconds after the last call until a server is stopped. The next call starts it again."""
CLOSING = 6.0
"""Seconds that all servers together may take to end with their environment."""


class OnEngine(Protocol):
    """Function that runs a coroutine on the engine's loop and waits for it in another thread."""

    def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the coroutine."""


class Server:
    """One MCP server. Implements `ToolServer`.

    Parameters
    ----------
    on_engine
        For what is asked from any other thread: connections live on one loop.
    sealing
        What encrypts the tokens that it keeps in a file, if anything does.
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
        self._under_way = 0
        self._open_calls = OpenCalls()
        self._stopping: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """Name of the server in definitions."""
        return self.definition.name

    @property
    def timeout(self) -> float:
        """Time limit of a call, in seconds."""
        return self.definition.timeout

    @property
    def sampling(self) -> str | None:
        """Agent that answers its sampling requests; None to refuse them."""
        return self.definition.sampling

    @cached_property
    def _credentials(self) -> httpx2.Auth | None:
        from divebook.tools.mcp.oauth import provider_of

        return provider_of(self.definition, self.policy, self._sealing)

    @property
    def is_running(self) -> bool:
        """True if a connection is open."""
        return self._connection is not None and not self._connection.has_ended

    @property
    def is_trusted(self) -> bool:
        """True if hints of the server about its tools may relax rules, such as a hint that a tool changes nothing."""
        return self.definition.trusted and APPROVALS in self.policy.allowed

    def check(self) -> None:
        """Raise `SetupError` unless the policy allows the variables and files that its definition names."""
        require_variables(self.definition, self.policy)

    # --- for people and their code -----------------------------------------------------------------------------------

    def resources(self) -> list[dict[str, Any]]:
        """Return its resources: the id of each, for ``documents.get``, its name and its type."""
        return self._run_on_engine("list_resources", lambda module, client: module.resources(client, self.name))

    def read(self, address: str) -> Document:
        """Return a resource as a document."""
        document: Document = self._run_on_engine(
            "read_resource", lambda module, client: module.read(client, self.name, address)
        )
        return document

    def tools(self) -> tuple[OfferedTool, ...]:
        """Return the usable tools that it offers now; raise `ServerError`."""
        return self._on_engine(self.discover).tools

    def prompts(self) -> list[dict[str, Any]]:
        """Return name, description and arguments of each prompt."""
        return self._run_on_engine("list_prompts", lambda module, client: module.prompts(client))

    def prompt(self, name: str, **arguments: str) -> list[dict[str, Any]]:
        """Return role and content of each message of a prompt."""
        return self._run_on_engine("get_prompt", lambda module, client: module.prompt(client, name, arguments))

    def _run_on_engine(self, operation: str, request: Callable[[Any, Client], Awaitable[T]]) -> T:
        async def work() -> T:
            await _load()
            from divebook.tools.mcp import calls as resources

            return await self.ask(operation, partial(request, resources))

        return self._on_engine(work)

    # --- for the engine ----------------------------------------------------------------------------------------------

    async def discover(self) -> Discovered:
        """Return the usable tools that it offers now; raise `ServerError`."""
        configuration = self.definition.tool_configuration
        if configuration is not None and not configuration.enabled:
            return Discovered()
        await _load()
        from divebook.tools.mcp.calls import discover_tools

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
        """Call a tool; see `ToolServer.call`."""
        if not self.definition.allows(tool):
            raise self._error("call_tool", f"tool {tool} may not be used; its ToolConfiguration says which may")
        await _load()
        from divebook.tools.mcp.calls import call_tool, with_advice
        from divebook.tools.mcp.connection import RefusedError

        def request(client: Client) -> Awaitable[CallOutcome]:
            return call_tool(client, tool, arguments, answers, state, sampler=self.sampling)

        try:
            calling = self._ask_with_retry("call_tool", request, repeatable=repeatable)
            return with_advice(
                await (calling if elicit is None else self._open_calls.answering(calling, elicit)), self.name
            )
        except RefusedError as error:
            failed = self._error("call_tool", str(error))
            if not error.is_answer:
                raise failed from error
            return with_advice(CallOutcome(str(failed), is_error=True), self.name)

    async def _elicit(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK names both
        """Answer an elicitation request of the server during a call."""
        from divebook.tools.mcp.calls import request_of, response_of

        return response_of(await self._open_calls.ask(request_of(params)))

    async def _sample(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK names both
        """Answer a sampling request of the server during a call."""
        from divebook.tools.mcp.calls import NOT_ALLOWED, is_plain, sampled_of, sampling_of

        if not (self._open_calls and self.sampling and is_plain(params)):
            return sampled_of({"error": NOT_ALLOWED.format("sampling outside a call, of more than texts, or of tools")})
        return sampled_of(await self._open_calls.ask(sampling_of(params, self.sampling)))

    async def ask(self, operation: str, request: Callable[[Client], Awaitable[T]]) -> T:
        """Make a request without side effects, and start the server if necessary; raise `ServerError`."""
        await _load()
        from divebook.tools.mcp.connection import HANDSHAKE, RefusedError

        try:
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
        """Make a request. Repeat it once if the connection ended before it was sent, or if it is repeatable."""
        from divebook.tools.mcp.connection import BrokenError

        with self._in_use():
            try:
                return await self._ask_once(operation, request, limit)
            except BrokenError as error:
                if error.was_sent and not repeatable:
                    raise OutcomeUnknownError(str(self._error(operation, error.cause))) from error
            try:
                return await self._ask_once(operation, request, limit)
            except BrokenError as error:
                raise self._error(operation, error.cause) from error

    async def _ask_once(self, operation: str, request: Callable[[Client], Awaitable[T]], limit: float | None) -> T:
        connection = await self._connected(operation)
        try:
            async with asyncio.timeout(limit):
                return await connection.ask(request)
        except TimeoutError as error:
            raise self._error(operation, f"no answer within {limit:g} seconds") from error

    def _error(self, operation: str, cause: str) -> ServerError:
        return ServerError(operation, self.name, shared().text(cause))

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._under_way += 1
        if self._stopping is not None:
            self._stopping.cancel()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._stopping = asyncio.get_running_loop().call_later(self._idle_after, self._stop)

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.end()

    async def _connected(self, operation: str) -> Connection:
        async with self._opening:
            if self._connection is not None and not self._connection.has_ended:
                return self._connection
            if self._is_closed:
                raise self._error(operation, "not connected: its environment is closed")
            self._connection = await self._opened(operation)
            return self._connection

    async def _opened(self, operation: str) -> Connection:
        from divebook.tools.mcp.connection import AUTO, HANDSHAKE, LEGACY, BrokenError, Connection, opener
        from divebook.tools.mcp.oauth import PATIENCE

        try:
            opened = await anyio.to_thread.run_sync(opener, self.definition, self.policy, self._credentials)
            mode = LEGACY if self.definition.asks_within_calls else AUTO
            patience = HANDSHAKE if self.definition.oauth is None else HANDSHAKE + PATIENCE
            sampled = None if self.sampling is None else self._sample
            connection = Connection(opened, self._elicit, sampled, mode=mode, patience=patience, server=self.name)
            await connection.open()
        except (SetupError, OSError) as error:
            raise self._error(operation, f"not connected: {error}") from error
        except BrokenError as error:
            raise self._error(operation, f"not connected: {error.cause}") from error
        return connection

    async def close(self) -> None:
        """Stop the server for good."""
        self._is_closed = True
        if self._stopping is not None:
            self._stopping.cancel()
        async with self._opening:
            if self._connection is not None:
                await self._connection.close()


_LOADED: list[object] = []


async def _load() -> None:
    """Load the SDK in a thread, so that other executions are not delayed."""
    if not _LOADED:
        _LOADED.append(await anyio.to_thread.run_sync(_modules))


def _modules() -> object:
    from divebook.tools.mcp import calls as calling
    from divebook.tools.mcp import calls as discovery
    from divebook.tools.mcp import calls as resources
    from divebook.tools.mcp import connection as connecting
    from divebook.tools.mcp import oauth as credentials

    json_schemas.load()
    clean_libraries("mcp", "client", "httpx2", "httpcore2")  # "client" is how the SDK calls its session

    return calling, connecting, credentials, discovery, resources


class Servers(Mapping[str, Server]):
    """Servers of an environment, by name."""

    def __init__(self, on_engine: OnEngine, sealing: Sealing | None = None) -> None:
        self._on_engine = on_engine
        self._sealing = sealing
        self._servers: dict[str, Server] = {}
        self._replaced: list[Server] = []

    def add(self, definition: MCPServerDefinition, policy: Policy, *, replace: bool = False) -> None:
        """Add a server unless it exists. Another definition with the same name is an error unless `replace` is set.

        The policy decides which programs it may start and which addresses it may reach.
        """
        existing = self._servers.get(definition.name)
        if existing is not None and existing.definition == definition:
            return
        if existing is not None:
            if not replace:
                raise AlreadyRegisteredError("mcp server", definition.name)
            self._replaced.append(existing)
        self._servers[definition.name] = Server(definition, policy, self._on_engine, sealing=self._sealing)

    def merge_from(self, servers: Servers) -> None:
        """Add the servers of another environment, each with its own policy and new connections."""
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
        """Stop all servers concurrently."""
        ending = [asyncio.ensure_future(server.close()) for server in (*self._servers.values(), *self._replaced)]
        if ending:
            await asyncio.wait(ending, timeout=CLOSING)


class ServedDocuments:
    """Library of a document repository that contains the resources of servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def get(self, path: str) -> Document:
        """Return a document by its id."""
        server, _, address = path.removeprefix(SCHEME).partition("/")
        return self._servers[server].read(address)

    def list(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix. A prefix with only the scheme asks all servers."""
        name, slash, _ = prefix.removeprefix(SCHEME).partition("/")
        servers = [self._servers[name]] if name and (slash or name in self._servers) else list(self._servers.values())
        ids = [resource["id"] for server in servers for resource in server.resources()]
        return sorted(path for path in ids if path.startswith(prefix))
