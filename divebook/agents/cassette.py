"""A run that is played again: its models answer as they did, and everything else is done anew (``recorded:RUN``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from divebook.agents.models import RECORDED
from divebook.errors import StepError
from divebook.events.codec import canonical_hash
from divebook.events.recorded import opened
from divebook.text.cuts import one_line

if TYPE_CHECKING:
    from divebook.agents.recall import RequestToSend
    from divebook.history.requests import RequestView

MOST_SHOWN = 300
"""Characters of a message that an error shows."""


class Cassette:
    """The requests that a run made where a turn stands now.

    Parameters
    ----------
    model
        ``recorded:RUN``.
    agent
        Whose turn it is.
    requests
        Those of the run at the same place.
    """

    def __init__(self, model: str, agent: str, requests: Sequence[RequestView]) -> None:
        self._run, self._agent = model.removeprefix(RECORDED), agent
        self._requests = [request for request in requests if request.agent == agent and request.response is not None]

    async def find(self, sent: RequestToSend) -> Mapping[str, Any]:
        """Return what the run was answered.

        Raises
        ------
        StepError
            It asked something else there, or nothing.
        """
        known = [request for request in self._requests if request.n == sent.number]
        for request in known:
            if canonical_hash(_asked(request.messages)) == canonical_hash(_asked(sent.messages)):
                found: Mapping[str, Any] = opened(request.span.result)
                return found
        at = f"request {sent.number} of agent {self._agent}"
        if not known:
            raise StepError(
                f"the run {self._run} has no answer to {at} here: it took another way. Give the agent a model for what "
                "is new, or play a run of the same workflow"
            )
        was, now = _first_difference(_asked(known[0].messages), _asked(sent.messages))
        raise StepError(
            f"the run {self._run} was asked something else in {at}. It was sent {was}, and now {now}. Put back what "
            "was changed, or give the agent a model for what is new"
        )

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Do nothing: every answer comes from the run."""


def _asked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages that a model got; its own answers between them come from the run itself."""
    return [message for message in messages if message["kind"] == "request"]


def _first_difference(was: Sequence[Any], now: Sequence[Any]) -> tuple[str, str]:
    """Return the first message in which two requests differ, of each, as people read it."""
    unlike = (place for place, (one, other) in enumerate(zip(was, now, strict=False)) if one != other)
    place = next(unlike, min(len(was), len(now)))
    return _told(was, place), _told(now, place)


def _told(messages: Sequence[Any], place: int) -> str:
    return one_line(str(messages[place]), MOST_SHOWN) if place < len(messages) else "nothing more"
