"""Facts about language models: names, providers and their default models, keys, prices, and missing requirements."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from divebook.agents.scripted import SCRIPTED
from divebook.definitions.resources import AgentDefinition
from divebook.documents.policy import KINDS, Policy, is_reference, resolved
from divebook.engine.operations import Reserved
from divebook.errors import SetupError
from divebook.questions.bounds import NANODOLLARS, nanodollars
from divebook.text.arguments import describe

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings


_PROVIDERS = {"openai-completions": "openai-chat"}
"""Provider names of legacy definitions that differ from pydantic-ai's."""

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
"""Model that is used if only the provider is named."""
MOST_LISTED = 8
RECORDED = "recorded:"
"""Prefix of a model name that refers to a run: ``recorded:RUN`` answers as the models of that run did."""


def is_known_provider(name: str) -> bool:
    """Return True if pydantic-ai supports a provider of this name, even if the provider's library is not installed."""
    from pydantic_ai.providers import infer_provider_class  # takes half a second: only if a provider is named

    try:
        infer_provider_class(_PROVIDERS.get(name, name))
    except ValueError:
        return False
    except ImportError:  # known, but its library is not installed: the model raises when it is used
        return True
    return True


def model_name(provider: str | None, model: str | None, default_provider: str = "", default_model: str = "") -> str:
    """Build the name ``provider:model`` of a model. The defaults replace a missing provider or model. Return
    ``scripted`` if neither is configured.

    Raises
    ------
    SetupError
        A model is named without a provider, or the provider has no model in `DEFAULT_MODELS`.
    """
    model = model or default_model
    provider = provider or default_provider
    for name, value in (("model", model), ("provider", provider)):
        if value and not isinstance(value, str):
            raise SetupError(f"{name} must be a string, not {describe(value)}")
    # Without any configuration the offline scripted model is used.
    if model == SCRIPTED or (not model and not provider):
        return SCRIPTED
    if not model:
        return _default_model(provider)
    # The model name has its own provider, which takes precedence.
    if ":" in model:
        return model
    if not provider:
        raise SetupError(
            f'model "{model}" has no provider; write `Model: <provider>:{model}` or add `Provider`',
            ("Model",),
        )
    return f"{_PROVIDERS.get(provider, provider)}:{model}"


def _default_model(provider: str) -> str:
    name = _PROVIDERS.get(provider, provider)
    if name in DEFAULT_MODELS:
        return f"{name}:{DEFAULT_MODELS[name]}"
    listed = known_models(name)
    more = ", ..." if len(listed) > MOST_LISTED else ""
    advice = f"such as {', '.join(listed[:MOST_LISTED])}{more}" if listed else "with a model that you have access to"
    raise SetupError(
        f'provider "{provider}" has no default model; add `Model: <name>`, {advice}',
        ("Provider",),
    )


def known_models(provider: str) -> list[str]:
    """Return the model names that pydantic-ai lists for a provider, sorted. Other names may work too."""
    from pydantic_ai.models import KnownModelName

    names = get_args(KnownModelName.__value__)
    return sorted(name.partition(":")[2] for name in names if name.partition(":")[0] == provider)


# --- secrets ------------------------------------------------------------------------------------------------------
# Definitions refer to a key by name. A key is sent to its own provider only.


def check_key(definition: AgentDefinition, *, is_named: bool) -> None:
    """Raise `SetupError` if the ``ApiKey`` of an agent is a key itself instead of a reference such as ``env://NAME``.

    Parameters
    ----------
    is_named
        True if the model is given by name. False for a model object, which has its own key.
    """
    if definition.api_key is None:
        return
    if not is_reference(definition.api_key):
        raise SetupError(
            f"ApiKey of agent {definition.name} is the key itself, so definitions and logs would contain it. Put the "
            "key into an environment variable or a file, and write env://NAME or file://PATH",
            ("ApiKey",),
        )
    if not is_named:
        raise SetupError(
            f"agent {definition.name} has an ApiKey, but its model object already has a key; remove one of these keys"
        )


def without_secrets(definition: AgentDefinition) -> AgentDefinition:
    """Return a copy of an agent's definition without its key and without headers that refer to secrets, so that they
    are not sent to another provider when the agent switches to it.
    """
    settings = definition.model_settings
    if settings is not None:
        headers = {
            name: values for name, values in settings.request_headers.items() if not any(map(is_reference, values))
        }
        settings = replace(settings, request_headers=headers)
    return replace(definition, api_key=None, model_settings=settings)


