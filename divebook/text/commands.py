"""Commands as they are printed for people to copy: each works as it stands, its words quoted as its face reads them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_NEEDS_QUOTES = ("'", '"', "-", "{", "[")


def in_shell(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    r"""Return a command of the shell.

    >>> in_shell("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    'divebook signal exec_1 \'it\'"\'"\'s on\' --store \'my runs.db\''
    >>> in_shell("answer", ["ask_1", "-1"])
    'divebook answer -- ask_1 -1'
    """
    if any(word.startswith("-") for word in words):
        return shlex.join(["divebook", verb, *options, "--", *words])
    return shlex.join(["divebook", verb, *words, *options])


def in_notebook(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return a magic.

    >>> in_notebook("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    "%dive signal exec_1 'it''s on' --store 'my runs.db'"
    """
    parts = [*map(quoted, words), *(word if word.startswith("--") else quoted(word) for word in options)]
    return " ".join(["%dive", verb, *parts])


def quoted(word: str) -> str:
    """Return a word as the line of a magic takes it: what would be taken apart is quoted."""
    needs = not word or word.startswith(_NEEDS_QUOTES) or any(map(str.isspace, word))
    return "'" + word.replace("'", "''") + "'" if needs else word
