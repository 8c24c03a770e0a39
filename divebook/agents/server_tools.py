"""Tools of MCP servers as tools of agents, and questions that a server asks during a call (sampling and elicitation).

The tool list of each server is recorded, and its calls are operations like those of all tools. A replay rebuilds the
tools from the recorded list. It starts a server only for a call that the log lacks (``tests/tools/test_mcp_turns.py``).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.agents.turn import consumed_by, failed_attempt, side_by_side
from divebook.definitions.dialect import TOOLS
from divebook.definitions.json_schemas import require_possible_schema
from divebook.definitions.resources import IF_NOT_READ_ONLY
from divebook.definitions.servers import Answers, CallOutcome, Discovered, Elicit, OfferedTool, ToolServer
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.engine.approvals import embedded
from divebook.engine.operations import TOOL_DISCOVERY
from divebook.errors import DefinitionError, NotFoundError, OperationError, SetupError
from divebook.events.codec import by_hash, short_hash
from divebook.events.recorded import opened
from divebook.projections.model_requests import elicitation_keys
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION, EXPIRED
from divebook.questions.wording import asked_by_server
from divebook.text.redaction import logger, shared

if TYPE_CHECKING:
    from divebook.agents.turn import StepTurn
    from divebook.definitions.resources import AgentDefinition
    from divebook.questions import Question
from divebook.agents.running_turn import CALL, AgentTurn, CallPlace

# --- MCP sampling -------------------------------------------------------------------------------------------------
# A server may request a model response, if its definition names an agent for that. The request is recorded in the turn.
# It is counted, bounded and retried like the turn's own requests. Its key contains a hash of its content, so that a
# call which is repeated after a kill finds its responses in whatever order it asks
# (``tests/tools/test_mcp_sampling.py``).


_log = logger(__name__)


MESSAGES = "messages"
"""Key that marks a request for a model. Requests for a person do not have it."""


async def discover_tools(
    context: StepTurn,
    definition: AgentDefinition,
    servers: Sequence[ToolServer],
    other_names: Iterable[str],
    keep: Callable[[Hashable, list[Any], Callable[[], ToolFunction]], ToolFunction],
) -> tuple[list[ToolFunction], str]:
    """Return the tools of MCP servers that an agent may call, and the instructions of the servers about their tools.

    Parameters
    ----------
    other_names
        Names of the agent's other tools.
    keep
        `LibraryCache.made`, which keeps the functions of the tools between turns.

    Raises
    ------
    ServerError
        A server cannot be reached.
    SetupError
        The dialect forbids two tools with one name.
    NotFoundError
        The agent names a tool that does not exist.
    """
    chosen: list[tuple[ToolServer, OfferedTool]] = []
    notes: list[str] = []
    used_names = set(other_names)
    # Names that only a server can explain: neither tools of divebook nor tools that the agent has already.
    requested_names = set(definition.tools) - used_names - set(TOOLS)
    for server, discovered in zip(
        servers, await side_by_side(context, [_discover(context, server) for server in servers]), strict=True
    ):
        usable = [tool for tool in discovered.tools if _is_named(tool.name, server, definition)]
        for tool in usable:
            chosen.append((server, tool))
            # A tool is named alone or with its server: `search`, `files/search`.
            requested_names -= {tool.name, f"{server.name}/{tool.name}"}
        if usable and discovered.instructions:
            notes.append(f"About the tools of {server.name}: {discovered.instructions}")
    if servers and requested_names:
        message = f"agent {definition.name} names an unknown tool: {min(requested_names)}"
        raise NotFoundError("tool", min(requested_names), {*used_names, *(tool.name for _, tool in chosen)}, message)
    # A name shared by several tools is ambiguous: prefix each with its server.
    counts = Counter([*used_names, *(tool.name for _, tool in chosen)])
    if not context.qualifies_tools:
        _require_unique(chosen, counts, definition.name)

    def function_of(server: ToolServer, tool: OfferedTool) -> ToolFunction:
        is_shared = counts[tool.name] > 1
        key = server.name, tool.name, is_shared
        return keep(key, [id(server), server, tool], partial(server_tool, server, tool, is_shared=is_shared))

    return [function_of(server, tool) for server, tool in chosen], "\n\n".join(notes)


def _require_unique(chosen: Sequence[tuple[ToolServer, OfferedTool]], counts: Mapping[str, int], agent: str) -> None:
    """Raise `SetupError` if two chosen tools of MCP servers, or one of them and another tool of the agent, have the
    same name. Called only for workflows in the dialect `dive`, which forbids this.
    """
    for server, tool in reversed(chosen):
        if counts[tool.name] > 1:
            raise SetupError(
                f'mcp server {server.name} has duplicate tool name "{tool.name}": let agent {agent} have one of the '
                f"two, as {server.name}/{tool.name} in its Tools"
            )


def _is_named(tool: str, server: ToolServer, definition: AgentDefinition) -> bool:
    return server.name in definition.servers or bool({tool, f"{server.name}/{tool}"} & set(definition.tools))


async def _discover(context: StepTurn, server: ToolServer) -> Discovered:
    """Return the tools and instructions of an MCP server. The server is asked in a recorded operation of its own, so
    that the result is recorded even if another server fails.
    """

    async def call() -> Any:
        # Tool lists are long and the same in all runs. The store keeps each of them once.
        return by_hash(shared().without_certain((await server.discover()).to_dict()), server.name)

    recorded = await context.operation(
        TOOL_DISCOVERY, {"server": server.name}, call, key=f"tools-{server.name}", repeatable=True
    )
    return Discovered.from_dict(opened(recorded))


def server_tool(server: ToolServer, tool: OfferedTool, *, is_shared: bool = False) -> ToolFunction:
    """Return a tool function for agents that calls a tool of an MCP server. `is_shared` is True if another tool of the
    agent has the same name.
    """
    hints = ToolHints(**tool.hints)
    # A server that declares a tool as read-only or idempotent allows its repetition after an unknown outcome.
    repeatable = bool(hints.idempotent or hints.read_only)

    async def call(**arguments: Any) -> Any:
        # Set if `answer_questions` repeats the call with answers.
        answers, state = _ROUND.get() or (None, None)
        outcome = await server.call(
            tool.name,
            arguments,
            answers=answers,
            state=state,
            elicit=_elicitation_handler(offered),
            repeatable=repeatable,
        )
        return _result(outcome)

    offered = ToolFunction(
        f"{server.name}/{tool.name}" if is_shared else tool.name,
        call,
        tool.description,
        timeout=server.timeout,
        hints=hints,
        schema=tool.input_schema,
        confirmation=IF_NOT_READ_ONLY,
        server=server.name,
        name_at_server=tool.name if is_shared else "",
    )
    return offered


async def sample(
    turn: AgentTurn, call: str, request: Mapping[str, Any], consumed: Counter[str] | None = None
) -> dict[str, Any]:
    """Answer a sampling request, with which an MCP server asks for a model response during a tool call. Return the
    agent's answer, or the reason why there is none.

    Parameters
    ----------
    call
        Part of the key that identifies the tool call: ``<n>-<id>``.
    consumed
        Counter to which the consumption of the request is added, in the form of a budget.
    """
    context = turn.context
    key = turn.key(f"sample-{call}-{short_hash(request)}")

    async def operation(*arguments: Any, **options: Any) -> Any:
        # The tool call counts as running in place of its requests: if a person is asked about a bound, nothing runs.
        recorded = await turn.request(*arguments, key=key, **options)
        if consumed is not None:
            consumed.update(consumed_by(recorded))
        return recorded

    try:
        return await context.sample(request, operation)
    # The server gets the error as an answer, and decides itself whether its tool fails.
    except OperationError as error:
        return {"error": str(error)}
    finally:
        if consumed is not None:
            consumed.update(_failed_attempts(context, key))


def _failed_attempts(context: StepTurn, key: str) -> Counter[str]:
    """Return what the failed attempts at a model request have consumed together, in the form of a budget."""
    total = Counter[str]()
    attempt = 0
    while (consumed := context.consumed_by_failure(key, attempt)) is not None:
        total.update(failed_attempt(consumed))
        attempt += 1
    return total


INPUT_REQUIRED = "input_required"
"""Kind of a recorded call that must be repeated with answers."""


ACCEPT = "accept"


DECLINE = "decline"


CANCEL = "cancel"


DEFAULT: Any = DECLINE
"""Answer to a question of a call that was not answered in time."""


MOST_ASKED = 50
"""Maximum number of questions of a server in one call. Without it, a server that always asks would never end."""


_TOO_MUCH = "more than {} questions in one call"


RepeatCall = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Repeats a call under a key, with additional recorded parameters."""


