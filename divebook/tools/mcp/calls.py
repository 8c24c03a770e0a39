"""Requests to MCP servers (tool calls, discovery of tools, resources, prompts), and conversion between types of the MCP
protocol and plain data.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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

from divebook.definitions.json_schemas import require_schema
from divebook.definitions.servers import SCHEME, Answers, CallOutcome, Discovered, OfferedTool
from divebook.documents import Document
from divebook.errors import DefinitionError, UnstorableValueError
from divebook.events.codec import storable
from divebook.text.format import as_unicode
from divebook.text.redaction import logger, shared
from divebook.tools.mcp.connection import RefusedError

if TYPE_CHECKING:
    from mcp.types import Tool

    from divebook.definitions.servers import MCPServerDefinition


_LONGEST = 10_000
_REFUSED = -1
"""Error code of the protocol with which a sampling request (a request for a model's answer) is refused."""
_NO_WAY_TO_ASK = "no back-channel for server-initiated requests"
"""Text of the SDK's error for a question of a server during a call, if the protocol version does not allow questions.
"""
_WRAPPED = {"result"}
"""Keys of structured content that only wraps a value, because the protocol allows only objects there."""
_log = logger(__name__)
NOT_ALLOWED = "the server asks for something that is not allowed here: {} (its definition allows models by Sampling)"


async def call_tool(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any],
    answers: Answers | None,
    state: str | None,
    *,
    sampler: str | None = None,
) -> CallOutcome:
    """Call a tool of an MCP server and return the outcome. A result that violates the tool's output schema becomes an
    error outcome, which the model gets.
    """
    try:
        result = await client.session.call_tool(
            tool,
            dict(arguments),
            input_responses=responses_of(answers),
            request_state=state,
            allow_input_required=True,
        )
    except RuntimeError as error:  # violates the declared output schema
        return CallOutcome(shared().text(str(error))[:_LONGEST], is_error=True)
    return outcome_of(result, sampler)


def with_advice(outcome: CallOutcome, server: str) -> CallOutcome:
    """Add advice to the outcome of a tool call that failed because the server may not ask questions during a call: the
    advice names the option that allows it. Any other outcome is returned unchanged.
    """
    if not (outcome.is_error and _NO_WAY_TO_ASK in str(outcome.content)):
        return outcome
    advice = (
        f"server {server} asks while a call is under way: set asks_within_calls=True (AsksWithinCalls: true) in its "
        "definition"
    )
    _log.warning(advice)
    return replace(outcome, content=f"{outcome.content} ({advice})")


def outcome_of(result: CallToolResult | InputRequiredResult, sampler: str | None = None) -> CallOutcome:
    """Convert the reply of an MCP server to a tool call to a `CallOutcome`. A reply with sampling requests gets the
    name of the agent that answers them, `sampler`.
    """
    if isinstance(result, InputRequiredResult):
        return _questions_of(result, sampler)
    return CallOutcome(_content(result), is_error=bool(result.is_error))


def _questions_of(result: InputRequiredResult, sampler: str | None) -> CallOutcome:
    requests: dict[str, Mapping[str, Any]] = {}
    # One request that is not allowed makes the whole tool call fail. Requests of other types, such as one for the
    # folders of the client, are not supported.
    for name, request in (result.input_requests or {}).items():
        if isinstance(request, ElicitRequest):
            requests[name] = request_of(request.params)
        elif isinstance(request, CreateMessageRequest) and sampler is not None and is_plain(request.params):
            requests[name] = sampling_of(request.params, sampler)
        else:
            return CallOutcome(NOT_ALLOWED.format(request.method), is_error=True)
    return CallOutcome(requests=requests, state=result.request_state)


def is_plain(params: CreateMessageRequestParams) -> bool:
    """Return True if a sampling request of a server (a request for a model's response) contains only text. Return False
    if it has images, or tools that the model may call.
    """
    texts = all(isinstance(message.content, TextContent) for message in params.messages)
    # A request without messages has nothing that a model could answer.
    return bool(params.messages) and texts and not params.tools


def sampling_of(params: CreateMessageRequestParams, sampler: str) -> dict[str, Any]:
    """Return a sampling request of a server as plain data, with the name of the agent that answers it."""
    fields = {
        "agent": sampler,
        "messages": [{"role": message.role, "text": message.content.text} for message in params.messages],  # type: ignore[union-attr]
        "system": params.system_prompt,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
    }
    return {name: value for name, value in fields.items() if value is not None}


def request_of(params: Any) -> dict[str, Any]:
    """Return an elicitation request of a server (a question to a person) as plain data. A web address in it is shown to
    the person and never opened.
    """
    # Besides forms, the protocol has questions that lead a person to a web address.
    if isinstance(params, ElicitRequestFormParams):
        return {"message": params.message, "schema": dict(params.requested_schema)}
    return {"message": f"{params.message}\n{params.url}", "schema": {}}


