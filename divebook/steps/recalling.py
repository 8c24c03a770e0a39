"""Where the answers of a turn come from, if not from its model alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.to_thread

from divebook.agents import Agent
from divebook.agents.cache import Cached, lasting
from divebook.agents.cassette import Cassette
from divebook.agents.models import RECORDED
from divebook.execution.context import StepContext
from divebook.history.requests import RequestView
from divebook.steps.offers import Offers

if TYPE_CHECKING:
    from divebook.agents.recall import Recall


async def recall_for(context: StepContext, agent: Agent, offers: Offers, turn: str) -> Recall | None:
    """Return it for a turn of an agent; `turn` is the id of its operation.

    Raises
    ------
    ExecutionNotFoundError
        It is to answer as a run did that is not there.
    """
    if agent.model_name.startswith(RECORDED):
        run = agent.model_name.removeprefix(RECORDED)
        requests = await anyio.to_thread.run_sync(offers.requests_of, run)  # the log may be long
        return Cassette(agent.model_name, agent.name, _at(context, requests, turn))
    if agent.definition.cache is None:
        return None
    return Cached(offers.responses, lasting(agent.definition.cache))


def _at(context: StepContext, requests: Sequence[RequestView], turn: str) -> list[RequestView]:
    """Return the requests of the same turn of another run, or those that agents without tools made in the same step."""
    same = [request for request in requests if request.span.within == turn]
    place = context.place("", 0)
    where = place.path, place.step, place.visit, place.iteration_index
    plain = [request for request in requests if request.span.within is None]
    return same or [
        request
        for request in plain
        if (request.span.path, request.span.step, request.span.visit, request.span.iteration) == where
    ]
