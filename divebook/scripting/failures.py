"""How a failure inside the sandbox becomes one of divebook's errors, with the script's own line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, did_you_mean
from divebook.scripting.contexts import Limits, ran_too_long
from divebook.scripting.program import Program, select

_GROWN = 64
"""How many times the bytes of its JSON a value takes at most inside the sandbox."""
_MISSING_KEY = re.compile(r"(?P<before>(?P<path>[\w.]+) has no key '(?P<key>.*)') \(keys: .*\)", re.DOTALL)


class FailureKind(Enum):
    """Why the sandbox gave no value."""

    RAISED = "raised"
    SYNTAX = "syntax"
    TIME = "time"
    MEMORY = "memory"
    CRASHED = "crashed"
    UNSENDABLE = "unsendable"


class SandboxError(Exception):
    """The sandbox gave no value; `line` counts in the text it was fed."""

    def __init__(self, kind: FailureKind, text: str, line: int | None = None) -> None:
        self.kind, self.text, self.line = kind, text, line
        self.printed = ""
        super().__init__(text)

    @property
    def ends_session(self) -> bool:
        """Whether the session it happened in must not be used again."""
        return self.kind in (FailureKind.TIME, FailureKind.MEMORY, FailureKind.CRASHED)


def forked() -> ScriptError:
    """Return the error for a child process forked after the sandbox was started."""
    return ScriptError(
        "scripts cannot run in a process forked from one that has run scripts; "
        'start it with multiprocessing.get_context("spawn") instead'
    )


def script_error(
    failure: SandboxError, programs: Sequence[Program], names: Mapping[str, Any], limits: Limits
) -> ScriptError:
    """Return the error to raise for a failure while `programs` were fed, one after the other."""
    if failure.kind is FailureKind.TIME:
        return ScriptLimitError(ran_too_long(limits.seconds), failure.line)
    if failure.kind is FailureKind.MEMORY:
        return ScriptLimitError(_needs_more(programs, names, limits.memory), failure.line)
    if failure.kind is FailureKind.CRASHED:
        return ScriptError(f"the sandbox process ended while it ran the script ({failure.text}); run it again")
    line, spans_lines = _own_line(failure.line, programs)
    where = f" (line {line})" if line and spans_lines else ""
    kind = ScriptSyntaxError if failure.kind is FailureKind.SYNTAX else ScriptError
    return kind(f"{_with_nearest_key(failure.text, names)}{where}", line)


def _needs_more(programs: Sequence[Program], names: Mapping[str, Any], memory: int) -> str:
    """Say what takes too much memory: the largest value that was sent, if it is large enough to be the cause."""
    values = dict(_reached(select(programs, names)))
    weights = {place: _weight(value) for place, value in values.items()}
    place = max(weights, key=weights.__getitem__, default="")
    said = f"script needs more than {memory / 2**20:g} MiB of memory"
    if not place or weights[place] * _GROWN < memory:
        return f"{said}; work on smaller parts"
    value = values[place]
    kind = "text" if isinstance(value, str) else "mapping" if isinstance(value, Mapping) else type(value).__name__
    return (
        f"{said}; {place}, a {kind} of {len(value):,}, is the largest value it looks at: give it whole to an action or "
        f"a step, as $({place}), or make what the script needs of it there"
    )


def _reached(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give the values that a script looks at by their places; of ``state`` and the like, what is in them."""
    for name, value in names.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        else:
            yield name, value


def _weight(value: Any) -> int:
    """Return about how many bytes a value takes as JSON."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _weight(item) for key, item in value.items())
    return sum(map(_weight, value)) + len(value) if isinstance(value, list | tuple) else 8


def _own_line(line: int | None, programs: Sequence[Program]) -> tuple[int | None, bool]:
    """Return the line inside the program that a fed line belongs to, and whether that program has several."""
    if line is None:
        return None, False
    for program in programs:
        count = program.code.count("\n")
        if line <= count or program is programs[-1]:
            return line, "\n" in program.text.strip()
        line -= count
    return line, False


def _with_nearest_key(text: str, names: Mapping[str, Any]) -> str:
    """Name the nearest key, found in the whole value: the sandbox was only given the keys the script mentions."""
    match = _MISSING_KEY.search(text)
    value: Any = names
    for part in match["path"].split(".") if match else ():
        value = value.get(part) if isinstance(value, Mapping) else None
    if match is None or not isinstance(value, Mapping):
        return text
    keys = [str(key) for key in value]
    hint = did_you_mean(match["key"], keys) or f"keys: {', '.join(keys[:10]) or 'none'}"
    return text.replace(match[0], f"{match['before']} ({hint})")
