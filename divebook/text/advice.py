"""Commands that errors and reports advise, spelled as the reader types them.

A command is advised by its line, such as ``show exec_01k8``. The interface of the process says how a line is typed:
``divebook show exec_01k8`` in a shell, ``%dive show exec_01k8`` in a notebook. In a Python program, a call is advised
where there is one: ``divebook.show('exec_01k8')``. Only the interfaces write these forms themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Spelling: TypeAlias = Callable[[str], str]
"""Returns a command line as the person types it in an interface."""
_spellings: list[Spelling] = []
"""Spellings of the interfaces in use, the innermost last; empty in a Python program."""


def advised(line: str, python: str = "") -> str:
    """Return a command line as the reader of a text types it.

    Parameters
    ----------
    line
        Name and words of the command, without a program.
    python
        The same as a call in Python, for programs without an interface; by default the command of the shell.

    >>> advised("check"), advised("runs", "divebook.runs()")
    ('divebook check', 'divebook.runs()')
    """
    if _spellings:
        return _spellings[-1](line)
    return python or f"divebook {line}"


def begin_interface(spelling: Spelling) -> None:
    """Spell commands from now on as an interface does."""
    _spellings.append(spelling)


def end_interface(spelling: Spelling) -> None:
    """Spell commands again as before `begin_interface`; do nothing if the interface has not begun."""
    if spelling in _spellings:
        _spellings.remove(spelling)


@contextmanager
def interface_spelling(spelling: Spelling) -> Iterator[None]:
    """Spell commands as an interface does, within a ``with`` block."""
    begin_interface(spelling)
    try:
        yield
    finally:
        end_interface(spelling)