# --- prices and estimates -----------------------------------------------------------------------------------------
# The maximum consumption of a request, and the cost of a response. This is the only use of genai-prices.


CHARACTERS_PER_TOKEN = 2
"""Lower bound: texts have more characters per token in every language that models were trained on."""
TOKENS_PER_MESSAGE = 16
"""Tokens that each message adds to its text."""
TOKENS_PER_FILE = 4000
"""Assumed tokens of an image or document of any size."""
FREE_PROVIDERS = frozenset({"ollama"})
"""Providers that run models on machines of the user. Their requests cost nothing, so that `max_cost` holds."""
MOST_OUTPUT = 4096
"""Assumed maximum of output tokens if the agent sets no MaxTokens."""


def estimate(
    model: Model,
    input_tokens: int,
    settings: ModelSettings | None,
) -> Reserved:
    """Return the maximum tokens and cost of a model request, which the budget reserves before the request is sent.
    `input_tokens` is an estimate.

    A scripted model states the consumption of its next answer itself.
    """
    reserved = getattr(model, "reserved", None)
    if isinstance(reserved, Reserved):
        return reserved
    output_tokens = (settings or {}).get("max_tokens") or MOST_OUTPUT
    cost = _price(model.model_name, model.system, input_tokens, output_tokens)
    return Reserved(input_tokens + output_tokens, cost or 0, is_priced=cost is not None)


def tokens_of_definitions(parameters: ModelRequestParameters) -> int:
    """Return the estimated number of tokens of the tool and output definitions in a model request. Slow: the estimate
    takes about as long as recording a call.
    """
    tools = (*parameters.function_tools, *parameters.output_tools)
    characters = sum(len(tool.description or "") + _length_of(tool.parameters_json_schema) for tool in tools)
    if parameters.output_object is not None:
        characters += _length_of(parameters.output_object.json_schema)
    return characters // CHARACTERS_PER_TOKEN + TOKENS_PER_MESSAGE * len(tools)


def _length_of(schema: dict[str, Any]) -> int:
    return len(json.dumps(schema, default=str))


def tokens_of(message: ModelMessage) -> int:
    """Return the estimated maximum number of tokens of a message."""
    total = TOKENS_PER_MESSAGE + len(getattr(message, "instructions", None) or "") // CHARACTERS_PER_TOKEN
    for part in message.parts:
        content = getattr(part, "content", None) or getattr(part, "args", None) or ""
        total += sum(map(_tokens_of_piece, content if isinstance(content, list | tuple) else [content]))
    return total


def _tokens_of_piece(piece: Any) -> int:
    if isinstance(piece, dict | list | tuple | int | float):  # data, such as arguments and results of tools
        piece = json.dumps(piece, default=str, skipkeys=True)
    # Rounded up. A piece that is neither text nor data is a file.
    return len(piece) // CHARACTERS_PER_TOKEN + 1 if isinstance(piece, str) else TOKENS_PER_FILE


def cost_of(response: ModelResponse, requested: Model | None = None) -> int | None:
    """Return the cost of a model response in nanodollars. Return None if the price of the model is unknown.

    `requested` is the requested model. Its price is used if the provider reports an unknown model name, such as a
    custom deployment. A cost limit then holds there too.
    """
    cost = _cost_of(response)
    if cost is not None or requested is None:
        return cost
    return _cost_of(replace(response, model_name=requested.model_name, provider_name=requested.system))


