"""How a failure inside the sandbox becomes one of divebook's errors, with the script's own line number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, did_you_mean
from divebook.scripting.contexts import Limits
from divebook.scripting.program import Program

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
        return ScriptLimitError(f"script ran longer than {limits.seconds:g} s; do less in one script", failure.line)
    if failure.kind is FailureKind.MEMORY:
        size = f"{limits.memory / 2**20:g} MiB"
        return ScriptLimitError(f"script needs more than {size} of memory; work on smaller parts", failure.line)
    if failure.kind is FailureKind.CRASHED:
        return ScriptError(f"the sandbox process ended while it ran the script ({failure.text}); run it again")
    line, spans_lines = _own_line(failure.line, programs)
    where = f" (line {line})" if line and spans_lines else ""
    kind = ScriptSyntaxError if failure.kind is FailureKind.SYNTAX else ScriptError
    return kind(f"{_with_nearest_key(failure.text, names)}{where}", line)


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
