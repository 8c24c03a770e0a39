"""A model whose requests fail in many ways after their provider has charged for them."""

import asyncio
from contextlib import asynccontextmanager

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from divebook.engine.operations import Reserved
from divebook.projections.spans import COST

MOST = 100
"""Tokens, and nanodollars, that a request may consume at most."""
OK, CUT, BROKEN, IN_CALL, REFUSED, STUCK, SILENT = "ok", "cut", "broken", "in call", "refused", "stuck", "silent"
CALLS = "calls a tool"
STREAMED = (CUT, BROKEN, IN_CALL)
"""Ways in which a stream fails that has stated its usage."""


class Payable(FunctionModel):
    """A model whose requests go as a plan says, an outcome and the tokens that its provider charges for each.

    `paid` is the sum of what its replies have stated; a plain request that fails states nothing.
    """

    def __init__(self, plan=(), text="Roses"):
        self.plan, self.paid, self.made, self.text = list(plan), 0, 0, text
        self.is_stuck = asyncio.Event()
        super().__init__(self._answer, stream_function=self._stream, model_name="payable")

    def _next(self):
        self.made += 1
        return self.plan.pop(0) if self.plan else (OK, 1)

    async def _answer(self, _messages, _info):
        kind, tokens = self._next()
        await asyncio.sleep(0)
        if kind not in (OK, REFUSED, CALLS):
            raise ConnectionError("the line is cut")
        self.paid += tokens
        part = ToolCallPart("look", {"place": "here"}, "c") if kind == CALLS else TextPart(self.text)
        return self._charged(ModelResponse(parts=[part]), kind, tokens)

    async def _stream(self, _messages, _info):
        kind = self._kind
        if kind == CALLS:
            yield {0: DeltaToolCall("look", '{"place": "here"}', tool_call_id="c")}
            return
        yield {0: DeltaToolCall("look", '{"place": ', tool_call_id="c")} if kind == IN_CALL else "Ro"
        await asyncio.sleep(0)
        if kind == STUCK:
            self.is_stuck.set()
            await asyncio.Event().wait()
        if kind in (BROKEN, IN_CALL, SILENT):
            raise ConnectionError("the line is cut")
        yield "ses"

    @staticmethod
    def _charged(response, kind, tokens):
        response.usage = RequestUsage(input_tokens=tokens)
        response.provider_details = {COST: tokens, "finish_reason": "" if kind == REFUSED else "stop"}
        response.provider_url = "https://models.example"
        response.finish_reason = None if kind == REFUSED else "stop"
        if kind == CUT:
            response.state = "incomplete"
        return response

    @asynccontextmanager
    async def request_stream(self, *arguments, **named):
        kind, tokens = self._next()
        self._kind = kind
        async with super().request_stream(*arguments, **named) as stream:
            get = stream.get
            if kind == SILENT:
                stream.get = lambda: self._charged(get(), kind, 0)
            else:
                self.paid += tokens
                stream.get = lambda: self._charged(get(), kind, tokens)
            yield stream

    @property
    def reserved(self):
        return Reserved(MOST, MOST)
