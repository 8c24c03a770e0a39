"""State of an agent turn that is running: the keys of its operations, its budget, and the current tool call.

`TurnCompatibility` decides what happens if the agent was changed before its turn is resumed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, Tool, ToolDefinition

from divebook.agents.request_record import Described
from divebook.agents.turn import SPENT, TurnContext
from divebook.documents.policy import CREDENTIALS, Policy
from divebook.engine.bounds import share_of
from divebook.engine.operations import Setting
from divebook.errors import AgentError, OperationError
from divebook.events.recorded import opened
from divebook.projections.model_requests import call_name
from divebook.questions import Question
from divebook.questions.question import AGENT_CHANGED, ANEW, FINISH
from divebook.text.redaction import logger, shared
from divebook.workflow.tools import ToolFunction

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters

    from divebook.agents.budget import TurnBudget
    from divebook.agents.request_record import RequestRecord
    from divebook.agents.turn import Admission
    from divebook.engine.operations import Reserved, Write
    from divebook.workflow.step import Retry


_log = logger(__name__)


SECOND = "#2"
"""Suffix of the name of a call that is made a second time because its tool required approval first."""


TURN: ContextVar[AgentTurn | None] = ContextVar("divebook_turn", default=None)
"""The current turn. None inside a recorded call, which is a single operation whatever it does."""


CALL: ContextVar[CallPlace | None] = ContextVar("divebook_tool_call", default=None)
"""The current tool call."""


INSIDE: ContextVar[str | None] = ContextVar("divebook_inside_call", default=None)
"""Name of the current recorded call."""


WRITE: ContextVar[Write | None] = ContextVar("divebook_write", default=None)
"""Function that receives streamed text of the current request; None if no view listens."""


@dataclass
class AgentTurn:
    """State of one turn of an agent inside a step, while the turn is running."""

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
    compatibility: TurnCompatibility | None = None
    """Comparison with the definition that the turn began with. None once a person has chosen how to continue."""
    policy: Policy = field(default_factory=Policy.given)
    """Policy for files that requests may name, and for credentials in data that the agent reads and writes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    has_started: bool = False
    """True once the run of this turn has started. A run that starts later belongs to a tool."""
    call_counts: Counter[str] = field(default_factory=Counter)
    """Number of calls per tool in the latest response."""
    latest_parameters: ModelRequestParameters | None = None
    """Parameters of the latest request, with the tools that the model may call."""
    failed: list[tuple[str, OperationError]] = field(default_factory=list)
    """Failed tools and their errors. The first of them ends the turn."""
    changing: set[str] = field(default_factory=set)
    """Tools that changed unrecorded dependencies and were already reported."""
    cleaned: set[str] = field(default_factory=set)
    """Sources of redacted credentials that were already reported."""
    fallbacks: dict[str, Model] = field(default_factory=dict)
    """Models that pydantic-ai asks if that of the agent fails, by model id or by the name that names them."""
    corrections: int | None = None
    """Limit of corrections of a call or an answer; None for an agent of pydantic-ai, which has its own limit."""
    definitions: int = 0
    """Token estimate of the tool definitions that requests are sent with."""
    _shares: dict[tuple[int, bool], Mapping[str, Any]] = field(default_factory=dict)
    keeps_original: bool = False
    """True if a person chose to finish the turn with its original definition after the agent had changed."""
    deferred: set[str] = field(default_factory=set)
    """Calls that their tool has deferred until a person approves them."""
    _counts: Counter[str] = field(default_factory=Counter)
    _keys: set[str] = field(default_factory=set)
    """Keys that `key` has returned."""
    _calls: Counter[str] = field(default_factory=Counter)

    @property
    def unknown_tools(self) -> list[str]:
        """Names of tools that the latest model response calls although the request did not offer them."""
        parameters = self.latest_parameters
        if parameters is None:
            return [*self.call_counts]
        offered = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        return [name for name in self.call_counts if name not in offered]

    def call(self, tool_call_id: str) -> CallPlace:
        """Return the place in the log of a tool call that the latest model response requests.

        Ids are unique within one response (`divebook.agents.request_record`).
        """
        # `2-call_7`: the call `call_7` that the response to request 2 asks for.
        name = f"{self.record.requests}-{call_name(tool_call_id)}"
        return CallPlace(self, f"{name}{SECOND}" if name in self.deferred else name)

    def count(self, tool: str, most: int | None) -> None:
        """Count a call of a tool in this turn. `most` is the maximum number of calls of the tool; None for no maximum.

        Raises
        ------
        ToolFailed
            The tool has reached its limit of calls. The model gets the message.
        """
        from pydantic_ai.exceptions import ToolFailed  # already loaded: only code that reads a log runs without it

        # Counts are not recorded: a resumed turn passes all its calls here again, also those that the log has.
        self._calls[tool] += 1
        if most is not None and self._calls[tool] > most:
            raise ToolFailed(f"{tool} is used up: it may be called {most} times, go on with what you have")

    def without_credentials(self, value: Any, what: str) -> Any:
        """Return plain data with credentials replaced by ``[redacted]``, and log a warning. If the policy allows
        credentials, only secrets that the user has named are replaced. `what` describes the data in the warning.

        A warning is logged once per turn for each source of a redacted credential, because a tool may need the value.
        """
        if CREDENTIALS in self.policy.allowed:
            return shared().without_named(value)
        cleaned_value = shared().without_certain(value)
        # Only credentials that were recognized by their form are reported. A secret that the user named is expected
        # here.
        if what not in self.cleaned and cleaned_value not in (value, shared().without_named(value)):
            self.cleaned.add(what)
            _log.warning(
                "%s had what looks like a credential: agent %s and the log have [redacted] in its place; name keys by "
                'env://NAME, or let agents have them by Policy("credentials")',
                what,
                self.record.agent,
            )
        return cleaned_value

    def share(self, tool: str, recorded: Mapping[str, Any] | None, *, is_again: bool) -> Mapping[str, Any] | None:
        """Return the bounds for one of several tasks that a model response delegates at once: an equal share of the
        rest of the budget. Return None if the response delegates a single task, or if the turn has no budget.

        The rest of the budget is divided among the calls of the response. `recorded` is the recorded share of this
        call, and the calls beside it get the same. A task that failed and is run again gets a share of the current
        rest, because the bounds of its agent may have been raised for it.
        """
        share_key = (self.record.requests, is_again)
        count = self.call_counts[tool]
        # Tasks of one response share equally, so one recorded share is the share of all.
        if recorded is not None and not is_again:
            self._shares.setdefault(share_key, recorded)
            return recorded
        # A single task may use the whole rest, and its budget is limited by the budgets above it anyway.
        if self.budget is None or count == 1:
            return None
        # Computed once, at the first task, because the rest decreases as soon as that task spends something.
        if share_key not in self._shares:
            self._shares[share_key] = share_of(self.budget.remaining, count).to_dict()
        return self._shares[share_key]

    def admission(self, key: str, reserved: Reserved) -> Admission | None:
        """Return the function that admits each attempt at a model request by the budget of the turn. Return None if the
        turn has no budget. `reserved` is the maximum consumption of one attempt.
        """
        return None if self.budget is None else _Attempts(self.context, self.budget, key, reserved).admitted

    def key(self, name: str) -> str:
        """Return an operation key for a name that is unique in this turn. If the name was used before, a number is
        appended.
        """
        while True:
            number = self.number(name)
            key = name if number == 1 else f"{name}#{number}"
            # A name can end like a number, because it can contain the id of a call: `check-c1#2`.
            if key not in self._keys:
                self._keys.add(key)
                return key

    def number(self, name: str) -> int:
        """Count a use of a name in this turn, and return the number of its uses so far."""
        # A resumed turn runs the same code again, so the n-th use of a name gets the same number.
        self._counts[name] += 1
        return self._counts[name]


