"""Agents: language models with instructions and tools, built on pydantic-ai, whose model requests and tool calls are
recorded.
"""

from divebook.agents.agent import Agent
from divebook.agents.scripted import ScriptedModel

__all__ = ["Agent", "ScriptedModel"]
