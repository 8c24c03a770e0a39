"""Checks of tool results by the output schema that their server has declared, in bounded work.

The SDK checks results with jsonschema as it is, whose patterns and nested schemas stop the whole process for as long as
a server likes. Its session is given another check.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from divebook.workflow.json_schemas import complaint

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult


def check_results_of(session: ClientSession) -> None:
    """Replace the check of a session's tool results by `require_fitting`."""
    session.validate_tool_result = partial(require_fitting, session)  # type: ignore[method-assign]


async def require_fitting(session: ClientSession, name: str, result: CallToolResult) -> None:
    """Raise RuntimeError, as the SDK does, for a result that does not fit what its tool has declared."""
    schemas = session._tool_output_schemas  # noqa: SLF001 - known to nobody else, and filled by each list of tools
    if name not in schemas:
        await session.list_tools()
    schema = schemas.get(name)
    if schema is None:
        return
    if result.structured_content is None and "structured_content" not in result.model_fields_set:
        raise RuntimeError(f"Tool {name} has an output schema but did not return structured content")
    wrong = complaint(schema, result.structured_content)
    if wrong is not None:
        raise RuntimeError(f"Invalid structured content returned by tool {name}: {wrong}")