class InputRequired(Exception):  # noqa: N818 - not an error: the call is repeated with answers
    """Signal that an MCP server replied to a tool call with questions. It ends this attempt of the call without an
    error; the call is repeated with the answers.
    """

    def __init__(self, outcome: CallOutcome) -> None:
        self.payload = {"kind": INPUT_REQUIRED, **replace(outcome, state=None).to_dict()}
        self.state = {} if outcome.state is None else {"state": outcome.state}
        super().__init__(f"{len(outcome.requests)} questions")


class _Round(NamedTuple):
    answers: Answers
    state: str | None


_ROUND: ContextVar[_Round | None] = ContextVar("divebook_round", default=None)
"""Answers and state with which the current call is repeated."""


class _CallQuestions:
    """Handler for the questions that an MCP server asks while a tool call is running (elicitation).

    The call stays open while it waits for an answer, so its step cannot be parked.
    """

    def __init__(self, tool: ToolFunction, place: CallPlace) -> None:
        self._tool = tool
        self._place = place
        self._remaining = MOST_ASKED
        self._loop = asyncio.get_running_loop()
        # After the time limit of its call, no answer reaches the server any more.
        self._until = None if tool.timeout is None else self._loop.time() + tool.timeout
        self._keys = (elicitation_key(place, f"in-{number}") for number in itertools.count(1))
        self._open: str | None = None
        """Key of the unanswered question."""

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Answer a request that the server sends during a tool call, and return the answer. A person answers questions,
        an agent answers sampling requests. Too many requests are refused.
        """
        self._remaining -= 1
        if self._remaining < 0:
            return {"action": CANCEL, "error": _TOO_MUCH.format(MOST_ASKED)}
        turn = self._place.turn
        context = self._place.turn.context
        question = turn.without_credentials(request, f"the question of tool {self._tool.own_name}")
        if MESSAGES in question:
            # A person may be asked about a bound, and the call cannot be suspended until the answer
            # (test_a_bound_that_is_met_during_a_call_is_asked_about_while_the_call_waits).
            with context.open_call():
                return await sample(turn, self._place.name, question, self._place.sampled)
        # A question that expired after another process made this call is asked again
        # (test_a_server_that_is_called_again_the_next_day_asks_again).
        self._open = key = next(key for key in self._keys if not _has_expired(context.recorded_question(key)))
        within = None if self._until is None else max(0.0, self._until - self._loop.time())
        with context.open_call():
            answer = await elicit(context, self._tool, question, key, within=within)
        self._open = None
        return answer

    async def withdraw(self) -> None:
        """Withdraw the question that a person has not answered yet, because the tool call has ended and the answer
        could not reach the server.
        """
        if self._open is not None:
            await self._place.turn.context.withdraw(self._open)


def _elicitation_handler(tool: ToolFunction) -> Elicit | None:
    """Return a handler for questions that the MCP server of a tool asks during the current call. Return None outside of
    an agent's turn, where no question can be asked.
    """
    place = CALL.get()
    return None if place is None else _CallQuestions(tool, place)


def _has_expired(question: Question | None) -> bool:
    return question is not None and question.status == EXPIRED


def _result(outcome: CallOutcome) -> Any:
    """Convert the outcome of an MCP server's tool call to the result that the model gets.

    Raises
    ------
    InputRequired
        The server needs answers first.
    ToolFailed
        The call failed.
    """
    from pydantic_ai.exceptions import ToolFailed

    if outcome.needs_input:
        raise InputRequired(outcome)
    if outcome.is_error:
        content = outcome.content
        raise ToolFailed(content if isinstance(content, str) else "\n".join(map(str, content)))
    if isinstance(outcome.content, list):
        return [_shown(part) for part in outcome.content]
    return _shown(outcome.content)


def _shown(part: Any) -> Any:
    from pydantic_ai.messages import BinaryContent

    # Recorded form of a file, made by `divebook.tools.mcp.calls`.
    if isinstance(part, Mapping) and part.keys() == {"media_type", "base64"}:
        return BinaryContent(base64.b64decode(part["base64"]), media_type=part["media_type"])
    return part


async def answer_questions(
    place: CallPlace, tool: ToolFunction, payload: dict[str, Any], again: RepeatCall
) -> dict[str, Any]:
    """Answer the questions with which an MCP server replied to a tool call, and repeat the call with the answers.
    Continue until the server replies with a result, and return that result.

    Each round is a call of its own.
    """
    name = place.name
    number = 1
    remaining = MOST_ASKED
    while payload.get("kind") == INPUT_REQUIRED:
        outcome = CallOutcome.from_dict({key: value for key, value in payload.items() if key != "kind"})
        # A round without a question counts too, so that the loop ends.
        remaining -= max(1, len(outcome.requests))
        if remaining < 0:
            return {"kind": "tool_failed", "message": f"the server {tool.server} asks {_TOO_MUCH.format(MOST_ASKED)}"}
        answers = {}
        for index, (request, question) in enumerate(outcome.requests.items()):
            # Sampling requests go to a model, all other questions to a person.
            if MESSAGES in question:
                answers[request] = await sample(place.turn, name, question)
            else:
                # First round of call `c1` of request 2: `elicit-2-c1:1`, its second question `elicit-2-c1:1-1`.
                key = elicitation_key(place, f"{number}-{index}" if index else str(number))
                answers[request] = await elicit(place.turn.context, tool, question, key)
        number += 1
        token = _ROUND.set(_Round(answers, outcome.state))
        try:
            # The repeated call is an operation of its own, `tool-2-c1#2`, whose parameters include the answers.
            more = {"round": number, "answers": answers, "state": outcome.state}
            payload = await again(f"tool-{name}#{number}", more)
        finally:
            _ROUND.reset(token)
    return payload


def elicitation_key(place: CallPlace, number: str) -> str:
    """Return the key of a question that an MCP server asks in a tool call, as `elicitation_keys` forms it. If the log
    has the question under the key of an earlier version, return that key.
    """
    key, former_key = elicitation_keys(place.name, number)
    return key if place.turn.context.recorded_question(former_key) is None else former_key


async def elicit(
    context: StepTurn, tool: ToolFunction, request: Mapping[str, Any], key: str, *, within: float | None = None
) -> dict[str, Any]:
    """Ask a person a question of an MCP server. Return the person's answer in the form of the MCP protocol: accept,
    decline or cancel.

    Parameters
    ----------
    within
        Seconds until the waiting call times out. An unanswered question is declined before that.
    """
    answer_schema = {**request["schema"], "type": "object"}
    # A question without fields asks only for consent, so "accept" is its whole answer.
    accepted_form = embedded(answer_schema, "#/anyOf/0") if request["schema"].get("properties") else {"const": ACCEPT}
    form = {"anyOf": [accepted_form, {"const": DECLINE}]}
    try:
        require_possible_schema(answer_schema)
    except DefinitionError as error:
        # The server gets the reason. A question that no answer fits would stay open for ever.
        reason = error.problems[0].message
        _log.warning(
            "tool %s of MCP server %s asks a question that cannot be answered: %s", tool.name, tool.server, reason
        )
        return {"action": CANCEL, "error": reason}
    wording = asked_by_server(request["message"], tool.server, tool.own_name, form, DECLINE)
    question = await context.question(
        CLARIFICATION,
        wording.question,
        key=key,
        **wording.details,
        expires_in=None if within is None else within * 0.9,
        default=None if within is None else DEFAULT,
    )
    value = value_of(question)
    # A question that was not answered is never consent, whatever default an earlier version recorded.
    if _has_expired(question) or value == DECLINE:
        return {"action": DECLINE}
    return {"action": ACCEPT, "content": value} if isinstance(value, Mapping) else {"action": ACCEPT}
