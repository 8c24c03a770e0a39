"""What a model needs before it can be asked: its library, a key and a price."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

from divebook.agents.models import DEFAULT_MODELS, RECORDED, is_known_provider, known_models
from divebook.agents.prices import is_priced
from divebook.agents.scripted import SCRIPTED

KEY_ENDINGS = ("API_KEY", "TOKEN")
MISSING = re.compile(r"`([A-Z][A-Z0-9_]+)`")
"""How pydantic-ai names, in its errors, the variables that it would read."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What a model still needs; texts for people, empty where nothing is missing."""

    model: str
    library: str
    """How to install its library."""
    key: str
    """Which variable is missing; never what one holds."""
    found_key: str
    """The variable that holds its key, where one can be named."""
    has_price: bool
    hint: str = ""
    """What may be meant by a name that is not known."""

    @property
    def is_usable(self) -> bool:
        """Whether a request can be made."""
        return not self.library and not self.key


def examine(model: str) -> Examined:
    """Look at what one model needs; sends no request.

    Parameters
    ----------
    model
        ``provider:model``, or ``scripted``.

    Examples
    --------
    >>> examine("scripted").is_usable
    True
    """
    if model == SCRIPTED or model.startswith(RECORDED):
        return Examined(model, "", "", "", has_price=True)
    provider, _, name = model.partition(":")
    if not is_known_provider(provider):
        return Examined(model, f"no provider is called {provider!r}", "", "", has_price=False)
    library = _missing_library(provider)
    key = "" if library else _missing_key(provider)
    known = known_models(provider)
    hint = "" if not known or name in known else f"models known by name: {', '.join(known)}"
    return Examined(model, library, key, _found_key(provider), is_priced(name, provider), hint)


@functools.cache
def usable_models() -> tuple[str, ...]:
    """Return the models that are known by name of the providers whose libraries are installed."""
    found: dict[str, None] = {}
    for provider, default in DEFAULT_MODELS.items():
        if not _missing_library(provider):
            found |= dict.fromkeys(f"{provider}:{name}" for name in (default, *known_models(provider)))
    return tuple(found)


def _missing_library(provider: str) -> str:
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ImportError as error:
        found = re.search(r"pip install [\"']?([\w\[\],.-]+)", str(error))
        return f"pip install '{found[1]}'" if found else str(error)
    return ""


def _missing_key(provider: str) -> str:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.providers import infer_provider

    try:
        infer_provider(provider)
    except (UserError, ValueError) as error:
        named = MISSING.findall(str(error))
        return f"set {' or '.join(dict.fromkeys(named))}" if named else str(error)
    return ""


def _found_key(provider: str) -> str:
    """Return the name of a variable that looks like the provider's key."""
    begins = provider.partition("-")[0].upper()
    return next((name for name in sorted(os.environ) if name.startswith(begins) and name.endswith(KEY_ENDINGS)), "")


async def ping(model: str) -> str:
    """Make one small request; return the answer's beginning.

    Raises
    ------
    Exception
        Whatever the provider's client raises.
    """
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import infer_model
    from pydantic_ai.settings import ModelSettings

    found = infer_model(model)
    async with found:
        settings = ModelSettings(max_tokens=64, timeout=30.0, max_retries=0)
        answer = await model_request(found, [ModelRequest.user_text_prompt("Say ok.")], model_settings=settings)
    return (answer.text or "").strip()[:40]
