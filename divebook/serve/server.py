"""The server: a call of a tool begins an execution, and comes back when that has ended or asks a person.

A client of protocol 2026-07-28 gets a question as `input_required`, with the execution as its sealed state: no process
waits for the answer, and a server that was started again takes it. Older clients are asked within the call. The
execution is an ordinary one of its store: it outlives the call, the connection and the server, and whoever answers its
question first, a client, a widget or a command line, has answered it. A client that cannot ask its person gets the id
of the execution, and how its question is answered elsewhere.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import aclosing, redirect_stdout, suppress
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from divebook._version import __version__
from divebook.environment import Environment
from divebook.errors import DivebookError, InterruptError, LeaseHeldError
from divebook.events.catalog import PENDING, WAITING, OperationCompleted
from divebook.events.event import Event
from divebook.execution.elsewhere import has_news
from divebook.execution.execution import Execution
from divebook.questions import Question
from divebook.serve.asking import answer_of, can_ask, form_of, is_accepted
from divebook.serve.keys import key_beside
from divebook.serve.offered import STATUS_TOOL, result_of, shown_result, status_tool, tool_names, tool_of
from divebook.store.follow import follow
from divebook.text.logs import clean_libraries
from divebook.workflow.definition import Workflow

T = TypeVar("T")

clean_libraries("mcp")
NAME = "divebook"
ASKED_BY_RESULT = "2026-07-28"
"""The first protocol in which a result may ask; dates compare as texts."""
WAIT = 50.0
"""Seconds for which a call waits, below what clients allow."""
_STATE_LASTS = 30 * 86400.0
"""Seconds for which the state of a question can be sent back."""

Result = CallToolResult | InputRequiredResult
Context = ServerRequestContext[Any, Any]


class WorkflowServer:
    """Offers the workflows of an environment as tools.

    Parameters
    ----------
    wait
        Seconds after which a call comes back with the id of its execution, which goes on.

    Attributes
    ----------
    protocol
        The server of the MCP SDK, for any of its transports.

    Raises
    ------
    SetupError
        Two workflows would be tools of one name.
    StoreError
        The key beside the store cannot be used.
    """

    def __init__(self, environment: Environment, *, wait: float = WAIT) -> None:
        self._environment, self._wait = environment, wait
        tool_names(environment.workflows.values())
        self.protocol: Server[Any] = Server(
            NAME,
            version=__version__,
            instructions="Each tool runs a durable workflow. A run that takes long goes on: look at it again with "
            f"{STATUS_TOOL}.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        keys = [key_beside(environment.store.location)]
        security = RequestStateSecurity(keys=keys, ttl=_STATE_LASTS)
        self.protocol.middleware.append(RequestStateBoundary(security, default_audience=NAME))

    @property
    def _workflows(self) -> Mapping[str, Workflow]:
        """The workflows by the names of their tools, also those that were registered since the server began."""
        return tool_names(self._environment.workflows.values())

    async def _list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        tools = [tool_of(name, workflow) for name, workflow in self._workflows.items()]
        return ListToolsResult(tools=[*tools, status_tool()])

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> Result:
        """Make a call; an error of ours is a result that the client's model can read."""
        try:
            return await self._called(context, params)
        except DivebookError as error:
            return shown_result(f"{type(error).__name__}: {error}", is_error=True)

    async def _called(self, context: Context, params: CallToolRequestParams) -> Result:
        arguments = params.arguments or {}
        if params.name != STATUS_TOOL and params.name not in self._workflows:
            return shown_result(f"there is no tool {params.name!r}; known: {', '.join(self._workflows)}", is_error=True)
        if params.request_state is not None:
            execution = self._execution(params.request_state)
            return await self._answered(context, execution, params.input_responses or {})
        if params.name == STATUS_TOOL:
            named = arguments.get("execution")
            return self._open() if not named else await self._followed(context, self._execution(str(named)))
        workflow = self._workflows[params.name]
        execution = self._environment.create(workflow.name, arguments)
        return await self._followed(context, execution)

    def _execution(self, execution_id: str) -> Execution:
        """Return an execution of one of the workflows that are served; no other is anybody's business here."""
        execution = self._environment.execution(execution_id)
        if execution.workflow.name not in {workflow.name for workflow in self._workflows.values()}:
            raise DivebookError(f"execution {execution_id} is not one of a workflow that this server offers")
        return execution

    def _open(self) -> CallToolResult:
        served = {workflow.name for workflow in self._workflows.values()}
        records = [record for record in self._environment.store.unended() if record.workflow_name in served]
        lines = [f"{record.execution_id}: {record.workflow_name}, {record.status}" for record in records]
        return shown_result("\n".join(lines) or "No run is open.")

    # --- until it ends or asks -------------------------------------------------------------------------------------

    async def _followed(self, context: Context, execution: Execution) -> Result:
        """Wait for an execution; return its result or its questions."""
        asks_by_result = context.protocol_version >= ASKED_BY_RESULT
        asks_within = can_ask(context) and not asks_by_result
        leave = execution.subscribe(_Progress(context).tell)
        try:
            await self._rested(execution)
            while asks_within and execution.interrupts and await self._asked_within(context, execution):
                await self._rested(execution)
        except TimeoutError:
            return result_of(execution)
        finally:
            leave()
        return self._asked(execution) if asks_by_result and can_ask(context) else result_of(execution)

    async def _rested(self, execution: Execution) -> None:
        """Wait until it has ended, asks or can do nothing; raises TimeoutError when a client has waited long enough.

        One that is new begins, even if nobody waits for it, and one that no living process drives is taken up. One
        that asks may have a call under way, which waits for the answer (test_a_server_asks_a_client_through_a_run).
        """
        if execution.status == PENDING:
            await asyncio.to_thread(execution.start)
        async with asyncio.timeout(self._wait):
            if not execution.is_live and any(
                record.execution_id == execution.id for record in self._environment.recoverable()
            ):
                with suppress(LeaseHeldError):
                    self._environment.recover(execution.id)
            if execution.is_live:
                await _first(execution, _driven(execution))
            await _driven(execution)

    def _asked(self, execution: Execution, complaints: Mapping[str, str] | None = None) -> Result:
        """Return what has become of it, or its questions with the execution as their state."""
        told = complaints or {}
        requests: dict[str, Any] = {
            question.id: ElicitRequest(params=form_of(question, told.get(question.id, "")))
            for question in execution.interrupts
        }
        if not requests or execution.state.is_over:
            return result_of(execution)
        return InputRequiredResult(input_requests=requests, request_state=execution.id)

    async def _answered(self, context: Context, execution: Execution, responses: Mapping[str, Any]) -> Result:
        """Take in the answers of a client, and wait again."""
        asked = {question.id: question for question in execution.interrupts}
        accepted = {name: result for name, result in responses.items() if name in asked and is_accepted(result)}
        complaints = {
            name: complaint
            for name, result in accepted.items()
            if (complaint := self._given(execution, asked[name], result)) is not None
        }
        if complaints:
            return self._asked(execution, complaints)
        if asked and responses and not accepted:  # declined: it stays open for whoever answers it elsewhere
            return result_of(execution)
        return await self._followed(context, execution)

    def _given(self, execution: Execution, question: Question, result: ElicitResult) -> str | None:
        """Answer a question; return what is wrong with the answer. Somebody else may have been first: that counts."""
        try:
            answer = answer_of(question, result.content or {})
            self._environment.answer(question.id, answer, execution.id, by="an MCP client")
        except InterruptError as error:
            still_open = any(other.id == question.id for other in execution.refresh().interrupts)
            return str(error) if still_open else None
        return None

    async def _asked_within(self, context: Context, execution: Execution) -> bool:
        """Ask the first question within the call; return whether it is settled, here or by somebody else."""
        question, complaint = execution.interrupts[0], ""
        while True:
            form = form_of(question, complaint)
            asking = context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            try:
                result = await _first(asking, _settled(execution, question))
            except MCPError:  # the client says that it can ask, and does not: who has the id can answer
                return False
            if result is None:
                return True
            if not is_accepted(result):
                return False
            complaint = self._given(execution, question, result) or ""
            if not complaint:
                return True


