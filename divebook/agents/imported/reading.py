"""Reads a file of whatever wrote it: an export of divebook or the old system, a history of messages, or a trace."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, BinaryIO

from divebook.agents.imported.histories import is_history, turns_in
from divebook.agents.imported.traces import is_trace, turns_of
from divebook.agents.imported.written import SaidTurn, log_of
from divebook.errors import StoreError
from divebook.store import jsonl
from divebook.store.lines import LogFile

MOST = 512 * 2**20
"""Bytes of a file that is looked at whole; an export, which is read line by line, may be longer."""


def read(file: str | Path | BinaryIO) -> LogFile:
    """Return the execution in a file.

    Exports of divebook and of the old system are read by `divebook.store.jsonl.read`. A history of pydantic-ai
    (``result.all_messages_json()``), or spans of OpenTelemetry with the GenAI conventions (OTLP's JSON, the Python
    SDK's, one or many, as an array or one a line), become an execution whose steps are the turns of agents.

    Raises
    ------
    InvalidEventError, NewerStoreError, StoreError
        Names the file, the place, and what is wrong there.
    """
    if not isinstance(file, str | Path):
        return jsonl.read(file)
    jsonl.check_path(file)
    path = Path(file)
    if not _may_be_foreign(path):
        return jsonl.read(file)
    text = path.read_text(encoding="utf-8", errors="replace")
    data = _parsed(text)
    if is_history(data):
        return _log(path, turns_in(data, str(path)), text)
    if is_trace(data):
        return _log(path, turns_of(data, str(path)), text)
    return jsonl.read(file)


def _may_be_foreign(path: Path) -> bool:
    """Return whether a file does not begin as an export does, as far as its first bytes say."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(4096)
        return path.stat().st_size <= MOST and not any(mark in begin for mark in (b'"event_type"', b'"divebook"'))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; name another file") from error


def _parsed(text: str) -> Any:
    """Return the data of JSON: one value, or values one after the other."""
    decoder, found, place = json.JSONDecoder(), [], 0
    while (place := _next(text, place)) < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return None
        found.append(value)
    return found[0] if len(found) == 1 else found


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n,\ufeff":
        place += 1
    return place


def _log(path: Path, turns: list[SaidTurn], text: str) -> LogFile:
    return LogFile(str(path), log_of(path.stem, turns, text, time.time_ns() // 1000))
