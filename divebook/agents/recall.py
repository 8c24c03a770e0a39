"""Answers that a turn takes from elsewhere, and asks no model for: from a cache, or from a run that is played again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from divebook.agents.requests import made_with, whole
from divebook.events.codec import canonical_hash

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import ModelRequestParams


class RequestToSend:
    """A request as it would be sent: the one of a number in its turn, to a model of some name."""

    def __init__(self, number: int, model: str, params: ModelRequestParams) -> None:
        self.number, self._model, self._params = number, model, params

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in the form of the log, without what differs on every run."""
        return [whole(message) for message in self._params.messages]

    @cached_property
    def digest(self) -> str:
        """The same for the same model, settings, instructions, tools, output and messages, whichever agent sends it.

        The model is one at an address, and headers count as they are written: a gateway may answer by them.
        """
        params = self._params
        address = getattr(params.run_context.model, "base_url", None)
        headers = (params.model_settings or {}).get("extra_headers")
        made = made_with(params.messages, params.model_settings, params.model_request_parameters, self._model)
        return canonical_hash({"made": made, "address": address, "headers": headers, "messages": self.messages})


class Recall(Protocol):
    """Where answers come from."""

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the response to a request in the form of the log; None to have the model asked."""

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Take a response that a model has just given."""