def sampled_of(answer: Mapping[str, Any]) -> CreateMessageResult | ErrorData:
    """Convert an agent's answer to a sampling request to the type of the MCP protocol. An answer without text becomes a
    protocol error.
    """
    return message_of(answer) if "text" in answer else ErrorData(code=_REFUSED, message=answer["error"])


def message_of(answer: Mapping[str, Any]) -> CreateMessageResult:
    """Convert an agent's answer to a sampling request to a message of the MCP protocol, for a reply that answers
    several requests at once.

    Such a reply cannot contain errors. A missing answer is therefore replaced by a text with the reason.
    """
    text = answer["text"] if "text" in answer else f"[no answer: {answer['error']}]"
    content = TextContent(type="text", text=text)
    return CreateMessageResult(role="assistant", content=content, model=answer.get("model", ""))


def response_of(answer: Mapping[str, Any]) -> ElicitResult:
    """Convert a person's answer to an elicitation request to the type of the MCP protocol."""
    # Declined and cancelled questions have no content.
    content = answer.get("content")
    return ElicitResult(action=answer["action"], content=None if content is None else dict(content))


def responses_of(answers: Answers | None) -> InputResponses | None:
    """Convert the answers to the questions of a server to types of the MCP protocol, as a dict by name of the question.
    Return None if `answers` is None.
    """
    if answers is None:
        return None
    # An elicitation has an action (accept, decline, cancel). An answer without one belongs to a sampling request.
    return {name: response_of(answer) if "action" in answer else message_of(answer) for name, answer in answers.items()}


def _content(result: CallToolResult) -> Any:
    structured = result.structured_content
    # Structured content cannot hold images and audio, so a result with such parts is read part by part.
    if structured is not None and not result.is_error and not any(_is_binary(part) for part in result.content):
        # {"result": 5} -> 5
        return structured["result"] if isinstance(structured, dict) and structured.keys() == _WRAPPED else structured
    parts = [part_of(part) for part in result.content]
    # A single part is not wrapped in a list.
    return parts[0] if len(parts) == 1 else parts


def _is_binary(part: Any) -> bool:
    return isinstance(part, ImageContent | AudioContent)


def part_of(part: Any) -> Any:
    """Return one content part of a tool result as plain data: text, base64 data with its media type, or a text that
    describes any other part.
    """
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
    """Return the text of a resource. For a binary resource, return a line of text with its URI, media type and size."""
    if isinstance(resource, TextResourceContents):
        return resource.text
    # Base64 has 4 characters for 3 bytes.
    return f"[Binary resource {resource.uri}: {resource.mime_type or 'no type'}, {len(resource.blob) * 3 // 4} bytes]"


# --- discovery ----------------------------------------------------------------------------------------------------
# Lists are read page by page. Tools that no model could be shown are left out.


MOST = 2_000
"""Maximum number of tools, resources or prompts of one server."""
LARGEST = 100_000
"""Maximum number of characters of a tool's description and schemas, which are part of every model request."""
LONGEST = 256
"""Maximum length of a tool name. `divebook.agents.signatures` shortens tool names to the form that providers accept."""
_PAGES = 100


async def discover_tools(client: Client, definition: MCPServerDefinition) -> Discovered:
    """Return the tools of an MCP server that its definition allows, and the server's instructions. Tools that a model
    could not use are left out.
    """
    tools = [tool async for tool in list_all(client.list_tools, "tools") if definition.allows(tool.name)]
    # Servers may offer tools that the MCP SDK accepts but that no model could be shown.
    offered = (_offered_tool(tool, definition) for tool in tools)
    by_name = {tool.name: tool for tool in offered if tool is not None}  # a server may list a name twice
    return Discovered(tuple(by_name.values()), as_unicode((client.instructions or "").strip())[:LARGEST])


async def list_all(ask: Callable[..., Awaitable[Any]], field: str) -> AsyncIterator[Any]:
    """Yield all items of a list, such as the list of tools, that a server returns page by page.

    Raises
    ------
    RefusedError
        The list has too many items or pages.
    """
    cursor = None
    count = 0
    cursors = set[str]()
    for _ in range(_PAGES):
        page = await ask(cursor=cursor)
        for item in getattr(page, field):
            count += 1
            if count > MOST:
                raise RefusedError(f"it lists more than {MOST} {field}")
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
        # The number of pages is limited, too: a server could invent cursors without end.
        if cursor in cursors:  # a repeated cursor would loop for ever
            _log.warning("an MCP server sends its list of %s repeatedly; the list is read only once", field)
            return
        cursors.add(cursor)
    raise RefusedError(f"its list of {field} has more than {_PAGES} pages")


