"""Calls of a server's tools: what is sent, and what its answers are as data for the log and the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcp import Client
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    InputResponses,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.workflow.tool_servers import Answers, CallOutcome

_LONGEST = 10_000
_REFUSED = -1
"""Code of the error for a server that asks a model and gets no answer, as the protocol has it for a refusal."""
_NO_WAY_TO_ASK = "no back-channel for server-initiated requests"
"""What the SDK says for a server that asks where its protocol has no place for that."""
_WRAPPED = {"result"}
"""The only key of structured content that stands for a value which is no object."""
_log = logger(__name__)
NOT_ALLOWED = "the server asks for something that is not allowed here: {} (its definition allows models by Sampling)"


async def called(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any],
    answers: Answers | None,
    state: str | None,
    *,
    sampler: str | None = None,
) -> CallOutcome:
    """Call a tool; an answer that breaks the server's own promises is an error for the model."""
    try:
        result = await client.session.call_tool(
            tool,
            dict(arguments),
            input_responses=responses_of(answers),
            request_state=state,
            allow_input_required=True,
        )
    except RuntimeError as error:  # does not fit the output schema that it has declared
        return CallOutcome(shared().text(str(error))[:_LONGEST], is_error=True)
    return outcome_of(result, sampler)


def advised(outcome: CallOutcome, server: str) -> CallOutcome:
    """Return an outcome; one that failed because its server could not ask says how it can, to whoever reads the log."""
    if not (outcome.is_error and _NO_WAY_TO_ASK in str(outcome.content)):
        return outcome
    advice = (
        f"server {server} asks while a call is under way: set asks_within_calls=True (AsksWithinCalls: true) in its "
        "definition"
    )
    _log.warning(advice)
    return replace(outcome, content=f"{outcome.content} ({advice})")


def outcome_of(result: CallToolResult | InputRequiredResult, sampler: str | None = None) -> CallOutcome:
    """Return what a server has answered; `sampler` is the agent that answers what it asks of a model."""
    if isinstance(result, InputRequiredResult):
        return _asked(result, sampler)
    return CallOutcome(_content(result), is_error=bool(result.is_error))


def _asked(result: InputRequiredResult, sampler: str | None) -> CallOutcome:
    asked: dict[str, Mapping[str, Any]] = {}
    for name, request in (result.input_requests or {}).items():
        if isinstance(request, ElicitRequest):
            asked[name] = request_of(request.params)
        elif isinstance(request, CreateMessageRequest) and sampler is not None and is_plain(request.params):
            asked[name] = sampling_of(request.params, sampler)
        else:
            return CallOutcome(NOT_ALLOWED.format(request.method), is_error=True)
    return CallOutcome(requests=asked, state=result.request_state)


def is_plain(params: CreateMessageRequestParams) -> bool:
    """Whether a model is asked with texts only, and for a text: no pictures, and no calls of the server's own tools."""
    texts = all(isinstance(message.content, TextContent) for message in params.messages)
    return bool(params.messages) and texts and not params.tools


def sampling_of(params: CreateMessageRequestParams, sampler: str) -> dict[str, Any]:
    """Return what a model is asked, and the agent that answers."""
    said = {
        "agent": sampler,
        "messages": [{"role": message.role, "text": message.content.text} for message in params.messages],  # type: ignore[union-attr]
        "system": params.system_prompt,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
    }
    return {name: value for name, value in said.items() if value is not None}


def request_of(params: Any) -> dict[str, Any]:
    """Return what a person is asked; an address is shown as text and never opened."""
    if isinstance(params, ElicitRequestFormParams):
        return {"message": params.message, "schema": dict(params.requested_schema)}
    return {"message": f"{params.message}\n{params.url}", "schema": {}}


def sampled_of(answer: Mapping[str, Any]) -> CreateMessageResult | ErrorData:
    """Return what a model has answered as the protocol writes it, or as an error why it has not."""
    return message_of(answer) if "text" in answer else ErrorData(code=_REFUSED, message=answer["error"])


def message_of(answer: Mapping[str, Any]) -> CreateMessageResult:
    """Return what a model has answered as the protocol writes it in a round, which has no place for an error.

    Why there is no answer is its text.
    """
    text = answer["text"] if "text" in answer else f"[no answer: {answer['error']}]"
    content = TextContent(type="text", text=text)
    return CreateMessageResult(role="assistant", content=content, model=answer.get("model", ""))


def response_of(answer: Mapping[str, Any]) -> ElicitResult:
    """Return an answer of a person as the protocol writes it."""
    content = answer.get("content")
    return ElicitResult(action=answer["action"], content=None if content is None else dict(content))


def responses_of(answers: Answers | None) -> InputResponses | None:
    """Return the answers of a round as the protocol writes them."""
    if answers is None:
        return None
    return {name: response_of(answer) if "action" in answer else message_of(answer) for name, answer in answers.items()}


def _content(result: CallToolResult) -> Any:
    structured = result.structured_content
    if structured is not None and not result.is_error and not any(_is_binary(part) for part in result.content):
        return structured["result"] if isinstance(structured, dict) and structured.keys() == _WRAPPED else structured
    parts = [part_of(part) for part in result.content]
    return parts[0] if len(parts) == 1 else parts


def _is_binary(part: Any) -> bool:
    return isinstance(part, ImageContent | AudioContent)


def part_of(part: Any) -> Any:
    """Return one part of an answer: text, a description, or bytes with their type."""
    match part:
        case TextContent():
            return part.text
        case ImageContent() | AudioContent():
            return {"media_type": part.mime_type, "base64": part.data}
        case EmbeddedResource():
            return text_of(part.resource)
        case ResourceLink():
            return f"[Resource {part.name}: {part.uri}]"
    return f"[Content of type {getattr(part, 'type', '?')}, which is not known here]"


def text_of(resource: TextResourceContents | BlobResourceContents) -> str:
    """Return a resource as text; binary data is described."""
    if isinstance(resource, TextResourceContents):
        return resource.text
    return f"[Binary resource {resource.uri}: {resource.mime_type or 'no type'}, {len(resource.blob) * 3 // 4} bytes]"
