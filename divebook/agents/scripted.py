"""A model that answers from a script: offline, free, the same every time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from divebook.agents.script import ReplyFunction, Round, ScriptedReply, WrittenReply, rounds_of
from divebook.errors import SetupError

SCRIPTED = "scripted"
"""The model name that stands for it in definitions."""
WRITTEN = ("error", "price", "replies", "turns", "usage")
"""What a written script may say."""


@dataclass
class ScriptedModel:
    """Answers with the given replies in turn; the last one repeats.

    A reply is a text, or says what a model with tools does: calls them, returns data, thinks, or fails
    (`divebook.agents.script`). Without replies it says that it is scripted and how to get a real model.

    A function in place of the replies, or of one of them, returns the reply to each prompt: ``lambda prompt: ...`` or
    ``lambda prompt, messages: ...``. It is called once for a request that the log does not have yet.

    An agent that only writes texts takes the next reply for each request of this process. The turn of an agent with
    tools begins at the first reply, and each request takes the one after those that the turn has had: the log tells
    how many they are, so that a turn goes on at its place in any process. Texts alone are always taken one by one.

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
    """Tokens each reply claims to have consumed: ``input_tokens``, ``output_tokens``."""
    price: float = 0.0
    """US dollars each reply claims to have cost."""
    error: str | None = None
    """If set, every request fails with this text."""
    pace: Callable[[], Awaitable[object]] | None = None
    """Awaited between the words of a reply that somebody watches being written: ``lambda: asyncio.sleep(0.05)``."""
    calls: int = 0
    """Requests answered so far."""
    turns: Sequence[Sequence[WrittenReply]] = ()
    """In place of replies: those of the first turn, of the second, and so on; the last one repeats."""

    def __post_init__(self) -> None:
        for name in ("replies", "turns"):
            if isinstance(given := getattr(self, name), str | Mapping):
                raise SetupError(
                    f"{name} of a scripted model are a list, one for each request, not {given!r}; write [...]"
                )
        self._replies: Sequence[WrittenReply] = (self.replies,) if callable(self.replies) else self.replies
        self._failed: Counter[tuple[int | None, int]] = Counter()
        self._numbers: dict[str, int] = {}
        self._rounds = [] if self.is_texts else [rounds_of(replies) for replies in self.turns or (self._replies,)]

    @classmethod
    def read(cls, written: Any) -> ScriptedModel:
        """Return the model whose script a person wrote: a list of replies, or a mapping of what `ScriptedModel` takes.

        Raises
        ------
        SetupError
            It is neither, or a reply has another form.

        Examples
        --------
        >>> ScriptedModel.read({"turns": [["first"], ["second"]], "price": 0.5}).turns
        [['first'], ['second']]
        """
        if isinstance(written, list):
            return cls(written)
        if not isinstance(written, Mapping):
            raise SetupError(f"a script is a list of replies, or a mapping with `turns`, not {written!r}", ("Script",))
        for key in written:
            if key not in WRITTEN:
                raise SetupError(f"a script has no {key!r}; it has {', '.join(WRITTEN)}", ("Script", str(key)))
        return cls(**written)

    def reply(self, prompt: str) -> str:
        """Return the next reply of a script of texts.

        Raises
        ------
        RuntimeError
            The script says that the request fails.
        """
        self.calls += 1
        if self.error is not None:
            raise RuntimeError(self.error)
        if self._replies:
            return str(self._replies[min(self.calls, len(self._replies)) - 1])
        return _unscripted_reply(prompt)

    @cached_property
    def is_texts(self) -> bool:
        """Whether its replies are texts and nothing else."""
        return not self.turns and all(isinstance(reply, str) for reply in self._replies)

    def turn(self, run_id: str, number: int | None = None) -> int:
        """Return the number of a turn, from 0 in the order in which turns begin.

        Parameters
        ----------
        run_id
            What its messages are marked with.
        number
            What it was in the process in which the turn began.
        """
        if run_id not in self._numbers:
            self._numbers[run_id] = len(self._numbers) if number is None else number
        return self._numbers[run_id]

    def answer(self, prompt: str, run_id: str | None, answered: int) -> ScriptedReply:
        """Return the reply to a request, of a script that says more than texts.

        Parameters
        ----------
        run_id
            What the messages of a turn are marked with; None for a request that belongs to none.
        answered
            How many requests the turn has had answers to.
        """
        if self.error is not None:
            self.calls += 1
            return ScriptedReply(error=self.error)
        if run_id is None:
            turn, place, rounds = None, self.calls - self._failed.total(), self._single()
        else:
            turn, place = self.turn(run_id), answered
            rounds = self._rounds[min(turn, len(self._rounds) - 1)]
        self.calls += 1
        return self._next(turn, place, rounds) if rounds else ScriptedReply(say=_unscripted_reply(prompt))

    def _next(self, turn: int | None, place: int, rounds: Sequence[Round]) -> ScriptedReply:
        found = rounds[min(place, len(rounds) - 1)]
        failed = self._failed[turn, place]
        if found.reply is not None and (place >= len(rounds) or failed >= len(found.failures)):
            return found.reply
        self._failed[turn, place] += 1
        return found.failures[min(failed, len(found.failures) - 1)]

    def _single(self) -> list[Round]:
        """Return what comes one after the other where every request is a turn of its own."""
        return [rounds[0] for rounds in self._rounds if rounds] if self.turns else self._rounds[0]


def words(text: str) -> list[str]:
    """Return the words of a text, each with the white space after it; together they are the text."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def _unscripted_reply(prompt: str) -> str:
    first_line = prompt.strip().partition("\n")[0][:80] or "nothing"
    return (
        f"[scripted model] No model was asked, so this text was not written by one. Asked: {first_line} "
        "(for a real answer give the agent a Model, for example `Model: openai:gpt-5-mini`)"
    )
