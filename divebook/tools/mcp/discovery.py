"""What a server offers, as data for the log: read page by page, and left out where no model could be shown it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp import Client

from divebook.errors import DefinitionError, UnstorableValueError
from divebook.events.codec import storable
from divebook.text.logs import logger
from divebook.text.shown import as_unicode
from divebook.tools.mcp.connection import RefusedError
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.tool_servers import Discovered, OfferedTool

if TYPE_CHECKING:
    from mcp.types import Tool

    from divebook.workflow.servers import MCPServerDefinition

MOST = 2_000
"""Tools, resources or prompts of one server."""
LARGEST = 100_000
"""Characters of the description and the schemas of one tool, which every request to a model holds."""
LONGEST = 256
"""Characters of the name of a tool; `divebook.agents.tool_names` makes of it one that providers take."""
_PAGES = 100
_log = logger(__name__)


async def discovered(client: Client, definition: MCPServerDefinition) -> Discovered:
    """Return the tools of a server that its definition allows, and that a model can be shown."""
    tools = [tool async for tool in listed(client.list_tools, "tools") if definition.allows(tool.name)]
    made = (_offered(tool, definition) for tool in tools)
    by_name = {tool.name: tool for tool in made if tool is not None}  # it may say a name twice
    return Discovered(tuple(by_name.values()), as_unicode((client.instructions or "").strip())[:LARGEST])


async def listed(ask: Callable[..., Awaitable[Any]], what: str) -> AsyncIterator[Any]:
    """Yield all items of a list that comes in pages; raises `RefusedError` where it does not end."""
    cursor, seen, cursors = None, 0, set[str]()
    for _ in range(_PAGES):
        page = await ask(cursor=cursor)
        for item in getattr(page, what):
            seen += 1
            if seen > MOST:
                raise RefusedError(f"it lists more than {MOST} {what}")
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in cursors:  # the same pages would come again and again
            _log.warning("the list of %s of an MCP server ends where it begins to repeat itself", what)
            return
        cursors.add(cursor)
    raise RefusedError(f"its list of {what} has more than {_PAGES} pages")


def _offered(tool: Tool, definition: MCPServerDefinition) -> OfferedTool | None:
    made = OfferedTool(
        tool.name,
        (tool.description or tool.title or "").strip(),
        tool.input_schema,
        _hints(tool, definition),
        tool.output_schema,
    )
    wrong = _unfit(made)
    if wrong:
        _log.warning("tool %r of MCP server %s is left out: %s", tool.name[:100], definition.name, wrong)
        return None
    return made


def _unfit(tool: OfferedTool) -> str:
    """Return why a model cannot be shown a tool."""
    if not tool.name.strip() or not tool.name.isprintable() or len(tool.name) > LONGEST:
        return f"its name must have 1 to {LONGEST} characters, all of which can be printed"
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
                require_schema(schema, key, has_patterns=False)
    except DefinitionError as error:
        return f"{error.problems[0].key}: {error.problems[0].message}"
    return ""


def _hints(tool: Tool, definition: MCPServerDefinition) -> dict[str, bool]:
    """Return the hints that count: what would relax the rules, only of servers that are trusted."""
    given = tool.annotations
    if given is None:
        return {}
    said = {
        "read_only": given.read_only_hint,
        "destructive": given.destructive_hint,
        "idempotent": given.idempotent_hint,
        "open_world": given.open_world_hint,
    }
    return {
        name: value
        for name, value in said.items()
        if value is not None and (definition.trusted or _warns(name, value=value))
    }


def _warns(name: str, *, value: bool) -> bool:
    return (name, value) in (("destructive", True), ("read_only", False), ("idempotent", False), ("open_world", True))
