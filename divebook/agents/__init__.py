"""Agents: a model with instructions, built on pydantic-ai."""

from divebook.agents.agent import Agent
from divebook.agents.scripted import ScriptedModel

__all__ = ["Agent", "ScriptedModel"]
