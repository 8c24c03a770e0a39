"""Durability backend for pydantic-ai: each model request and each tool call of an agent becomes a recorded operation.

`DivebookDurability` is a capability of an agent, added when the agent is built or for one run. Outside a turn of a
workflow, the capability has no effect. divebook chooses the operation names in the log (`tests/agents/test_pinned.py`):
the names of pydantic-ai contain toolset ids and model names, which people change.

A turn is resumed by running pydantic-ai's loop again from its beginning. Every operation has a key, and the log answers
the keys that it has. Example: an agent looks up a price and answers. Its log has three operations, all inside the
operation of the turn:

1. ``model-1``: the response of the first request, a call of ``price`` with id ``c1``;
2. ``tool-1-c1``: the result of that call; the key consists of the request that asked for the call, and its id;
3. ``model-2``: the response of the second request, the answer.

If the process dies between 2 and 3, the next process runs the loop again. ``model-1`` and ``tool-1-c1`` return their
recorded results without a call, then ``model-2`` is sent to the model. An operation that began and has no result is
treated like any other operation of its kind: a model request is repeated; a tool call is repeated if the tool is
idempotent, otherwise a person is asked whether the call took effect.

A request is recorded before it is sent (parameters, and the setting if it has changed) and again when its response is
complete. A failed attempt is recorded as well, with its consumption. A request takes these steps: describe the request
for the log; compare the first request with the definition that the turn began with
(`divebook.agents.running_turn`); look for the response in the log, in a cache or in a recorded run; wait until
the budget admits the request; wait for a slot of the model's request limiter; record the start; send the request.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import pydantic_ai
from pydantic import ValidationError
from pydantic_ai._function_schema import FunctionSchema
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetCallToolParams,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    durable_unit_scope,
    record_durable_unit,
    replay_scope,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import (
    KnownModelName,
    Model,
    ModelRequestContext,
    ModelRequestParameters,
    ModelResolutionContext,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, ToolsetTool, WrapperToolset
from pydantic_ai.toolsets.function import FunctionToolsetTool

from divebook.agents.clients import CLIENTS
from divebook.agents.models import tokens_of_definitions
from divebook.agents.request_record import (
    Described,
    RequestRecord,
    RequestToSend,
    as_raised,
    concise,
    plain_json,
    response_of,
    with_cleaned_text,
    with_recorded_limits,
    with_values,
)
from divebook.agents.requests import RequestRule, complete_response, record_request, stream_response
from divebook.agents.running_turn import (
    CALL,
    INSIDE,
    TURN,
    WRITE,
    AgentTurn,
    CallPlace,
    count_spent,
    present,
    state_of,
    warn_of_change,
)
from divebook.agents.server_tools import InputRequired, answer_questions
from divebook.agents.signatures import ToolNames, is_readable, plain_result, shortened
from divebook.agents.turn import SPENT, side_by_side
from divebook.definitions.resources import IF_DESTRUCTIVE
from divebook.definitions.tools import MOST
from divebook.documents.policy import Policy
from divebook.engine.approvals import Denied, ToolCall, embedded, is_same
from divebook.engine.operations import AGENT_RESPONSE, AGENT_STEP, CACHED_RESPONSE, TOOL_CALL, TOOL_DISCOVERY, Write
from divebook.errors import OperationError, SetupError, TimedOutError, UnstorableValueError
from divebook.events.recorded import opened
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION
from divebook.questions.wording import result_of_tool
from divebook.text.redaction import logger, shared

_NOTHING = nullcontext()
USUAL = {"kind": "tool_return"}
"""Field that nearly every result of a call has. The log leaves it out."""


_log = logger(__name__)


ENGINE = "divebook"
"""Name of the engine, and key of its tool metadata."""


class DivebookDurability(BaseDurabilityCapability[Any]):
    """Capability of pydantic-ai that records the model requests and tool calls of an agent as operations while a
    workflow step runs the agent.

    Parameters
    ----------
    name
        Name of the agent; None for the name of the pydantic-ai agent.
    models
        Models that a request may name by id, in addition to the model of the agent.
    rules
        Rules for the requests, applied in this order.
    is_alone
        True if the agent has no other capability, so that nothing changes the model of a request or edits its tools in
        place.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        models: Mapping[str, Model] | None = None,
        rules: Sequence[RequestRule] = (),
        is_alone: bool = False,
    ) -> None:
        super().__init__(name=name, models=models)
        self._rules = rules
        self._is_alone = is_alone
        self._model_operations: Any = None
        self._guards: Any = None

    engine_spec = DurabilityEngineSpec(
        engine_name=ENGINE,
        durable_unit_noun="operation",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),  # they would run unrecorded
        # A server is connected at its first recorded call, so that a replay, which makes none, starts no server.
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key=ENGINE,
    )

    @property
    def in_durable_context(self) -> bool:
        """True if the agent currently runs inside a recorded turn."""
        return present() is not None

    def get_durable_operation_backend(self) -> Backend:
        """Return the backend through which pydantic-ai runs its operations."""
        return Backend()

    def _bind_model_operations(self, backend: DurableOperationBackend[Any], **names: Any) -> Any:
        """Return the operations with which requests are made. pydantic-ai asks for them at each request, because an
        engine may name them by the model. Those of divebook have one name for all models, so they are made once
        (test_the_operations_of_requests_are_bound_once).
        """
        if self._model_operations is None:
            self._model_operations = super()._bind_model_operations(backend, **names)
        return self._model_operations

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a wrapper of the model that streams responses, if some view shows the text while it arrives. Otherwise
        return None. The recorded operation is the same in both cases.
        """
        return None if WRITE.get() is None else StreamedModel(model)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Wrap a toolset of the agent in `GuardedToolset`, which asks for approvals and applies the limits of calls."""
        return GuardedToolset(super().get_wrapper_toolset(toolset) or toolset)

    def _wrap_leaf_toolset(self, ts: AbstractToolset[Any]) -> WrapperToolset[Any] | None:
        """Return pydantic-ai's recording wrapper of a toolset. Raise `UserError` for a toolset without such a wrapper,
        because a replay would make its calls again. Toolsets of external tools, whose results people supply, are
        allowed.
        """
        wrapper = super()._wrap_leaf_toolset(ts)
        if wrapper is None and not isinstance(ts, ExternalToolset):  # people supply the results of external tools
            raise UserError(
                f"the calls of toolset {ts.id!r} would not be recorded, because {type(ts).__name__} is not a known "
                "pydantic-ai toolset class; put its tools into a FunctionToolset with an id"
            )
        return wrapper

    async def resolve_model_id(
        self, ctx: ModelResolutionContext[Any], *, model_id: KnownModelName | str
    ) -> Model | None:
        """Return the model with a name, which a capability of the agent has in place of a model object. The model is
        registered, so that its requests are recorded under its name. Outside of a turn, return None for an unknown
        name.
        """
        model = await super().resolve_model_id(ctx, model_id=model_id)
        turn = present()
        if model is None and turn is not None:
            model = await CLIENTS.model(model_id, None, turn.policy)
            # pydantic-ai refuses models that are not registered, and has no method that registers one during a run.
            self._models_by_id[model_id] = turn.fallbacks[model_id] = model
        return model

    # --- operations ------------------------------------------------------------------------------------------------
    # pydantic-ai's parts for engines whose operations run in other processes, where those of divebook do not.

    def _durable_run_context(self, ctx: RunContext[Any]) -> RunContext[Any]:
        """Return a copy of a run context for code inside an operation, which may neither add messages to the run nor
        cancel it. The objects that refuse this have no state, and are made once.
        """
        if self._guards is None or type(ctx) is not RunContext:
            guarded = super()._durable_run_context(ctx)
            self._guards = guarded.pending_messages, guarded._cancellation  # noqa: SLF001 - no public names
            return guarded
        guarded = copy.copy(ctx)
        guarded.pending_messages, guarded._cancellation = self._guards  # noqa: SLF001
        return guarded

    def _tool_run_context_scope(self, ctx: RunContext[Any]) -> AbstractContextManager[RunContext[Any]]:  # type: ignore[override]
        """Return the context manager in which a tool is called, without the one that pydantic-ai has around it for
        engines that change it.
        """
        return self._durable_run_context_scope(ctx)

    def _tool_call_payload_errors(self, tool_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Return a context manager that does nothing: errors of recorded calls have the right class already."""
        del tool_name
        return _NOTHING

    def _request_policy_scope(self, ctx: RunContext[Any]) -> AbstractContextManager[None]:  # type: ignore[override]
        """Return a context manager that does nothing: the policy of the telemetry is a context variable, which requests
        see that are sent in the context of their run.
        """
        del ctx
        return _NOTHING

    # --- requests --------------------------------------------------------------------------------------------------

    @property
    def _has_prepare_model_request(self) -> bool:
        """True if `prepare_model_request` may change a request. If so, pydantic-ai copies the schemas of all tools for
        each request (test_a_request_of_an_agent_without_capabilities_does_not_copy_its_tools).
        """
        return not self._is_alone

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Check the final request as pydantic-ai does, then apply the rules of the turn to it."""
        request_context = await super().before_model_request(ctx, request_context)
        for rule in self._rules:
            request_context = rule.before_request(ctx.run_step, request_context)
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Check a response by the rules of the turn."""
        for rule in self._rules:
            rule.after_request(ctx.run_step, request_context, response)
        return response

    def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Return the events of a run unchanged: views get the text of responses while they arrive."""
        del ctx
        return stream

    # --- values that must not differ on replay ---------------------------------------------------------------------

    def get_default_run_id(self) -> str | None:
        """Return an id for pydantic-ai's run that stays the same when the turn is replayed or resumed. Return None
        outside of a turn.
        """
        turn = present()
        return None if turn is None else turn.key(turn.context.run_id)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return a conversation id that is derived from the run id, so that it stays the same when the turn is
        replayed. Return None outside of a turn.
        """
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return the start time of the execution from the log, so that a replay gets the same time. Return None outside
        of a turn.
        """
        del run_id
        turn = present()
        return None if turn is None else turn.context.started_at

    # --- the run ---------------------------------------------------------------------------------------------------

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent inside its recorded turn. Requests and calls that are answered from the log produce no
        telemetry. Outside of a turn, run the agent without recording.
        """
        turn = present()
        if turn is None:
            self._warn_unrecorded()
            return await handler()
        # Set for this run only: a tool may run another agent, whose requests need keys of their own.
        token = TURN.set(self._turn_of_run(turn, ctx))
        try:
            with replay_scope():
                return await super().wrap_run(ctx, handler=handler)
        finally:
            TURN.reset(token)

    def _turn_of_run(self, turn: AgentTurn, ctx: RunContext[Any]) -> AgentTurn:
        """Return the turn that records this run of the agent. For the agent of the step it is the current turn. For an
        agent that a tool runs, it is a new turn with operation keys that begin with the key of the tool call.
        """
        # The first run inside a turn is the run of the turn itself. Later runs are started inside it, mostly by tools.
        if not turn.has_started:
            turn.has_started = True
            return turn
        context = turn.context.below(_key_of_run(turn, self.name or ""))
        # The bounds of the turn hold for all requests inside it.
        return AgentTurn(
            context,
            RequestRecord(self.name),
            ctx.model.model_id,
            turn.retry,
            turn.seconds,
            budget=turn.budget,
            has_started=True,
        )

    def _warn_unrecorded(self) -> None:
        call = INSIDE.get()
        if call is not None:
            _log.warning(
                "agent %s runs inside the call of %s, which is recorded as a single operation. The agent's requests "
                "are not recorded or counted separately, and the agent cannot ask a person. To record them, define the "
                "tool with metadata={'%s': False}",
                self.name,
                call,
                ENGINE,
            )

    # --- people ----------------------------------------------------------------------------------------------------

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask people about the tool calls that pydantic-ai deferred because they need an approval or a result from
        outside. All questions are asked before the first answer is awaited.
        """
        del ctx
        turn = present()
        return None if turn is None else await deferred(turn, requests)


def _key_of_run(turn: AgentTurn, agent: str) -> str:
    """Return the key below which the operations of an agent are recorded that runs inside a turn."""
    call = CALL.get()
    # A run outside of a tool call, for example in a hook, is numbered by the name of its agent.
    if call is None:
        return turn.key(f"run-of-{agent}")
    # The first run inside a call has the key of the call: `tool-1-c1/model-1`. The second one is `tool-1-c1/run-2`.
    number = turn.number(f"run-in-{call.key}")
    return call.key if number == 1 else f"{call.key}/run-{number}"


class Backend(DurableOperationBackend[Mapping[str, Any]]):
    """Backend that pydantic-ai asks to run its operations. It selects the class that records each type of operation:
    model request, tool call or other.
    """

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        """Return the object that runs and records an operation of pydantic-ai: `BoundRequest` for a model request,
        `BoundCall` for a tool call, `BoundStep` for any other.
        """
        match operation.operation_id:
            case ModelRequestId():
                return BoundRequest(operation)
            case ToolsetCallToolId():
                return BoundCall(operation)
        return BoundStep(operation)

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: object | None, tool_name: str
    ) -> Mapping[str, Any] | Literal[False]:
        """Return the divebook options in a tool's metadata; an empty mapping if it has none. Return False if the tool
        call itself must not be recorded, because the requests and calls inside it are recorded instead.
        """
        del operation, tool_name
        metadata = (tool.tool_def.metadata or {}) if isinstance(tool, ToolsetTool) else {}
        # {"divebook": False}: not recorded. {"divebook": {"idempotent": True}}: repeated if its outcome is unknown.
        config = metadata.get(ENGINE)
        if config is False:
            return False
        return config if isinstance(config, Mapping) else {}

    def registrations(self) -> Sequence[Callable[..., object]]:
        """Return an empty list: pydantic-ai need not register divebook's operations anywhere before they run."""
        return ()


