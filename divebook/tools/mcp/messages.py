"""Messages of a server before the SDK reads them: one tool that breaks the protocol does not make its list unreadable.

The SDK reads a list of tools as a whole, so that one tool without a name or with a number as its description would
remove all others, and would make the result of each call unreadable as well: the SDK lists the tools again to check it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, Tool, jsonrpc_message_adapter
from mcp.types.methods import validate_server_result
from pydantic import ValidationError

from divebook.text.logs import logger

_TOOLS: Final = "tools"
_LISTED: Final = "tools/list"
_STRICTEST: Final = "2025-11-25"
"""The version of the protocol that says most about a tool."""
_LONGEST = 100
DEEPEST = 100
"""Levels of lists and mappings in a tool, and in an answer that the SDK's own parser refuses."""
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_log = logger(__name__)


def readable(item: Any, server: str) -> Any:
    """Return what a transport has read of a server as far as the SDK can read it.

    A message that is nested too deeply for the SDK's parser is read by another one. In a list of tools, those that
    break the protocol are left out, with a warning that names each and its server.
    """
    was_refused = isinstance(item, ValidationError)
    if was_refused:
        item = _reread(item)
    message = getattr(item, "message", None)
    if not isinstance(message, JSONRPCResponse):
        return item
    if isinstance(message.result.get(_TOOLS), list):
        message.result[_TOOLS] = list(_sound(message.result[_TOOLS], server))
    if was_refused and _is_deep(message.result):  # the SDK would end the connection
        told = ErrorData(code=INTERNAL_ERROR, message=f"its answer is {_TOO_DEEP}")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=told))
    return item


def _reread(error: ValidationError) -> SessionMessage | ValidationError:
    """Return the message that was refused as invalid JSON, if it is JSON all the same."""
    (first, *_) = error.errors(include_url=False)
    if first["type"] != "json_invalid" or not isinstance(first["input"], str | bytes):
        return error
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(json.loads(first["input"]), by_name=False))
    except (ValueError, RecursionError):
        return error


def _is_deep(value: Any) -> bool:
    """Return whether a value has more than `DEEPEST` levels of lists and mappings."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        inside = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level, depth = [part for parts in inside for part in parts], depth + 1
    return bool(level)


def _sound(tools: list[Any], server: str) -> Iterator[Any]:
    for number, given in enumerate(tools, start=1):
        tool = _with_type(given)
        fault = _fault(tool)
        if fault is None:
            yield tool
            continue
        name = given.get("name") if isinstance(given, dict) else None
        named = repr(name[:_LONGEST]) if isinstance(name, str) else f"number {number}"
        _log.warning("tool %s of MCP server %s is left out, since it breaks the protocol: %s", named, server, fault)


def _fault(tool: Any) -> str | None:
    """Return why a tool breaks the protocol; None if it does not."""
    if _is_deep(tool):
        return _TOO_DEEP
    try:
        Tool.model_validate(tool, by_name=False)
        validate_server_result(_LISTED, _STRICTEST, {_TOOLS: [tool]})
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_input=False)
        where = ".".join(str(part) for part in first["loc"] if part not in (_TOOLS, 0))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return None


def _with_type(tool: Any) -> Any:
    """Return a tool whose arguments are an object also where its schema does not say so, as many servers leave it."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict) or schema.get("type") is not None:
        return tool
    return {**tool, "inputSchema": {**schema, "type": "object"}}