async def _driven(execution: Execution) -> None:
    """Wait until a process, this one or another, has driven it to its end, to a question or to rest."""
    known = execution.refresh().state.last_sequence
    if not _rests(execution):
        async with aclosing(follow(execution.store, execution.id, known)) as events:
            async for _ in events:
                if _rests(execution.refresh()):
                    return


def _rests(execution: Execution) -> bool:
    if execution.state.is_over or execution.status != WAITING:
        return execution.state.is_over
    is_answered = execution.is_live or has_news(execution.state, execution.store)
    return bool(execution.interrupts) or not is_answered


async def _settled(execution: Execution, question: Question) -> None:
    """Wait until a question is answered by somebody, in whatever process, or can be answered no more."""
    async with aclosing(follow(execution.store, execution.id, execution.state.last_sequence)) as events:
        async for _ in events:
            if not any(other.id == question.id for other in execution.refresh().interrupts):
                return


class _Progress:
    """Tells a client how many calls of its execution are done."""

    def __init__(self, context: Context) -> None:
        self._context, self._done = context, 0
        self._loop = asyncio.get_running_loop()

    def tell(self, events: Sequence[Event]) -> None:
        """Count the calls that some events end; called on the engine's thread."""
        ended = sum(isinstance(event.data, OperationCompleted) for event in events)
        if ended:
            self._done += ended
            asyncio.run_coroutine_threadsafe(self._context.session.report_progress(self._done), self._loop)


async def _first(awaited: Awaitable[T], settled: Coroutine[Any, Any, None]) -> T | None:
    """Return what is awaited, such as the answer of a client; None if it is settled before."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(awaited), asyncio.ensure_future(settled)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if not tasks[0].done() else tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve_stdio(environment: Environment, *, wait: float = WAIT) -> None:
    """Serve the client at the other end of this process's input and output."""
    protocol = WorkflowServer(environment, wait=wait).protocol
    async with stdio_server() as (read, write):
        with redirect_stdout(sys.stderr):  # what workflows print would reach the client when the buffer is emptied
            await protocol.run(read, write, protocol.create_initialization_options())
