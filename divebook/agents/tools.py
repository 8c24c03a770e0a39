"""State of a running turn, tools of MCP servers, sampling and elicitation, and detection of changed dependencies.

The tool list of each server is recorded, and its calls are operations like those of all tools. A replay rebuilds the
tools from the recorded list. It starts a server only for a call that the log lacks (``tests/tools/test_mcp_turns.py``).
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
from divebook.projections.model_requests import call_name
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


# --- the running turn ---------------------------------------------------------------------------------------------
# Its operations, their keys, and the current tool call.


_log = logger(__name__)
SECOND = "#2"
"""Suffix of the name of a call that is made a second time because its tool required approval first."""


@dataclass(slots=True)
class CallPlace:
    """A tool call and its place in the log."""

    turn: AgentTurn
    name: str
    """``<n>-<id>``: the number of the request that asked for the call, and the id that the model gave it.

    A call that its tool deferred until a person approves it is named ``<n>-<id>#2``.
    """
    rule: str = ""
    """Rule that allowed the call; empty if the mode of its tool allowed it."""

    @property
    def key(self) -> str:
        """Key of its operation."""
        return f"tool-{self.name}"

    @property
    def put_off(self) -> str | None:
        """Name of the deferred call that this one repeats; None if it repeats none."""
        name, again, _ = self.name.partition(SECOND)
        return name if again else None

    @property
    def setting(self) -> Setting | None:
        """Information recorded with the call: the rule that allowed it."""
        return Setting({"rule": self.rule}) if self.rule else None


@dataclass
class AgentTurn:
    """One run of an agent inside a step."""

    context: TurnContext
    record: RequestRecord
    model: str
    """Name of the agent's model."""
    retry: Retry
    """Retry policy of model requests."""
    seconds: float
    """Time limit of a request, in seconds."""
    tools: Mapping[str, ToolFunction] = field(default_factory=dict)
    """Tools that are divebook functions, by name."""
    budget: TurnBudget | None = None
    """Budget of the turn; None if it is not bounded."""
    agreement: TurnCompatibility | None = None
    """Comparison with the definition that the turn began with. None once a person has chosen how to continue."""
    policy: Policy = field(default_factory=Policy.given)
    """Policy for files that requests may name, and for credentials in data that the agent reads and writes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    has_begun: bool = False
    """True once the run of this turn has started. A run that starts later belongs to a tool."""
    asked: Counter[str] = field(default_factory=Counter)
    """Number of calls per tool in the latest response."""
    sent_with: ModelRequestParameters | None = None
    """Parameters of the latest request, with the tools that the model may call."""
    failed: list[tuple[str, OperationError]] = field(default_factory=list)
    """Failed tools and their errors. The first of them ends the turn."""
    changing: set[str] = field(default_factory=set)
    """Tools that changed unrecorded dependencies and were already reported."""
    cleaned: set[str] = field(default_factory=set)
    """Sources of redacted credentials that were already reported."""
    corrections: int | None = None
    """Limit of corrections of a call or an answer; None for an agent of pydantic-ai, which has its own limit."""
    definitions: int = 0
    """Token estimate of the tool definitions that requests are sent with."""
    _shares: dict[tuple[int, bool], Mapping[str, Any]] = field(default_factory=dict)
    is_as_begun: bool = False
    """True if a person chose to finish the turn with its original definition after the agent had changed."""
    put_off: set[str] = field(default_factory=set)
    """Calls that their tool has deferred until a person approves them."""
    _counts: Counter[str] = field(default_factory=Counter)
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def unknown(self) -> list[str]:
        """Tools that the latest response calls but its model was not offered."""
        with_it = self.sent_with
        offered = {tool.name for tool in (*with_it.function_tools, *with_it.output_tools)} if with_it else set()
        return [name for name in self.asked if name not in offered]

    def call(self, tool_call_id: str) -> CallPlace:
        """Return the place of a call. Ids are unique within one response (`divebook.agents.requests`)."""
        name = f"{self.record.requests}-{call_name(tool_call_id)}"
        return CallPlace(self, f"{name}{SECOND}" if name in self.put_off else name)

    def count(self, tool: str, most: int | None) -> None:
        """Count a call of a tool.

        Raises
        ------
        ToolFailed
            The tool has reached its limit of calls. The model gets the message.
        """
        from pydantic_ai.exceptions import ToolFailed  # loaded by now, as it is not where a log is only read

        self._calls[tool] += 1
        if most is not None and self._calls[tool] > most:
            raise ToolFailed(f"{tool} is used up: it may be called {most} times, go on with what you have")

    def kept(self, value: Any, what: str) -> Any:
        """Return plain data without credentials, for the log and the model. The policy can allow credentials.

        A warning is logged once per turn for each source of a redacted credential, because a tool may need the value.
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
        """Return the bounds of one of several delegated calls in a response; None for a single call.

        The rest of the budget is divided among the calls of the response. `known` is the recorded share of this call,
        and the calls beside it get the same. A task that failed and is run again gets a share of the current rest,
        because the bounds of its agent may have been raised for it.
        """
        place = (self.record.requests, is_again)
        count = self.asked[tool]
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
        """Context manager around a request.

        It waits until the budget admits the request, unless the log has it already.
        """
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
        """Return the name of an operation. The second and later uses of a name get a number."""
        self._counts[name] += 1
        number = self._counts[name]
        return name if number == 1 else f"{name}#{number}"


