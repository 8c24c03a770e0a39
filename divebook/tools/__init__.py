"""Tools that agents call: built-in tools, tools of workspaces, and tools of MCP servers."""

from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.runtime.calls import ToolContext

__all__ = ["ToolContext", "ToolFunction", "ToolHints"]
