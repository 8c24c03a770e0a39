"""What model calls cost, and what they may cost at most: the one door to genai-prices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import Reserved

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

CHARACTERS_PER_TOKEN = 2
"""Texts have more characters to a token than this, in every language that models were trained on."""
TOKENS_PER_MESSAGE = 16
"""What each message adds to its texts."""
TOKENS_PER_FILE = 4000
"""What an image or document is taken for, whatever its size."""
MOST_OUTPUT = 4096
"""Tokens an answer is taken to have at most, where the agent sets no MaxTokens."""


def estimate(model: Model, messages: Sequence[ModelMessage], settings: ModelSettings | None) -> Reserved:
    """Return what a request may consume at most."""
    written = sum(_tokens_of(message) for message in messages)
    answered = (settings or {}).get("max_tokens") or MOST_OUTPUT
    cost = _price(model.model_name, model.system, written, answered)
    return Reserved(written + answered, cost or 0, is_priced=cost is not None)


def _tokens_of(message: ModelMessage) -> int:
    total = TOKENS_PER_MESSAGE + len(getattr(message, "instructions", None) or "") // CHARACTERS_PER_TOKEN
    for part in message.parts:
        content = getattr(part, "content", None) or getattr(part, "args", None) or ""
        for piece in content if isinstance(content, list | tuple) else [content]:
            total += TOKENS_PER_FILE if not isinstance(piece, str) else len(piece) // CHARACTERS_PER_TOKEN + 1
    return total


def cost_of(response: ModelResponse) -> int | None:
    """Return what a response cost in nanodollars; None where no price is known."""
    used = response.usage
    return _price(
        response.model_name or "",
        response.provider_name,
        used.input_tokens,
        used.output_tokens,
        cache_read=used.cache_read_tokens,
        cache_write=used.cache_write_tokens,
    )


def is_priced(model: str, provider: str) -> bool:
    """Return whether a price is known, so that `max_cost` can be kept."""
    return _price(model, provider.partition("-")[0], 1, 1) is not None


def _price(
    model: str, provider: str | None, written: int, answered: int, *, cache_read: int = 0, cache_write: int = 0
) -> int | None:
    """Return the price in nanodollars; None where none is known."""
    from genai_prices import Usage

    found = _found(model, provider)
    if found is None:
        return None
    usage = Usage(
        input_tokens=written, output_tokens=answered, cache_read_tokens=cache_read, cache_write_tokens=cache_write
    )
    seller, priced = found
    return int(priced.calc_price(usage, seller, genai_request_timestamp=datetime.now(UTC)).total_price * NANODOLLARS)


@lru_cache(maxsize=256)
def _found(model: str, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    """Return who sells a model, and its prices; to search for them takes longer than all else of a request."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
