"""MCP server that publishes each workflow of an environment as a tool."""

from divebook.serve.server import WorkflowServer, serve_stdio

__all__ = ["WorkflowServer", "serve_stdio"]