# --- operations -----------------------------------------------------------------------------------------------------
# The kinds of pydantic-ai's durable operations: model requests, tool calls, and all others.


class _BoundOperation(BoundDurableOperation[Any, Any, Any]):
    """Base class for callables through which pydantic-ai runs the operations of an agent's turn. Each operation is
    recorded under a key within the turn, and runs only once.
    """

    _sets_scope: ClassVar[bool] = False

    def __init__(self, operation: DurableOperation[Any, Any, Any]) -> None:
        self._operation = operation

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        """The model request, tool call or other operation of pydantic-ai that this object runs and records."""
        return self._operation

    async def _run_operation(self, params: Any, name: str) -> Any:
        """Run an operation of pydantic-ai, such as a model request or a tool call, and return its result. If it runs an
        agent, the requests of that agent are not recorded, because they are part of this operation, and it cannot ask a
        person.
        """
        # Without a turn, an agent that runs inside is not recorded: its work is part of this operation's result.
        tokens = TURN.set(None), INSIDE.set(name)
        try:
            # Requests set the scope themselves.
            with _NOTHING if self._sets_scope else durable_unit_scope():
                return await self._operation.handler(params)
        finally:
            TURN.reset(tokens[0])
            INSIDE.reset(tokens[1])


class BoundRequest(_BoundOperation):
    """Callable through which pydantic-ai makes a model request, so that the request becomes a recorded operation.
    `Backend.bind` creates it.
    """

    _sets_scope = True

    async def __call__(self, params: ModelRequestParams, *, config: object | None = None) -> ModelResponse:
        """Return the recorded response to a model request; if the log has none, send the request."""
        del config
        turn = _current_turn()
        # False if the response comes from the log, from a cache or from a recorded run.
        executed = False
        turn.latest_parameters = params.model_request_parameters
        model_name = params.model_id or turn.model
        request = turn.record.describe(
            params.messages, params.model_settings, params.model_request_parameters, model_name
        )
        # Before anything is recorded or sent, because a changed agent must not add to the turn.
        if turn.compatibility is not None:
            await turn.compatibility.check(request)
        recorded_type = turn.context.recorded_type(request.key)
        if recorded_type is not None:
            recorded_parameters, _ = await turn.context.recorded_start(request.key)
            request = request._replace(parameters=with_recorded_limits(request.parameters, recorded_parameters))
        # A setting is present only if it has changed. Only then are its definitions counted again, which is slow.
        if request.setting is not None:
            turn.definitions = tokens_of_definitions(params.model_request_parameters)

        model = _model_of(turn, params)

        async def call() -> dict[str, Any]:
            nonlocal executed
            executed = True
            response = self._answer(_with_values(params, turn.policy), request)
            plain = await complete_response(response, model, turn.record.agent, turn.seconds, name=model_name)
            return concise(with_cleaned_text(plain, partial(turn.without_credentials, what="a response of the model")))

        sent = RequestToSend(request.number, model_name, model, params)
        has_other_source = turn.context.response_source is not None or recorded_type is not None
        payload = await _from_other_source(turn, request, sent) if has_other_source else None
        if payload is None:
            payload = await _request_model(turn, request, params, call)
            # Only a new response is stored: a replay must not renew the age of an old one.
            if executed and turn.context.response_source is not None:
                await turn.context.response_source.keep(sent, payload)
        record_durable_unit(executed=executed)
        return _add_response(turn, request, payload)

    async def _answer(self, params: ModelRequestParams, request: Described) -> ModelResponse:
        """Send a request with tool names that the provider accepts in place of the real ones. Return the response with
        the real tool names.
        """
        names = ToolNames.of(params.model_request_parameters, request.called_tools)
        if names is None:
            response: ModelResponse = await self._run_operation(params, request.key)
            return response
        # The names of streamed parts contain the name of their tool, which is restored on the way to the listener.
        write = WRITE.get()
        token = WRITE.set(None if write is None else names.written(write))
        try:
            return names.answered(await self._run_operation(names.sent(params), request.key))
        finally:
            WRITE.reset(token)


