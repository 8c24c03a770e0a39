"""Model requests: recorded as operations, plain or streamed, with limits for the models behind a fallback model.

One function records the requests of turns and single requests (`record_request`).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from divebook.agents.clients import REQUEST_LIMITERS, RequestLimiters
from divebook.agents.models import estimate
from divebook.agents.request_record import (
    CUT_OFF,
    as_recorded,
    has_stated_end,
    in_time,
    plain_response,
    require_whole,
    usage_of,
)
from divebook.agents.scripted_model import ScriptedFunction, written_arguments
from divebook.engine.operations import (
    AGENT_RESPONSE,
    CONSUMED,
    TEXT,
    THINKING,
    RunOperation,
    StreamedCall,
    Write,
    arguments_part,
)

# --- recorded requests -----------------------------------------------------------------------------------------------


async def record_request(
    operation: RunOperation,
    parameters: Mapping[str, Any],
    model: Model,
    call: Callable[[], Awaitable[dict[str, Any]]],
    *,
    streamed: StreamedCall,
    tokens: int,
    settings: ModelSettings | None,
) -> dict[str, Any]:
    """Make a model request as an operation of type ``agent_response``. Return the response in recorded form, from the
    log if the log has it.

    Parameters
    ----------
    operation
        Makes and records the operation.
    parameters
        Recorded parameters of the request, which are compared with the log.
    model
        The requested model. Its price and its request limiter apply to the request.
    call, streamed
        Send the request and return the response in recorded form (`complete_response`); `streamed` also passes on the
        text as it arrives.
    tokens
        Upper estimate of the input tokens.
    settings
        Settings of the request, of which the token limit counts.
    """
    recorded: dict[str, Any] = await operation(
        AGENT_RESPONSE,
        parameters,
        call,
        usage=usage_of,
        repeatable=True,
        reserved=estimate(model, tokens, settings),
        streamed=streamed,
        slot=REQUEST_LIMITERS.slot(model),
    )
    return recorded


async def complete_response(
    request: Awaitable[ModelResponse], model: Model, agent: str, seconds: float, *, name: str
) -> dict[str, Any]:
    """Await the response to a model request and return it in recorded form. Raise an error for a response that is late,
    incomplete or unreadable. The error has the consumption of the request and no secrets, so it can be recorded.

    Parameters
    ----------
    model
        The requested model.
    agent
        Name of the agent.
    seconds
        Time limit of the whole response.
    name
        Name of the model in errors.
    """
    replies: list[ModelResponse] = []
    token = _REPLIES.set(replies)
    try:
        response = await in_time(request, seconds)
        # Noted before the check, so that a reply that is refused as incomplete counts as well.
        replies.append(response)
        require_whole(response, agent)
        return plain_response(response, model)
    # A time limit of the step cancels the request, and takes the consumption from this exception.
    except BaseException as error:
        recorded = as_recorded(error, name)
        add_consumption(recorded, replies, model)
        if recorded is error:
            raise
        raise recorded from error
    finally:
        _REPLIES.reset(token)


# --- rules -----------------------------------------------------------------------------------------------------------


class RequestRule:
    """Rule of divebook for the model requests of a turn. The rules of a turn are applied after all capabilities of the
    agent (`divebook.agents.durability`).

    Rules are not capabilities of their own, because pydantic-ai calls every hook of each capability with a new copy of
    the run context, about 15 times a request (``python -m benchmarks.calls``).
    """

    def before_request(self, step: int, request: ModelRequestContext) -> ModelRequestContext:
        """Return the request to send in place of `request`. `step` is the number of the request in its turn, from 1."""
        del step
        return request

    def after_request(self, step: int, request: ModelRequestContext, response: ModelResponse) -> None:
        """Raise an error for a response that breaks the rule."""


# --- fallbacks -------------------------------------------------------------------------------------------------------
#
# Fallback models whose parts report their outcomes to their own request limiters.
#
# A `FallbackModel` asks its models in order and reports only the final outcome. Its request waits at the limiter of the
# first model (`divebook.agents.clients`), and each model reports its own outcome to its own limiter
# (`test_each_model_behind_another_one_is_limited_by_what_its_own_provider_says`).


def reporting_model(model: Model, limiters: RequestLimiters = REQUEST_LIMITERS) -> Model:
    """Wrap each model that a fallback model tries, so that each one reports success or failure to its own request
    limiter. A model that is not a fallback model is returned unchanged.
    """
    return _reporting(model, limiters, is_first=True) if isinstance(model, FallbackModel) else model


def _reporting(model: Model, limiters: RequestLimiters, *, is_first: bool) -> Model:
    if not isinstance(model, FallbackModel):
        return ReportingModel(model, limiters, is_counted=is_first)
    model_copy = copy.copy(model)  # the user's model stays unchanged
    # The caller holds a permit for the first model of the first fallback, and for no other.
    model_copy.models = [
        _reporting(part, limiters, is_first=is_first and not index) for index, part in enumerate(model.models)
    ]
    return model_copy


class ReportingModel(WrapperModel):
    """Wrapper of one of the models that a fallback model tries. It reports the success or failure of each request to
    the request limiter of the wrapped model.

    Parameters
    ----------
    is_counted
        True if the caller already holds a slot of this limiter. Other parts take a slot without waiting: waiting at two
        limiters in different orders could deadlock.
    """

    def __init__(self, wrapped: Model, limiters: RequestLimiters, *, is_counted: bool) -> None:
        super().__init__(wrapped)
        self._limiters = limiters
        self._is_counted = is_counted

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a model request and return the response. Success or failure is reported to the request limiter of the
        model.
        """
        with self._limiters.observed(self.wrapped, is_counted=self._is_counted):
            return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Make a streamed model request and yield its stream. Success or failure is reported to the request limiter of
        the model.
        """
        with self._limiters.observed(self.wrapped, is_counted=self._is_counted):
            stream_context = super().request_stream(messages, model_settings, model_request_parameters, run_context)
            async with stream_context as stream:
                yield stream


# --- consumption of failed requests --------------------------------------------------------------------------------
# A request that fails after its provider has begun to reply is billed, so it counts. A stream that breaks off, takes
# too long or ends early has often stated its usage already, and so has a complete reply that is refused. Without this
# count, a retried request could spend more than the bounds allow (`tests/agents/test_paid_replies.py`).


_REPLIES: ContextVar[list[ModelResponse] | None] = ContextVar("divebook_replies", default=None)
"""Replies of the running request, complete or partial."""


def note_reply(response: ModelResponse) -> None:
    """Remember a model response, complete or partial, so that its tokens and cost are counted if the request fails
    afterwards. Outside of `complete_response`, do nothing.
    """
    replies = _REPLIES.get()
    if replies is not None:
        replies.append(response)


def add_consumption(error: BaseException, replies: Iterable[ModelResponse], model: Model) -> None:
    """Add to the error of a model request the tokens and cost of the responses that it has received, because these are
    billed.

    Parameters
    ----------
    model
        The requested model. Its price is used if the price of the replying model is unknown.
    """
    usage = Counter[str]()
    for reply in replies:
        if reply.usage.has_values():
            usage.update(usage_of(plain_response(reply, model)))
    del usage["requests"]  # counts answered requests only
    # The recorder reads this attribute and records it with the failure.
    if usage:
        setattr(error, CONSUMED, dict(usage))


# --- streaming -----------------------------------------------------------------------------------------------------
# Text is passed on while the model writes it. The response is the same as that of a plain request.


REFUSALS = (400, 422)
"""HTTP statuses with which providers refuse to stream this model, or to stream for this account."""


_CUT_OFF: WeakValueDictionary[int, Model] = WeakValueDictionary()
"""Models whose latest stream ended without a finish reason, by `id`."""


async def stream_response(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    write: Write,
) -> ModelResponse:
    """Make a streamed request and return the complete response. The text is passed to `write` as it arrives. If the
    model cannot stream, make a plain request instead.

    A stream that ends without a finish reason was cut off, for example because a proxy gave up or a server restarted.
    The caller retries, as after any lost connection. The retry is a plain request, because a truncated body is always
    detected. Some local servers never send a finish reason: their models get plain requests from then on.

    Raises
    ------
    ModelConnectionError
        The stream ended before the response was complete.
    """
    if isinstance(model, ScriptedFunction):
        return await model.stream(messages, settings, parameters, write)
    # The previous stream had no finish reason. A plain request shows whether the server ever sends one.
    if id(model) in _CUT_OFF:
        response = await model.request(messages, settings, parameters)
        if has_stated_end(response):
            _CUT_OFF.pop(id(model), None)
        return response
    async with AsyncExitStack() as stack:
        stream = await _opened(stack, model, messages, settings, parameters)
        if stream is None:
            return await model.request(messages, settings, parameters)
        pieces = _Pieces()
        try:
            async for event in stream:
                text, part = pieces.of(event)
                if text:
                    write(text, part)
        except BaseException:  # includes cancellation by a time limit
            note_reply(stream.get())
            raise
        response = stream.get()
    if response.state == "incomplete" or not has_stated_end(response):
        _CUT_OFF[id(model)] = model
        note_reply(response)
        raise ModelConnectionError(model.model_name, CUT_OFF)
    return response


async def _opened(
    stack: AsyncExitStack,
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> StreamedResponse | None:
    """Open the response stream of a model request and return it; `stack` closes it later. Return None if the model
    cannot stream.
    """
    if not _may_stream(model):
        return None
    try:
        return await stack.enter_async_context(model.request_stream(messages, settings, parameters))
    except NotImplementedError:
        return None
    except ModelHTTPError as error:
        # 400 and 422 have many causes. A plain request helps only if the refusal is about streaming, for example "your
        # organization must be verified to stream this model".
        if error.status_code in REFUSALS and "stream" in str(error.body).lower():
            return None
        raise


def _may_stream(model: Model) -> bool:
    """Return True if a model may be asked to stream its response. Return False for pydantic-ai's function model without
    a stream function, which would raise an AssertionError.
    """
    if isinstance(model, WrapperModel):
        return _may_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_may_stream, model.models))
    return not isinstance(model, FunctionModel) or model.stream_function is not None


class _Pieces:
    """Parser of the events of a streamed response. It extracts the text that each event adds."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}
        """Names of the parts that hold tool arguments, by the index of the part in the stream."""

    def of(self, event: ModelResponseStreamEvent) -> tuple[str, str]:
        """Return the text that an event of a streamed response adds. Also return the kind of response part that the
        text belongs to: text, thinking, or the arguments of a tool call.

        The text is empty for events that are not shown.
        """
        # A start event has the first piece of a part, delta events have the following pieces.
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return text, TEXT
            case PartStartEvent(part=ThinkingPart(content=text)):
                return text, THINKING
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                return text, THINKING
            # Deltas do not repeat the name and id of their call, so they are found by the index of the part.
            case PartStartEvent(index=number, part=ToolCallPart() as call):
                self._calls[number] = arguments_part(call.tool_name, call.tool_call_id)
                return written_arguments(call), self._calls[number]
            case PartDeltaEvent(index=number, delta=ToolCallPartDelta(args_delta=str(text))) if number in self._calls:
                return text, self._calls[number]
        return "", TEXT
