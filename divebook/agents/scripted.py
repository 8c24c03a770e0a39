"""Scripted model: takes its responses from a script, for tests and examples. It works offline, free of charge and
deterministically.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from divebook.errors import SetupError, did_you_mean
from divebook.text.arguments import describe, list_of, suggest_arguments

# --- written form of replies --------------------------------------------------------------------------------------
# Each model request takes one reply of the script. A reply is one of:
#
# - a text
# - ``{call: {tool: {argument: value}}}``: calls one or several tools, also as ``[{call: ...}, {call: ...}]``
# - ``{output: {...}}``: the structured answer
# - ``{error: "overloaded", status: 503, retry_after: 2}``: the request fails
# - in Python, a function of the prompt, or of the prompt and the messages so far, that returns one of these
#
# All but an error may also have ``say`` and ``think``: text and thoughts that precede it.


FixedReply: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A reply in written form."""


ReplyFunction: TypeAlias = Callable[..., "FixedReply | Awaitable[FixedReply]"]
"""Returns a reply to a prompt (str), or to a prompt and the messages so far (pydantic-ai's ``list[ModelMessage]``)."""


WrittenReply: TypeAlias = FixedReply | ReplyFunction
"""A reply of a scripted model."""


KEYS = ("call", "error", "output", "retry_after", "say", "status", "think")


FORMS = (
    'a string, {call: {tool: {argument: value}}}, {output: ...}, {think: ..., say: ...} or {error: "...", status: 429}'
)


@suggest_arguments
@dataclass
class ScriptedModel:
    """Model that returns the replies of a script, one per request. After the end of the script, the last reply is
    repeated.

    A reply is a string, or describes an action of a model with tools: it calls tools, returns data, thinks, or fails
    (`divebook.agents.scripted`). Without replies, the answer is a note that explains how to configure a real model.

    A function in place of the replies, or of one of them, returns the reply to each prompt: ``lambda prompt: ...`` or
    ``lambda prompt, messages: ...``. The function is called only for requests that the log does not contain yet.

    If all replies are strings, each request in this process gets the next reply. Otherwise every turn begins with the
    first reply, and each later request of the turn gets the following reply. The log contains the number of replies
    that a turn has received, so a turn can continue in any process.

    Examples
    --------
    >>> model = ScriptedModel(["first", "second"])
    >>> [model.reply("any prompt") for _ in range(3)]
    ['first', 'second', 'second']

    A reply that depends on the prompt:

    >>> model = ScriptedModel(lambda prompt: "yes" if "?" in prompt else {"output": {"words": prompt.split()}})

    Two calls side by side, one request that fails and is made again, and the answer:

    >>> search = [{"call": {"search": {"query": "owls"}}}, {"call": {"search": {"query": "larks"}}}]
    >>> model = ScriptedModel([search, {"error": "overloaded", "status": 503}, {"output": {"birds": 2}}])
    """

    replies: Sequence[WrittenReply] | ReplyFunction = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    """Claimed tokens per reply: ``input_tokens``, ``output_tokens``."""
    price: float = 0.0
    """Claimed cost per reply in US dollars."""
    error: str | None = None
    """If set, every request fails with this text."""
    pace: Callable[[], Awaitable[object]] | None = None
    """Awaited between the words of a streamed reply, for example ``lambda: asyncio.sleep(0.05)``."""
    calls: int = 0
    """Requests answered so far."""
    turns: Sequence[Sequence[WrittenReply]] = ()
    """Replies of the first turn, of the second, and so on, in place of `replies`. The last turn repeats."""

    def __post_init__(self) -> None:
        for name in ("replies", "turns"):
            value = getattr(self, name)
            is_function = name == "replies" and callable(value)
            if not is_function and (isinstance(value, str | Mapping) or not isinstance(value, Sequence)):
                raise SetupError(
                    f"{name} of a scripted model must be a list with one reply for each request, not "
                    f"{describe(value)}; write [...]"
                )
        for turn in self.turns:
            list_of(turn, "each of the turns of a scripted model", "turns=[['first', 'second'], ['third']]")
        # A single function answers every request, so it is a script of one reply that repeats.
        self._replies: Sequence[WrittenReply] = (self.replies,) if callable(self.replies) else self.replies
        # {(turn, place): number of failures so far}; turn is None for requests outside of turns.
        self._failed: Counter[tuple[int | None, int]] = Counter()
        self._numbers: dict[str, int] = {}
        # [[round of request 1, round of request 2, ...] of turn 1, ...]. A script of texts needs no rounds.
        self._rounds = [] if self.is_texts else [rounds_of(replies) for replies in self.turns or (self._replies,)]

    @classmethod
    def read(cls, written: Any) -> ScriptedModel:
        """Create a scripted model from a script in a definition: a list of replies, or a mapping with the fields of
        `ScriptedModel`.

        Raises
        ------
        SetupError
            The script is neither a list nor a mapping, or a reply has an invalid form.

        Examples
        --------
        >>> ScriptedModel.read({"turns": [["first"], ["second"]], "price": 0.5}).turns
        [['first'], ['second']]
        """
        if isinstance(written, list):
            return cls(written)
        if not isinstance(written, Mapping):
            raise SetupError(
                f"a script must be a list of replies or a mapping with `turns`, not {written!r}", ("Script",)
            )
        for key in written:
            if key not in WRITTEN:
                raise SetupError(
                    f"unknown key {key!r} in a script; valid keys: {', '.join(WRITTEN)}", ("Script", str(key))
                )
        return cls(**written)

    def reply(self, prompt: str) -> str:
        """Return the next reply of a script whose replies are all strings.

        Raises
        ------
        RuntimeError
            The script has an `error`.
        """
        self.calls += 1
        if self.error is not None:
            raise RuntimeError(self.error)
        if self._replies:
            # Counted before the look-up, so the first request takes reply 0. The last reply repeats.
            return str(self._replies[min(self.calls, len(self._replies)) - 1])
        return _unscripted_reply(prompt)

    @cached_property
    def is_texts(self) -> bool:
        """True if all replies in the script are strings, without tool calls, errors or other actions."""
        return not self.turns and all(isinstance(reply, str) for reply in self._replies)

    def turn(self, run_id: str, number: int | None = None) -> int:
        """Return the number of the agent turn with this run id. Turns are numbered from 0 in the order in which they
        begin.

        Parameters
        ----------
        run_id
            Run id in the messages of the turn.
        number
            Recorded number of the turn, if it began in another process.
        """
        if run_id not in self._numbers:
            self._numbers[run_id] = len(self._numbers) if number is None else number
        return self._numbers[run_id]

    def reply_to(self, prompt: str, run_id: str | None, answered: int) -> ScriptedReply:
        """Return the scripted reply to a model request. Used for a script whose replies are not all strings.

        Parameters
        ----------
        run_id
            Run id in the messages of a turn; None for a request outside of turns.
        answered
            Number of answered requests of the turn.
        """
        if self.error is not None:
            self.calls += 1
            return ScriptedReply(error=self.error)
        # Without a turn, the number of answered requests of this process is the position in the script.
        if run_id is None:
            turn = None
            # A failed attempt does not advance the script: its repetition asks for the same reply.
            place = self.calls - self._failed.total()
            rounds = self._single()
        else:
            turn = self.turn(run_id)
            place = answered
            rounds = self._rounds[min(turn, len(self._rounds) - 1)]
        self.calls += 1
        return self._next(turn, place, rounds) if rounds else ScriptedReply(say=_unscripted_reply(prompt))

    def _next(self, turn: int | None, place: int, rounds: Sequence[Round]) -> ScriptedReply:
        current = rounds[min(place, len(rounds) - 1)]
        failed = self._failed[turn, place]
        # The last reply repeats without its failures. Other failures come first, each once.
        if current.reply is not None and (place >= len(rounds) or failed >= len(current.failures)):
            return current.reply
        self._failed[turn, place] += 1
        return current.failures[min(failed, len(current.failures) - 1)]

    def _single(self) -> list[Round]:
        """Return the scripted replies for requests that are made without the agent loop, one entry per request. If the
        script has several turns, these are the first replies of each turn.
        """
        return [rounds[0] for rounds in self._rounds if rounds] if self.turns else self._rounds[0]


