"""A digest of what an agent does, by which one is told from another of the same name."""

from __future__ import annotations

from divebook.agents.agent import Agent
from divebook.events.codec import short_hash
from divebook.workflow.answer_types import named_answer
from divebook.workflow.code import code_of
from divebook.workflow.content import ContentEntry


def digest_of(agent: Agent) -> str:
    """Return a digest of an agent's definition, its model, what it answers with, and the code of its tools.

    Examples
    --------
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic"))
    True
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic", instructions="Be harsh."))
    False
    """
    own = {key: value for key, value in agent.definition.to_dict().items() if key != "api_key"}
    if "context" in own:
        own["context"] = ContentEntry.without_fingerprints(own["context"])
    tools = code_of({tool.name: tool.function for tool in agent.tools})
    return short_hash([own, agent.model_name, repr(named_answer(agent.output)), tools])