class _Attempts:
    """Attempts at one model request of a turn. The budget of the turn has to admit each of them, because a failed one
    may have been paid for (test_the_bounds_of_an_agent_end_attempts_that_are_paid).
    """

    def __init__(self, context: TurnContext, budget: TurnBudget, key: str, reserved: Reserved) -> None:
        self._context = context
        self._budget = budget
        self._key = key
        self._reserved = reserved
        self._counted = 0
        """Number of failed attempts whose consumption is counted."""
        self._counted_before_resumption = 0
        """Number of attempts whose failures before a resumption are counted."""

    @asynccontextmanager
    async def admitted(self, failures: int) -> AsyncIterator[None]:
        """Wait until the budget admits one attempt, and reserve its maximum consumption during the ``with`` block.
        `failures` is the number of failed attempts before it.
        """
        # A resumed turn does not make the failed attempts of earlier processes again, so they are counted here.
        for attempt in range(self._counted, failures):
            self._budget.count(failed_attempt(self._context.consumed_by_failure(self._key, attempt) or {}))
        self._counted = failures
        # The same holds for attempts that a resumption repeats, of which this may be one.
        for attempt in range(self._counted_before_resumption, failures + 1):
            self._budget.count(self._context.consumed_before_resumption(self._key, attempt))
        self._counted_before_resumption = failures + 1
        # An attempt that the log has was admitted when it was made.
        if not self._context.has_begun(self._key, failures):
            await self._budget.admit(self._context, self._reserved)
        with self._budget.holding(self._reserved):
            try:
                yield
            finally:
                self._budget.spend(self._context.consumed_by_failure(self._key, failures) or {})
                self._counted = failures + 1


