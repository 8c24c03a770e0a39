"""Consumption of model requests that fail after their provider has begun to reply: it is paid, so it counts.

A stream that breaks off, takes too long or ends early has often stated its usage already, and so has a whole reply that
is refused. Without it a request that is tried again could spend more than the bounds allow
(`tests/agents/test_paid_replies.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from divebook.agents.wire import plain_response, usage_of
from divebook.engine.operations import CONSUMED

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

_REPLIES: ContextVar[list[ModelResponse] | None] = ContextVar("divebook_replies", default=None)
"""Replies of the request that is under way, whole or not."""


def note_reply(response: ModelResponse) -> None:
    """Note a reply, whose usage counts if the request fails."""
    replies = _REPLIES.get()
    if replies is not None:
        replies.append(response)


@contextmanager
def paid_replies(model: Model) -> Iterator[None]:
    """Add to an error of a request what the replies that were noted consumed.

    Parameters
    ----------
    model
        The model that is asked, whose price counts where that of the replying model is unknown.
    """
    replies: list[ModelResponse] = []
    token = _REPLIES.set(replies)
    try:
        yield
    except Exception as error:
        usage = Counter[str]()
        for reply in replies:
            if reply.usage.has_values():
                usage.update(usage_of(plain_response(reply, model)))
        del usage["requests"]  # which are those that were answered
        if usage:
            setattr(error, CONSUMED, dict(usage))
        raise
    finally:
        _REPLIES.reset(token)
