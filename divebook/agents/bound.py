"""What pydantic-ai asks of an engine, as operations of a turn: requests to models, calls of tools, and the rest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic_ai.durable_exec import (
    BoundDurableOperation,
    CapabilityOperationId,
    DurableOperation,
    ModelCompactMessagesId,
    ModelRequestParams,
    ToolsetCallToolParams,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
    record_durable_unit,
)
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets.function import FunctionToolsetTool

from divebook.agents.dependencies import watched
from divebook.agents.failures import errors_as_raised, keepable_errors, readable_replies
from divebook.agents.limits import TURNSTILES
from divebook.agents.paid_replies import note_reply, paid_replies
from divebook.agents.present import CALL, INSIDE, TURN, WRITE, AgentTurn, CallPlace, present
from divebook.agents.prices import estimate, tokens_of_definitions
from divebook.agents.recall import RequestToSend
from divebook.agents.requests import Described
from divebook.agents.results import is_readable, plain_result
from divebook.agents.served_tools import InputRequired, answered
from divebook.agents.streaming import stream_response
from divebook.agents.tool_names import ToolNames
from divebook.agents.wire import (
    concise,
    in_time,
    plain_response,
    plainly,
    require_whole,
    response_of,
    usage_of,
    with_said,
    with_values,
)
from divebook.documents.policy import Policy
from divebook.engine.operations import AGENT_RESPONSE, AGENT_STEP, CACHED_RESPONSE, TOOL_CALL, TOOL_DISCOVERY, Write
from divebook.errors import OperationError, TimedOutError, UnstorableValueError
from divebook.events.recorded import opened
from divebook.text.redaction import shared
from divebook.workflow.tools import ToolFunction

USUAL = {"kind": "tool_return"}
"""What pydantic-ai says of nearly every result of a call, and the log leaves out."""


class _Bound(BoundDurableOperation[Any, Any, Any]):
    """Carries out operations of a kind, each once for its place in the turn."""

    def __init__(self, operation: DurableOperation[Any, Any, Any]) -> None:
        self._operation = operation

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        """What it carries out."""
        return self._operation

    async def _made(self, params: Any, name: str) -> Any:
        """Carry it out; an agent that runs inside is part of it, and can ask nobody."""
        tokens = TURN.set(None), INSIDE.set(name)
        try:
            with durable_unit_scope():
                return await self._operation.handler(params)
        finally:
            TURN.reset(tokens[0])
            INSIDE.reset(tokens[1])


class BoundRequest(_Bound):
    """A request to a model."""

    async def __call__(self, params: ModelRequestParams, *, config: object | None = None) -> ModelResponse:
        """Return the recorded response, or make the request."""
        del config
        turn, executed = _required(), False
        turn.sent_with = params.model_request_parameters
        named = params.model_id or turn.model
        told = turn.record.describe(params.messages, params.model_settings, params.model_request_parameters, named)
        if turn.agreement is not None:
            await turn.agreement.check(told)
        if told.setting is not None:
            turn.definitions = tokens_of_definitions(params.model_request_parameters)

        model = cast("Model[Any]", params.run_context.model)

        async def call() -> dict[str, Any]:
            nonlocal executed
            executed = True
            with paid_replies(model), keepable_errors(), readable_replies(named):
                made = await in_time(self._answer(_with_values(params, turn.policy), told.key), turn.seconds)
                note_reply(made)
                require_whole(made, turn.record.agent)
                recorded = plain_response(made, model)
                return concise(with_said(recorded, partial(turn.kept, what="an answer of its model")))

        sent = RequestToSend(told.number, named, params)
        payload = await _recalled(turn, told, sent, call)
        if payload is None:
            payload = await _asked(turn, told, params, call)
            if executed and turn.context.recall is not None:
                await turn.context.recall.keep(sent, payload)
        record_durable_unit(executed=executed)
        return _answered(turn, told, payload)

    async def _answer(self, params: ModelRequestParams, name: str) -> ModelResponse:
        """Return the response of a model, which gets tools under names that its provider takes."""
        names = ToolNames.of(params)
        if names is None:
            return cast("ModelResponse", await self._made(params, name))
        write = WRITE.get()
        token = WRITE.set(None if write is None else names.written(write))
        try:
            return names.answered(await self._made(names.sent(params), name))
        finally:
            WRITE.reset(token)


_Call: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""Makes a request, and returns the response in the form of the log."""


