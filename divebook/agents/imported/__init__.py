"""What others have written of their agents, read as executions: histories of pydantic-ai, traces of OpenTelemetry."""

from divebook.agents.imported.reading import read

__all__ = ["read"]
