"""Hints: commands that a reader can run next, as data. Each interface has its own words for them.

A run that waits is shown in the shell, in a notebook and by `print`. The text is the same, but ``%dive answer`` has no
meaning in a shell, and ``divebook answer`` none in a Python program. A report therefore holds the command and its
arguments, and the renderers ask for the words of the present interface: plain Python, until the command line or the
notebook extension begins another one with `begin_interface` or `worded`.

An error names a command by its line, such as ``check``, and `advised` spells it as the reader types it. Only an
`Interface` has these forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias

from divebook.text.format import in_notebook

Argument: TypeAlias = str | bool | float | EllipsisType | None
"""Argument of a method in a hint. An ellipsis stands for a value that the reader chooses."""


PRIVATE = "\0"
"""Character before the number in the address of a store that only its process can open. No path contains it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Command about a run that a reader can run next."""

    command: str
    """Name of the command of the shell and of ``%dive``."""
    words: tuple[str, ...]
    """Arguments of the command. The first one is the run, or the address of a question."""
    method: str
    """Name of the method of `Run` that does the same, or of a function with its module: ``divebook.answer``."""
    arguments: tuple[Argument, ...] = ()
    """Arguments of the method."""
    member: str = ""
    """Id of the run that the method belongs to, if it is not the run of the report but a child of it."""
    store: str = ""
    """Address of the store of the run; with a number after `PRIVATE` if only this process can open the store."""

    @property
    def text(self) -> str:
        """The hint in the words of the present interface."""
        return _interfaces[-1].hint(self)


def as_method(hint: Hint) -> str:
    """Return a hint as the call of a method of `Run`.

    >>> as_method(Hint("answer", ("ask_1@exec_1", "TEXT"), "answer", ("ask_1", ...)))
    "run.answer('ask_1', ...)"
    >>> as_method(Hint("signal", ("exec_2", "go"), "signal", ("go",), member="exec_2"))
    "run.environment.run_of('exec_2').signal('go')"
    """
    arguments = ", ".join("..." if argument is ... else repr(argument) for argument in hint.arguments)
    run = f"run.environment.run_of({hint.member!r})" if hint.member else "run"
    return f"{hint.method if '.' in hint.method else f'{run}.{hint.method}'}({arguments})"


def as_magic(hint: Hint, own_store: str = "") -> str:
    """Return a hint as a line with the magic ``%dive``.

    `own_store` is the address of the store of the session, which the line does not name. No line can name another store
    that only this process can open. The hint is the call of a method then.

    >>> as_magic(Hint("resume", ("exec_1",), "resume"))
    '%dive resume exec_1'
    >>> as_magic(Hint("resume", ("exec_1",), "resume", store="/tmp/other.db"), "/tmp/own.db")
    '%dive resume exec_1 --store /tmp/other.db'
    >>> as_magic(Hint("resume", ("exec_1",), "resume", store=f"memory:{PRIVATE}2"), f"memory:{PRIVATE}1")
    'run.resume()'
    """
    is_own = hint.store in ("", own_store)
    if not is_own and PRIVATE in hint.store:
        return as_method(hint)
    options = [] if is_own else ["--store", hint.store]
    return in_notebook(hint.command, hint.words, options)


@dataclass(frozen=True, slots=True)
class Interface:
    """The words of an interface for commands: of plain Python, the shell or a notebook."""

    hint: Callable[[Hint], str]
    """Returns the text of a hint."""
    line: Callable[[str], str]
    """Returns a command line, such as ``check``, as a person types it."""


PYTHON = Interface(as_method, "divebook {}".format)
"""The words of a Python program, which has no interface. A command without a call in Python is one of the shell."""
# One list for the process, not for each thread: the publisher of a live view renders reports on a thread of its own.
_interfaces = [PYTHON]
"""The interfaces in use; the last one is the present one."""


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
    present = _interfaces[-1]
    return python if python and present is PYTHON else present.line(line)


def show_advice(execution_id: str) -> str:
    """Return the command that shows a run, as the reader of a text types it.

    >>> show_advice("exec_1")
    "divebook.show('exec_1')"
    """
    return advised(f"show {execution_id}", f"divebook.show({execution_id!r})")


def begin_interface(interface: Interface) -> None:
    """Use the words of an interface for all hints and command lines from now on."""
    _interfaces.append(interface)


def end_interface(interface: Interface) -> None:
    """Use the words from before `begin_interface` again. Do nothing if the interface has not begun."""
    if interface in _interfaces[1:]:
        _interfaces.remove(interface)


@contextmanager
def worded(interface: Interface) -> Iterator[None]:
    """Use the words of an interface for all hints and command lines during a ``with`` block."""
    begin_interface(interface)
    try:
        yield
    finally:
        end_interface(interface)