@dataclass(slots=True)
class CallPlace:
    """Place of a tool call in the log: the turn, and the name of the call inside the turn."""

    turn: AgentTurn
    name: str
    """``<n>-<id>``: the number of the request that asked for the call, and the id that the model gave it.

    A call that its tool deferred until a person approves it is named ``<n>-<id>#2``.
    """
    rule: str = ""
    """Rule that allowed the call; empty if the mode of its tool allowed it."""
    sampled: Counter[str] | None = None
    """Consumption of the requests to models that an MCP server made during the call. None while the call has not been
    made in this process.
    """

    @property
    def key(self) -> str:
        """Operation key of the tool call within its turn."""
        return f"tool-{self.name}"

    @property
    def repeated_call(self) -> str | None:
        """Name of the first attempt of a tool call that is made again after an approval: the tool deferred the first
        attempt until a person approved it. None for any other call.
        """
        name, suffix, _ = self.name.partition(SECOND)
        return name if suffix else None

    @property
    def setting(self) -> Setting | None:
        """The approval rule that allowed the tool call, in the form in which it is recorded with the call. None if no
        rule was needed.
        """
        return Setting({"rule": self.rule}) if self.rule else None


def present() -> AgentTurn | None:
    """Return the agent turn that the current task belongs to. Return None outside of a turn, and in a thread that does
    not run the turn's event loop.

    A thread started by a tool inherits the context variable, but has another event loop or none.
    """
    turn = TURN.get()
    if turn is None:
        return None
    try:
        return turn if asyncio.get_running_loop() is turn.loop else None
    except RuntimeError:  # a thread without a loop
        return None


def consumed_by(response: Mapping[str, Any]) -> dict[str, int]:
    """Return the consumption of a recorded response as a dict with the keys of a budget: calls (always 1), tokens, and
    cost in nanodollars.
    """
    from divebook.agents.request_record import usage_of  # already loaded: only code that reads a log runs without it

    usage = usage_of(response)
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": usage.get("cost", 0)}


def failed_attempt(consumed: Mapping[str, int]) -> dict[str, int]:
    """Return the consumption of a failed attempt at a model request as a dict with the keys of a budget. `consumed` is
    its recorded usage, which is empty if nothing was paid.
    """
    tokens = consumed.get("input_tokens", 0) + consumed.get("output_tokens", 0)
    return {"calls": 1, "tokens": tokens, "cost": consumed.get("cost", 0)}


def count_spent(spent: Mapping[str, int]) -> None:
    """Add the consumption of a delegated task, which ended before this process resumed the turn, to the budget of the
    current turn. Do nothing without a budget.
    """
    turn = present()
    if turn is not None and turn.budget is not None:
        turn.budget.count(spent)


# --- dependency watch ------------------------------------------------------------------------------------------------
#
# Detection of changed dependencies: a warning about tools that change ``ctx.deps``.
#
# A change of ``ctx.deps`` is not recorded, so a resumed run does not have it. The comparison covers public attributes,
# collections, dataclasses and pydantic models in them. Other objects, such as clients and connections, have internal
# state that is meant to change.


