"""Model requests whose text is handed on while it is written; the response is the same as that of a plain request."""

from __future__ import annotations

from contextlib import AsyncExitStack

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.engine.operations import Write

REFUSALS = (400, 422)
"""HTTP statuses of providers that do not stream this model, or not to this account."""


async def stream_response(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    write: Write,
) -> ModelResponse:
    """Make a request and hand on its text as it arrives; a model that cannot stream is asked plainly.

    Raises
    ------
    ModelAPIError
        The stream ended before the response was complete.
    """
    async with AsyncExitStack() as stack:
        stream = await _opened(stack, model, messages, settings, parameters)
        if stream is None:
            return await model.request(messages, settings, parameters)
        async for event in stream:
            text = _text_of(event)
            if text:
                write(text)
        response = stream.get()
    if response.state == "incomplete":
        raise ModelAPIError(model.model_name, "the stream ended before the response was complete")
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


def _text_of(event: ModelResponseStreamEvent) -> str:
    """Return the piece of the answer that an event brings; thoughts and tool calls are none."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
    return ""
