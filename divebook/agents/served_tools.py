"""Tools of MCP servers in a turn: the list of each server is recorded, and its calls take the road of all tools.

A replay makes the tools of the recorded list again, so that it starts no server but for a call that the log lacks
(``tests/tools/test_mcp_turns.py``).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.agents.present import CALL, CallPlace
from divebook.agents.sampling import MESSAGES, require_sampler, sampled
from divebook.agents.side_by_side import side_by_side
from divebook.dialects.dive import TOOLS
from divebook.engine.cards import embedded
from divebook.engine.operations import TOOL_DISCOVERY
from divebook.errors import DefinitionError, NotFoundError, SetupError
from divebook.events.codec import by_hash
from divebook.events.recorded import opened
from divebook.questions.answer import value_of
from divebook.questions.kinds import CLARIFICATION, EXPIRED
from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.workflow.approvals import IF_NOT_READ_ONLY
from divebook.workflow.json_schemas import require_possible_schema
from divebook.workflow.tool_servers import Answers, CallOutcome, Discovered, Elicit, OfferedTool, ToolServer
from divebook.workflow.tools import ToolFunction, ToolHints

if TYPE_CHECKING:
    from divebook.agents.turn import TurnContext
    from divebook.questions import Question
    from divebook.workflow.definition import AgentDefinition

_log = logger(__name__)
INPUT_REQUIRED = "input_required"
"""The kind of a recorded call that has to be made again, with answers."""
ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
DEFAULT: Any = DECLINE
"""Answer to a question of a call that nobody has answered in time."""
MOST_ASKED = 50
"""How much a server may ask people and models in one call: one that always asks would never end."""
_TOO_MUCH = "more than {} things in one call"
Again = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Makes a call again, under a key and with what the log says of it besides."""


class InputRequired(Exception):  # noqa: N818 - no error: the call is to be made again with answers
    """A server has to know something first."""

    def __init__(self, outcome: CallOutcome) -> None:
        self.payload = {"kind": INPUT_REQUIRED, **replace(outcome, state=None).to_dict()}
        self.state = {} if outcome.state is None else {"state": outcome.state}
        super().__init__(f"{len(outcome.requests)} questions")


class _Round(NamedTuple):
    answers: Answers
    state: str | None


_ROUND: ContextVar[_Round | None] = ContextVar("divebook_round", default=None)
"""With what the call under way is made again."""


async def served_tools(
    context: TurnContext, definition: AgentDefinition, servers: Sequence[ToolServer], own: Iterable[str]
) -> tuple[list[ToolFunction], str]:
    """Return the tools of servers that an agent may call, and what the servers say of their use.

    Parameters
    ----------
    own
        Names of the tools that it has besides.

    Raises
    ------
    ServerError
        A server cannot be asked.
    SetupError
        An agent that may not answer a server is named for that, or the dialect does not allow two tools of one name.
    NotFoundError
        The agent names a tool that nobody has.
    """
    chosen: list[tuple[ToolServer, OfferedTool]] = []
    notes: list[str] = []
    taken = set(own)
    named = set(definition.tools) - taken - set(TOOLS)
    for server in servers:
        if server.sampling is not None:
            require_sampler(context, server.sampling, server.name)
    for server, found in zip(
        servers, await side_by_side(context, [_discovered(context, server) for server in servers]), strict=True
    ):
        usable = [tool for tool in found.tools if _is_named(tool.name, server, definition)]
        for tool in usable:
            chosen.append((server, tool))
            named -= {tool.name, f"{server.name}/{tool.name}"}
        if usable and found.instructions:
            notes.append(f"About the tools of {server.name}: {found.instructions}")
    if servers and named:
        unknown = f"agent {definition.name} names an unknown tool: {min(named)}"
        raise NotFoundError("tool", min(named), {*taken, *(tool.name for _, tool in chosen)}, unknown)
    # A name that several tools have says nothing: each has that of its server in front then.
    counts = Counter([*taken, *(tool.name for _, tool in chosen)])
    if not context.qualifies_tools:
        _require_unique(chosen, counts, definition.name)
    made = [served_tool(server, tool, is_shared=counts[tool.name] > 1) for server, tool in chosen]
    return made, "\n\n".join(notes)


def _require_unique(chosen: Sequence[tuple[ToolServer, OfferedTool]], counts: Mapping[str, int], agent: str) -> None:
    """Raise unless each tool has a name of its own, as the dialect `dive` has it."""
    for server, tool in reversed(chosen):
        if counts[tool.name] > 1:
            raise SetupError(
                f'mcp server {server.name} has duplicate tool name "{tool.name}": let agent {agent} have one of the '
                f"two, as {server.name}/{tool.name} in its Tools"
            )


def _is_named(tool: str, server: ToolServer, definition: AgentDefinition) -> bool:
    return server.name in definition.servers or bool({tool, f"{server.name}/{tool}"} & set(definition.tools))


async def _discovered(context: TurnContext, server: ToolServer) -> Discovered:
    """Return what a server offers, which is recorded also where another one fails."""

    async def call() -> Any:
        return by_hash(shared().without_certain((await server.discover()).to_dict()), server.name)

    recorded = await context.operation(
        TOOL_DISCOVERY, {"server": server.name}, call, key=f"tools-{server.name}", repeatable=True
    )
    return Discovered.from_dict(opened(recorded))