def _model_of(turn: AgentTurn, params: ModelRequestParams) -> Model[Any]:
    """Return the model that a request is sent to. Its price and its request limiter apply to the request."""
    # The run context has the model of the agent, also for a request to one of its fallbacks.
    fallback = None if params.model_id is None else turn.fallbacks.get(params.model_id)
    model: Model[Any] = params.run_context.model  # type: ignore[assignment]  # never one for real-time sessions
    return model if fallback is None else fallback


_Call: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""Makes a request and returns the response in its recorded form."""


async def _request_model(
    turn: AgentTurn, request: Described, params: ModelRequestParams, call: _Call
) -> dict[str, Any]:
    """Send a model request as an operation, when the turn's budget has room for it. Return the response in recorded
    form.
    """

    async def streamed(write: Write) -> dict[str, Any]:
        token = WRITE.set(write)
        try:
            return await call()
        finally:
            WRITE.reset(token)

    try:
        with turn.context.calling():
            recorded = await record_request(
                partial(turn.request, key=request.key, retry=turn.retry, setting=request.setting),
                request.parameters,
                _model_of(turn, params),
                call,
                streamed=streamed,
                tokens=request.tokens + turn.definitions,
                settings=params.model_settings,
            )
    except OperationError as error:
        raised = as_raised(error)
        if raised is error:  # an error must not become its own cause
            raise
        raise raised from error
    payload: dict[str, Any] = opened(recorded)
    return payload


async def _from_other_source(turn: AgentTurn, request: Described, sent: RequestToSend) -> dict[str, Any] | None:
    """Return the response to a request from the response cache or from a recorded run, at no cost. Return None if
    neither has it, so that the model must be asked.

    The log is always consulted first. A process may die after it has found a response and before the response is
    recorded. If the source no longer has the response then, the model is asked like for any other request.
    """
    source = turn.context.response_source
    # A request that was sent to the model is repeated there, because another run may have filled the cache since.
    if turn.context.recorded_type(request.key) == AGENT_RESPONSE:
        return None
    cached: Mapping[str, Any] | None = None
    # Looked up before the operation begins: an operation of this type is neither admitted by a budget nor limited
    # (test_a_cached_response_that_is_gone_after_a_crash_is_asked_for_within_the_budget).
    if not turn.context.has_ended(request.key):
        cached = None if source is None else await source.find(sent)
        if cached is None:
            return None

    async def respond() -> Mapping[str, Any] | None:
        return cached

    # The response counts as a running call while it is recorded.
    with turn.context.calling():
        recorded = await turn.context.operation(
            CACHED_RESPONSE, request.parameters, respond, key=request.key, setting=request.setting, repeatable=True
        )
    # The request may have failed before it was answered without the model.
    if turn.budget is not None:
        turn.budget.count(turn.context.consumed_before_resumption(request.key, 0))
    payload: dict[str, Any] = opened(recorded)
    return payload


def _add_response(turn: AgentTurn, request: Described, payload: Mapping[str, Any]) -> ModelResponse:
    response = response_of(payload)
    response.timestamp = turn.context.began_at(request.key)  # the same on every run of the turn
    turn.record.answered(request.number, response)
    # Basis for the shares of delegated tasks (`AgentTurn.share`) and for the list of unknown tools.
    turn.call_counts = Counter(call.tool_name for call in response.tool_calls)
    return response


class BoundCall(_BoundOperation):
    """Callable through which pydantic-ai makes a tool call, so that the call becomes a recorded operation.
    `Backend.bind` creates it.
    """

    async def __call__(self, params: ToolsetCallToolParams, *, config: object | None = None) -> Any:
        """Return the recorded result of a tool call; if the log has none, make the call."""
        place = CALL.get()
        assert place is not None  # noqa: S101 - the guard around all tools has set it
        executed = False

        async def call() -> Any:
            nonlocal executed
            executed = True
            state = state_of(params.ctx.deps, place.turn, params.name)
            payload = await self._make_call(place, params)
            if state is not None:
                warn_of_change(params.ctx.deps, state, place.turn, params.name)
            return payload

        try:
            payload = await _recorded_call(place, params, call, config)
        except UnstorableValueError as error:  # of the arguments, which the model can correct, or of the result
            # The recorder wraps the error of a result as an `OperationError`. The error of arguments comes before the
            # call.
            has_run = isinstance(error, OperationError)
            subject = (
                f"{params.name} was called, and says what" if has_run else f"{params.name} was not called with what"
            )
            raise ToolFailed(f"{subject} the log cannot hold: {error}") from error
        record_durable_unit(executed=executed)
        place.turn.record.called(params.ctx.tool_call_id or params.name, params.name, payload)
        # `_make_call` has left out the usual fields.
        return self._operation.result_codec.load({**USUAL, **payload})

    async def _make_call(self, place: CallPlace, params: ToolsetCallToolParams) -> Any:
        turn = place.turn
        if place.sampled is None:  # otherwise an earlier attempt at the call has failed
            place.sampled = Counter()
        try:
            # The function of a tool of divebook returns readable results (`divebook.agents.agent_loop`).
            with_readable = params if params.name in turn.tools else _with_readable_result(params)
            outcome = await self._run_operation(with_readable, f"tool {params.name}")
            if hasattr(outcome, "result"):  # without a result it is a message to the model
                outcome.result = plain_result(outcome.result)
            payload = self._operation.result_codec.dump(outcome)
            state = {}
        # The questions of a server are the recorded result. `answer_questions` repeats the call with the answers.
        except InputRequired as input_required:
            payload = input_required.payload
            state = input_required.state
        # The state belongs to the server, which must get it back unchanged. It is not redacted.
        cleaned: Mapping[str, Any] = {
            **turn.without_credentials(payload, f"the result of tool {params.name}"),
            **state,
            **({SPENT: dict(place.sampled)} if turn.budget is not None and place.sampled else {}),
        }
        return {name: value for name, value in cleaned.items() if name not in USUAL or USUAL[name] != value}


def _with_readable_result(params: ToolsetCallToolParams) -> ToolsetCallToolParams:
    """Wrap the tool's function in the parameters of a tool call, so that pydantic-ai can inspect every result: a result
    that raises an error on inspection is converted to plain data. Return the new parameters.

    The function has already been called then. Such an error would fail a call that took effect.
    """
    tool = getattr(params, "tool", None)  # a dynamic toolset looks its tool up at the call
    if not isinstance(tool, FunctionToolsetTool):
        return params
    function = tool.call_func

    async def call(arguments: dict[str, Any], ctx: Any) -> Any:
        result = await function(arguments, ctx)
        return result if is_readable(result) else plain_result(result)

    return replace(params, tool=replace(tool, call_func=call))


async def _recorded_call(
    place: CallPlace, params: ToolsetCallToolParams, call: Callable[[], Awaitable[Any]], config: object | None
) -> Any:
    """Run a tool call as an operation and return its result, recorded or new. If an MCP server replies with questions,
    repeat the call with the answers, and return the result of the last call.
    """
    turn = place.turn
    setting = place.setting
    function = turn.tools.get(params.name)
    tool = params.name if function is None else function.own_name
    parameters = {"agent": turn.record.agent, "tool": tool, "arguments": plain_json(params.tool_args)}
    if turn.keeps_original and turn.context.recorded_type(place.key) is not None:
        # The tool may have changed since: the recorded arguments have the form that it accepted then.
        recorded_parameters, _ = await turn.context.recorded_start(place.key)
        parameters["arguments"] = recorded_parameters["arguments"]
    # A tool of a supplied toolset has no divebook function. Only its metadata can make it idempotent.
    if function is None:
        repeatable = bool(isinstance(config, Mapping) and config.get("idempotent"))
        operation = turn.context.operation(
            TOOL_CALL, parameters, call, key=place.key, setting=setting, repeatable=repeatable, done=returned
        )
        return opened(await operation)
    if function.server:
        parameters["server"] = function.server

    async def function_call(key: str, more: Mapping[str, Any]) -> Any:
        all_parameters = {**parameters, **more}
        operation = turn.context.call(
            function, params.tool_args, all_parameters, call, key=key, setting=setting, done=returned
        )
        place.sampled = None
        try:
            payload: dict[str, Any] = opened(await operation)
        except OperationError as error:
            # The model gets a timeout as an error message, so that the turn continues. A call that may have taken
            # effect is resolved with a person before its error gets here. The recorded error has the names of its
            # classes, not the classes themselves.
            if function.timeout is None or TimedOutError.__name__ not in (error.error_names or ()):
                raise
            raise ToolFailed(f"{function.name} took more than {function.timeout:g} seconds") from error
        # A server may have asked models during the call. If the call is in the log, these requests are not made again.
        spent = payload.pop(SPENT, {})
        if place.sampled is None:
            count_spent(spent)
        return payload

    return await answer_questions(place, function, await function_call(place.key, {}), function_call)


def returned(value: Any) -> dict[str, Any]:
    """Return a dict with a tool result that a person has supplied. Recorded tool results have this form."""
    return {"result": value}


class BoundStep(_BoundOperation):
    """Callable through which pydantic-ai runs an operation other than a model request or tool call, so that it is
    recorded: for example listing a server's tools, or the work of a capability.
    """

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        """Return the recorded result of an operation; if the log has none, run the operation."""
        del config
        turn = _current_turn()
        kind, name, parameters = self._described(params)
        key = turn.key(name)

        async def call() -> Any:
            return shared().without_named(self._operation.result_codec.dump(await self._run_operation(params, name)))

        with turn.context.calling():
            # Listing tools or instructions changes nothing at a server, so it may be repeated.
            recorded = await turn.context.operation(kind, parameters, call, key=key, repeatable=kind == TOOL_DISCOVERY)
        return self._operation.result_codec.load(opened(recorded))

    def _described(self, params: Any) -> tuple[str, str, dict[str, Any]]:
        """Return the type, name and parameters with which this operation is recorded. For an unknown class of
        operations, the name of the class is recorded.
        """
        match self._operation.operation_id:
            case ToolsetGetToolsId(toolset_id=toolset) | ToolsetGetInstructionsId(toolset_id=toolset) as discovery:
                subject = "tools" if isinstance(discovery, ToolsetGetToolsId) else "instructions"
                return TOOL_DISCOVERY, f"{subject}-{toolset}", {"server": toolset}
            case ToolsetValidateToolArgumentsId():
                parameters = {"tool": params.name, "arguments": plain_json(params.tool_args)}
                return AGENT_STEP, f"check-{params.ctx.tool_call_id}", parameters
            case CapabilityOperationId(capability_id=capability, operation=operation):
                call = getattr(params, "call", None)  # a workspace call: method and arguments
                arguments = getattr(params, "arguments", None) if call is None else _without_content(call)
                parameters = {"arguments": plain_json(arguments)}
                return AGENT_STEP, f"{capability}.{operation}", {"operation": f"{capability}.{operation}", **parameters}
            case ModelCompactMessagesId():
                return AGENT_STEP, "compact", {"operation": "compact"}
            case operation_id:
                return AGENT_STEP, type(operation_id).__name__, {"operation": type(operation_id).__name__}


def _without_content(call: Any) -> dict[str, Any]:
    """Return the arguments of an operation on a workspace, to be recorded. The content of a file is replaced by its
    hash.
    """
    # Empty options are left out. A hash is enough to notice another content on replay, and keeps the log small.
    arguments = {name: value for name, value in vars(call).items() if value}
    return arguments | ({"data": hashlib.sha256(call.data).hexdigest()} if call.data else {})


class StreamedModel(WrapperModel):
    """Model wrapper that passes the text of a response to the function in the context variable `WRITE` while the text
    arrives.
    """

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a streamed request and pass the text of the response to the function in `WRITE`. Return the complete
        response.
        """
        write = WRITE.get()
        assert write is not None  # noqa: S101 - only a streamed request uses this wrapper
        return await stream_response(self.wrapped, messages, model_settings, model_request_parameters, write)


