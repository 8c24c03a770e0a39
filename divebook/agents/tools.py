"""Tools of MCP servers in a turn: the list of each server is recorded, and its calls take the road of all tools.

A replay makes the tools of the recorded list again, so that it starts no server but for a call that the log lacks
(``tests/tools/test_mcp_turns.py``).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.agents.turn import side_by_side
from divebook.documents.policy import CREDENTIALS, Policy
from divebook.engine.approvals import embedded
from divebook.engine.bounds import share_of
from divebook.engine.operations import TOOL_DISCOVERY, Setting
from divebook.errors import DefinitionError, NotFoundError, OperationError, SetupError
from divebook.events.codec import by_hash, short_hash
from divebook.events.recorded import opened
from divebook.projections.requests import call_name
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION, EXPIRED
from divebook.text.redaction import logger, shared
from divebook.workflow.dialect import TOOLS
from divebook.workflow.json_schemas import require_possible_schema
from divebook.workflow.servers import (
    IF_NOT_READ_ONLY,
    Answers,
    CallOutcome,
    Discovered,
    Elicit,
    OfferedTool,
    ToolServer,
)
from divebook.workflow.tools import ToolFunction, ToolHints

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters

    from divebook.agents.budget import TurnBudget
    from divebook.agents.changed import TurnCompatibility
    from divebook.agents.requests import RequestRecord
    from divebook.agents.turn import Sampler, TurnContext
    from divebook.engine.operations import Reserved, Write
    from divebook.questions import Question
    from divebook.workflow.resources import AgentDefinition
    from divebook.workflow.step import Retry


# The turn that runs: which one it is, where its operations belong, and which call of it is under way.


_log = logger(__name__)
SECOND = "#2"
"""Stands after the name of a call that is made for the second time, since its tool wanted it approved first."""


@dataclass(slots=True)
class CallPlace:
    """A call of a tool: where it belongs in the log."""

    turn: AgentTurn
    name: str
    """``<n>-<id>``: the number of the request that asked for it, and the model's name for it; of a call that its tool
    has put off until a person approves it, ``<n>-<id>#2``."""
    rule: str = ""
    """What allowed it, where that is not the mode that its tool has anyway."""

    @property
    def key(self) -> str:
        """Name of its operation."""
        return f"tool-{self.name}"

    @property
    def put_off(self) -> str | None:
        """Name of the call that its tool has put off, where this one is what came of it."""
        name, again, _ = self.name.partition(SECOND)
        return name if again else None

    @property
    def setting(self) -> Setting | None:
        """What the log keeps beside the call: what decided that it may be made."""
        return Setting({"rule": self.rule}) if self.rule else None