async def _asked(turn: AgentTurn, told: Described, params: ModelRequestParams, call: _Call) -> dict[str, Any]:
    """Return what a model answers, or has answered, which counts in the budget of the turn."""

    async def streamed(write: Write) -> dict[str, Any]:
        token = WRITE.set(write)
        try:
            return await call()
        finally:
            WRITE.reset(token)

    model = cast("Model[Any]", params.run_context.model)
    reserved = estimate(model, told.tokens + turn.definitions, params.model_settings)
    async with turn.spending(told.key, reserved):
        with errors_as_raised():
            recorded = await turn.context.operation(
                AGENT_RESPONSE,
                told.parameters,
                call,
                key=told.key,
                setting=told.setting,
                usage=usage_of,
                repeatable=True,
                reserved=reserved,
                streamed=streamed,
                retry=turn.retry,
                slot=TURNSTILES.slot(model),
            )
    payload: dict[str, Any] = opened(recorded)
    if turn.budget is not None:
        turn.budget.spend(usage_of(payload))
    return payload


async def _recalled(turn: AgentTurn, told: Described, sent: RequestToSend, call: _Call) -> dict[str, Any] | None:
    """Return a response that no model is asked for, and that has no cost; None where one is to be asked.

    What the log has is looked for nowhere else. A response that was taken from a cache in another process, which ended
    before it had recorded that, may be gone: then the model is asked, and its answer stands in the same place.
    """
    recall, known = turn.context.recall, turn.context.recorded_type(told.key)
    found = await recall.find(sent) if recall is not None and known is None else None
    if found is None and known != CACHED_RESPONSE:
        return None
    is_asked = False

    async def taken() -> Mapping[str, Any]:
        nonlocal found, is_asked
        if found is None and recall is not None:
            found = await recall.find(sent)
        is_asked = found is None
        return await call() if found is None else found

    with turn.context.calling():
        recorded = await turn.context.operation(
            CACHED_RESPONSE,
            told.parameters,
            taken,
            key=told.key,
            setting=told.setting,
            usage=lambda made: usage_of(made) if is_asked else {},
            repeatable=True,
        )
    payload: dict[str, Any] = opened(recorded)
    return payload


def _answered(turn: AgentTurn, told: Described, payload: Mapping[str, Any]) -> ModelResponse:
    response = response_of(payload)
    response.timestamp = turn.context.began_at(told.key)  # the same whenever the turn runs again
    turn.record.answered(told.number, response)
    turn.asked = Counter(call.tool_name for call in response.tool_calls)
    return response


class BoundCall(_Bound):
    """A call of a tool."""

    async def __call__(self, params: ToolsetCallToolParams, *, config: object | None = None) -> Any:
        """Return the recorded result, in pydantic-ai's form, or make the call."""
        place = CALL.get()
        assert place is not None  # noqa: S101 - the guard around all tools has set it
        executed = False

        async def call() -> Any:
            nonlocal executed
            executed = True
            with watched(params.ctx.deps, place.turn, params.name):
                return await self._carried_out(place.turn, params)

        try:
            payload = await _recorded(place, params, call, config)
        except UnstorableValueError as error:  # of arguments, which a model may write otherwise, or of what a tool says
            made = isinstance(error, OperationError)
            what = f"{params.name} was called, and says what" if made else f"{params.name} was not called with what"
            raise ToolFailed(f"{what} the log cannot hold: {error}") from error
        record_durable_unit(executed=executed)
        place.turn.record.called(params.ctx.tool_call_id or params.name, params.name, payload)
        return self._operation.result_codec.load({**USUAL, **payload})

    async def _carried_out(self, turn: AgentTurn, params: ToolsetCallToolParams) -> Any:
        try:
            returned = await self._made(_with_readable_result(params), f"tool {params.name}")
            if hasattr(returned, "result"):  # else it says something to the model
                returned.result = plain_result(returned.result)
            made, own = self._operation.result_codec.dump(returned), {}
        except InputRequired as asked_back:
            made, own = asked_back.payload, asked_back.state
        told: Mapping[str, Any] = {**turn.kept(made, f"what tool {params.name} returned"), **own}
        return {name: value for name, value in told.items() if name not in USUAL or USUAL[name] != value}


def _with_readable_result(params: ToolsetCallToolParams) -> ToolsetCallToolParams:
    """Return the call of a function with a result at which pydantic-ai can look without an error of the result's class.

    The function has been called by then, so that such an error would make the call fail that took effect.
    """
    tool = getattr(params, "tool", None)  # a toolset that is made on the way finds its tool when it is called
    if not isinstance(tool, FunctionToolsetTool):
        return params
    function = tool.call_func

    async def call(arguments: dict[str, Any], ctx: Any) -> Any:
        result = await function(arguments, ctx)
        return result if is_readable(result) else plain_result(result)

    return replace(params, tool=replace(tool, call_func=call))


