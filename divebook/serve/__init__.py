"""divebook as an MCP server: each workflow is a tool of the clients that connect to it."""

from divebook.serve.server import WorkflowServer, serve_stdio

__all__ = ["WorkflowServer", "serve_stdio"]
