"""Tools that agents call: those that come with divebook, and those of MCP servers."""