MOST_VALUES = 1_000
MOST_DEPTH = 8
"""Limits of the comparison.

Larger or deeper objects are skipped: a scan may take long, and they may contain themselves.
"""


_SCALARS = str, bytes, int, float, complex, type(None)


@contextmanager
def watched(deps: Any, turn: AgentTurn, tool: str) -> Iterator[None]:
    """Log a warning if a tool call inside the ``with`` block changes the agent's dependencies ``ctx.deps``, because
    such changes are not recorded. Warn at most once per turn and tool.
    """
    # A copy is compared instead of the object, because tools change the object in place.
    old_state = None if tool in turn.changing else seen_in(deps)
    yield
    new_state = None if old_state is None else seen_in(deps)
    if new_state not in (None, old_state):
        turn.changing.add(tool)
        _log.warning(
            "tool %s of agent %s changed ctx.deps, which is not recorded: a run that is resumed has it as it was "
            "before the call; let the tool return what is to last",
            tool,
            turn.record.agent,
        )


class _TooMuchError(Exception):
    """Exception that stops copying an object that is too large or too deeply nested to be copied and compared."""


def seen_in(deps: Any) -> Any:
    """Return a copy of the public state of an agent's dependencies, to detect later changes. Return None if they are
    immutable, or cannot be copied within the limits of size and depth.
    """
    if isinstance(deps, _SCALARS):
        return None
    try:
        return _copy(deps, iter(range(MOST_VALUES)), MOST_DEPTH)
    except Exception:  # noqa: BLE001 - too large, or not readable now: the call must not fail because of this
        return None


def _copy(value: Any, budget: Iterator[int], depth: int) -> Any:
    # The iterator is a countdown: each value uses up one item.
    if next(budget, None) is None or depth == 0:
        raise _TooMuchError
    if isinstance(value, _SCALARS):
        # With the type, because `1 == 1.0 == True`.
        return type(value), value
    inside = _parts(value, is_whole=depth == MOST_DEPTH)
    return id(value) if inside is None else (type(value), [_copy(part, budget, depth - 1) for part in inside])


