"""MCP server of workflows: a tool call starts an execution, and returns when the execution has ended or asks a person.

A client of protocol 2026-07-28 gets a question as `input_required`, with the execution as its sealed state: no process
waits for the answer, and a restarted server accepts it. Older clients are asked within the call. The execution is an
ordinary one of its store. It outlives the call, the connection and the server, and the first answer to its question
counts, whether from a client, a widget or a command line. A client that cannot ask its person gets the id of the
execution, and how to answer its question elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import re
import secrets
import shlex
import sys
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, redirect_stdout, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from divebook._version import __version__
from divebook.definitions.definition import Workflow
from divebook.definitions.functions import inputs_schema
from divebook.documents.private_files import create_whole
from divebook.engine.lifecycle import INTERRUPTED, PAUSED, shown_status
from divebook.environments.environment import Environment
from divebook.errors import DivebookError, InterruptError, LeaseHeldError, SetupError, StoreError
from divebook.events.catalog import COMPLETED, PENDING, RUNNING, WAITING, OperationCompleted
from divebook.events.codec import json_form
from divebook.events.event import Event
from divebook.projections.summary import Overview
from divebook.questions import Question
from divebook.questions.answer import Typed
from divebook.questions.question import CONFIRMATION, example_answer, expected_answer
from divebook.questions.question import address_of as wording_address_of
from divebook.runtime.forks import folded
from divebook.runtime.manager import has_news
from divebook.runtime.run import Run
from divebook.stores.follow import follow
from divebook.stores.memory import MemoryStore
from divebook.text.redaction import clean_libraries, shared

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from starlette.applications import Starlette

    from divebook.engine.state import ExecutionState


T = TypeVar("T")

clean_libraries("mcp")
NAME = "divebook"
ASKED_BY_RESULT = "2026-07-28"
"""First protocol version in which a tool result may contain questions. Versions are dates, which compare as strings."""
WAIT = 50.0
"""Default number of seconds that a tool call waits. It is shorter than the time limits of clients."""
_STATE_LASTS = 30 * 86400.0
"""Seconds for which a client may send an answer with the sealed state of a question."""

Result = CallToolResult | InputRequiredResult
RequestContext = ServerRequestContext[Any, Any]


class WorkflowServer:
    """MCP server that publishes the workflows of an environment as tools.

    Parameters
    ----------
    wait
        Maximum number of seconds that a call waits for its execution. After that, the call returns the id of the
        execution, which continues.

    Attributes
    ----------
    protocol
        The server of the MCP SDK, for any of its transports.

    Raises
    ------
    SetupError
        Two workflows would become tools with the same name.
    StoreError
        The key file next to the store cannot be used.
    """

    def __init__(self, environment: Environment, *, wait: float = WAIT) -> None:
        self._environment = environment
        self._wait = wait
        self._recoveries: dict[str, asyncio.Future[None]] = {}
        """Running recoveries by execution id."""
        # Raises at the start, before a client is connected.
        tool_names(environment.definitions.workflows.values())
        self.protocol: Server[Any] = Server(
            NAME,
            version=__version__,
            instructions=(
                "Each tool runs a durable workflow. A long run continues after the call returns: check it with "
                f"{STATUS_TOOL}."
            ),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        # The state of a question is the id of its execution. It travels through the client, so it is sealed against
        # changes.
        keys = [key_beside(environment.store.location)]
        security = RequestStateSecurity(keys=keys, ttl=_STATE_LASTS)
        self.protocol.middleware.append(RequestStateBoundary(security, default_audience=NAME))

    @property
    def _workflows(self) -> Mapping[str, Workflow]:
        """Workflows by tool name, including workflows that were registered after the server started."""
        return tool_names(self._environment.definitions.workflows.values())

    async def _list_tools(self, context: RequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        tools = [tool_of(name, workflow) for name, workflow in self._workflows.items()]
        return ListToolsResult(tools=[*tools, status_tool()])

    async def _call_tool(self, context: RequestContext, params: CallToolRequestParams) -> Result:
        """Handle the tool call of a client. A `DivebookError` becomes an error result, so that the model that uses the
        client can read it.
        """
        try:
            return await self._handle_call(context, params)
        except DivebookError as error:
            return shown_result(f"{type(error).__name__}: {error}", is_error=True)

    async def _handle_call(self, context: RequestContext, params: CallToolRequestParams) -> Result:
        """Handle a tool call: start an execution of the tool's workflow. A call with answers to questions, or a call of
        the status tool, continues an existing execution instead.
        """
        arguments = params.arguments or {}
        if params.name != STATUS_TOOL and params.name not in self._workflows:
            return shown_result(f"there is no tool {params.name!r}; known: {', '.join(self._workflows)}", is_error=True)
        # The client answers questions of an earlier call. The arguments are those of that call and were used already.
        if params.request_state is not None:
            execution = await asyncio.to_thread(self._execution, params.request_state)
            return await self._handle_answers(context, execution, params.input_responses or {})
        if params.name == STATUS_TOOL:
            execution_id = arguments.get("run_id")
            if not execution_id:
                return await asyncio.to_thread(self._list_open)
            execution = await asyncio.to_thread(self._execution, str(execution_id))
            return await self._wait_and_report(context, execution)
        workflow = self._workflows[params.name]
        # In a thread: it checks the inputs with code of users, and may import the library of a model.
        execution = await asyncio.to_thread(self._environment.create, workflow.name, arguments)
        return await self._wait_and_report(context, execution)

    def _execution(self, execution_id: str) -> Run:
        """Return the execution with an id, with its log read. Call in a thread.

        Raises `DivebookError` if it is not an execution of a workflow that this server publishes.
        """
        execution = self._environment.run_of(execution_id)
        if execution.workflow.name not in {workflow.name for workflow in self._workflows.values()}:
            raise DivebookError(f"execution {execution_id} belongs to a workflow that this server does not offer")
        return execution

    def _list_open(self) -> CallToolResult:
        """Return a list of all executions that have not ended. Call in a thread."""
        names = {workflow.name for workflow in self._workflows.values()}
        records = [record for record in self._environment.store.unended() if record.workflow_name in names]
        statuses = Overview(self._environment.store).statuses(records)
        lines = [
            f"{record.execution_id}: {record.workflow_name}, {statuses[record.execution_id]}" for record in records
        ]
        return shown_result("\n".join(lines) or "No run is open.")

    # --- waiting for the end or for a question ---------------------------------------------------------------------

    async def _wait_and_report(self, context: RequestContext, execution: Run) -> Result:
        """Wait until an execution ends, asks a question, or the waiting time of a call is over. Return the result of
        the tool call.
        """
        # Three kinds of clients: newer ones get questions as a result, older ones are asked during the call, and
        # those without forms get a text.
        asks_by_result = context.protocol_version >= ASKED_BY_RESULT
        asks_within = can_ask(context) and not asks_by_result
        unsubscribe = execution.subscribe(_Progress(context).on_events)
        try:
            await self._wait_until_idle(execution)
            # Read once for each form: after an answer elsewhere, a second reading may find no question.
            while asks_within and (questions := await _read(execution, lambda: execution.open_questions)):
                if not await self._ask_within_call(context, execution, questions[0]):
                    break
                await self._wait_until_idle(execution)
        except TimeoutError:
            # The execution continues. Its id in the result lets the client ask again.
            return await _read(execution, lambda: result_of(execution))
        finally:
            unsubscribe()
        report: Callable[[Run], Result] = result_of
        if asks_by_result and can_ask(context):
            report = self._questions_of
        return await _read(execution, lambda: report(execution))

    async def _wait_until_idle(self, execution: Run) -> None:
        """Wait until an execution has ended, asks a question, or cannot continue in this process.

        Raises TimeoutError after the waiting time of a call.

        A new execution is started even if the client does not wait for it. One without a living driver is resumed. One
        that asks may have a running call that waits for the answer (test_a_server_asks_a_client_through_a_run).
        """
        # Outside of the time limit: an execution that is about to start must not be dropped.
        if execution.status == PENDING:
            await asyncio.to_thread(execution.start)
        try:
            async with asyncio.timeout(self._wait):
                if not execution.is_live:
                    await self._recover(execution)
                if execution.is_live:
                    await _first(execution, _until_driven(execution))
                await _until_driven(execution)
        except TimeoutError:
            # A short time may be over during the recovery, before the first check
            # (test_a_run_that_waits_asks_even_if_its_call_does_not_wait).
            if not await _read(execution, lambda: _is_idle(execution)):
                raise

    async def _recover(self, execution: Run) -> None:
        """Resume an execution if it has no living driver, because its process has died, for example with an earlier
        server.

        The recovery continues if the time of the call is over. Calls for the same execution share one recovery.
        Otherwise each call would occupy a thread while a store is slow, and a second recovery could resume the
        execution again after it has asked a question.
        """
        recovery = self._recoveries.get(execution.id)
        if recovery is None:
            recovery = asyncio.ensure_future(asyncio.to_thread(self._recover_undriven, execution.id))
            self._recoveries[execution.id] = recovery
            recovery.add_done_callback(lambda _: self._recoveries.pop(execution.id))
        await asyncio.shield(recovery)

    def _recover_undriven(self, execution_id: str) -> None:
        if any(record.execution_id == execution_id for record in self._environment.queues.recoverable()):
            with suppress(LeaseHeldError):
                self._environment.queues.recover(execution_id)

    def _questions_of(self, execution: Run, complaints: Mapping[str, str] | None = None) -> Result:
        """Return the open questions of an execution as a tool result of type `input_required`, so that the client sends
        answers in a later call. If there are none, return the result of the execution.
        """
        complaints_by_id = complaints or {}
        requests: dict[str, Any] = {
            question.id: ElicitRequest(params=form_of(question, complaints_by_id.get(question.id, "")))
            for question in execution.open_questions
        }
        if not requests or _recorded_state(execution).is_over:
            return result_of(execution)
        return InputRequiredResult(input_requests=requests, request_state=execution.id)

    async def _handle_answers(self, context: RequestContext, execution: Run, responses: Mapping[str, Any]) -> Result:
        """Record the answers to questions of an execution that a client has sent, and wait for the execution again. If
        an answer is not valid, ask the questions again.
        """
        interrupts = await _read(execution, lambda: execution.open_questions)
        questions = {question.id: question for question in interrupts}
        accepted = {name: result for name, result in responses.items() if name in questions and is_accepted(result)}
        complaints = {}
        # Each valid answer counts, even if another one is not valid and its question is asked again.
        for name, result in accepted.items():
            complaint = await asyncio.to_thread(self._answer, execution, questions[name], result)
            if complaint is not None:
                complaints[name] = complaint
        if complaints:
            return await _read(execution, lambda: self._questions_of(execution, complaints))
        if questions and responses and not accepted:  # declined: the question stays open for other interfaces
            return await _read(execution, lambda: result_of(execution))
        return await self._wait_and_report(context, execution)

    def _answer(self, execution: Run, question: Question, result: ElicitResult) -> str | None:
        """Answer a question with the form that a person has filled in. Return the error text if the answer is not
        valid, otherwise None. Call in a thread.

        If the question was answered elsewhere first, the first answer counts.
        """
        try:
            answer = answer_of(question, result.content or {})
            self._environment.answer(question.id, answer, execution.id, by="an MCP client")
        except InterruptError as error:
            # An error on a settled question means that another answer was first. An error on an open one means that
            # this answer does not fit.
            still_open = any(other.id == question.id for other in execution.refresh().open_questions)
            return str(error) if still_open else None
        return None

    async def _ask_within_call(self, context: RequestContext, execution: Run, question: Question) -> bool:
        """Ask the client a question of an execution while its tool call is still running. Return True if the question
        was answered, by this client or elsewhere.
        """
        complaint = ""
        # The form is shown again, with the error, until the answer fits or the person declines.
        while True:
            form = form_of(question, complaint)
            elicitation = context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            try:
                result = await _first(elicitation, _until_answered(execution, question))
            except MCPError:  # the client cannot ask although it declares so: the question is answered by its id
                return False
            if result is None:
                return True
            if not is_accepted(result):
                return False
            error = await asyncio.to_thread(self._answer, execution, question, result)
            if error is None:
                return True
            complaint = error


# --- waiting on the event loop of the server ---
#
# The loop serves all clients. A blocking call would stop all of them, and no time limit could end it. Two kinds of
# calls always run in a thread: those that wait for the engine (start, recover, answer), and those that take longer with
# more executions or longer logs (look-up, lists). Short reads of one execution depend on the store: see `_read`.


async def _read(execution: Run, call: Callable[[], T]) -> T:
    """Return the result of `call`, a function that reads the newest state or the questions of an execution.

    A local store answers in microseconds, which is less than a change of threads takes. A store on a server is called
    in a thread.
    """
    return call() if execution.store.local else await asyncio.to_thread(call)


async def _until_driven(execution: Run) -> None:
    """Wait until an execution has ended, asks a question or is paused. Another process may drive it."""
    await _until(execution, _is_idle)


async def _until_answered(execution: Run, question: Question) -> None:
    """Wait until a question was answered, in any process, or was withdrawn."""
    await _until(execution, lambda asker: all(other.id != question.id for other in asker.open_questions))


async def _until(execution: Run, condition: Callable[[Run], bool]) -> None:
    """Wait until a condition of an execution holds, or the execution has ended. The condition is checked at once, and
    after each event of the log.
    """
    # The number is read before the check, so that an event in between ends the wait below
    # (test_a_form_is_closed_whenever_its_question_is_answered_elsewhere).
    sequence = (await _read(execution, execution.refresh)).state.last_sequence
    if not await _read(execution, lambda: condition(execution)):
        async with aclosing(follow(execution.store, execution.id, sequence)) as events:
            async for _ in events:
                if await _read(execution, lambda: condition(execution.refresh())):
                    return


def _is_idle(execution: Run) -> bool:
    """Return whether an execution has ended, asks a question, or waits for something (such as a timer) that has not
    arrived.
    """
    state = _recorded_state(execution)
    if state.is_over or state.status != WAITING:
        return state.is_over
    # A live execution, or one with unread messages, continues soon although its status is still "waiting".
    is_answered = execution.is_live or has_news(state, execution.store)
    return bool(execution.open_questions) or not is_answered


def _recorded_state(execution: Run) -> ExecutionState:
    """Return the state of an execution up to the last event in the store, if it ends at this moment.

    The end of a live execution may not be in the store yet. The server must not report an end that may be lost.
    """
    is_live, state = execution.is_live, execution.state
    return folded(execution.store, execution.id) if state.is_over and is_live else state


class _Progress:
    """Reporter that sends an MCP client the number of completed operations of the client's execution."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._done = 0
        self._loop = asyncio.get_running_loop()

    def on_events(self, events: Sequence[Event]) -> None:
        """Count the completed operations in new events, and report the total to the client. The engine calls this in
        its own thread.
        """
        count = sum(isinstance(event.data, OperationCompleted) for event in events)
        if count:
            self._done += count
            # The session belongs to the loop of the server.
            asyncio.run_coroutine_threadsafe(self._context.session.report_progress(self._done), self._loop)