TURN: ContextVar[AgentTurn | None] = ContextVar("divebook_turn", default=None)
"""The current turn. None inside a recorded call, which is a single operation whatever it does."""
CALL: ContextVar[CallPlace | None] = ContextVar("divebook_tool_call", default=None)
"""The current tool call."""
INSIDE: ContextVar[str | None] = ContextVar("divebook_inside_call", default=None)
"""Name of the current recorded call."""
WRITE: ContextVar[Write | None] = ContextVar("divebook_write", default=None)
"""Function that receives streamed text of the current request; None if no view listens."""


def present() -> AgentTurn | None:
    """Return the current turn if its event loop is running in this thread.

    A thread started by a tool inherits the context variable, but has another loop or none.
    """
    turn = TURN.get()
    if turn is None:
        return None
    try:
        return turn if asyncio.get_running_loop() is turn.loop else None
    except RuntimeError:  # a thread without a loop
        return None


def consumed_by(response: Mapping[str, Any]) -> dict[str, int]:
    """Return the consumption of a recorded response in the units of a budget."""
    from divebook.agents.requests import usage_of  # loaded by now, as it is not where a log is only read

    used = usage_of(response)
    tokens = used.get("input_tokens", 0) + used.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": used.get("cost", 0)}


def count_spent(spent: Mapping[str, int]) -> None:
    """Add the consumption of a delegated task to the budget of the current turn.

    The task had ended before this process resumed the turn.
    """
    turn = present()
    if turn is not None and turn.budget is not None:
        turn.budget.count(spent)


# --- MCP sampling -------------------------------------------------------------------------------------------------
# A server may request a model response, if its definition names an agent for that. The request is recorded in the turn.
# It is counted, bounded and retried like the turn's own requests. Its key contains a hash of its content, so that a
# call which is repeated after a kill finds its responses in whatever order it asks
# (``tests/tools/test_mcp_sampling.py``).


MESSAGES = "messages"
"""Key that marks a request for a model. Requests for a person do not have it."""


def require_sampler(context: TurnContext, name: str, server: str) -> None:
    """Raise `SetupError` unless an agent may answer sampling requests: text from a server must not call tools."""
    if context.sampler(name).has_hands:
        raise SetupError(
            f"agent {name} answers what MCP server {server} asks of a model, but has tools, servers, an output, bounds "
            f"or a cache: name one in its Sampling that has none of these"
        )