def _with_values(params: ModelRequestParams, policy: Policy) -> ModelRequestParams:
    """Return a copy of a model request whose settings contain the values of secrets in place of references such as
    ``env://KEY``.
    """
    return ModelRequestParams(
        params.model_id,
        messages=params.messages,
        model_settings=with_values(params.model_settings, policy),
        model_request_parameters=params.model_request_parameters,
        run_context=params.run_context,
    )


def _current_turn() -> AgentTurn:
    turn = present()
    assert turn is not None  # noqa: S101 - callers check `in_durable_context`
    return turn


# --- guard around tools ---------------------------------------------------------------------------------------------
# Each call is counted as running and approved before it is made. Its result is shortened for the model.


MODEL_MESSAGES = ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ValidationError
"""Errors with which a tool sends a message to the model. They do not end concurrent calls."""


_ToolCall: TypeAlias = tuple[str, dict[str, Any], RunContext[Any], ToolsetTool[Any]]


@dataclass
class GuardedToolset(WrapperToolset[Any]):
    """Wrapper for all tools of an agent. Before each call it checks the maximum number of calls and asks for approval
    if necessary. After the call it shortens the result for the model.
    """

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Make a tool call and return its result. The call counts as running until it has ended, so that the engine
        does not suspend the step meanwhile.
        """
        turn = present()
        if turn is None:
            return await super().call_tool(name, tool_args, ctx, tool)
        place = turn.call(ctx.tool_call_id or name)
        token = CALL.set(place)
        try:
            with turn.context.calling():
                if turn.call_counts.total() > 1:
                    await asyncio.sleep(0)  # lets all calls of one response be counted before one of them can wait
                return await self._run_operation(turn, place, (name, tool_args, ctx, tool))
        finally:
            CALL.reset(token)

    async def _run_operation(self, turn: AgentTurn, place: CallPlace, call: _ToolCall) -> Any:
        name, model_arguments, ctx, tool = call
        function = turn.tools.get(name)
        # The second attempt of an approved call was counted at its first attempt.
        if place.repeated_call is None:
            turn.count(name, None if function is None else function.limit)
        try:
            # pydantic-ai sets `tool_call_approved` after a person has approved a deferred call (`_approval`).
            arguments = (
                model_arguments if ctx.tool_call_approved else await _approved(turn, place, name, model_arguments, tool)
            )
            result = await super().call_tool(name, arguments, ctx, tool)
        except ApprovalRequired:
            # From now on, `AgentTurn.call` returns the place of the second attempt for this id: `2-c1#2`.
            turn.deferred.add(place.name)
            raise
        except MODEL_MESSAGES:
            raise
        except Exception as error:
            # `answering` turns errors of recorded tool calls into `ToolError`. Other errors stay as they are.
            if isinstance(error, OperationError) and error.operation_type == TOOL_CALL:
                turn.failed.append((name, error))
            # The error ends the turn, which cancels concurrent calls: wait until the running ones have ended.
            await turn.context.alone()
            raise
        return shortened(result, MOST if function is None else function.most)


async def _approved(
    turn: AgentTurn, place: CallPlace, name: str, model_arguments: dict[str, Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Check whether a tool call may be made, by approval rules or by asking a person, who may change the arguments.
    Return the approved arguments.

    Raises
    ------
    ToolFailed
        The call was denied, or the approved arguments are invalid. The model gets the message.
    """
    # Rules and people see plain JSON, the tool gets the objects that pydantic-ai has validated.
    shown_arguments: Mapping[str, Any] = plain_json(model_arguments)
    question = turn.context.recorded_question(f"approve-{place.name}") if turn.keeps_original else None
    if question is not None:
        # Use the arguments that the person saw.
        shown_arguments = model_arguments = dict((question.data or {})["parameters"])
    function = turn.tools.get(name)
    agent = turn.record.agent
    # A tool of a supplied toolset has no divebook function: no hints, no server and no files are known.
    if function is None:
        call = ToolCall(name, shown_arguments, agent=agent, mode=IF_DESTRUCTIVE)
    else:
        call = ToolCall(
            function.own_name,
            shown_arguments,
            agent=agent,
            server=function.server,
            hints=function.hints,
            asks=function.approval,
            mode=function.confirmation,
            files=turn.context.files_of(function),
            fixed=function.fixed,
            rule_name=function.rule_name,
        )
    definition = tool.tool_def
    # A tool with one pydantic model as its parameter: people see {"order": {...}}, as the function takes it.
    single_argument = _of_single_argument(tool)
    schema = definition.parameters_json_schema
    if single_argument is not None:
        schema = _under(str(single_argument.single_arg_name), schema)
    decision = await turn.context.approve(call, schema, place=place.name, description=definition.description or "")
    if isinstance(decision, Denied):
        raise ToolFailed(decision.text)
    # Recorded with the call, unless the mode of its tool decided.
    place.rule = "" if decision.rule == call.mode else decision.rule
    # Unchanged arguments keep the objects that pydantic-ai has validated already.
    if is_same(decision.arguments, shown_arguments):
        return model_arguments
    # pydantic-ai has validated only the arguments of the model, not those that a person or a rule changed.
    try:
        validate = tool.args_validator.validate_python if single_argument is None else single_argument.revalidate
        validated: dict[str, Any] = validate(dict(decision.arguments))
    except ValidationError as error:
        raise ToolFailed(f"{name} was approved with invalid arguments: {error}") from error
    return validated


