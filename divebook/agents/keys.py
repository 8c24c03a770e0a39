"""Secrets of an agent's provider: named where they are used, and sent to no other provider."""

from __future__ import annotations

from dataclasses import replace

from divebook.documents.references import is_reference
from divebook.errors import SetupError
from divebook.workflow.definition import AgentDefinition


def check_key(definition: AgentDefinition, *, is_named: bool) -> None:
    """Raise SetupError unless an agent's key is only named.

    Parameters
    ----------
    is_named
        Whether its model is, and not made already, with a key of its own.
    """
    if definition.api_key is None:
        return
    if not is_reference(definition.api_key):
        raise SetupError(
            f"ApiKey of agent {definition.name} is a key itself, which definitions and logs would hold; put it into a "
            "variable or a file, and name that: env://NAME or file://PATH",
            ("ApiKey",),
        )
    if not is_named:
        raise SetupError(f"agent {definition.name} has an ApiKey, and a model made with a key already: leave one out")


def without_secrets(definition: AgentDefinition) -> AgentDefinition:
    """Return an agent for another provider, which is not to get the key and the headers that name one."""
    settings = definition.model_settings
    if settings is not None:
        headers = {
            name: values for name, values in settings.request_headers.items() if not any(map(is_reference, values))
        }
        settings = replace(settings, request_headers=headers)
    return replace(definition, api_key=None, model_settings=settings)