@dataclass
class AgentTurn:
    """One run of an agent inside a step."""

    context: TurnContext
    record: RequestRecord
    model: str
    """The model of its agent."""
    retry: Retry
    """How a request to its model is tried again."""
    seconds: float
    """How long a request may take."""
    tools: Mapping[str, ToolFunction] = field(default_factory=dict)
    """Those that are functions of ours, by name."""
    budget: TurnBudget | None = None
    """What it may spend, where that is bounded."""
    agreement: TurnCompatibility | None = None
    """Whether it is made with what it began with; None once a person has said with what."""
    policy: Policy = field(default_factory=Policy.given)
    """Which files its requests may name, and whether credentials may be in what it reads and writes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    has_begun: bool = False
    """Whether the run whose turn it is has its places: another that begins is one of a tool's."""
    asked: Counter[str] = field(default_factory=Counter)
    """How many calls of each tool the latest response asks for."""
    sent_with: ModelRequestParameters | None = None
    """What the latest request is made with: the tools that its model may call."""
    failed: list[tuple[str, OperationError]] = field(default_factory=list)
    """Tools that failed, and what they raised: the first of it ends the turn."""
    changing: set[str] = field(default_factory=set)
    """Tools that have changed what no log has, which has been said."""
    cleaned: set[str] = field(default_factory=set)
    """What had a credential in it, which has been said."""
    corrections: int | None = None
    """Limit of corrections of a call or an answer; None for an agent of pydantic-ai, which has its own limit."""
    definitions: int = 0
    """What those that its requests are sent with count as, in tokens."""
    _shares: dict[tuple[int, bool], Mapping[str, Any]] = field(default_factory=dict)
    is_as_begun: bool = False
    """Whether a person has had it go on with what it began with, though its agent has changed."""
    put_off: set[str] = field(default_factory=set)
    """Calls that their own tool has put off until a person approves them."""
    _counts: Counter[str] = field(default_factory=Counter)
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def unknown(self) -> list[str]:
        """Tools that the latest response asks for, and its model does not have."""
        with_it = self.sent_with
        offered = {tool.name for tool in (*with_it.function_tools, *with_it.output_tools)} if with_it else set()
        return [name for name in self.asked if name not in offered]

    def call(self, tool_call_id: str) -> CallPlace:
        """Return where a call of that id belongs; no two of one response have one (`divebook.agents.requests`)."""
        name = f"{self.record.requests}-{call_name(tool_call_id)}"
        return CallPlace(self, f"{name}{SECOND}" if name in self.put_off else name)

    def count(self, tool: str, most: int | None) -> None:
        """Count a call of a tool; `ToolFailed` tells the model that it has been called as often as it may be."""
        from pydantic_ai.exceptions import ToolFailed  # loaded by now, as it is not where a log is only read

        self._calls[tool] += 1
        if most is not None and self._calls[tool] > most:
            raise ToolFailed(f"{tool} is used up: it may be called {most} times, go on with what you have")

    def kept(self, value: Any, what: str) -> Any:
        """Return plain data as log and model get it: without credentials, unless the policy lets agents have them.

        The log says so once a turn of each thing that had one, as a tool may need what is gone.
        """
        if CREDENTIALS in self.policy.allowed:
            return shared().without_named(value)
        certain = shared().without_certain(value)
        if what not in self.cleaned and certain not in (value, shared().without_named(value)):
            self.cleaned.add(what)
            _log.warning(
                "%s had what looks like a credential: agent %s and the log have [redacted] in its place; name keys by "
                'env://NAME, or let agents have them by Policy("credentials")',
                what,
                self.record.agent,
            )
        return certain

    def share(self, tool: str, known: Mapping[str, Any] | None, *, is_again: bool) -> Mapping[str, Any] | None:
        """Return what one of several calls that hand work on at once may spend of what is left; None for one alone.

        `known` is what the log has of this call: those beside it get no other. Work that has failed and is done again
        has its part of what is left now: its agent's bounds may have been raised for that.
        """
        place, count = (self.record.requests, is_again), self.asked[tool]
        if known is not None and not is_again:
            self._shares.setdefault(place, known)
            return known
        if self.budget is None or count == 1:
            return None
        if place not in self._shares:
            self._shares[place] = share_of(self.budget.left, count).to_dict()
        return self._shares[place]

    @asynccontextmanager
    async def spending(self, key: str, reserved: Reserved) -> AsyncIterator[None]:
        """Surround a request: it is under way once its agent may spend so much, or if the log has it already."""
        with self.context.calling():
            if self.budget is None:
                yield
                return
            if self.context.recorded_type(key) is None:
                await self.budget.admit(self.context, reserved)
            with self.budget.holding(reserved):
                try:
                    yield
                finally:
                    self.budget.spend(self.context.consumed_by_failures(key))

    def key(self, name: str) -> str:
        """Return the name of an operation, which is numbered where it is met more than once."""
        self._counts[name] += 1
        number = self._counts[name]
        return name if number == 1 else f"{name}#{number}"


TURN: ContextVar[AgentTurn | None] = ContextVar("divebook_turn", default=None)
"""The turn that the present code belongs to; None inside a recorded call, which is one thing whatever it does."""
CALL: ContextVar[CallPlace | None] = ContextVar("divebook_tool_call", default=None)
"""The tool call that the present code belongs to."""
INSIDE: ContextVar[str | None] = ContextVar("divebook_inside_call", default=None)
"""What the recorded call that the present code belongs to is called."""
WRITE: ContextVar[Write | None] = ContextVar("divebook_write", default=None)
"""Takes the text of the request that is under way, if somebody listens."""


def present() -> AgentTurn | None:
    """Return the turn whose loop is the one that runs: a thread of a tool has its context, and another loop."""
    turn = TURN.get()
    if turn is None:
        return None
    try:
        return turn if asyncio.get_running_loop() is turn.loop else None
    except RuntimeError:  # a thread without a loop
        return None


def consumed_by(response: Mapping[str, Any]) -> dict[str, int]:
    """Return what a recorded response has consumed, as a budget counts it."""
    from divebook.agents.requests import usage_of  # loaded by now, as it is not where a log is only read

    used = usage_of(response)
    tokens = used.get("input_tokens", 0) + used.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": used.get("cost", 0)}