async def sampled(turn: AgentTurn, call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the agent that a sampling request names, or the error.

    Parameters
    ----------
    call
        Part of the key that identifies the tool call: ``<n>-<id>``.
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
    """Return the function that makes a request once under a key, within the bounds of the turn."""

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
"""Kind of a recorded call that must be repeated with answers."""
ACCEPT = "accept"
DECLINE = "decline"
CANCEL = "cancel"
DEFAULT: Any = DECLINE
"""Answer to a question of a call that was not answered in time."""
MOST_ASKED = 50
"""Maximum number of questions of a server in one call. Without it, a server that always asks would never end."""
_TOO_MUCH = "more than {} things in one call"
Again = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Repeats a call under a key, with additional recorded parameters."""


class InputRequired(Exception):  # noqa: N818 - no error: the call is to be made again with answers
    """Control-flow exception: a server needs answers before it can complete a call."""

    def __init__(self, outcome: CallOutcome) -> None:
        self.payload = {"kind": INPUT_REQUIRED, **replace(outcome, state=None).to_dict()}
        self.state = {} if outcome.state is None else {"state": outcome.state}
        super().__init__(f"{len(outcome.requests)} questions")


class _Round(NamedTuple):
    answers: Answers
    state: str | None


_ROUND: ContextVar[_Round | None] = ContextVar("divebook_round", default=None)
"""Answers and state with which the current call is repeated."""


async def served_tools(
    context: TurnContext, definition: AgentDefinition, servers: Sequence[ToolServer], own: Iterable[str]
) -> tuple[list[ToolFunction], str]:
    """Return the tools of servers that an agent may call, and the usage instructions of the servers.

    Parameters
    ----------
    own
        Names of the agent's other tools.

    Raises
    ------
    ServerError
        A server cannot be reached.
    SetupError
        The agent named for sampling is not allowed to answer, or the dialect forbids two tools with one name.
    NotFoundError
        The agent names a tool that does not exist.
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
    # A name shared by several tools is ambiguous: prefix each with its server.
    counts = Counter([*taken, *(tool.name for _, tool in chosen)])
    if not context.qualifies_tools:
        _require_unique(chosen, counts, definition.name)
    made = [served_tool(server, tool, is_shared=counts[tool.name] > 1) for server, tool in chosen]
    return made, "\n\n".join(notes)


def _require_unique(chosen: Sequence[tuple[ToolServer, OfferedTool]], counts: Mapping[str, int], agent: str) -> None:
    """Raise `SetupError` unless all tool names are unique, as the dialect `dive` requires."""
    for server, tool in reversed(chosen):
        if counts[tool.name] > 1:
            raise SetupError(
                f'mcp server {server.name} has duplicate tool name "{tool.name}": let agent {agent} have one of the '
                f"two, as {server.name}/{tool.name} in its Tools"
            )


def _is_named(tool: str, server: ToolServer, definition: AgentDefinition) -> bool:
    return server.name in definition.servers or bool({tool, f"{server.name}/{tool}"} & set(definition.tools))


async def _discovered(context: TurnContext, server: ToolServer) -> Discovered:
    """Return the tools and instructions of a server. They are recorded even if another server fails."""

    async def call() -> Any:
        return by_hash(shared().without_certain((await server.discover()).to_dict()), server.name)

    recorded = await context.operation(
        TOOL_DISCOVERY, {"server": server.name}, call, key=f"tools-{server.name}", repeatable=True
    )
    return Discovered.from_dict(opened(recorded))


def served_tool(server: ToolServer, tool: OfferedTool, *, is_shared: bool = False) -> ToolFunction:
    """Return a server's tool as a function for agents. `is_shared`: another tool has the same name."""
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
    """Elicitation handler: questions that a server asks during one call.

    The call stays open while it waits for an answer, so its step cannot be parked.
    """

    def __init__(self, tool: ToolFunction, place: CallPlace) -> None:
        self._tool = tool
        self._place = place
        self._left = MOST_ASKED
        self._loop = asyncio.get_running_loop()
        self._until = None if tool.timeout is None else self._loop.time() + tool.timeout
        self._keys = (f"elicit-{place.name}-in-{number}" for number in itertools.count(1))
        self._open: str | None = None
        """Key of the unanswered question."""

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the answer of a person, or of the model named in the server's definition."""
        self._left -= 1
        if self._left < 0:
            return {"action": CANCEL, "error": _TOO_MUCH.format(MOST_ASKED)}
        turn = self._place.turn
        context = self._place.turn.context
        asked = turn.kept(request, f"what tool {self._tool.own_name} asks")
        if MESSAGES in asked:
            return await sampled(turn, self._place.name, asked)
        # A question that expired after another process made this call is asked again
        # (test_a_server_that_is_called_again_the_next_day_asks_again).
        self._open = key = next(key for key in self._keys if not _has_expired(context.asked(key)))
        within = None if self._until is None else max(0.0, self._until - self._loop.time())
        with context.open_call():
            answer = await elicited(context, self._tool, asked, key, within=within)
        self._open = None
        return answer

    async def withdraw(self) -> None:
        """Expire the open question: the call has ended, so an answer would not reach the server."""
        if self._open is not None:
            await self._place.turn.context.withdraw(self._open)


def _asker(tool: ToolFunction) -> Elicit | None:
    """Return the elicitation handler of the current call; None outside of a turn."""
    place = CALL.get()
    return None if place is None else _CallQuestions(tool, place)


def _has_expired(question: Question | None) -> bool:
    return question is not None and question.status == EXPIRED


def _result(outcome: CallOutcome) -> Any:
    """Return the result that the model gets.

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

    if isinstance(part, Mapping) and part.keys() == {"media_type", "base64"}:
        return BinaryContent(base64.b64decode(part["base64"]), media_type=part["media_type"])
    return part


async def answered(place: CallPlace, tool: ToolFunction, payload: dict[str, Any], again: Again) -> dict[str, Any]:
    """Return the final result of a call after all questions of its server are answered.

    Each round is a call of its own.
    """
    name = place.name
    number = 1
    left = MOST_ASKED
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
    """Ask a person a question of a server; return the answer in the form of `Answers`.

    Parameters
    ----------
    within
        Seconds until the waiting call times out. An unanswered question is declined before that.
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
    # A question that was not answered is never consent, whatever default an earlier version recorded.
    if _has_expired(question) or value == DECLINE:
        return {"action": DECLINE}
    return {"action": ACCEPT, "content": value} if isinstance(value, Mapping) else {"action": ACCEPT}


# --- changes of dependencies ----------------------------------------------------------------------------------------
# A tool may change ``ctx.deps``. The change is not recorded, so a resumed run does not have it: people get a warning.
# The comparison covers public attributes, collections, dataclasses and pydantic models in them. Other objects, such as
# clients and connections, have internal state that is meant to change.


MOST_VALUES, MOST_DEPTH = 1_000, 8
"""Limits of the comparison.

Larger or deeper objects are skipped: a scan may take long, and they may contain themselves.
"""
_SCALARS = str, bytes, int, float, complex, type(None)


@contextmanager
def watched(deps: Any, turn: AgentTurn, tool: str) -> Iterator[None]:
    """Context manager around a tool call that warns once per turn and tool if the dependencies have changed."""
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
    """The object exceeds the limits of the comparison."""


def seen_in(deps: Any) -> Any:
    """Return a comparable copy of an object's public state; None if it is immutable or exceeds the limits."""
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
    """Return the parts of a value; None for a value that is compared by identity."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]