def _parts(value: Any, *, is_whole: bool) -> list[Any] | None:
    """Return the values inside a collection or object, for comparison. Return None for an object without visible
    fields, which is compared by identity.
    """
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    # Only the dependencies object itself is looked into whatever its class is. Inside it, only dataclasses and pydantic
    # models count as data.
    if not is_whole and not is_dataclass(value) and not hasattr(type(value), "model_fields"):
        return None
    # Dataclasses with slots have no `__dict__`.
    names = [*getattr(type(value), "__dataclass_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in dict.fromkeys(names) if not name.startswith("_")]


# --- resumption after the agent was changed ---------------------------------------------------------------------------

# Resumption of an agent's turn whose agent was changed in the meantime: comparison of the settings, and the choice to
# finish or to start again.
#
# The setting of a request (model, instructions, tools, output) is recorded next to the request and not compared on
# replay. A corrected model name or another model setting therefore does not affect a resumed turn. Other instructions,
# tools or outputs make the agent a different one: the model's recorded answers refer to the old definition. A person
# then sees the changes and chooses between two options (`tests/agents/test_changed.py`):
#
# - finish the turn with its original setting, which the log has;
# - start the turn again, under new operation keys.


INSTRUCTIONS = "instructions"
TOOLS = "tools"
OUTPUT = "output"
_TOOL = TypeAdapter(ToolDefinition)


@dataclass
class TurnCompatibility:
    """Comparison of the current setting of an agent (instructions, tools, output) with the setting that was recorded
    when the turn began.

    Parameters
    ----------
    can_replace_tools
        True if missing tools, or tools with other arguments, can be replaced, so that recorded calls remain valid.
    """

    context: TurnContext
    agent: str
    can_replace_tools: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    """Original setting of the turn, if it differs from the current one."""
    changes: Sequence[str] = ()
    can_finish: bool = True

    async def check(self, request: Described) -> None:
        """Compare the setting (instructions, tools, output) of the turn's first request with the recorded one. If they
        differ, store the differences in `changes`, and raise an error that stops the agent loop.

        Raises
        ------
        AgentError
            The setting differs. A hook of the agent may treat this as a failure of its model, so `changes` has it too.
        """
        # The first request records the whole setting, later ones only its changes, so only the first can be compared.
        if request.number > 1 or request.setting is None:
            return
        recorded_digest = self.context.recorded_digest(request.key)
        if recorded_digest is None or recorded_digest == request.setting.digest:
            return
        recorded_setting = opened((await self.context.recorded_start(request.key))[1])
        current_setting = opened(request.setting.told)
        self.before = recorded_setting
        self.changes = _setting_changes(recorded_setting, current_setting)
        # To finish with the original setting, each recorded call needs a tool that accepts its arguments, and the
        # output must be the same. Only the tools of a built agent can be replaced.
        schemas = _schemas_of(current_setting)
        has_all_tools = all(schemas.get(name) == schema for name, schema in _schemas_of(recorded_setting).items())
        has_same_output = recorded_setting.get(OUTPUT) == current_setting.get(OUTPUT)
        self.can_finish = has_same_output and (self.can_replace_tools or has_all_tools)
        # Digests may differ without a change that counts, for example if only the order of the tools is another one.
        if self.changes:
            raise AgentError(self.agent, request.number, "it is not what it was when the turn began")


Begin = Callable[
    [TurnContext, TurnCompatibility | None, Mapping[str, Any], Mapping[str, int]], Awaitable[dict[str, Any]]
]
"""Runs the loop at a place, either with a comparison of settings or with a setting to restore. The last argument is the
consumption of the turn at other places (calls, tokens, cost), which counts in its budget."""


async def run_or_ask(
    context: TurnContext, agent: str, begin: Begin, *, can_replace_tools: bool, has_budget: bool
) -> dict[str, Any]:
    """Run a turn and return its result. If the agent was changed after the turn began, ask a person whether to finish
    the turn with the agent's original setting or to start the turn again.

    The first attempt compares settings. After a change the answer of the person decides: FINISH runs the loop once more
    at the same place with the original setting; ANEW runs it below ``anew-1/``, where no request is recorded yet. The
    agent may change again while that turn waits, so the loop repeats with the next number.

    `has_budget` is True if the turn has a budget. What the turn consumed before the question is then recorded with it,
    because a later process cannot tell the requests before the question from those after it.
    """
    place = context
    consumed: Mapping[str, int] = {}
    number = 1
    # Keys of a turn that was started again after each of two changes: `model-1`, `changed-1`, `anew-1/model-1`,
    # `anew-1/changed-2`, `anew-2/model-1`.
    while True:
        key = f"changed-{number}"
        recorded_question = place.recorded_question(key)
        compatibility = TurnCompatibility(place, agent, can_replace_tools)
        # A recorded question means that an earlier process has found the change. Nothing is compared again then.
        if recorded_question is None:
            try:
                result = await begin(place, compatibility, {}, consumed)
            # A hook of the agent may have converted the error of `check`, so its `changes` decide.
            except Exception:
                if not compatibility.changes:
                    raise
            # A hook may also have made an answer of the error, which must not end the turn.
            else:
                if not compatibility.changes:
                    return result
        answer = await _ask(place, key, compatibility, recorded_question, has_budget=has_budget)
        if (answer.response or {}).get("choice") == FINISH:
            # The setting of the first request is the original one.
            return await begin(place, None, opened((await place.recorded_start("model-1"))[1]), consumed)
        # A turn that starts again has paid for its earlier requests. Earlier versions did not record this.
        consumed = (answer.data or {}).get(SPENT, {})
        # Always below the place of the turn, not below the previous attempt: `anew-2/model-1`.
        place = context.below(f"anew-{number}")
        number = number + 1
        place.response_source = context.response_source  # the new place belongs to the same agent


async def _ask(
    place: TurnContext,
    key: str,
    compatibility: TurnCompatibility,
    recorded_question: Question | None,
    *,
    has_budget: bool,
) -> Question:
    """Ask a person how to continue a turn whose agent was changed; return the question with the answer. If the log has
    the question already, its recorded wording is used again.
    """
    if recorded_question is not None:
        return await place.question(AGENT_CHANGED, recorded_question.question, key=key, data=recorded_question.data)
    what = "; ".join(compatibility.changes)
    choices = [FINISH, ANEW] if compatibility.can_finish else [ANEW]
    finish = f"{FINISH} to go on with what it began with, or " if compatibility.can_finish else ""
    text = (
        f"Agent {compatibility.agent} is not what it was when this turn began ({what}). Answer {finish}{ANEW} to begin "
        "the turn again: its calls of tools are then made again as well"
    )
    data: dict[str, Any] = {"agent": compatibility.agent, "changes": list(compatibility.changes), "choices": choices}
    if has_budget:
        data[SPENT] = {name: amount for name, amount in place.consumed().items() if amount}
    return await place.question(AGENT_CHANGED, text, key=key, data=data)


def _setting_changes(old_setting: Mapping[str, Any], new_setting: Mapping[str, Any]) -> list[str]:
    """Return the differences between two settings of an agent (instructions, tools, output), as texts for people."""
    old_tools = _tools_of(old_setting)
    new_tools = _tools_of(new_setting)
    common_tools = [name for name in old_tools if name in new_tools]
    changes: list[str] = []
    if old_setting.get(INSTRUCTIONS) != new_setting.get(INSTRUCTIONS):
        changes.append(f"{INSTRUCTIONS} differ")
    changes += [f"tool {name} is gone" for name in old_tools if name not in new_tools]
    changes += [f"tool {name} is new" for name in new_tools if name not in old_tools]
    changes += [f"tool {name} is described otherwise" for name in common_tools if old_tools[name] != new_tools[name]]
    if old_setting.get(OUTPUT) != new_setting.get(OUTPUT):
        changes.append(f"{OUTPUT} differs")
    return changes


def _tools_of(setting: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {tool["name"]: tool for tool in setting.get(TOOLS) or ()}


def _schemas_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schemas of the arguments of each tool in an agent's setting, by tool name."""
    return {name: tool["parameters_json_schema"] for name, tool in _tools_of(setting).items()}


class OriginalTurn(AbstractCapability[Any]):
    """Capability for a turn whose agent was changed after the turn had begun. It sends the requests of the turn with
    the original instructions and tools.

    Parameters
    ----------
    setting
        Setting of the first request.
    """

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self._tools_of = [_TOOL.validate_python(tool) for tool in _tools_of(setting).values()]
        self._instructions = setting.get(INSTRUCTIONS)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the current instructions and tools in a request with the original ones."""
        del ctx
        instructions = [] if self._instructions is None else [InstructionPart(content=self._instructions)]
        parameters = replace(
            request_context.model_request_parameters, function_tools=self._tools_of, instruction_parts=instructions
        )
        return replace(request_context, model_request_parameters=parameters)


def accept_original_calls(tool: Tool[Any], setting: Mapping[str, Any]) -> Tool[Any]:
    """Return a tool that also accepts the arguments that were valid when the turn began, so that recorded calls can be
    replayed. A tool whose parameters have not changed is returned unchanged.

    Recorded calls are not validated against the current form. New calls must be valid in it.
    """
    original_schema = _schemas_of(setting).get(tool.name)
    # A new tool has no original form.
    if original_schema in (None, tool.tool_def.parameters_json_schema):
        return tool

    async def call_current_tool(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        # Reached for new calls only: a recorded call returns its result before the tool is called.
        try:
            valid_arguments = tool.function_schema.validator.validate_python(arguments)
        except ValidationError as error:
            raise ToolFailed(f"{tool.name} takes other arguments by now: {error}") from error
        return await tool.function_schema.call(valid_arguments, ctx)

    replacement = Tool.from_schema(
        call_current_tool, tool.name, tool.description, dict(original_schema), takes_ctx=True
    )
    replacement.metadata = tool.metadata
    return replacement


def placeholders(setting: Mapping[str, Any], current_tools: Mapping[str, Any]) -> list[Tool[Any]]:
    """Return a substitute for each tool that the agent had when the turn began and that no longer exists. Recorded
    results of the tool can then be replayed; a new call of a substitute fails.
    """
    tools: list[Tool[Any]] = []
    for name, tool in _tools_of(setting).items():
        if name not in current_tools:
            schema = tool["parameters_json_schema"]
            tools.append(Tool.from_schema(_failing_function(name), name, tool.get("description"), schema))
    return tools


def _failing_function(name: str) -> Callable[..., Any]:
    async def fail(**_arguments: Any) -> None:
        raise ToolFailed(f"{name} is not there any more")

    return fail
