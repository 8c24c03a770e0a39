"""Tools that agents call: built-in tools, tools of workspaces, and tools of MCP servers."""