def served_tool(server: ToolServer, tool: OfferedTool, *, is_shared: bool = False) -> ToolFunction:
    """Return a tool of a server as a function that agents may call; `is_shared`: another tool has its name."""
    hints = ToolHints(**tool.hints)
    repeatable = bool(hints.idempotent or hints.read_only)

    async def call(**arguments: Any) -> Any:
        answers, state = _ROUND.get() or (None, None)
        outcome = await server.call(
            tool.name, arguments, answers=answers, state=state, elicit=_asker(made), repeatable=repeatable
        )
        return _result(outcome)

    made = ToolFunction(
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
    return made


class _CallQuestions:
    """Questions that a server asks during one call; an `Elicit`.

    The call waits for each answer and stays open meanwhile, so that its step cannot rest.
    """

    def __init__(self, tool: ToolFunction, place: CallPlace) -> None:
        self._tool, self._place, self._left = tool, place, MOST_ASKED
        self._loop = asyncio.get_running_loop()
        self._until = None if tool.timeout is None else self._loop.time() + tool.timeout
        self._keys = (f"elicit-{place.name}-in-{number}" for number in itertools.count(1))
        self._open: str | None = None
        """Key of the question that waits for its answer."""

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the answer of a person, or of the model that the definition of the server names."""
        self._left -= 1
        if self._left < 0:
            return {"action": CANCEL, "error": _TOO_MUCH.format(MOST_ASKED)}
        turn, context = self._place.turn, self._place.turn.context
        asked = turn.kept(request, f"what tool {self._tool.own_name} asks")
        if MESSAGES in asked:
            return await sampled(turn, self._place.name, asked)
        # What has expired since another process made this call is asked anew
        # (test_a_server_that_is_called_again_the_next_day_asks_again).
        self._open = key = next(key for key in self._keys if not _has_expired(context.asked(key)))
        within = None if self._until is None else max(0.0, self._until - self._loop.time())
        with context.open_call():
            answer = await elicited(context, self._tool, asked, key, within=within)
        self._open = None
        return answer

    async def withdraw(self) -> None:
        """Let the open question expire: the call has ended, and an answer would reach no one."""
        if self._open is not None:
            await self._place.turn.context.withdraw(self._open)


def _asker(tool: ToolFunction) -> Elicit | None:
    """Return what asks a person during the call that is under way; None outside of a turn."""
    place = CALL.get()
    return None if place is None else _CallQuestions(tool, place)


def _has_expired(question: Question | None) -> bool:
    return question is not None and question.status == EXPIRED


def _result(outcome: CallOutcome) -> Any:
    """Return what a model gets of an outcome; raises what pydantic-ai takes for a call that failed."""
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

    if isinstance(part, Mapping) and part.keys() == {"media_type", "base64"}:
        return BinaryContent(base64.b64decode(part["base64"]), media_type=part["media_type"])
    return part


async def answered(place: CallPlace, tool: ToolFunction, payload: dict[str, Any], again: Again) -> dict[str, Any]:
    """Return what a call comes to once its server has its answers; each round is a call of its own."""
    name, number, left = place.name, 1, MOST_ASKED
    while payload.get("kind") == INPUT_REQUIRED:
        outcome = CallOutcome.from_dict({key: value for key, value in payload.items() if key != "kind"})
        left -= max(1, len(outcome.requests))
        if left < 0:
            return {"kind": "tool_failed", "message": f"the server {tool.server} asks {_TOO_MUCH.format(MOST_ASKED)}"}
        answers = {}
        for index, (request, asked) in enumerate(outcome.requests.items()):
            key = f"elicit-{name}-{number}" + (f"-{index}" if index else "")
            if MESSAGES in asked:
                answers[request] = await sampled(place.turn, name, asked)
            else:
                answers[request] = await elicited(place.turn.context, tool, asked, key)
        number += 1
        token = _ROUND.set(_Round(answers, outcome.state))
        try:
            more = {"round": number, "answers": answers, "state": outcome.state}
            payload = await again(f"tool-{name}#{number}", more)
        finally:
            _ROUND.reset(token)
    return payload


async def elicited(
    context: TurnContext, tool: ToolFunction, asked: Mapping[str, Any], key: str, *, within: float | None = None
) -> dict[str, Any]:
    """Have a person answer a server, or decline to; return the answer as `Answers` has it.

    Parameters
    ----------
    within
        The seconds of a call that waits for it: without an answer it is declined before they are over.
    """
    whole = {**asked["schema"], "type": "object"}
    wanted = embedded(whole, "#/anyOf/0") if asked["schema"].get("properties") else {"const": ACCEPT}
    form = {"anyOf": [wanted, {"const": DECLINE}]}
    try:
        require_possible_schema(whole)
    except DefinitionError as error:
        reason = error.problems[0].message
        _log.warning("tool %s of MCP server %s asks what cannot be answered: %s", tool.name, tool.server, reason)
        return {"action": CANCEL, "error": reason}
    question = await context.question(
        CLARIFICATION,
        asked["message"],
        key=key,
        data={"server": tool.server, "tool": tool.own_name},
        schema=form,
        message=f"the server {tool.server} asks this during a call of {tool.own_name}; {DECLINE} gives it no answer",
        expires_in=None if within is None else within * 0.9,
        default=None if within is None else DEFAULT,
    )
    value = value_of(question)
    # Nobody has agreed to anything by not answering, whatever default an earlier version recorded.
    if _has_expired(question) or value == DECLINE:
        return {"action": DECLINE}
    return {"action": ACCEPT, "content": value} if isinstance(value, Mapping) else {"action": ACCEPT}