def _cost_of(response: ModelResponse) -> int | None:
    usage = response.usage
    # pydantic-ai marks the responses of a batch in this way.
    if (response.provider_details or {}).get("processing") == "batch":
        return _batch_price(response)
    return _price(
        response.model_name or "",
        response.provider_name,
        usage.input_tokens,
        usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


def _batch_price(response: ModelResponse) -> int | None:
    """Return the cost of a batch response in nanodollars. Batch prices are lower than normal prices. Return None if the
    price or the usage is unknown.
    """
    try:
        return nanodollars(response.cost().total_price)
    except (AssertionError, LookupError, ValueError):  # no model, an unknown model, or no usage
        return None


def is_priced(model: str, provider: str) -> bool:
    """Return True if the price of a model is known. Without a price, `max_cost` cannot be enforced."""
    # "openai-chat" -> "openai": the variants of a provider have its prices.
    return _price(model, provider.partition("-")[0], 1, 1) is not None


def _price(
    model: str,
    provider: str | None,
    input_tokens: int,
    output_tokens: int,
    *,
    cache_read: int = 0,
    cache_write: int = 0,
) -> int | None:
    """Return the price of a model request in nanodollars, computed from token counts. Return None if the price of the
    model is unknown.
    """
    if provider in FREE_PROVIDERS:
        return 0
    priced_model = _priced_model(model, provider)
    if priced_model is None:
        return None
    rates = priced_model.rates
    # Providers count cached tokens as input tokens too.
    fresh = input_tokens - cache_read - cache_write
    # Inconsistent counts, which make `fresh` negative, are left to genai-prices.
    if rates is None or fresh < 0:
        return int(priced_model.price(input_tokens, output_tokens, cache_read, cache_write))
    fresh_rate, output_rate, read_rate, write_rate = rates
    return int(fresh * fresh_rate + output_tokens * output_rate + cache_read * read_rate + cache_write * write_rate)


class _Priced(NamedTuple):
    """Price of a model at a provider. The price per token is stored as a number if it is constant."""

    seller: Provider
    model: ModelInfo
    rates: tuple[Decimal, Decimal, Decimal, Decimal] | None
    """Nanodollars per token of new input, output, cache read and cache write.

    None if the price depends on the time or the length, or if each request has a fixed price. genai-prices is then
    called each time, which takes longer than everything else here (test_rates_give_the_prices_that_genai_prices_gives).
    """

    def price(self, input_tokens: int, output_tokens: int, cache_read: int, cache_write: int) -> Decimal:
        """Compute the current price of a request with genai-prices, in nanodollars."""
        from genai_prices import Usage

        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write,
        )
        calculation = self.model.calc_price(usage, self.seller, genai_request_timestamp=datetime.now(UTC))
        return calculation.total_price * NANODOLLARS

    def rated(self) -> _Priced:
        """Return a copy with the prices per token as numbers, so that costs are computed fast. Return this object
        unchanged if the price depends on the time or the length, or if each request has a fixed price.
        """
        from genai_prices.types import ModelPrice

        # Prices that change with the time are a list, prices that change with the length are not decimal numbers.
        fixed = isinstance(self.model.prices, ModelPrice)
        if not fixed or not all(isinstance(price, Decimal) for price in vars(self.model.prices).values()):
            return self
        if self.price(0, 0, 0, 0):  # there is a fixed price per request
            return self
        # Each rate is the price of many tokens of a single kind. Cached tokens are input tokens too.
        many = 10**6
        fresh = self.price(many, 0, 0, 0) / many
        output = self.price(0, many, 0, 0) / many
        read = self.price(many, 0, many, 0) / many
        write = self.price(many, 0, 0, many) / many
        return self._replace(rates=(fresh, output, read, write))


@lru_cache(maxsize=256)
def _priced_model(model: str, provider: str | None) -> _Priced | None:
    """Return the price data of a model from the library genai-prices. Return None if the library does not know the
    model.

    Cached, because the search takes longer than the rest of a request's bookkeeping.
    """
    from genai_prices.data_snapshot import get_snapshot

    try:
        seller, model_info = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    return _Priced(seller, model_info, None).rated()


# --- requirements -------------------------------------------------------------------------------------------------
# A model needs its library, a key and a price before a request.


KEY_ENDINGS = ("API_KEY", "TOKEN")
MISSING = re.compile(r"`([A-Z][A-Z0-9_]+)`")
"""Pattern of the environment variables that pydantic-ai names in its errors."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Result of checking whether a model can be used: the missing library, the missing key, and whether the price is
    known. A string attribute is empty if nothing is missing.
    """

    model: str
    library: str
    """Command that installs its library."""
    key: str
    """Name of the missing variable, or why the key cannot be read; never its value."""
    found_key: str
    """Name of the variable that holds its key, or the reference to its key, if one can be determined."""
    has_price: bool
    hint: str = ""
    """Suggestion for an unknown name."""

    @property
    def is_usable(self) -> bool:
        """True if the model can be asked: neither library nor key is missing."""
        return not self.library and not self.key