def _offered_tool(tool: Tool, definition: MCPServerDefinition) -> OfferedTool | None:
    offered = OfferedTool(
        tool.name,
        # The description is optional in the protocol, and some servers have only a title.
        (tool.description or tool.title or "").strip(),
        tool.input_schema,
        _hints(tool, definition),
        tool.output_schema,
    )
    problem = _problem_of(offered)
    if problem:
        _log.warning("tool %r of MCP server %s is skipped: %s", tool.name[:100], definition.name, problem)
        return None
    return offered


def _problem_of(tool: OfferedTool) -> str:
    """Return the reason why a server's tool cannot be offered to a model, such as a schema that is too large. Return an
    empty string if it can.
    """
    # The limits protect every later request to a model, which contains the name, description and schemas.
    if not tool.name.strip() or not tool.name.isprintable() or len(tool.name) > LONGEST:
        return f"its name must have 1 to {LONGEST} characters, all of which can be printed"
    # Measured in the form in which the log has the tool.
    try:
        length = len(tool.description) + len(json.dumps(storable(tool.to_dict(), "tool")))
    except RecursionError:
        return "its schemas are nested too deeply"
    except UnstorableValueError as error:
        return str(error)
    if length > LARGEST:
        return f"its description and schemas have more than {LARGEST} characters"
    try:
        for key, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
            if schema is not None:
                # Patterns of a server may have a syntax other than that of Python, so they need not be valid here.
                require_schema(schema, key, has_patterns=False)
    except DefinitionError as error:
        return f"{error.problems[0].key}: {error.problems[0].message}"
    return ""


def _hints(tool: Tool, definition: MCPServerDefinition) -> dict[str, bool]:
    """Return the hints of a server about a tool, such as "read only", that approval rules may use. If the server is not
    trusted, only hints that make the rules stricter are returned.
    """
    annotations = tool.annotations
    if annotations is None:
        return {}
    # A server could claim that a destructive tool is harmless. Claims that make the rules stricter always count.
    hints = {
        "read_only": annotations.read_only_hint,
        "destructive": annotations.destructive_hint,
        "idempotent": annotations.idempotent_hint,
        "open_world": annotations.open_world_hint,
    }
    return {
        name: value
        for name, value in hints.items()
        if value is not None and (definition.trusted or _warns(name, value=value))
    }


def _warns(name: str, *, value: bool) -> bool:
    # Claims that make an approval rule stricter, never looser.
    return (name, value) in (("destructive", True), ("read_only", False), ("idempotent", False), ("open_world", True))


# --- resources and prompts ----------------------------------------------------------------------------------------
# Resources are read-only documents. All results are plain data.


def id_of(server: str, address: str) -> str:
    """Return the id under which a resource of a server is found as a document: ``mcp://server/address``."""
    return f"{SCHEME}{server}/{address}"


def document_of(server: str, parts: list[TextResourceContents | BlobResourceContents]) -> Document:
    """Join the parts of a resource into one document, whose path is the URI of the resource. A line that describes it
    replaces a binary part.
    """
    first = parts[0]
    text = "\n".join(map(text_of, parts))
    return Document(first.uri, text, first.mime_type or "text/plain", id_of(server, first.uri))


async def read(client: Client, server: str, address: str) -> Document:
    """Read a resource from a server and return it as a document.

    Raises
    ------
    RefusedError
        The resource is empty, or the server asks a question first.
    """
    result = await client.session.read_resource(address, allow_input_required=True)
    if isinstance(result, InputRequiredResult):
        raise RefusedError("the server asks a question first, but it cannot be answered while a document is read")
    if not result.contents:
        raise RefusedError(f"not found: resource {address} is empty")
    return document_of(server, result.contents)


async def resources(client: Client, server: str) -> list[dict[str, Any]]:
    """Return id, name, description and media type of each resource of a server."""
    return [
        {
            "id": id_of(server, resource.uri),
            "name": resource.name,
            "description": resource.description or "",
            "media_type": resource.mime_type or "",
        }
        async for resource in list_all(client.list_resources, "resources")
    ]


async def prompts(client: Client) -> list[dict[str, Any]]:
    """Return name, description and argument names of each prompt of a server."""
    return [
        {
            "name": prompt.name,
            "description": prompt.description or "",
            "arguments": [argument.name for argument in prompt.arguments or ()],
        }
        async for prompt in list_all(client.list_prompts, "prompts")
    ]


async def prompt(client: Client, name: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a prompt template of a server with its arguments filled in, as the role and content of each message."""
    result = await client.session.get_prompt(name, dict(arguments), allow_input_required=True)
    if isinstance(result, InputRequiredResult):
        raise RefusedError("the server asks a question first, but it cannot be answered while a prompt is read")
    return [{"role": message.role, "content": part_of(message.content)} for message in result.messages]
