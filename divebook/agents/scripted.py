"""A model that answers from a script: offline, free, the same every time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

SCRIPTED = "scripted"
"""The model name that stands for it in definitions."""


@dataclass
class ScriptedModel:
    """Answers with the given replies in turn; the last one repeats.

    Without replies it says that it is scripted and how to get a real model.

    Examples
    --------
    >>> model = ScriptedModel(["first", "second"])
    >>> [model.reply("any prompt") for _ in range(3)]
    ['first', 'second', 'second']
    """

    replies: Sequence[str] = ()
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

    def reply(self, prompt: str) -> str:
        """Return the next reply.

        Raises
        ------
        RuntimeError
            The script says that the request fails.
        """
        self.calls += 1
        if self.error is not None:
            raise RuntimeError(self.error)
        if self.replies:
            return self.replies[min(self.calls, len(self.replies)) - 1]
        return _unscripted_reply(prompt)


def words(text: str) -> list[str]:
    """Return the words of a text, each with the white space after it; together they are the text."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def _unscripted_reply(prompt: str) -> str:
    first_line = prompt.strip().partition("\n")[0][:80] or "nothing"
    return (
        f"[scripted model] No model was asked, so this text was not written by one. Asked: {first_line} "
        "(for a real answer give the agent a Model, for example `Model: openai:gpt-5-mini`)"
    )