def examine(model: str, api_key: str | None = None) -> Examined:
    """Check whether the library, the key and the price of a model are available, and return the result. No request is
    sent.

    Parameters
    ----------
    model
        ``provider:model``, or ``scripted``.
    api_key
        Reference to the key, ``env://NAME`` or ``file://PATH``. By default the provider's library finds the key.

    Examples
    --------
    >>> examine("scripted").is_usable
    True
    """
    if model == SCRIPTED or model.startswith(RECORDED):
        return Examined(model, "", "", "", has_price=True)
    provider, _, name = model.partition(":")
    if not is_known_provider(provider):
        return Examined(model, f"unknown provider {provider!r}", "", "", has_price=False)
    library = _missing_library(provider)
    if api_key is None:
        key, found_key = _missing_key(provider) if not library else "", _found_key(provider)
    else:
        key, found_key = _unreadable_key(api_key), api_key
    listed = known_models(provider)
    # pydantic-ai does not list every name, so an unlisted name is only a hint.
    hint = "" if not listed or name in listed else f"known models of this provider: {', '.join(listed)}"
    return Examined(model, library, key, found_key, is_priced(name, provider), hint)


@functools.cache
def usable_models() -> tuple[str, ...]:
    """Return the names ``provider:model`` of all known models whose provider's library is installed. Keys are not
    checked.
    """
    models: dict[str, None] = {}
    for provider, default in DEFAULT_MODELS.items():
        if not _missing_library(provider):
            models |= dict.fromkeys(f"{provider}:{name}" for name in (default, *known_models(provider)))
    return tuple(models)


def _missing_library(provider: str) -> str:
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ImportError as error:
        return install_command(error)
    return ""


def install_command(error: ImportError) -> str:
    """Return the command that installs the library of a provider, from the error of pydantic-ai about the missing
    library; the error itself if it names no command.

    >>> install_command(ImportError('Please install `groq` — `pip install "pydantic-ai-slim[groq]"`'))
    "pip install 'pydantic-ai-slim[groq]'"
    """
    command = re.search(r"pip install [\"']?([\w\[\],.-]+)", str(error))
    return f"pip install '{command[1]}'" if command else str(error)


def _missing_key(provider: str) -> str:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.providers import infer_provider

    try:
        infer_provider(provider)
    except (UserError, ValueError) as error:
        variables = missing_variables(error)
        return f"set {' or '.join(variables)}" if variables else str(error)
    return ""


def _unreadable_key(api_key: str) -> str:
    """Return why the key to which an agent refers cannot be read; an empty string if it can."""
    try:
        # Definitions are checked for permissions elsewhere. This is about the variable or file itself.
        resolved(api_key, Policy(*KINDS))
    except SetupError as error:
        return str(error)
    return ""


def missing_variables(error: Exception) -> list[str]:
    """Return the environment variables that an error of pydantic-ai about a missing key names.

    >>> missing_variables(ValueError("Set the `OPENAI_API_KEY` environment variable or ..."))
    ['OPENAI_API_KEY']
    """
    return list(dict.fromkeys(MISSING.findall(str(error))))


def _found_key(provider: str) -> str:
    """Return the name of an environment variable that looks like the key of a provider and is set. Return an empty
    string if there is none.
    """
    # "openai-chat" -> "OPENAI": OPENAI_API_KEY
    begins = provider.partition("-")[0].upper()
    return next((name for name in sorted(os.environ) if name.startswith(begins) and name.endswith(KEY_ENDINGS)), "")


async def ping(model: str, api_key: str | None = None) -> str:
    """Send a small request to a model to test the connection; return the beginning of the answer.

    `api_key` is a reference to the key, as for `examine`.

    Raises
    ------
    Exception
        Any error of the provider's client.
    """
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider, infer_provider_class
    from pydantic_ai.settings import ModelSettings

    def provider_of(name: str) -> Any:
        if api_key is None:
            return infer_provider(name)
        provider_class: Any = infer_provider_class(name)
        return provider_class(api_key=resolved(api_key, Policy(*KINDS)))

    client = infer_model(model, provider_of)
    async with client:
        settings = ModelSettings(max_tokens=64, timeout=30.0, max_retries=0)
        answer = await model_request(client, [ModelRequest.user_text_prompt("Say ok.")], model_settings=settings)
    return (answer.text or "").strip()[:40]
