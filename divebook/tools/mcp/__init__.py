"""Client for MCP servers. A server is started at its first request and stopped with its environment."""
