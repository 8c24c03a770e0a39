"""Prices of model calls, and the most that a call may cost: the one door to genai-prices."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import Reserved

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

CHARACTERS_PER_TOKEN = 2
"""Texts have more characters to a token than this, in every language that models were trained on."""
TOKENS_PER_MESSAGE = 16
"""What each message adds to its texts."""
TOKENS_PER_FILE = 4000
"""What an image or document is taken for, whatever its size."""
MOST_OUTPUT = 4096
"""Tokens an answer is taken to have at most, where the agent sets no MaxTokens."""


def estimate(
    model: Model,
    written: int,
    settings: ModelSettings | None,
) -> Reserved:
    """Return what a request may consume at most; `written` is what its messages and definitions count as, in tokens.

    A model that knows what its next answer consumes, as a script does, says so itself.
    """
    claimed = getattr(model, "reserved", None)
    if isinstance(claimed, Reserved):
        return claimed
    answered = (settings or {}).get("max_tokens") or MOST_OUTPUT
    cost = _price(model.model_name, model.system, written, answered)
    return Reserved(written + answered, cost or 0, is_priced=cost is not None)


def tokens_of_definitions(parameters: ModelRequestParameters) -> int:
    """Return what the definitions of tools and of the answer count as; it takes as long as to record a call."""
    tools = (*parameters.function_tools, *parameters.output_tools)
    characters = sum(len(tool.description or "") + _length_of(tool.parameters_json_schema) for tool in tools)
    if parameters.output_object is not None:
        characters += _length_of(parameters.output_object.json_schema)
    return characters // CHARACTERS_PER_TOKEN + TOKENS_PER_MESSAGE * len(tools)


def _length_of(schema: dict[str, Any]) -> int:
    return len(json.dumps(schema, default=str))


def tokens_of(message: ModelMessage) -> int:
    """Return what a message counts as."""
    total = TOKENS_PER_MESSAGE + len(getattr(message, "instructions", None) or "") // CHARACTERS_PER_TOKEN
    for part in message.parts:
        content = getattr(part, "content", None) or getattr(part, "args", None) or ""
        total += sum(map(_tokens_of_piece, content if isinstance(content, list | tuple) else [content]))
    return total


def _tokens_of_piece(piece: Any) -> int:
    if isinstance(piece, dict | list | tuple | int | float):  # data, such as a tool takes and returns
        piece = json.dumps(piece, default=str, skipkeys=True)
    return len(piece) // CHARACTERS_PER_TOKEN + 1 if isinstance(piece, str) else TOKENS_PER_FILE


def cost_of(response: ModelResponse, asked: Model | None = None) -> int | None:
    """Return what a response cost in nanodollars; None where no price is known.

    `asked` is the model that was asked: its price counts where a provider names a model that nobody knows, such as a
    deployment of its own, so that a bounded cost holds there as well.
    """
    cost = _cost_of(response)
    if cost is not None or asked is None:
        return cost
    return _cost_of(replace(response, model_name=asked.model_name, provider_name=asked.system))


def _cost_of(response: ModelResponse) -> int | None:
    used = response.usage
    if (response.provider_details or {}).get("processing") == "batch":
        return _batch_price(response)
    return _price(
        response.model_name or "",
        response.provider_name,
        used.input_tokens,
        used.output_tokens,
        cache_read=used.cache_read_tokens,
        cache_write=used.cache_write_tokens,
    )


def _batch_price(response: ModelResponse) -> int | None:
    """Return what a response of a batch cost, which has prices of its own."""
    try:
        return int(response.cost().total_price * NANODOLLARS)
    except (AssertionError, LookupError, ValueError):  # no model, none that is known, or no usage
        return None


def is_priced(model: str, provider: str) -> bool:
    """Return whether a price is known, so that `max_cost` can be kept."""
    return _price(model, provider.partition("-")[0], 1, 1) is not None


def _price(
    model: str, provider: str | None, written: int, answered: int, *, cache_read: int = 0, cache_write: int = 0
) -> int | None:
    """Return the price in nanodollars; None where none is known."""
    found = _found(model, provider)
    if found is None:
        return None
    rates, fresh = found.rates, written - cache_read - cache_write
    if rates is None or fresh < 0:
        return int(found.price(written, answered, cache_read, cache_write))
    fresh_rate, answered_rate, read_rate, write_rate = rates
    return int(fresh * fresh_rate + answered * answered_rate + cache_read * read_rate + cache_write * write_rate)


class _Priced(NamedTuple):
    """A model and who sells it."""

    seller: Provider
    model: ModelInfo
    rates: tuple[Decimal, Decimal, Decimal, Decimal] | None
    """Nanodollars of a token that is read anew, answered, read from a cache, written to one.

    None where the price depends on the time or the length, or a request has one of its own: genai-prices is asked each
    time then, which takes longer than all else here (test_rates_give_the_prices_that_genai_prices_gives).
    """

    def price(self, written: int, answered: int, cache_read: int, cache_write: int) -> Decimal:
        """Return what genai-prices says of a request now, in nanodollars."""
        from genai_prices import Usage

        usage = Usage(
            input_tokens=written, output_tokens=answered, cache_read_tokens=cache_read, cache_write_tokens=cache_write
        )
        priced = self.model.calc_price(usage, self.seller, genai_request_timestamp=datetime.now(UTC))
        return priced.total_price * NANODOLLARS

    def rated(self) -> _Priced:
        """Return it with its rates, if it has any."""
        from genai_prices.types import ModelPrice

        fixed = isinstance(self.model.prices, ModelPrice)
        if not fixed or not all(isinstance(price, Decimal) for price in vars(self.model.prices).values()):
            return self
        if self.price(0, 0, 0, 0):  # a request costs something by itself
            return self
        many = 10**6
        parts = ((many, 0, 0, 0), (0, many, 0, 0), (many, 0, many, 0), (many, 0, 0, many))
        fresh, answered, read, write = (self.price(*part) / many for part in parts)
        return self._replace(rates=(fresh, answered, read, write))


@lru_cache(maxsize=256)
def _found(model: str, provider: str | None) -> _Priced | None:
    """Return a model; to search for it takes longer than all else of a request."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        seller, priced = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    return _Priced(seller, priced, None).rated()
