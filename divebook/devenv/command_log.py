"""The log of what was done with environments: a line for each command, of limited size, without secrets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.text.redaction import shared
from divebook.text.shown import visible

LARGEST = 1_000_000
"""Bytes of the log; then it is put aside under its name and ``.1``."""
TEXT, JSON = "text", "json"


@dataclass
class CommandLog:
    """The log below a root; one that cannot be written is a warning."""

    path: Path
    events: Path
    """The file with the same as JSON, for programs."""
    form: str = TEXT
    is_telling: bool = True
    """Whether warnings are told on stderr as well."""
    is_verbose: bool = False
    """Whether all lines are."""

    def write(self, level: str, at: str, message: str, **facts: Any) -> None:
        """Write a line.

        Parameters
        ----------
        at
            The time, ISO 8601.
        facts
            What lines of JSON have besides: command, environment, tenant, owner, duration (seconds), exit_code.
        """
        text = shared().text(message).replace("\n", " | ")
        if level == "WARNING" and self.is_telling:
            sys.stderr.write(f"dev_env: {visible(text)}\n")
        told = json.dumps({"time": at, "level": level, "message": text, **facts}, ensure_ascii=False)
        line = _line(level, at, text, facts)
        if self.is_verbose and level != "WARNING":
            sys.stderr.write(f"{visible(line)}\n")
        for path, written in ((self.path, told if self.form == JSON else line), (self.events, told)):
            try:
                _append(path, written)
            except OSError as error:
                sys.stderr.write(visible(f"dev_env: the log {path} cannot be written: {error}\n"))

    def lines(self, environment: str) -> Iterator[str]:
        """Yield the lines about an environment, the oldest first."""
        return (line for line in _lines(self.path) if _is_about(line, environment))

    def told(self, tenant: str, environment: str | None = None) -> Iterator[str]:
        """Yield what was done for a tenant, in one environment or all, as lines of JSON, the oldest first."""
        for line in _lines(self.events):
            try:
                facts = json.loads(line)
            except ValueError:  # cut where the disk was full
                continue
            if facts.get("tenant") == tenant and environment in (None, facts.get("environment")):
                yield line


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(f"{path}.1")
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(f"{line}\n".encode())


def _lines(path: Path) -> Iterator[str]:
    for part in (Path(f"{path}.1"), path):
        if part.exists():
            yield from part.read_text("utf-8", "replace").splitlines()


def _line(level: str, at: str, text: str, facts: dict[str, Any]) -> str:
    return f"[{level}] {at[:10]} {at[11:19]} - {facts.get('environment') or '-'}: {text}"


def _is_about(line: str, environment: str) -> bool:
    if not line.startswith("{"):
        return line.partition(" - ")[2].startswith(f"{environment}: ")
    try:
        return bool(json.loads(line).get("environment") == environment)
    except ValueError:  # cut where the disk was full
        return False
