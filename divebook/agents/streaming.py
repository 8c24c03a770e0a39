"""Model requests whose answer is handed on while it is written; the response is the same as that of a plain request."""

from __future__ import annotations

from contextlib import AsyncExitStack
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
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.paid_replies import note_reply
from divebook.agents.scripted_model import ScriptedFunction, written_arguments
from divebook.agents.wire import CUT_OFF, states_its_end
from divebook.engine.operations import TEXT, THINKING, Write, arguments_part

REFUSALS = (400, 422)
"""HTTP statuses of providers that do not stream this model, or not to this account."""
_CUT_OFF: WeakValueDictionary[int, Model] = WeakValueDictionary()
"""Models whose latest stream ended without a finish reason, by their id."""


async def stream_response(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    write: Write,
) -> ModelResponse:
    """Make a request and pass on its text as it arrives; a model that cannot stream is asked plainly.

    A stream that ends without a finish reason was cut off: a proxy gave up, or a server was restarted. The caller tries
    again as after any lost connection. That attempt asks plainly, because a whole body cannot end early unnoticed, and
    because some local servers never send a finish reason: their models are asked plainly from then on.

    Raises
    ------
    ModelConnectionError
        The stream ended before the response was complete.
    """
    if isinstance(model, ScriptedFunction):
        return await model.stream(messages, settings, parameters, write)
    if id(model) in _CUT_OFF:
        response = await model.request(messages, settings, parameters)
        if states_its_end(response):
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
        except BaseException:  # also where it takes too long
            note_reply(stream.get())
            raise
        response = stream.get()
    if response.state == "incomplete" or not states_its_end(response):
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
    """Return the open stream, which `stack` closes; None where there is none to be had."""
    if not _may_stream(model):
        return None
    try:
        return await stack.enter_async_context(model.request_stream(messages, settings, parameters))
    except NotImplementedError:
        return None
    except ModelHTTPError as error:
        if error.status_code in REFUSALS and "stream" in str(error.body).lower():
            return None
        raise


def _may_stream(model: Model) -> bool:
    """Return False for functions that only answer as a whole: to ask one for a stream is a failed assertion."""
    if isinstance(model, WrapperModel):
        return _may_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_may_stream, model.models))
    return not isinstance(model, FunctionModel) or model.stream_function is not None


class _Pieces:
    """Reads the pieces of an answer off the events of its stream."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}
        """Names of the parts that hold arguments, by the number that the stream has for them."""

    def of(self, event: ModelResponseStreamEvent) -> tuple[str, str]:
        """Return what an event adds, and to which part; an empty text for what nobody watches."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return text, TEXT
            case PartStartEvent(part=ThinkingPart(content=text)):
                return text, THINKING
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                return text, THINKING
            case PartStartEvent(index=number, part=ToolCallPart() as call):
                self._calls[number] = arguments_part(call.tool_name, call.tool_call_id)
                return written_arguments(call), self._calls[number]
            case PartDeltaEvent(index=number, delta=ToolCallPartDelta(args_delta=str(text))) if number in self._calls:
                return text, self._calls[number]
        return "", TEXT
