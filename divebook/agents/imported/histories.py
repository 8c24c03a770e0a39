"""Histories of messages as pydantic-ai writes them (`result.all_messages_json()`), read as turns of an agent.

A message with a person's prompt begins a turn. What a tool returned stands in the message after its call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from divebook.agents.imported.written import SaidCall, SaidRequest, SaidTurn
from divebook.errors import InvalidEventError

PROMPT, RETURNED, RETRIED, CALLED = "user-prompt", "tool-return", "retry-prompt", "tool-call"
AGENT = "agent"
"""What an agent is called whose name nobody says."""


def is_history(data: Any) -> bool:
    """Return whether data read from JSON are such a history."""
    return isinstance(data, list) and bool(data) and all(_kind(message) is not None for message in data)


def _kind(message: Any) -> str | None:
    kind = message.get("kind") if isinstance(message, Mapping) else None
    return kind if kind in ("request", "response") and isinstance(message.get("parts"), list) else None


def turns_in(messages: Sequence[Mapping[str, Any]], name: str, agent: str = AGENT) -> list[SaidTurn]:
    """Return the turns of a history.

    Parameters
    ----------
    name
        Of the file, for errors.

    Raises
    ------
    InvalidEventError
        A message is not one, or a response comes before any request: names its place.
    """
    turns: list[SaidTurn] = []
    for place, message in enumerate(messages, 1):
        if _kind(message) is None:
            raise InvalidEventError(f"{name}, message {place}: a message has a kind (request, response) and parts")
        if message["kind"] == "request":
            if not turns or _prompts(message):
                turns.append(SaidTurn(agent, _prompt_text(message), [], has_ended=False))
            continue
        if not turns:
            raise InvalidEventError(f"{name}, message {place}: a response comes before any request")
        returned = messages[place] if place < len(messages) and _kind(messages[place]) == "request" else None
        _answer(turns[-1], messages[: place - 1], message, returned)
    for turn in turns:
        _end(turn)
    return turns


def _answer(
    turn: SaidTurn,
    sent: Sequence[Mapping[str, Any]],
    response: Mapping[str, Any],
    returned: Mapping[str, Any] | None,
) -> None:
    instructions = next((found for message in reversed(sent) if (found := message.get("instructions"))), None)
    request = SaidRequest(
        list(sent),
        response,
        model=response.get("model_name"),
        instructions=instructions if isinstance(instructions, str) else None,
        calls=[call_of(part, returned, moment(response.get("timestamp"))) for part in _parts(response, CALLED)],
        began=_sent_at(sent),
        ended=moment(response.get("timestamp")),
    )
    turn.requests = [*turn.requests, request]


def call_of(part: Mapping[str, Any], returned: Mapping[str, Any] | None, began: int) -> SaidCall:
    """Return a call of a tool from the part that asks for it, and the message with what it returned."""
    identity = str(part.get("tool_call_id") or part.get("tool_name") or "call")
    call = SaidCall(identity, str(part.get("tool_name", "")), arguments_of(part.get("args")), began=began)
    for answer in [] if returned is None else _parts(returned, RETURNED, RETRIED):
        if answer.get("tool_call_id") != part.get("tool_call_id"):
            continue
        call.has_ended, call.ended = True, moment(answer.get("timestamp"))
        call.is_retry = answer["part_kind"] == RETRIED or answer.get("outcome") == "retried"
        if call.is_retry or answer.get("outcome") in ("failed", "denied"):
            call.error = _text(answer.get("content")) or "it failed; the history does not say why"
        else:
            call.result = answer.get("content")
    return call


def arguments_of(args: Any) -> Any:
    """Return the arguments of a call as data, where they are a text of JSON too."""
    if isinstance(args, str):
        try:
            return json.loads(args)
        except ValueError:
            return args
    return {} if args is None else args


def _end(turn: SaidTurn) -> None:
    """Say what a turn came to: the text of the last response, or what it handed over as its output."""
    last = turn.requests[-1].response if turn.requests else None
    if last is None:
        return
    texts = [part.get("content") for part in _parts(last, "text")]
    open_calls = [call for call in turn.requests[-1].calls if not call.has_ended]
    if texts and not turn.requests[-1].calls:
        turn.output, turn.has_ended = "\n\n".join(map(str, texts)), True
    elif turn.requests[-1].calls and not open_calls:  # the last call is the output, or the history was cut off there
        outputs = [call for call in turn.requests[-1].calls if call.tool.startswith("final_result")]
        if outputs:
            turn.output, turn.has_ended = outputs[-1].arguments, True


def _prompts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _parts(message, PROMPT)


def _prompt_text(message: Mapping[str, Any]) -> str:
    return "\n\n".join(_text(part.get("content")) for part in _prompts(message)) or "(no prompt)"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(item for item in content if isinstance(item, str))
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _parts(message: Mapping[str, Any], *kinds: str) -> list[Mapping[str, Any]]:
    return [part for part in message["parts"] if isinstance(part, Mapping) and part.get("part_kind") in kinds]


def _sent_at(sent: Iterable[Mapping[str, Any]]) -> int:
    """Return when the last part of what was sent came to be."""
    parts = (part for message in sent for part in message["parts"] if isinstance(part, Mapping))
    return max((moment(part.get("timestamp")) for part in parts), default=0)


def moment(text: Any) -> int:
    """Return a time as microseconds since 1970; 0 for what is none."""
    if not isinstance(text, str):
        return 0
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return 0
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000)
