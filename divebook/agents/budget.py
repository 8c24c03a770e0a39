"""What one turn of an agent may spend: its own `Bounds`, beside those of the execution.

What the turns of its subordinates spend counts as well. Before each request that the log has not yet, what the request
may consume at most must be left; at a bound a person is asked, as at those of the execution, or the turn fails.
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

from divebook.agents.requests import CUT_OFF, plain_response, states_its_end, usage_of
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
    """What a turn has spent, and what it still may.

    Parameters
    ----------
    above
        That of the agent which handed it the work, if one did.
    share
        What that gave it, where it handed on more than one work at once.
    """

    def __init__(
        self, agent: str, bounds: Bounds, above: TurnBudget | None = None, share: Bounds | None = None
    ) -> None:
        self.agent, self.consumed = agent, Consumption()
        self.bounds = bounds if share is None else within(bounds, share)
        self._share = share
        self._release: asyncio.Future[None] | None = None
        self.line: tuple[TurnBudget, ...] = (self, *(() if above is None else above.line))
        """Itself and those above, the nearest first."""

    @property
    def left(self) -> Bounds:
        """What may still be spent, in the bounds of those above as well."""
        left = Bounds()
        for budget in self.line:
            left = within(left_after(budget.bounds, budget.consumed), left)
        return left

    async def admit(self, context: TurnContext, reserved: Reserved) -> None:
        """Return when a request that may consume so much fits, in the bounds of those above as well.

        Raises
        ------
        BoundExceededError
            It does not, and a person said stop, or no person is to be asked.
        """
        for budget in self.line:
            require_price(budget.bounds, reserved)
        # Each is looked at again after every question: what runs beside it has gone on meanwhile
        # (test_while_a_bound_above_is_asked_about_those_below_may_be_reached).
        while (met := next(((one, found) for one in self.line if (found := one.met(reserved))), None)) is not None:
            budget, found = met
            # Calls under way return what they do not spend of their reservation.
            if not (found.may_pass and await context.wait_beside_others(budget.next_release())):
                await budget.ask(context, found)

    def next_release(self) -> asyncio.Future[None]:
        """Return what is done when the next request that counts here ends, and gives back what it did not spend."""
        if self._release is None:
            self._release = asyncio.get_running_loop().create_future()
        return self._release

    def met(self, reserved: Reserved) -> Exhausted | None:
        """Return the first of its own bounds that forbids a request which may consume so much."""
        return bound_met(self.bounds, self.consumed, reserved)

    async def ask(self, context: TurnContext, found: Exhausted) -> None:
        """Raise a bound as a person says."""
        if self.bounds.on_exhausted == FAIL:
            raise self._error(found)
        key = f"bound-{self.agent}-{found.bound}-{found.limit}"
        # An answer belongs to the question that was shown: how it was worded, and how much was spent then, stays as it
        # was recorded (test_a_question_about_a_bound_keeps_its_recorded_wording).
        recorded = context.asked(key)
        if recorded is not None:
            question, data = recorded.question, recorded.data
        else:
            question, own = asked_about(found, f"{self._owner(found)}: ")
            data = {**own, "agent": self.agent}
        asked = await context.question(RESOURCE_EXHAUSTED, question, key=key, data=data)
        response = asked.response or {}
        if response.get("decision") == STOP:
            raise self._error(found)
        self.bounds = raised(self.bounds, found.bound, None, response["data"]["to"])

    def _error(self, found: Exhausted) -> BoundExceededError:
        """Return the error of a bound that is not raised."""
        owner = self.line[1].agent if self._is_share(found) else self.agent
        advice = f"Raise `{found.name}` in the Bounds of agent {owner!r} and resume."
        return BoundExceededError(f"{self._owner(found)}: {found.summary} {advice}", found.bound, found.reason)

    def _owner(self, found: Exhausted) -> str:
        """Return whose bound is met, as people read it."""
        agent = f"Agent {self.agent!r}"
        return f"{agent} (its share of the bounds of agent {self.line[1].agent!r})" if self._is_share(found) else agent

    def _is_share(self, found: Exhausted) -> bool:
        """Whether a bound that is met is what the agent above gave it of its own."""
        given = None if self._share is None else getattr(self._share, found.bound)
        return given is not None and str(given) == str(found.limit)

    @contextmanager
    def holding(self, reserved: Reserved) -> Iterator[None]:
        """Count a request that is under way with what it may consume."""
        for budget in self.line:
            budget.consumed = budget.consumed.begun(reserved)
        try:
            yield
        finally:
            for budget in self.line:
                budget.release(reserved)

    def release(self, reserved: Reserved) -> None:
        """Count a request no longer as under way, and let requests look again that wait for its reservation."""
        self.consumed = self.consumed.ended(reserved)
        if self._release is not None:
            self._release.set_result(None)
            self._release = None

    def spend(self, usage: Mapping[str, int]) -> None:
        """Count what a request has consumed."""
        for budget in self.line:
            budget.consumed = budget.consumed.spent(usage)

    @property
    def spent(self) -> dict[str, int] | None:
        """What it says at its end to the turn that it worked for, if it did for one."""
        used = self.consumed
        return {"calls": used.calls, "tokens": used.tokens, "cost": used.cost} if len(self.line) > 1 else None

    def count(self, spent: Mapping[str, int]) -> None:
        """Count what a turn has spent that worked for this one, and had ended when this one was taken up again."""
        for budget in self.line:
            used = budget.consumed
            more = {name: getattr(used, name) + spent.get(name, 0) for name in ("calls", "tokens", "cost")}
            budget.consumed = used._replace(**more)


# Consumption of model requests that fail after their provider has begun to reply: it is paid, so it counts.
#
# A stream that breaks off, takes too long or ends early has often stated its usage already, and so has a whole reply
# that is refused. Without it a request that is tried again could spend more than the bounds allow
# (`tests/agents/test_paid_replies.py`).


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


# Model requests whose answer is handed on while it is written; the response is the same as that of a plain request.


REFUSALS = (400, 422)
"""HTTP statuses of providers that do not stream this model, or not to this account."""
_CUT_OFF: WeakValueDictionary[int, Model] = WeakValueDictionary()
"""Models whose latest stream ended without a finish reason, by their id."""


async def stream_response(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    write: Write,
) -> ModelResponse:
    """Make a request and pass on its text as it arrives; a model that cannot stream is asked plainly.

    A stream that ends without a finish reason was cut off: a proxy gave up, or a server was restarted. The caller tries
    again as after any lost connection. That attempt asks plainly, because a whole body cannot end early unnoticed, and
    because some local servers never send a finish reason: their models are asked plainly from then on.

    Raises
    ------
    ModelConnectionError
        The stream ended before the response was complete.
    """
    if isinstance(model, ScriptedFunction):
        return await model.stream(messages, settings, parameters, write)
    if id(model) in _CUT_OFF:
        response = await model.request(messages, settings, parameters)
        if states_its_end(response):
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
        except BaseException:  # also where it takes too long
            note_reply(stream.get())
            raise
        response = stream.get()
    if response.state == "incomplete" or not states_its_end(response):
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
    """Return the open stream, which `stack` closes; None where there is none to be had."""
    if not _may_stream(model):
        return None
    try:
        return await stack.enter_async_context(model.request_stream(messages, settings, parameters))
    except NotImplementedError:
        return None
    except ModelHTTPError as error:
        if error.status_code in REFUSALS and "stream" in str(error.body).lower():
            return None
        raise


def _may_stream(model: Model) -> bool:
    """Return False for functions that only answer as a whole: to ask one for a stream is a failed assertion."""
    if isinstance(model, WrapperModel):
        return _may_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_may_stream, model.models))
    return not isinstance(model, FunctionModel) or model.stream_function is not None


class _Pieces:
    """Reads the pieces of an answer off the events of its stream."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}
        """Names of the parts that hold arguments, by the number that the stream has for them."""

    def of(self, event: ModelResponseStreamEvent) -> tuple[str, str]:
        """Return what an event adds, and to which part; an empty text for what nobody watches."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return text, TEXT
            case PartStartEvent(part=ThinkingPart(content=text)):
                return text, THINKING
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                return text, THINKING
            case PartStartEvent(index=number, part=ToolCallPart() as call):
                self._calls[number] = arguments_part(call.tool_name, call.tool_call_id)
                return written_arguments(call), self._calls[number]
            case PartDeltaEvent(index=number, delta=ToolCallPartDelta(args_delta=str(text))) if number in self._calls:
                return text, self._calls[number]
        return "", TEXT