async def _first(work: Awaitable[T], other: Coroutine[Any, Any, None]) -> T | None:
    """Wait until `work` or `other` has ended, and cancel the one that is still running. Return the result of `work`, or
    None if `other` ended first.
    """
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(work), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if not tasks[0].done() else tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        # Both tasks have ended when this function returns. Errors of the one that was cancelled do not matter.
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve_stdio(environment: Environment, *, wait: float = WAIT) -> None:
    """Run the server for one client, over the standard input and output of this process."""
    protocol = WorkflowServer(environment, wait=wait).protocol
    async with stdio_server() as (read, write):
        with redirect_stdout(sys.stderr):  # otherwise output of workflows would be sent to the client
            await protocol.run(read, write, protocol.create_initialization_options())


# --- the key that seals the state of questions: created once, beside the store, for its owner only ---


_LENGTH = 32


def key_beside(location: str) -> bytes:
    """Return the secret key that protects the state of questions, which clients send back to the server, against
    changes. The key is in a file next to the store, which is created if missing; any other store gets a new key.

    Parameters
    ----------
    location
        Path of the store. A store in memory or behind a URL has a key that ends with the process.

    Raises
    ------
    StoreError
        The file of the key cannot be read or written, or is invalid.
    """
    if location == MemoryStore.location or "://" in location:
        return secrets.token_bytes(_LENGTH)
    path = Path(f"{location}.mcp-key")
    try:
        return _create_key(path) if not path.exists() else _read_key(path)
    except OSError as error:
        raise StoreError(
            f"the key file of the MCP server, {path}, cannot be read or written: {error}; check its permissions"
        ) from error


