"""The name that pydantic-ai has for the model that a definition names; default models of providers."""

from __future__ import annotations

from typing import get_args

from divebook.agents.scripted import SCRIPTED
from divebook.errors import SetupError

_PROVIDERS = {"openai-completions": "openai-chat"}
"""Seed names that differ from pydantic-ai's."""

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "cerebras": "gpt-oss-120b",
    "cohere": "command-a-plus-05-2026",
    "deepseek": "deepseek-flash",
    "google": "gemini-3.8-flash",
    "google-cloud": "gemini-3.8-flash",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-medium-latest",
    "openai": "gpt-6-luna",
    "openai-chat": "gpt-6-luna",
    "openai-responses": "gpt-6-luna",
    "xai": "grok-4-1-fast-non-reasoning",
}
"""The model of a provider that is named without one."""
MOST_LISTED = 8
RECORDED = "recorded:"
"""Begins the name of a model that is a run: ``recorded:RUN`` answers as the models of that run did."""


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
        A model is named without a provider, or the provider has no model in `DEFAULT_MODELS`.
    """
    model = model or default_model
    provider = provider or default_provider
    if model == SCRIPTED or (not model and not provider):
        return SCRIPTED
    if not model:
        return _default_model(provider)
    if ":" in model:
        return model
    if not provider:
        raise SetupError(
            f'model "{model}" is named without a provider; write `Model: <provider>:{model}` or add `Provider`',
            ("Model",),
        )
    return f"{_PROVIDERS.get(provider, provider)}:{model}"


def _default_model(provider: str) -> str:
    name = _PROVIDERS.get(provider, provider)
    if name in DEFAULT_MODELS:
        return f"{name}:{DEFAULT_MODELS[name]}"
    known = known_models(name)
    more = ", ..." if len(known) > MOST_LISTED else ""
    advice = f"one of {', '.join(known[:MOST_LISTED])}{more}" if known else "a model that you have there"
    raise SetupError(
        f'provider "{provider}" is named without a model, and has no default; add `Model: <name>`, {advice}',
        ("Provider",),
    )


def known_models(provider: str) -> list[str]:
    """Return the models of a provider that pydantic-ai knows by name, sorted; others may work as well."""
    from pydantic_ai.models import KnownModelName

    names = get_args(KnownModelName.__value__)
    return sorted(name.partition(":")[2] for name in names if name.partition(":")[0] == provider)
