"""The written form of what a scripted model answers: texts, thoughts, tool calls, data and errors, request by request.

A reply is one of

- a text,
- ``{call: {tool: {argument: value}}}``: calls a tool, or several at once; ``[{call: ...}, {call: ...}]`` does as well,
- ``{output: {...}}``: the structured answer,
- ``{error: "overloaded", status: 503, retry_after: 2}``: the request fails,
- in Python a function of the prompt, or of the prompt and the messages so far, which returns one of these,

and any but an error may have ``say`` and ``think``: text and thoughts that come before.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from divebook.errors import SetupError, did_you_mean

FixedReply: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A reply as a person writes it."""
ReplyFunction: TypeAlias = Callable[..., "FixedReply | Awaitable[FixedReply]"]
"""Returns a reply to a prompt (str), or to a prompt and the messages so far (pydantic-ai's ``list[ModelMessage]``)."""
WrittenReply: TypeAlias = FixedReply | ReplyFunction
"""A reply of a scripted model."""

KEYS = ("call", "error", "output", "retry_after", "say", "status", "think")
FORMS = (
    'a text, {call: {tool: {argument: value}}}, {output: ...}, {think: ..., say: ...} or {error: "...", status: 429}'
)


class ScriptedCall(NamedTuple):
    """A call of a tool."""

    tool: str
    arguments: Any
    """By name; a text is sent as it is, also where it is no JSON."""


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What a scripted model answers to one request."""

    say: str = ""
    think: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    output: tuple[Any, ...] = ()
    """The structured answer alone, or nothing."""
    error: str | None = None
    """Why the request fails, if it does."""
    status: int | None = None
    """Of HTTP, where it fails as a provider's request does."""
    retry_after: float | None = None
    """Seconds after which the provider wants to be asked again."""
    function: ReplyFunction | None = None
    """Makes the reply when the request comes."""

    @classmethod
    def read(cls, written: WrittenReply) -> ScriptedReply:
        """Return a reply that a person wrote.

        Raises
        ------
        SetupError
            It has none of the forms that this module's text lists.

        Examples
        --------
        >>> ScriptedReply.read({"think": "Look it up.", "call": {"search": {"query": "owls"}}}).calls
        (ScriptedCall(tool='search', arguments={'query': 'owls'}),)
        """
        if callable(written):
            return cls(function=written)
        if isinstance(written, str):
            return cls(say=written)
        if isinstance(written, Sequence):
            return _together([cls.read(each) for each in written], written)
        if not written or not isinstance(written, Mapping):
            raise SetupError(f"a reply of a script cannot be {written!r}; write {FORMS}")
        for key in written:
            if key not in KEYS:
                advice = did_you_mean(str(key), KEYS) or f"write {FORMS}"
                raise SetupError(f"a reply of a script has no {key!r}; {advice}")
        if "error" in written:
            return _failing(written)
        for key in ("status", "retry_after"):
            if key in written:
                raise SetupError(
                    f"only a reply with `error` has {key!r}, not {dict(written)!r}; add `error` or remove it"
                )
        output = (written["output"],) if "output" in written else ()
        calls = tuple(_calls(written.get("call", {})))
        return cls(_text(written, "say"), _text(written, "think"), calls, output)


async def made_for(reply: ScriptedReply, prompt: str, messages: Sequence[Any]) -> ScriptedReply:
    """Return a reply, made by its function if it has one.

    Parameters
    ----------
    prompt
        The latest prompt of the request.
    messages
        All messages of the request, in pydantic-ai's form.

    Raises
    ------
    SetupError
        The function returned something that is not a reply.
    """
    if reply.function is None:
        return reply
    arguments = (prompt, list(messages)) if _takes_messages(reply.function) else (prompt,)
    returned = reply.function(*arguments)
    made = ScriptedReply.read(await returned if inspect.isawaitable(returned) else returned)
    if made.function is not None:
        raise SetupError(f"the function {reply.function!r} of a script returned a function; return {FORMS}")
    return made


def _takes_messages(function: ReplyFunction) -> bool:
    """Return whether a function takes the messages besides the prompt."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each for each in by_position if each.default is each.empty]
    return len(required) > 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters)


class Round(NamedTuple):
    """What a script has for one request: failures, each of which comes once, and the reply that comes after them."""

    failures: tuple[ScriptedReply, ...]
    reply: ScriptedReply | None
    """None at the end of a script that ends with a failure, which then comes again and again."""


def rounds_of(written: Iterable[WrittenReply]) -> list[Round]:
    """Return the replies of a script by request; those without an answer belong to the request that is made again."""
    rounds: list[Round] = []
    failures: list[ScriptedReply] = []
    for reply in map(ScriptedReply.read, written):
        if reply.error is not None:
            failures.append(reply)
        else:
            rounds.append(Round(tuple(failures), reply))
            failures = []
    return [*rounds, Round(tuple(failures), None)] if failures else rounds


def _together(replies: Sequence[ScriptedReply], written: WrittenReply) -> ScriptedReply:
    """Return one reply that says and calls what several do."""
    if not replies or any(reply.error is not None or reply.output for reply in replies):
        raise SetupError(f"a list within a script is calls side by side, not {written!r}; write [{{call: ...}}, ...]")
    calls = tuple(call for reply in replies for call in reply.calls)
    return ScriptedReply("".join(reply.say for reply in replies), "".join(reply.think for reply in replies), calls)


def _calls(written: Any) -> Iterable[ScriptedCall]:
    if isinstance(written, str):
        return [ScriptedCall(written, {})]
    if isinstance(written, Sequence):
        side = "[{call: {tool: ...}}, {call: {tool: ...}}]"
        raise SetupError(f"`call` of a script cannot be {written!r}; several calls side by side are a list: {side}")
    if not isinstance(written, Mapping):
        raise SetupError(f"`call` of a script cannot be {written!r}; write {{call: {{tool: {{argument: value}}}}}}")
    return [ScriptedCall(str(tool), {} if given is None else given) for tool, given in written.items()]


def _failing(written: Mapping[str, Any]) -> ScriptedReply:
    if set(written) - {"error", "status", "retry_after"}:
        raise SetupError(f"a reply with `error` has no answer, but this says {dict(written)!r}; make two replies of it")
    status, after = written.get("status"), written.get("retry_after")
    if after is not None and status is None:
        raise SetupError(f"only a provider says `retry_after`: {dict(written)!r} needs a `status` such as 429")
    return ScriptedReply(error=_text(written, "error"), status=status, retry_after=after)


def _text(written: Mapping[str, Any], key: str) -> str:
    value = written.get(key, "")
    if not isinstance(value, str):
        raise SetupError(f"`{key}` of a script must be a text, not {value!r}")
    return value