def _create_key(path: Path) -> bytes:
    """Create the file with the server's key, and return the key. If two servers create it at the same time, both use
    the key that was written first.
    """
    create_whole(path, secrets.token_bytes(_LENGTH))
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != _LENGTH:
        raise StoreError(
            f"{path} is not a key file of an MCP server, because it has {len(key)} bytes instead of {_LENGTH}; "
            "delete the file"
        )
    return key


# --- workflows as tools of the Model Context Protocol: names, input schemas, results ---


STATUS_TOOL = "divebook_status"
"""Name of the tool with which a client waits for an execution again."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_RESULT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "Id of the run, for divebook_status."},
        "status": {"type": "string"},
        "outputs": {"type": "object"},
        "error": {"type": "string"},
    },
    "required": ["run_id", "status", "outputs"],
}


def tool_names(workflows: Iterable[Workflow]) -> dict[str, Workflow]:
    """Return the workflows by the names of their tools. In a tool name, characters that MCP does not allow are
    replaced.

    Raises
    ------
    SetupError
        Two workflows would have the same name.
    """
    by_name: dict[str, Workflow] = {}
    for workflow in workflows:
        # Names of tools have at most 128 characters. `Sum: all files` -> `Sum_all_files`.
        name = _NO_NAME.sub("_", workflow.name)[:128] or "_"
        other = None
        if name == STATUS_TOOL:
            other = STATUS_TOOL
        elif name in by_name:
            other = by_name[name].name
        if other is not None:
            raise SetupError(
                f"workflows {workflow.name!r} and {other!r} would have the same tool name {name!r}; rename one of them"
            )
        by_name[name] = workflow
    return by_name


def tool_of(name: str, workflow: Workflow) -> Tool:
    """Return the description of the MCP tool that runs a workflow, with the JSON schema of its inputs."""
    description = workflow.description or f"Run the workflow {workflow.name!r}."
    return Tool(
        name=name,
        title=workflow.name,
        description=f"{description} It may ask a person during the run.",
        input_schema=inputs_schema(workflow),
        output_schema=dict(_RESULT),
    )


def status_tool() -> Tool:
    """Return the description of an MCP tool. A client calls this tool to wait once more for an execution that an
    earlier tool call has started.
    """
    return Tool(
        name=STATUS_TOOL,
        description="Wait for a run that a tool of this server has started, and return its status or result.",
        input_schema={
            "type": "object",
            "properties": {"run_id": {"type": "string", "description": "Id of the run; without it, all open runs."}},
            "additionalProperties": False,
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )


def result_of(execution: Run) -> CallToolResult:
    """Return the outputs of an execution as the result of a tool call. If the execution has not completed, the text
    describes its status.
    """
    # Read once: the execution may continue in another thread, and the text must be of the same moment as the data
    # (test_a_result_is_of_one_moment_if_the_run_ends_while_it_is_made).
    state = _recorded_state(execution)
    data = {
        "run_id": execution.id,
        "status": _status_of(execution, state),
        "outputs": json_form(dict(state.outputs)),
    }
    if state.error:
        data["error"] = state.error
    if state.status == COMPLETED:
        text = json.dumps(data["outputs"], ensure_ascii=False, allow_nan=False)
    else:
        text = _status_text(execution, state)
    return shown_result(text, data, is_error=state.is_over and state.status != COMPLETED)


def shown_result(text: str, data: Mapping[str, Any] | None = None, *, is_error: bool = False) -> CallToolResult:
    """Build the result of a tool call from a text and data, and remove secrets from both."""
    cleaned = None if data is None else shared().value(dict(data))
    return CallToolResult(
        content=[TextContent(type="text", text=shared().text(text))], structured_content=cleaned, is_error=is_error
    )


def _status_of(execution: Run, state: ExecutionState) -> str:
    """Return the status that people see of an execution in a state that was read before."""
    is_interrupted = state.status == RUNNING and execution.status == INTERRUPTED
    return shown_status(state.shown_status, is_driven=not is_interrupted)


def _status_text(execution: Run, state: ExecutionState) -> str:
    """Describe a state in which an execution has not completed, in a text for the model that uses the client."""
    if state.is_over:
        return f"The run {execution.id} is {state.status}: {state.error or 'no reason was given'}"
    questions = "; ".join(
        f"{question.question} (divebook answer {wording_address_of(execution.id, question)} "
        f"{shlex.quote(example_answer(question))})"
        for question in execution.open_questions
    )
    status = _status_of(execution, state)
    if questions:
        progress = f"It waits for a person, who can also answer in a shell: {questions}."
    elif status in (PAUSED, INTERRUPTED):
        progress = f"A person can continue it in a shell: divebook resume {execution.id}."
    else:
        progress = "It continues automatically."
    return f"The run {execution.id} is {status}. {progress} Call {STATUS_TOOL} with its id to check again."


# --- questions as elicitations: forms of plain fields that a client shows to its person ---


ANSWER: Final = "answer"
"""Name of the field in a form that has a single field."""
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_KEPT = frozenset(
    {"type", "title", "description", "enum", "default", "format", "minimum", "maximum", "minLength", "maxLength"}
)


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether an MCP client has declared that it can show forms to a person.

    In older protocol versions, forms are the only kind of question, and a client declares them by an empty `{}`.
    """
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def form_of(question: Question, complaint: str = "") -> ElicitRequestFormParams:
    """Return a question as a form that an MCP client can show (an elicitation).

    Parameters
    ----------
    complaint
        Error of an earlier answer.
    """
    parts = [complaint, question.question, question.message or "", _data_in_words(question)]
    message = "\n".join(part for part in parts if part)
    return ElicitRequestFormParams(message=shared().text(message), requested_schema=_fields(question))


