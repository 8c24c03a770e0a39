"""A provenance as text: indented, each value once, folded where it is long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_TURN,
    CHILD_WORKFLOW,
    SCRIPT_EXECUTION,
    TOOL_CALL,
    operation_arguments,
    operation_kind,
)
from divebook.events import catalog
from divebook.events.readable import readable
from divebook.history.messages import spoken_in
from divebook.replay.origin import StepCall, ValueOrigin
from divebook.replay.traced import Traced
from divebook.text.cuts import one_line
from divebook.text.redaction import Redactor, shared
from divebook.text.shown import branch_name, plural

VALUE, CALL = 60, 80
"""Characters of a value, and of what a call is told with."""
_ANSWERS: Mapping[str, tuple[str, ...]] = {TOOL_CALL: ("result", "message"), AGENT_TURN: ("text", "output")}
"""Keys under which the result of a call has what it came to."""
MOST_LINES, MOST_CALLS, DEEPEST = 60, 4, 12
"""Lines of a text, calls that are told of one step, and how far back it goes."""


class Teller:
    """Says in words what the parts of a provenance are; without secrets."""

    def __init__(self, why: Traced) -> None:
        self.why = why
        self._redactor: Redactor = shared().fresh()
        first = why.event(1).data
        if isinstance(first, catalog.ExecutionStarted):
            self._redactor.learn(first.inputs)
        workflow = first.definition if isinstance(first, catalog.ExecutionStarted) else None
        self.types = {step["name"]: step.get("type", "") for step in (workflow or {}).get("steps", ())}

    def head(self, origin: ValueOrigin) -> str:
        """Return what a value or choice is."""
        return {"choice": self._choice, "caught": self._caught}.get(origin.kind, self._value)(origin)

    def _value(self, origin: ValueOrigin) -> str:
        name, at = one_line(origin.name, VALUE), f"at event {origin.sequence:,}"
        place = self._place(origin)
        match origin.kind:
            case "input":
                when = f"changed by a fork {at}" if origin.sequence > 1 else "given at the start"
                return f"{name} = {self.value(origin)}: {when}"
            case "state":
                return f"all variables {at}"
            case "deleted":
                return f"{name} was deleted by {place} {at}"
            case "kept":
                was = "stayed as it was" if origin.reads else "was not set"
                return f"{name} {was} {at}: {place} {'did not change it' if origin.path else 'went another way'}"
            case "output":
                return f"{name} = {self.value(origin)}: the text of {place}"
        return f"{name} = {self.value(origin)}: {place} {at}{self._kind(origin)}"

    def _place(self, origin: ValueOrigin) -> str:
        if not origin.step:
            opening = self.why.event(origin.sequence).data
            if isinstance(opening, catalog.ExecutionStarted):
                return f"carried over from execution {opening.parent}"
            return "changed by a fork"
        item = "" if origin.item is None else f"[{origin.item}]"
        visit = f", visit {origin.visit}" if origin.visit > 1 else ""
        branch = branch_name(origin.path)
        return f"step {one_line(origin.step, VALUE)}{item}{visit}{f', {branch}' if branch else ''}"

    def _kind(self, origin: ValueOrigin) -> str:
        kind = self.types.get(origin.step, "")
        told = {"script": "script", "function": "function", "stage": "stage"}.get(kind, "")
        return f" ({told})" if told else ""

    def _choice(self, origin: ValueOrigin) -> str:
        events = [self.why.event(sequence).data for sequence in origin.told]
        told = [
            f"{self._clean(data.condition)} was {'true' if data.result else 'false'}"
            for data in events
            if isinstance(data, catalog.ConditionEvaluated)
        ]
        ways = [data.target for data in events if isinstance(data, catalog.ConditionEvaluated) and data.result]
        went = f"went to {' and '.join(ways)}" if ways else "went to none of these"
        return f"because {self._place(origin)} {went} at event {origin.sequence:,}: {', '.join(told)}"

    def _caught(self, origin: ValueOrigin) -> str:
        data = self.why.event(origin.told[0]).data
        if isinstance(data, catalog.StepCaught):
            error = self._clean(data.error)
            return (
                f"because {self._place(origin)} failed at event {origin.sequence:,} and went to {data.target}: {error}"
            )
        return f"because {self._place(origin)} did not fail (event {origin.sequence:,})"

    def value(self, origin: ValueOrigin) -> str:
        """Return the value of an origin, short."""
        return self._shown(origin.name.rpartition(".")[2], self.why.value(origin))

    def calls(self, origin: ValueOrigin) -> Iterator[str]:
        """Yield what the step had called; of many the first."""
        calls = [call for call in origin.calls if call.type != SCRIPT_EXECUTION]
        for call in calls[:MOST_CALLS]:
            yield f"{'  ' if call.within is not None else ''}{self.call(call)}"
        if len(calls) > MOST_CALLS:
            yield f"... and {plural(len(calls) - MOST_CALLS, 'call')} more"
        if self.types.get(origin.step) == "function" and origin.kind == "set":
            yield "what the function did between its calls is not recorded"

    def call(self, call: StepCall) -> str:
        """Return what was called, with what, and what came of it."""
        item = "" if call.item is None else f"item {call.item}: "
        data = self.why.event(call.sequence).data
        if isinstance(data, catalog.InterruptRaised):
            asked = f"question {self._text(data.question)}"
            return f"{item}{asked} -> {self._answer(call)}"
        if not isinstance(data, catalog.OperationStarted):
            return f"{item}{operation_kind(call.type)}"
        given = self._given(call, data.parameters or {})
        name = f" {one_line(call.name, VALUE)}" if call.name else ""
        return f"{item}{operation_kind(call.type)}{name}{given} -> {self._end(call)}"

    def _given(self, call: StepCall, parameters: Mapping[str, Any]) -> str:
        arguments = operation_arguments(parameters)
        if arguments is not None and call.type != CHILD_WORKFLOW:
            told = ", ".join(f"{name}={self._shown(name, value)}" for name, value in arguments.items())
            return f"({one_line(told, CALL)})"
        prompt = parameters.get("prompt")
        return f" {self._text(prompt)}" if isinstance(prompt, str) else ""

    def _end(self, call: StepCall) -> str:
        data = None if call.ended is None else self.why.event(call.ended).data
        if isinstance(data, catalog.OperationFailed):
            return f"failed: {self._clean(data.error)}"
        if not isinstance(data, catalog.OperationCompleted):
            return "not ended"
        result = data.result
        if call.type == CHILD_WORKFLOW and isinstance(result, Mapping):
            child = result.get("execution_id", "")
            return f"{self._shown('', result.get('outputs'))} (%dive why NAME {child} says where that came from)"
        if isinstance(result, Mapping) and call.type == AGENT_RESPONSE:
            return self._said(result)
        if isinstance(result, Mapping):  # of a tool, and of a turn
            result = next((result[name] for name in _ANSWERS.get(call.type, ()) if name in result), result)
        return self._shown("", result)

    def _said(self, response: Mapping[str, Any]) -> str:
        """Return the text of a model's answer, and the tools that it asks for."""
        said = spoken_in([response])
        texts = [message.text for message in said if message.text]
        asked = [str(block["tool"]) for message in said for block in message.content if "tool" in block]
        return ", ".join([*map(self._text, texts), *(f"asks for {one_line(name, VALUE)}" for name in asked)])

    def _answer(self, call: StepCall) -> str:
        data = None if call.ended is None else self.why.event(call.ended).data
        if isinstance(data, catalog.InterruptExpired):
            return "nobody answered in time"
        if not isinstance(data, catalog.InterruptResolved):
            return "not answered"
        response = data.response
        told = {k: v for k, v in response.items() if v is not None} if isinstance(response, Mapping) else response
        value = next(iter(told.values())) if isinstance(told, Mapping) and len(told) == 1 else told
        return f"{self._shown('', value)}{f', by {one_line(data.answered_by, VALUE)}' if data.answered_by else ''}"

    def _shown(self, name: str, value: Any) -> str:
        clean = self._redactor.under(name, value)
        return self._text(clean) if isinstance(clean, str) else self._clean(readable(clean))

    def _text(self, text: str) -> str:
        return f'"{self._clean(text)}"'

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.text(text), VALUE)


def lines(why: Traced, most: int = MOST_LINES) -> Iterator[tuple[int, str]]:
    """Yield depth and text of each line; of what was told already only the name, and last what is left out."""
    teller, told, count, is_cut = Teller(why), set[int](), 0, False
    waiting = [(0, why.root.number)]
    while waiting:
        depth, number = waiting.pop()
        origin = why.origin(number)
        if count >= most or depth > DEEPEST:
            is_cut = True
        elif number in told:
            if origin.name:
                yield depth, f"{one_line(origin.name, VALUE)}: see above (event {origin.sequence:,})"
                count += 1
        else:
            told.add(number)
            of_it = [(depth, teller.head(origin)), *((depth + 1, call) for call in teller.calls(origin))]
            yield from of_it
            count += len(of_it)
            waiting += [(depth + 1, cause) for cause in reversed(origin.causes)]
    if is_cut:
        yield 0, f"... {len(why.depths):,} values and choices in all; .frame() lists them"


def text(why: Traced) -> str:
    """Return a provenance as text."""
    return "\n".join(f"{'  ' * depth}{line}" for depth, line in lines(why))
