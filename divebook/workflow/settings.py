"""Settings that hold for a whole environment: what they demand, and what they give to its agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from divebook.errors import Place, SetupError
from divebook.workflow.definition import AgentDefinition, Config, Definitions, ModelSettings, ProviderSettings

DEFAULT_PROVIDER = "anthropic"


def require_name(definitions: Definitions) -> str:
    """Return the environment's name; raises `SetupError` if there is none."""
    if not definitions.name.strip():
        raise SetupError("environment name is required: add Name at the top of the definition")
    return definitions.name


def check_providers(definitions: Definitions, is_known: Callable[[str], bool]) -> None:
    """Raise `SetupError` if an agent, or the settings, name a provider that is not known."""
    named: dict[Place, str | None] = {("Config", "DefaultProvider"): definitions.config.default_provider}
    named |= {("Agents", index, "Provider"): agent.provider for index, agent in enumerate(definitions.agents)}
    for place, name in named.items():
        if name and not is_known(name):
            message = f'unsupported provider: "{name}". Use a provider that pydantic-ai has, such as openai'
            raise SetupError(message, place)


def check_default_workflow(config: Config, workflows: Collection[str]) -> None:
    """Raise `SetupError` if the default workflow does not exist."""
    if config.default_workflow and config.default_workflow not in workflows:
        raise SetupError(f"default workflow not found: {config.default_workflow}")


def with_defaults(agent: AgentDefinition, config: Config) -> AgentDefinition:
    """Return the agent with the model settings in effect: its own, filled up from its provider's."""
    entry = provider_settings(agent, config)
    return agent if entry is None else replace(agent, model_settings=combined_settings(entry, agent.model_settings))


def provider_settings(agent: AgentDefinition, config: Config) -> ProviderSettings | None:
    """Return what the settings say of the provider of an agent; None if they say nothing."""
    provider = agent.provider or config.default_provider or DEFAULT_PROVIDER
    return next((entry for entry in config.providers if entry.name == provider), None)


def combined_settings(provider: ProviderSettings, own: ModelSettings | None) -> ModelSettings:
    """Return what an agent asks for together with what its provider's entry says; the agent wins.

    Features are united and sorted; a header has the provider's values and then the agent's.
    """
    settings = own or ModelSettings()
    return replace(
        settings,
        features=tuple(sorted({*provider.features, *settings.features})),
        request_headers=_headers(provider.request_headers, settings.request_headers),
        caching=provider.caching if settings.caching is None else settings.caching,
    )


def _headers(*sources: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for source in sources:
        for name, values in source.items():
            headers.setdefault(name, []).extend(values)
    return headers