def answer_of(question: Question, content: Mapping[str, Any]) -> Any:
    """Return the answer to a question from `content`, the fields of the form that a person has filled in."""
    if _is_form(question) or question.kind == CONFIRMATION:
        return dict(content)
    value = content.get(ANSWER, "")
    # A form has only plain fields, so any other answer is typed as text and parsed: `[1, 2]` -> a list.
    return Typed(value) if isinstance(value, str) and not _is_plain(question.schema) else value


def is_accepted(result: ElicitResult | None) -> bool:
    """Return whether a person filled in a form and sent it. Return False if the person declined or closed it."""
    return result is not None and result.action == "accept"


def _fields(question: Question) -> dict[str, Any]:
    """Return the JSON schema of the form for a question. The fields of a form can only have plain values (text, number,
    boolean).
    """
    if question.kind == CONFIRMATION:
        reason = {"type": "string", "description": "The reason; the caller receives it."}
        return _object({"approved": {"type": "boolean"}, "text": reason}, ["approved"])
    schema = question.schema or {}
    if _is_form(question):
        fields = {name: _plain_field(entry) for name, entry in schema["properties"].items()}
        return _object(fields, list(schema.get("required", ())))
    if _is_plain(question.schema):
        return _object({ANSWER: _plain_field(schema)}, [ANSWER])
    description = f"{expected_answer(question)}, for example: {example_answer(question)}"
    return _object({ANSWER: {"type": "string", "description": description}}, [] if question.optional else [ANSWER])


