"""Streamed model requests, and the consumption of failed requests.

Text is passed on while the model writes it. The response is the same as that of a plain request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
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

from divebook.agents.conversions import CUT_OFF, has_stated_end, plain_response, usage_of
from divebook.agents.scripted_model import ScriptedFunction, written_arguments
from divebook.engine.operations import CONSUMED, TEXT, THINKING, Write, arguments_part

if TYPE_CHECKING:
    pass


# --- consumption of failed requests --------------------------------------------------------------------------------
# A request that fails after its provider has begun to reply is billed, so it counts. A stream that breaks off, takes
# too long or ends early has often stated its usage already, and so has a complete reply that is refused. Without this
# count, a retried request could spend more than the bounds allow (`tests/agents/test_paid_replies.py`).


_REPLIES: ContextVar[list[ModelResponse] | None] = ContextVar("divebook_replies", default=None)
"""Replies of the running request, complete or partial."""


def note_reply(response: ModelResponse) -> None:
    """Remember a reply. Its usage counts if the request fails."""
    replies = _REPLIES.get()
    if replies is not None:
        replies.append(response)


@contextmanager
def paid_replies(model: Model) -> Iterator[None]:
    """Add the usage of the remembered replies to an error of a request.

    Parameters
    ----------
    model
        The requested model. Its price is used if the price of the replying model is unknown.
    """
    replies: list[ModelResponse] = []
    token = _REPLIES.set(replies)
    try:
        yield
    except Exception as error:
        usage = Counter[str]()
        for reply in replies:
            if reply.usage.has_values():
                usage.update(usage_of(plain_response(reply, model)))
        del usage["requests"]  # counts answered requests only
        if usage:
            setattr(error, CONSUMED, dict(usage))
        raise
    finally:
        _REPLIES.reset(token)


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
    """Make a streamed request and pass on its text as it arrives. A model that cannot stream gets a plain request.

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
    """Return the open stream, which `stack` closes; None if the model cannot stream."""
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
    """Return False for function models without a stream function: streaming them fails an assertion."""
    if isinstance(model, WrapperModel):
        return _may_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_may_stream, model.models))
    return not isinstance(model, FunctionModel) or model.stream_function is not None


class _Pieces:
    """Parser that extracts the new text from the events of a stream."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}
        """Names of the parts that hold tool arguments, by the index of the part in the stream."""

    def of(self, event: ModelResponseStreamEvent) -> tuple[str, str]:
        """Return the text that an event adds and the name of its part.

        The text is empty for events that are not shown.
        """
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