def _of_single_argument(tool: ToolsetTool[Any]) -> FunctionSchema | None:
    """Return the function schema of a tool whose only parameter is a pydantic model, because such tools get their
    arguments in another form. Return None for any other tool.

    pydantic-ai presents the fields of that parameter as the arguments of the tool, and calls the function with the
    parameter by its name. People see that form too (test_arguments_that_are_shown_can_be_given_back).
    """
    # Wrappers of toolsets hold the tool that they wrap. The innermost one has the function.
    while hasattr(tool, "source_tool"):
        tool = tool.source_tool
    # `call_func` is the bound method `FunctionSchema.call`.
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return schema if isinstance(schema, FunctionSchema) and schema.single_arg_name is not None else None


def _under(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with a single property `name`, whose value has the given schema."""
    properties = {name: embedded(schema, f"#/properties/{name}")}
    return {"type": "object", "properties": properties, "required": [name], "additionalProperties": False}


# --- deferred calls -------------------------------------------------------------------------------------------------
# pydantic-ai defers these calls until a person has approved them or has supplied their result.


async def deferred(turn: AgentTurn, requests: DeferredToolRequests) -> DeferredToolResults:
    """Ask people about all tool calls that pydantic-ai deferred, at the same time. Return their approvals and the
    results that they supply, in pydantic-ai's form.
    """
    # All lists below have the approvals first, then the questions for results.
    questions: list[Awaitable[Any]] = [_approval(turn, call) for call in requests.approvals]
    questions += [_question(turn, call) for call in requests.calls]
    answers = await side_by_side(turn.context, questions)
    ids = [call.tool_call_id for call in (*requests.approvals, *requests.calls)]
    count = len(requests.approvals)
    return requests.build_results(
        approvals=dict(zip(ids[:count], answers[:count], strict=True)),
        calls=dict(zip(ids[count:], answers[count:], strict=True)),
    )


async def _approval(turn: AgentTurn, part: ToolCallPart) -> ToolApproved | ToolDenied:
    arguments = part.args_as_dict()
    place = turn.call(part.tool_call_id)
    if place.repeated_call is not None and turn.context.recorded_question(f"approve-{place.repeated_call}") is not None:
        return ToolApproved()  # approved by a person before the tool itself required it
    call = ToolCall(part.tool_name, arguments, agent=turn.record.agent, asks=True)
    decision = await turn.context.approve(call, {}, place=place.name, description="")
    if isinstance(decision, Denied):
        return ToolDenied(decision.text)
    return ToolApproved(override_args=None if is_same(decision.arguments, arguments) else decision.arguments)


async def _question(turn: AgentTurn, part: ToolCallPart) -> Any:
    data = {"tool": part.tool_name, "parameters": part.args_as_dict(), "agent": turn.record.agent}
    wording = result_of_tool(part.tool_name, data)
    key = f"ask-{turn.call(part.tool_call_id).name}"
    question = await turn.context.question(CLARIFICATION, wording.question, key=key, data=wording.data)
    return opened(value_of(question))


# --- checks of agents that users supply ------------------------------------------------------------------------------
# They run before anything is recorded.


def check(agent: pydantic_ai.Agent[Any, Any], name: str) -> None:
    """Raise `SetupError` if a pydantic-ai agent has parts that cannot be recorded. `name` is the agent's name in the
    error.
    """
    if DivebookDurability.from_agent(agent) is not None:
        raise SetupError(
            f"agent {name} already has the capability DivebookDurability; remove it, because Agent.of adds it"
        )
    try:
        DivebookDurability(name=name).for_agent(agent)
    except UserError as error:
        raise SetupError(f"agent {name} cannot be used: {error}") from error


def require_closed(agent: pydantic_ai.Agent[Any, Any], name: str) -> None:
    """Raise `SetupError` if the user's code is inside an ``async with agent:`` block of a pydantic-ai agent, where
    divebook cannot call it.

    Its connections are then bound to the user's event loop, and a call from the engine's loop would block for ever.
    pydantic-ai has no public API for this state. Runs do not count as holding it open
    (`tests/agents/test_own_loops.py`).
    """
    if agent._entered_count:  # noqa: SLF001 - see above
        raise SetupError(
            f"agent {name} is open in `async with agent:`, so its servers and connections can be used only on the "
            "event loop of that block. Leave the block and resume the run. The run opens the servers and "
            "connections itself"
        )