def _object(fields: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": required}


def _is_form(question: Question) -> bool:
    """Return whether the answer to a question is a mapping of plain values, so that the form for this question has one
    field for each value.
    """
    schema = question.schema or {}
    properties = schema.get("properties")
    return (
        question.kind != CONFIRMATION
        and schema.get("type") == "object"
        and isinstance(properties, Mapping)
        and bool(properties)
        and all(_is_plain(entry) for entry in properties.values())
    )


def _is_plain(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in _PLAIN


def _plain_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name in _KEPT}


def _data_in_words(question: Question) -> str:
    return json.dumps(shared().value(json_form(dict(question.data))), ensure_ascii=False) if question.data else ""


# --- the server over HTTP: on the loopback for all users of this machine, elsewhere with a token ---


_HERE: Final = ("127.0.0.1", "localhost", "[::1]")
_LEAST_TOKEN: Final = 16
"""Minimum number of characters of a token, which makes guessing it impractical."""


def address_of(text: str) -> tuple[str, int]:
    """Parse an address to listen on, such as ``127.0.0.1:8000`` or ``[::1]:8000``, into host and port; raises
    `SetupError`.
    """
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 2**16):
        raise SetupError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def require_token(host: str, token: str | None) -> None:
    """Raise `SetupError` if the token of the server is too short, or if it is missing although other machines could
    connect.
    """
    if token is not None and len(token) < _LEAST_TOKEN:
        raise SetupError(f"the token has only {len(token)} characters; use at least {_LEAST_TOKEN}")
    if token is None and not _is_here(host):
        raise SetupError(
            f"{host} can be reached from other machines, so anyone could run these workflows; pass a token, such as "
            "--token env://DIVEBOOK_MCP_TOKEN, or use the address 127.0.0.1"
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def serve_http(environment: Environment, address: str, *, token: str | None = None, wait: float = WAIT) -> None:
    """Run the server at ``http://ADDRESS/mcp`` until the process receives a stop signal.

    Parameters
    ----------
    token
        Bearer token of clients; required if other machines can connect.

    Raises
    ------
    SetupError
        The address is invalid, requires a token, or cannot be served.
    """
    import uvicorn

    host, port = address_of(address)
    require_token(host, token)
    await _require_free(host, port)
    app: Any = app_of(WorkflowServer(environment, wait=wait), host)
    if token is not None:
        # Before the server can log or show it.
        shared().know(token)
        app = _TokenGuard(app, token)
    config = uvicorn.Config(app, host, port, ws="none", access_log=False, timeout_graceful_shutdown=1)
    with redirect_stdout(sys.stderr):
        await uvicorn.Server(config).serve()


async def _require_free(host: str, port: int) -> None:
    """Raise `SetupError` if the server cannot listen on an address. Without this check, the web server uvicorn would
    end the process.
    """
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        cause = "another program uses this address" if error.errno == errno.EADDRINUSE else error.strerror
        raise SetupError(
            f"the server cannot listen on {host}:{port}: {cause}; pass an address of this machine with a free port, "
            "such as --http 127.0.0.1:0 for any free port"
        ) from error
    server.close()


def app_of(server: WorkflowServer, host: str) -> Starlette:
    """Return the ASGI application of a server. If the server listens on the loopback address, it refuses requests of
    web pages from other hosts.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    names = [*_HERE, f"[{host}]" if ":" in host else host]
    security = TransportSecuritySettings(
        # A web page in a browser of this machine could reach the loopback address under a name of its own. The
        # headers Host and Origin show that name.
        enable_dns_rebinding_protection=_is_here(host),
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    return server.protocol.streamable_http_app(transport_security=security)


class _TokenGuard:
    """ASGI middleware that answers 401 to requests without the right bearer token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        authorization = dict(scope.get("headers", ())).get(b"authorization", b"")
        # Compared in constant time, so that response times tell nothing about the token.
        if scope["type"] != "lifespan" and not hmac.compare_digest(authorization, self._expected):
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)