class ScriptedCall(NamedTuple):
    """Tool call in a scripted reply."""

    tool: str
    arguments: Any
    """Arguments by name. A string is sent unchanged, even if it is not valid JSON."""


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """Reply of a scripted model to one request: text, thoughts, tool calls, structured output, or an error."""

    say: str = ""
    think: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    output: tuple[Any, ...] = ()
    """The structured answer as the only item, or empty."""
    error: str | None = None
    """Error text, if the request fails."""
    status: int | None = None
    """HTTP status of the error, if the reply imitates an error of a provider."""
    retry_after: float | None = None
    """Delay in seconds that the provider asks for."""
    function: ReplyFunction | None = None
    """Function that creates the reply when the request is made."""

    @classmethod
    def read(cls, written: WrittenReply) -> ScriptedReply:
        """Parse one reply of a script from its written form.

        Raises
        ------
        SetupError
            The reply has none of the forms listed in this module.

        Examples
        --------
        >>> ScriptedReply.read({"think": "Look it up.", "call": {"search": {"query": "owls"}}}).calls
        (ScriptedCall(tool='search', arguments={'query': 'owls'}),)
        """
        if callable(written):
            return cls(function=written)
        if isinstance(written, str):
            return cls(say=written)
        # A text is a sequence as well, and has been handled above.
        if isinstance(written, Sequence):
            return _together([cls.read(reply) for reply in written], written)
        if not written or not isinstance(written, Mapping):
            raise SetupError(f"invalid reply in a script: {written!r}; write {FORMS}")
        for key in written:
            if key not in KEYS:
                advice = did_you_mean(str(key), KEYS) or f"write {FORMS}"
                raise SetupError(f"unknown key {key!r} in a reply of a script; {advice}")
        # An error excludes all other keys.
        if "error" in written:
            return _failing(written)
        for key in ("status", "retry_after"):
            if key in written:
                raise SetupError(
                    f"{key!r} is allowed only in a reply with `error`, not in {dict(written)!r}; add `error`, or "
                    f"remove {key!r}"
                )
        output = (written["output"],) if "output" in written else ()
        calls = tuple(_calls(written.get("call", {})))
        return cls(_text(written, "say"), _text(written, "think"), calls, output)


