"""Commands as they are printed for people to copy: each works as it stands, its words quoted as its face reads them.

The address of a database comes without its password, which is looked for where it is kept; hidden, it would be wrong.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from divebook.text.passwords import for_command

_NEEDS_QUOTES = ("'", '"', "-", "{", "[")


def in_shell(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    r"""Return a command of the shell.

    >>> in_shell("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    'divebook signal exec_1 \'it\'"\'"\'s on\' --store \'my runs.db\''
    >>> in_shell("answer", ["ask_1", "-1"])
    'divebook answer -- ask_1 -1'
    >>> in_shell("show", ["exec_1"], ["--store", "postgresql://ann:***@host/db"])
    'divebook show exec_1 --store postgresql://ann@host/db'
    """
    options = [for_command(option) for option in options]
    if any(word.startswith("-") for word in words):
        return shlex.join(["divebook", verb, *options, "--", *words])
    return shlex.join(["divebook", verb, *words, *options])


def in_notebook(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return a magic.

    >>> in_notebook("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    "%dive signal exec_1 'it''s on' --store 'my runs.db'"
    """
    named = map(for_command, options)
    parts = [*map(quoted, words), *(word if word.startswith("--") else quoted(word) for word in named)]
    return " ".join(["%dive", verb, *parts])


def quoted(word: str) -> str:
    """Return a word as the line of a magic takes it: what would be taken apart is quoted."""
    needs = not word or word.startswith(_NEEDS_QUOTES) or any(map(str.isspace, word))
    return "'" + word.replace("'", "''") + "'" if needs else word
