"""Budget of one agent turn: the bounds of the agent, which apply in addition to the bounds of the execution.

The consumption of subordinate agents counts as well. Before each request that is not in the log, the budget must have
room for the maximum that the request may consume. If the budget is too small, a person is asked, as for the bounds of
the execution, or the turn fails. Example: with 1000 tokens allowed, 700 spent and 200 reserved by a running request, a
request for up to 200 tokens waits until the running request ends and releases the part of its reservation that it did
not use.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.request_record import CUT_OFF, has_stated_end, plain_response, usage_of
from divebook.agents.scripted_model import ScriptedFunction, written_arguments
from divebook.engine.bounds import (
    Consumption,
    Exhausted,
    asked_about,
    bound_met,
    left_after,
    raised,
    require_price,
    within,
)
from divebook.engine.operations import CONSUMED, TEXT, THINKING, Write, arguments_part
from divebook.errors import BoundExceededError
from divebook.questions.bounds import FAIL, Bounds
from divebook.questions.question import RESOURCE_EXHAUSTED, STOP

if TYPE_CHECKING:
    from divebook.agents.turn import TurnContext
    from divebook.engine.operations import Reserved


class TurnBudget:
    """Budget of one agent turn: its bounds (limits), the consumption so far, and the budgets of the agents that
    delegated the task.

    Parameters
    ----------
    above
        Budget of the agent that delegated the task; None for a task of a step.
    share
        Bounds that the delegating agent assigned to the task, if it delegated several tasks at once.
    """

    def __init__(
        self, agent: str, bounds: Bounds, above: TurnBudget | None = None, share: Bounds | None = None
    ) -> None:
        self.agent = agent
        self.consumed = Consumption()
        self.bounds = bounds if share is None else within(bounds, share)
        self._share = share
        self._release: asyncio.Future[None] | None = None
        self.line: tuple[TurnBudget, ...] = (self, *(() if above is None else above.line))
        """This budget and those above it, nearest first."""

    @property
    def remaining(self) -> Bounds:
        """Part of the budget that is not consumed or reserved yet. The budgets of the agents that delegated the task
        limit it too.
        """
        remaining = Bounds()
        for budget in self.line:
            remaining = within(left_after(budget.bounds, budget.consumed), remaining)
        return remaining

    async def admit(self, context: TurnContext, reserved: Reserved) -> None:
        """Wait until a model request fits into this budget and into the budgets of the agents that delegated the task.
        `reserved` is the maximum consumption of the request.

        Raises
        ------
        BoundExceededError
            The request does not fit, and a person chose to stop or the bounds do not allow a question.
        """
        # Without a price, no wait and no answer of a person can make the request fit `max_cost`.
        for budget in self.line:
            require_price(budget.bounds, reserved)
        # Check every budget again after each question: concurrent calls have consumed more in the meantime
        # (test_while_a_bound_above_is_asked_about_those_below_may_be_reached).
        while True:
            budget, exhausted = self._first_exhausted(reserved)
            if exhausted is None:
                return
            # A running call releases the unused part of its reservation, so wait for it before asking a person.
            if not (exhausted.may_pass and await context.wait_beside_others(budget.next_release())):
                await budget.ask(context, exhausted)

    def _first_exhausted(self, reserved: Reserved) -> tuple[TurnBudget, Exhausted | None]:
        """Return the first budget that a model request would exceed, and the exceeded bound. `reserved` is the maximum
        consumption of the request. The agent's own budget is checked first, then those of delegating agents. If all
        have room, return this budget and None.
        """
        for budget in self.line:
            exhausted = budget.met(reserved)
            if exhausted is not None:
                return budget, exhausted
        return self, None

    def next_release(self) -> asyncio.Future[None]:
        """Return a future that completes as soon as one of this budget's running model requests ends. The consumption
        that was reserved for the request is then free again.
        """
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
        return self._release

    def met(self, reserved: Reserved) -> Exhausted | None:
        """Return the first bound of this budget that a model request would exceed, or None if the request fits.
        `reserved` is the maximum consumption of the request.
        """
        return bound_met(self.bounds, self.consumed, reserved)

    async def ask(self, context: TurnContext, exhausted: Exhausted) -> None:
        """Ask a person whether to raise a reached bound of this budget, and raise the bound to the value that the
        person enters.

        Raises
        ------
        BoundExceededError
            The person chose to stop, or the bounds do not allow a question.
        """
        if self.bounds.on_exhausted == FAIL:
            raise self._error(exhausted)
        # The limit is part of the key: if the raised bound is reached again, that is another question.
        key = f"bound-{self.agent}-{exhausted.bound}-{exhausted.limit}"
        # An answer belongs to the question that was shown. Reuse its recorded wording and consumption
        # (test_a_question_about_a_bound_keeps_its_recorded_wording).
        recorded = context.recorded_question(key)
        if recorded is not None:
            question = recorded.question
            data = recorded.data
        else:
            question, details = asked_about(exhausted, f"{self._owner(exhausted)}: ")
            data = {**details, "agent": self.agent}
        answer = await context.question(RESOURCE_EXHAUSTED, question, key=key, data=data)
        response = answer.response or {}
        if response.get("decision") == STOP:
            raise self._error(exhausted)
        self.bounds = raised(self.bounds, exhausted.bound, None, response["data"]["to"])

    def _error(self, exhausted: Exhausted) -> BoundExceededError:
        """Return the error that stops the turn when a bound is reached and not raised. The error names the agent and
        the bound.
        """
        # The bounds of the agent itself do not help if it exhausted its share of those of the agent above.
        owner = self.line[1].agent if self._is_share(exhausted) else self.agent
        advice = f"Raise `{exhausted.name}` in the Bounds of agent {owner!r} and resume."
        return BoundExceededError(
            f"{self._owner(exhausted)}: {exhausted.summary} {advice}", exhausted.bound, exhausted.reason
        )

    def _owner(self, exhausted: Exhausted) -> str:
        """Return a text for people that names the agent whose bound was reached, and whether the bound is only a share
        of a delegating agent's bounds.
        """
        agent = f"Agent {self.agent!r}"
        return (
            f"{agent} (its share of the bounds of agent {self.line[1].agent!r})" if self._is_share(exhausted) else agent
        )

    def _is_share(self, exhausted: Exhausted) -> bool:
        """Return True if the reached bound is only the agent's part of a delegating agent's bounds, which several tasks
        share. Return False if it is one of the agent's own bounds.
        """
        # The bounds are the lower ones of the agent's own and its share. Costs are texts in `exhausted`, so texts
        # compare.
        share_limit = None if self._share is None else getattr(self._share, exhausted.bound)
        return share_limit is not None and str(share_limit) == str(exhausted.limit)

    @contextmanager
    def holding(self, reserved: Reserved) -> Iterator[None]:
        """Count the maximum consumption of a request as reserved during the ``with`` block, in this budget and in the
        budgets of delegating agents. Concurrent requests then cannot exceed a bound together.
        """
        # All budgets change without an await in between, so no other request sees only some of them changed.
        for budget in self.line:
            budget.consumed = budget.consumed.begun(reserved)
        try:
            yield
        finally:
            for budget in self.line:
                budget.release(reserved)

    def release(self, reserved: Reserved) -> None:
        """Remove the maximum consumption of an ended request from the reserved amount, and wake the requests that wait
        for this budget.
        """
        self.consumed = self.consumed.ended(reserved)
        if self._release is not None:
            # All waiting requests share this future. Each of them checks the bounds again (`admit`).
            self._release.set_result(None)
            self._release = None

    def spend(self, usage: Mapping[str, int]) -> None:
        """Add the actual consumption of a request to this budget and to the budgets of the agents that delegated the
        task.
        """
        for budget in self.line:
            budget.consumed = budget.consumed.spent(usage)

    @property
    def spent(self) -> dict[str, int] | None:
        """Consumption of a delegated turn (calls, tokens, cost), for the result that the delegating agent gets. None if
        the turn was not delegated.
        """
        used = self.consumed
        return {"calls": used.calls, "tokens": used.tokens, "cost": used.cost} if len(self.line) > 1 else None

    def count(self, spent: Mapping[str, int]) -> None:
        """Add the recorded consumption of a delegated turn to this budget. Needed if the delegated turn ended in an
        earlier process, whose budget is lost.
        """
        for budget in self.line:
            used = budget.consumed
            totals = {name: getattr(used, name) + spent.get(name, 0) for name in ("calls", "tokens", "cost")}
            budget.consumed = used._replace(**totals)


# --- response stream -------------------------------------------------------------------------------------------------
#
# Streamed model requests, and the consumption of failed requests.


# --- consumption of failed requests --------------------------------------------------------------------------------
# A request that fails after its provider has begun to reply is billed, so it counts. A stream that breaks off, takes
# too long or ends early has often stated its usage already, and so has a complete reply that is refused. Without this
# count, a retried request could spend more than the bounds allow (`tests/agents/test_paid_replies.py`).


_REPLIES: ContextVar[list[ModelResponse] | None] = ContextVar("divebook_replies", default=None)
"""Replies of the running request, complete or partial."""


def note_reply(response: ModelResponse) -> None:
    """Remember a model response, complete or partial, so that its tokens and cost are counted if the request fails
    afterwards. Outside of `paid_replies`, do nothing.
    """
    replies = _REPLIES.get()
    if replies is not None:
        replies.append(response)


@contextmanager
def paid_replies(model: Model) -> Iterator[None]:
    """Add to an error that a model request raises inside the ``with`` block the tokens and cost of the responses
    received so far, because these responses are billed. `note_reply` collects the responses.

    Parameters
    ----------
    model
        The requested model. Its price is used if the price of the replying model is unknown.
    """
    replies: list[ModelResponse] = []
    token = _REPLIES.set(replies)
    try:
        yield
    # A time limit of the step cancels the request, and takes the consumption from this exception.
    except BaseException as error:
        usage = Counter[str]()
        for reply in replies:
            if reply.usage.has_values():
                usage.update(usage_of(plain_response(reply, model)))
        del usage["requests"]  # counts answered requests only
        # The recorder reads this attribute and records it with the failure.
        if usage:
            setattr(error, CONSUMED, dict(usage))
        raise
    finally:
        _REPLIES.reset(token)


# --- streaming -----------------------------------------------------------------------------------------------------
# Text is passed on while the model writes it. The response is the same as that of a plain request.


REFUSALS = (400, 422)
"""HTTP statuses with which providers refuse to stream this model, or to stream for this account."""


_CUT_OFF: WeakValueDictionary[int, Model] = WeakValueDictionary()
"""Models whose latest stream ended without a finish reason, by `id`."""


async def stream_response(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    write: Write,
) -> ModelResponse:
    """Make a streamed request and return the complete response. The text is passed to `write` as it arrives. If the
    model cannot stream, make a plain request instead.

    A stream that ends without a finish reason was cut off, for example because a proxy gave up or a server restarted.
    The caller retries, as after any lost connection. The retry is a plain request, because a truncated body is always
    detected. Some local servers never send a finish reason: their models get plain requests from then on.

    Raises
    ------
    ModelConnectionError
        The stream ended before the response was complete.
    """
    if isinstance(model, ScriptedFunction):
        return await model.stream(messages, settings, parameters, write)
    # The previous stream had no finish reason. A plain request shows whether the server ever sends one.
    if id(model) in _CUT_OFF:
        response = await model.request(messages, settings, parameters)
        if has_stated_end(response):
            _CUT_OFF.pop(id(model), None)
        return response
    async with AsyncExitStack() as stack:
        stream = await _opened(stack, model, messages, settings, parameters)
        if stream is None:
            return await model.request(messages, settings, parameters)
        pieces = _Pieces()
        try:
            async for event in stream:
                text, part = pieces.of(event)
                if text:
                    write(text, part)
        except BaseException:  # includes cancellation by a time limit
            note_reply(stream.get())
            raise
        response = stream.get()
    if response.state == "incomplete" or not has_stated_end(response):
        _CUT_OFF[id(model)] = model
        note_reply(response)
        raise ModelConnectionError(model.model_name, CUT_OFF)
    return response


async def _opened(
    stack: AsyncExitStack,
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
) -> StreamedResponse | None:
    """Open the response stream of a model request and return it; `stack` closes it later. Return None if the model
    cannot stream.
    """
    if not _may_stream(model):
        return None
    try:
        return await stack.enter_async_context(model.request_stream(messages, settings, parameters))
    except NotImplementedError:
        return None
    except ModelHTTPError as error:
        # 400 and 422 have many causes. A plain request helps only if the refusal is about streaming, for example "your
        # organization must be verified to stream this model".
        if error.status_code in REFUSALS and "stream" in str(error.body).lower():
            return None
        raise


def _may_stream(model: Model) -> bool:
    """Return True if a model may be asked to stream its response. Return False for pydantic-ai's function model without
    a stream function, which would raise an AssertionError.
    """
    if isinstance(model, WrapperModel):
        return _may_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_may_stream, model.models))
    return not isinstance(model, FunctionModel) or model.stream_function is not None


class _Pieces:
    """Parser of the events of a streamed response. It extracts the text that each event adds."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}
        """Names of the parts that hold tool arguments, by the index of the part in the stream."""

    def of(self, event: ModelResponseStreamEvent) -> tuple[str, str]:
        """Return the text that an event of a streamed response adds. Also return the kind of response part that the
        text belongs to: text, thinking, or the arguments of a tool call.

        The text is empty for events that are not shown.
        """
        # A start event has the first piece of a part, delta events have the following pieces.
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return text, TEXT
            case PartStartEvent(part=ThinkingPart(content=text)):
                return text, THINKING
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                return text, THINKING
            # Deltas do not repeat the name and id of their call, so they are found by the index of the part.
            case PartStartEvent(index=number, part=ToolCallPart() as call):
                self._calls[number] = arguments_part(call.tool_name, call.tool_call_id)
                return written_arguments(call), self._calls[number]
            case PartDeltaEvent(index=number, delta=ToolCallPartDelta(args_delta=str(text))) if number in self._calls:
                return text, self._calls[number]
        return "", TEXT