def count_spent(spent: Mapping[str, int]) -> None:
    """Count what work has spent that was handed on in the turn that runs, and ended before this process took it up."""
    turn = present()
    if turn is not None and turn.budget is not None:
        turn.budget.count(spent)


# What an MCP server asks of a model where its definition names an agent for that: a request recorded in the turn.
#
# It is counted, bounded and tried again as the turn's own requests are. Its key says what was asked, so that a call
# which is made again after a kill finds its answers whatever order it asks in (``tests/tools/test_mcp_sampling.py``).


MESSAGES = "messages"
"""What a request has that is for a model, and one for a person has not."""


def require_sampler(context: TurnContext, name: str, server: str) -> None:
    """Raise unless an agent may answer what a server asks: what a server writes is to call no tools."""
    if context.sampler(name).has_hands:
        raise SetupError(
            f"agent {name} answers what MCP server {server} asks of a model, but has tools, servers, an output, bounds "
            f"or a cache: name one in its Sampling that has none of these"
        )


async def sampled(turn: AgentTurn, call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the agent that a request names answers, or why it does not.

    Parameters
    ----------
    call
        The call's part of keys: ``<n>-<id>``.
    """
    context = turn.context
    agent = context.sampler(asked["agent"]).with_settings(
        temperature=asked.get("temperature"), max_tokens=asked["max_tokens"]
    )
    *before, last = asked[MESSAGES]
    said = [asked["system"]] if asked.get("system") else []
    said += [f"{message['role']}: {message['text']}" for message in before]
    told = [{"type": "text", "text": "\n\n".join(said)}] if said else []
    key = turn.key(f"sample-{call}-{short_hash(asked)}")
    try:
        text = await agent.respond(last["text"], _recorded(turn, agent, key), context=told)
    except OperationError as error:
        return {"error": str(error)}
    return {"text": text, "model": agent.model_name}


def _recorded(turn: AgentTurn, agent: Sampler, key: str) -> Any:
    """Return how a request is made: once, under a key, within the bounds of the turn."""

    async def operation(
        kind: str, parameters: Mapping[str, Any], call: Callable[[], Awaitable[Any]], **options: Any
    ) -> Any:
        async with turn.spending(key, options["reserved"]):
            recorded = await turn.context.operation(kind, parameters, call, key=key, retry=agent.retry, **options)
        if turn.budget is not None:
            turn.budget.spend(options["usage"](recorded))
        return recorded

    return operation


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


# What a tool changes in ``ctx.deps``, which no log has: a run that is resumed has it as it was, so people are told.
#
# Seen is what they show of themselves, with collections, dataclasses and models of pydantic in it. Other objects, such
# as clients and connections, have a state of their own that is meant to change.


MOST_VALUES, MOST_DEPTH = 1_000, 8
"""What holds more, or deeper, is not looked at: to look may take long, and it may hold itself."""
_SCALARS = str, bytes, int, float, complex, type(None)


@contextmanager
def watched(deps: Any, turn: AgentTurn, tool: str) -> Iterator[None]:
    """Surround a call of a tool, and say once a turn if what its agent depends on is not what it was."""
    before = None if tool in turn.changing else seen_in(deps)
    yield
    after = None if before is None else seen_in(deps)
    if after not in (None, before):
        turn.changing.add(tool)
        _log.warning(
            "tool %s of agent %s changed ctx.deps, which is not recorded: a run that is resumed has it as it was "
            "before the call; let the tool return what is to last",
            tool,
            turn.record.agent,
        )


class _TooMuchError(Exception):
    """There is more in it than is looked at."""


def seen_in(deps: Any) -> Any:
    """Return what an object shows of itself, to be compared; None if it is nothing that can change, or too much."""
    if isinstance(deps, _SCALARS):
        return None
    try:
        return _seen(deps, iter(range(MOST_VALUES)), MOST_DEPTH)
    except Exception:  # noqa: BLE001 - too much, or it cannot be looked at just now: that is no fault of the call
        return None


def _seen(value: Any, left: Iterator[int], depth: int) -> Any:
    if next(left, None) is None or depth == 0:
        raise _TooMuchError
    if isinstance(value, _SCALARS):
        return type(value), value
    inside = _inside(value, is_whole=depth == MOST_DEPTH)
    return id(value) if inside is None else (type(value), [_seen(part, left, depth - 1) for part in inside])


def _inside(value: Any, *, is_whole: bool) -> list[Any] | None:
    """Return what a value consists of; None if it is not looked into."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]