async def _recorded(
    place: CallPlace, params: ToolsetCallToolParams, call: Callable[[], Awaitable[Any]], config: object | None
) -> Any:
    """Return the recorded result of a call; of one that its server asks back about, that of the last round."""
    turn, setting = place.turn, place.setting
    own = turn.tools.get(params.name)
    tool = params.name if own is None else own.own_name
    asked = {"agent": turn.record.agent, "tool": tool, "arguments": plainly(params.tool_args)}
    if turn.is_as_begun and turn.context.recorded_type(place.key) is not None:
        asked["arguments"] = (await turn.context.recorded_start(place.key))[0][
            "arguments"
        ]  # as its tool took them then
    if own is None:
        repeatable = bool(isinstance(config, Mapping) and config.get("idempotent"))
        made = turn.context.operation(
            TOOL_CALL, asked, call, key=place.key, setting=setting, repeatable=repeatable, done=returned
        )
        return opened(await made)
    if own.server:
        asked["server"] = own.server

    async def own_call(key: str, more: Mapping[str, Any]) -> Any:
        told = {**asked, **more}
        with _late_calls_told(own):
            made = turn.context.call(own, params.tool_args, told, call, key=key, setting=setting, done=returned)
            return opened(await made)

    return await answered(place, own, await own_call(place.key, {}), own_call)


@contextmanager
def _late_calls_told(tool: ToolFunction) -> Iterator[None]:
    """Let the model hear that a call took too long, if that is all that has happened.

    One that may have taken effect is asked about before it comes here.
    """
    try:
        yield
    except OperationError as error:
        if tool.timeout is None or TimedOutError.__name__ not in (error.error_names or ()):
            raise
        raise ToolFailed(f"{tool.name} took more than {tool.timeout:g} seconds") from error


def returned(value: Any) -> dict[str, Any]:
    """Return a value that a person gave for a call in the form of what calls return."""
    return {"result": value}


class BoundStep(_Bound):
    """Anything else: what a server of tools offers, what a capability does."""

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        """Return the recorded result, or carry it out."""
        del config
        turn = _required()
        kind, name, asked = self._described(params)
        key = turn.key(name)

        async def call() -> Any:
            return shared().without_named(self._operation.result_codec.dump(await self._made(params, name)))

        with turn.context.calling():
            recorded = await turn.context.operation(kind, asked, call, key=key, repeatable=kind == TOOL_DISCOVERY)
        return self._operation.result_codec.load(opened(recorded))

    def _described(self, params: Any) -> tuple[str, str, dict[str, Any]]:
        """Return the type, the name and the parameters of the operation; pydantic-ai may add kinds of its own."""
        match self._operation.operation_id:
            case ToolsetGetToolsId(toolset_id=toolset) | ToolsetGetInstructionsId(toolset_id=toolset) as found:
                what = "tools" if isinstance(found, ToolsetGetToolsId) else "instructions"
                return TOOL_DISCOVERY, f"{what}-{toolset}", {"server": toolset}
            case ToolsetValidateToolArgumentsId():
                asked = {"tool": params.name, "arguments": plainly(params.tool_args)}
                return AGENT_STEP, f"check-{params.ctx.tool_call_id}", asked
            case CapabilityOperationId(capability_id=capability, operation=operation):
                call = getattr(params, "call", None)  # one of a workspace: its method, and what that takes
                given = getattr(params, "arguments", None) if call is None else _without_content(call)
                asked = {"arguments": plainly(given)}
                return AGENT_STEP, f"{capability}.{operation}", {"operation": f"{capability}.{operation}", **asked}
            case ModelCompactMessagesId():
                return AGENT_STEP, "compact", {"operation": "compact"}
            case other:
                return AGENT_STEP, type(other).__name__, {"operation": type(other).__name__}


def _without_content(call: Any) -> dict[str, Any]:
    """Return what a call of a workspace takes; of the content of a file, its digest."""
    told = {name: value for name, value in vars(call).items() if value}
    return told | ({"data": hashlib.sha256(call.data).hexdigest()} if call.data else {})


class StreamedModel(WrapperModel):
    """Hands on the text of a response while it is written."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make the request, streamed to whoever listens."""
        write = WRITE.get()
        assert write is not None  # noqa: S101 - else it is not put around the model
        return await stream_response(self.wrapped, messages, model_settings, model_request_parameters, write)


def _with_values(params: ModelRequestParams, policy: Policy) -> ModelRequestParams:
    """Return a request with the values that its settings name."""
    return ModelRequestParams(
        params.model_id,
        messages=params.messages,
        model_settings=with_values(params.model_settings, policy),
        model_request_parameters=params.model_request_parameters,
        run_context=params.run_context,
    )


def _required() -> AgentTurn:
    turn = present()
    assert turn is not None  # noqa: S101 - `in_durable_context` says so
    return turn
