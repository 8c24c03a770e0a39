"""What a command has printed, as a terminal shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CONTROL = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Sequences with which programs colour text and move the cursor."""
_CODES = ("return_code", "exit_code")


def printed(value: Any) -> str | None:
    """Return what a command has printed and how it ended; None for what is no result of a command.

    >>> print(printed({"stdout": "1 passed", "stderr": "", "exit_code": 0}))
    1 passed
    [exit 0]
    """
    if not isinstance(value, Mapping) or not {"stdout", "stderr"} <= value.keys():
        return None
    code = next((value[name] for name in _CODES if name in value), None)
    if type(code) is not int or not all(isinstance(value[name], str) for name in ("stdout", "stderr")):
        return None
    wholes = [
        f"[all of {name}: {value[key]}]" for name in ("stdout", "stderr") if (key := f"{name}_file_path") in value
    ]
    told = [_plain(value["stdout"]), _plain(value["stderr"]), *wholes, str(value.get("error") or f"[exit {code}]")]
    return "\n".join(part for part in told if part)


def _plain(text: str) -> str:
    """Return a text without colours; of a line that a program has written over, what it wrote last."""
    lines = _CONTROL.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).rstrip("\n")
