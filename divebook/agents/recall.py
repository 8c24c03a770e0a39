"""Answers that a turn takes from elsewhere, and asks no model for: from a cache, or from a run that is played again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from divebook.agents.requests import whole
from divebook.events.codec import canonical_hash

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from divebook.agents.requests import Described


class Sent:
    """A request as it would be sent."""

    def __init__(self, told: Described, messages: Sequence[ModelMessage]) -> None:
        self.number, self._told, self._messages = told.number, told, messages

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in the form of the log, without what differs on every run."""
        return [whole(message) for message in self._messages]

    @property
    def digest(self) -> str:
        """The same for the same model, settings, instructions, tools, output and messages, whichever agent sends it."""
        return canonical_hash({"setting": self._told.setting.digest, "messages": self.messages})


class Recall(Protocol):
    """Where answers come from."""

    def find(self, sent: Sent) -> Mapping[str, Any] | None:
        """Return the response to a request in the form of the log; None to have the model asked."""

    def keep(self, sent: Sent, response: Mapping[str, Any]) -> None:
        """Take a response that a model has just given."""