async def made_for(reply: ScriptedReply, prompt: str, messages: Sequence[Any]) -> ScriptedReply:
    """Return the reply to a request. If the scripted reply is a function, call it with the prompt and return the reply
    that it returns; any other reply is returned unchanged.

    Parameters
    ----------
    prompt
        Latest prompt of the request.
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
    result = reply.function(*arguments)
    reply_of_function = ScriptedReply.read(await result if inspect.isawaitable(result) else result)
    if reply_of_function.function is not None:
        raise SetupError(f"the function {reply.function!r} of a script returned a function; return {FORMS}")
    return reply_of_function


def _takes_messages(function: ReplyFunction) -> bool:
    """Return True if a function that creates a reply takes the prompt and the messages. Return False if it takes only
    the prompt.
    """
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_position = [parameter for parameter in parameters if parameter.kind in kinds]
    # `lambda prompt, messages: ...` -> True; `def answer(prompt, retries=2)` -> False
    required = [parameter for parameter in by_position if parameter.default is parameter.empty]
    return len(required) > 1 or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


class Round(NamedTuple):
    """Replies of a script to one model request: errors, each of which fails one attempt, and then the reply that
    answers the request.
    """

    failures: tuple[ScriptedReply, ...]
    reply: ScriptedReply | None
    """None at the end of a script that ends with a failure. That failure repeats."""


def rounds_of(written: Iterable[WrittenReply]) -> list[Round]:
    """Group the replies of a script by request. An error and the next reply belong to the same request, because a
    request is repeated after an error.
    """
    # [error 1, "a", "b", error 2] -> [Round((error 1,), "a"), Round((), "b"), Round((error 2,), None)]
    rounds: list[Round] = []
    failures: list[ScriptedReply] = []
    for reply in map(ScriptedReply.read, written):
        if reply.error is not None:
            failures.append(reply)
        else:
            rounds.append(Round(tuple(failures), reply))
            failures = []
    # A script that ends with failures has a last request that is never answered.
    return [*rounds, Round(tuple(failures), None)] if failures else rounds


def _together(replies: Sequence[ScriptedReply], written: WrittenReply) -> ScriptedReply:
    """Merge a list of scripted replies into one reply that makes all their tool calls. Raise `SetupError` for a reply
    that cannot be merged.
    """
    if not replies or any(reply.error is not None or reply.output for reply in replies):
        raise SetupError(
            f"a list inside a script must contain parallel calls, not {written!r}; write [{{call: ...}}, ...]"
        )
    calls = tuple(call for reply in replies for call in reply.calls)
    return ScriptedReply("".join(reply.say for reply in replies), "".join(reply.think for reply in replies), calls)


def _calls(written: Any) -> Iterable[ScriptedCall]:
    if isinstance(written, str):
        return [ScriptedCall(written, {})]
    if isinstance(written, Sequence):
        side = "[{call: {tool: ...}}, {call: {tool: ...}}]"
        raise SetupError(f"invalid `call` in a script: {written!r}; write parallel calls as a list: {side}")
    if not isinstance(written, Mapping):
        raise SetupError(f"invalid `call` in a script: {written!r}; write {{call: {{tool: {{argument: value}}}}}}")
    # `call: {search: }` in YAML has None in place of the arguments.
    return [ScriptedCall(str(tool), {} if arguments is None else arguments) for tool, arguments in written.items()]


def _failing(written: Mapping[str, Any]) -> ScriptedReply:
    if set(written) - {"error", "status", "retry_after"}:
        raise SetupError(f"a reply with `error` cannot also contain an answer: {dict(written)!r}; write two replies")
    status = written.get("status")
    retry_after = written.get("retry_after")
    if retry_after is not None and status is None:
        raise SetupError(f"`retry_after` needs an HTTP status: add a `status` such as 429 to {dict(written)!r}")
    return ScriptedReply(error=_text(written, "error"), status=status, retry_after=retry_after)


def _text(written: Mapping[str, Any], key: str) -> str:
    value = written.get(key, "")
    if not isinstance(value, str):
        raise SetupError(f"`{key}` of a script must be a string, not {value!r}")
    return value


SCRIPTED = "scripted"
"""Model name of the scripted model in definitions."""


WRITTEN = ("error", "price", "replies", "turns", "usage")
"""Keys of a written script."""


def words(text: str) -> list[str]:
    """Split a text into words, each with the white space after it. The joined words are the original text."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def _unscripted_reply(prompt: str) -> str:
    first_line = prompt.strip().partition("\n")[0][:80] or "nothing"
    return (
        f"[scripted model: no model configured] Prompt: {first_line} (for a real answer give the agent a Model, for "
        "example `Model: openai:gpt-5-mini`)"
    )
