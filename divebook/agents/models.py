"""From what a definition says about a model to the name pydantic-ai knows it by."""

from __future__ import annotations

from divebook.agents.scripted import SCRIPTED
from divebook.errors import SetupError

_PROVIDERS = {"openai-completions": "openai-chat"}
"""Seed names that differ from pydantic-ai's."""


def is_known_provider(name: str) -> bool:
    """Return whether pydantic-ai has a provider of that name."""
    from pydantic_ai.providers import infer_provider_class  # takes half a second; asked only where a provider is named

    try:
        infer_provider_class(_PROVIDERS.get(name, name))
    except ValueError:
        return False
    except ImportError:  # known, but its own library is not installed: the model says so when it is used
        return True
    return True


def model_name(provider: str | None, model: str | None, default_provider: str = "", default_model: str = "") -> str:
    """Return ``provider:model``, or ``scripted`` where nothing is configured.

    Raises
    ------
    SetupError
        Only one half of the name is known.
    """
    model = model or default_model
    provider = provider or default_provider
    if model == SCRIPTED or (not model and not provider):
        return SCRIPTED
    if not model:
        raise SetupError(
            f'provider "{provider}" is named without a model; add for example `Model: <name>`', ("Provider",)
        )
    if ":" in model:
        return model
    if not provider:
        raise SetupError(
            f'model "{model}" is named without a provider; write `Model: <provider>:{model}` or add `Provider`',
            ("Model",),
        )
    return f"{_PROVIDERS.get(provider, provider)}:{model}"
