"""Recordings as a saved notebook holds them: packed within a size, and unpacked with nothing taken on trust.

What is in a notebook was written by its sender: unpacking checks every type and size before anything is used, imports
nothing, and makes nothing but plain data.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from divebook.errors import SavedRunError
from divebook.events import Event
from divebook.execution.execution import Execution
from divebook.questions import InterruptStatus
from divebook.questions.wording import became
from divebook.text.cuts import cut, one_line
from divebook.text.redaction import Redactor, shared
from divebook.text.shown import size
from divebook.widgets.checking import checked
from divebook.widgets.protocol.recording import PackedRun, Recording
from divebook.widgets.protocol.spans import SpanBlock
from divebook.widgets.recording import PARTS, WHOLE, CleanRun
from divebook.widgets.source import MAX_ANSWER

MIME = "application/vnd.divebook.run+json"
FORMAT, WHOLE_FORMAT = 2, 1
"""Of a sample, and of a whole run, which divebooks read that knew no samples."""
MAX_BYTES = 256_000
"""What one run may add to a notebook."""
MAX_UNPACKED = 32_000_000
TEXTS = (20_000, 2_000, 300)
"""Longest texts, tried one after the other until it fits; after the last one the sample becomes smaller."""
LEAST_EVENTS = 10
MAX_FIRST = 5_000_000
"""Larger numbers of events are not believed."""
NAME = 200


def saved_run(
    execution: Execution,
    log: Sequence[Event] | None = None,
    known_secrets: Iterable[str] = (),
    *,
    next_step: str = "",
    max_bytes: int = MAX_BYTES,
) -> PackedRun:
    """Return a run as a notebook holds it: as much as fits into `max_bytes`.

    Secrets are left out as `divebook.text.redaction` says. What does not fit is cut in this order: long texts
    (to 20,000, 2,000, then 300 characters), then events of which a sample is left, then everything but ids and the
    store's path.
    """
    redactor, events = shared().fresh(known_secrets), execution.history() if log is None else log
    saved, run, before = without_recording(execution, redactor, next_step), CleanRun(execution, events, redactor), None
    for texts, count in attempts(run.length):
        recording = run.recording(events=count, texts=texts)
        if recording == before:  # no text was so long: what was too large still is
            continue
        packed, before = pack(recording), recording
        if packed is not None and len(packed) + NAME * 5 <= max_bytes:
            form = FORMAT if recording["sample"] else WHOLE_FORMAT
            first = recording["events"]["first"]
            return {**saved, "format": form, "first": first, "texts": texts, "recording": packed}
    return saved


def attempts(events: int, texts: Sequence[int] = TEXTS) -> Iterator[tuple[int, int]]:
    """Yield the longest texts and the number of events to try one after the other, until a recording fits."""
    for longest in texts:
        yield longest, events
    while events > LEAST_EVENTS:
        events //= 2
        yield texts[-1], events


def without_recording(execution: Execution, redactor: Redactor, next_step: str) -> PackedRun:
    """Return what is known of a run without its recording."""
    return PackedRun(
        format=WHOLE_FORMAT,
        execution_id=execution.id,
        workflow=one_line(redactor.text(execution.workflow.name), NAME),
        status=execution.status,
        store=one_line(redactor.text(execution.store.location), 2 * NAME),
        next=next_step,
        total=execution.state.last_sequence,
        first=0,
        texts=0,
        recording="",
    )


def pack(recording: Recording) -> str | None:
    """Return a recording as text; None if it is larger than what anybody unpacks."""
    raw = json.dumps(recording, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return None if len(raw) > MAX_UNPACKED else base64.b64encode(zlib.compress(raw, 7)).decode("ascii")


# --- from a notebook -----------------------------------------------------------------------------------------------


def read_saved(data: Any) -> tuple[PackedRun, Recording]:
    """Return a run that a notebook holds, checked.

    Raises
    ------
    SavedRunError
        It is damaged, made by hand, from a newer divebook, or has no recording.
    """
    saved = checked_run(data)
    if not saved["recording"]:
        where = one_line(saved["store"], 2 * NAME)
        raise SavedRunError(f"run {saved['execution_id'][:60]} was too large to be saved; its log is in {where}")
    return saved, checked_recording(unpack(saved["recording"]))


def checked_run(data: Any) -> PackedRun:
    """Return what a file says of a run, its recording as it is; raises SavedRunError."""
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise SavedRunError(f"it has format {data['format']}, this divebook reads {FORMAT}; upgrade divebook")
    return cast("PackedRun", checked(data, PackedRun))


def checked_recording(data: Any) -> Recording:
    """Return plain data as the recording that it is; raises SavedRunError."""
    recording = cast("Recording", checked(_in_present_words(data), Recording))
    _check_sizes(recording)
    return recording


def unpack(text: str) -> Any:
    """Return what `pack` packed, unchecked plain data; raises SavedRunError."""
    try:
        engine = zlib.decompressobj()
        raw = engine.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
        if engine.unconsumed_tail or not engine.eof:
            raise SavedRunError(f"its data is cut off, or more than {size(MAX_UNPACKED)} when unpacked")
        return json.loads(raw)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise SavedRunError(f"its data cannot be unpacked: {error}") from None


_UNTIMED: dict[str, Any] = {
    "doing": "stopped",
    "since_us": None,
    "worked_us": 0,
    "waited_us": 0,
    "paused_us": 0,
    "stretches": [],
    "progress": [],
}
"""What headers of older recordings do not say of the course of a run."""


def _in_present_words(data: Any) -> Any:
    """Return a recording, unchecked, in today's words: a question with an answer was ``completed`` in older ones.

    They did not say either which signals a run waits for, or when questions were settled, what the rows of steps gave,
    and knew of no agents with tools.
    """
    if isinstance(data, dict) and isinstance(data.get("header"), dict):
        data["header"] = {
            "waits": "",
            "workspaces": 0,
            "tool_calls": 0,
            "spenders": [],
            "failed": 0,
            "ways": [],
            "dashboards": [],
            **_UNTIMED,
            **data["header"],
        }
        _spread_nothing(data["header"]["progress"])
    if isinstance(data, dict):
        data.setdefault("conversations", [])
        data.setdefault("variables", [])
        data.setdefault("workspaces", [])
        for workspace in data["workspaces"] if isinstance(data["workspaces"], list) else ():
            if isinstance(workspace, dict):
                workspace.setdefault("left_out", [])
                workspace.setdefault("points", [])
        data.setdefault("failures", {"total": 0, "kept": "", "shown": []})
        _explain(data["failures"])
        _name_events(data)
        spans = data.get("spans")
        if isinstance(spans, dict) and isinstance(spans.get("id"), list):
            spans.setdefault("within", [-1] * len(spans["id"]))
            for name in ("item", "given", "came"):
                spans.setdefault(name, [0] * len(spans["id"]))
    questions = data.get("questions") if isinstance(data, dict) else None
    for asked in questions if isinstance(questions, list) else ():
        if isinstance(asked, dict):
            _put_into_words(asked)
    return data


def _spread_nothing(progress: Any) -> None:
    """Let steps of older recordings say nothing of what their rows gave."""
    for told in progress if isinstance(progress, list) else ():
        if isinstance(told, dict):
            told.setdefault("spread", [])


def _explain(failures: Any) -> None:
    """Let failures of older recordings say nothing of what they mean."""
    shown = failures.get("shown") if isinstance(failures, dict) else None
    for failure in shown if isinstance(shown, list) else ():
        if isinstance(failure, dict):
            failure.setdefault("means", "")


def _put_into_words(asked: dict[str, Any]) -> None:
    if asked.get("status") == "completed":
        asked["status"] = InterruptStatus.RESOLVED.value
    asked.setdefault("answered_us", None)
    asked.setdefault("fallback", "")
    if "became" not in asked:
        asked["became"] = cut(became(str(asked.get("status")), asked.get("response")), MAX_ANSWER)


def _name_events(data: dict[str, Any]) -> None:
    """Give the events of an older recording their numbers: it held the newest ones, without gaps."""
    events = data.get("events")
    if not isinstance(events, dict) or "sequence" in events:
        return
    first, kinds = events.get("first"), events.get("type")
    if isinstance(first, int) and isinstance(kinds, list) and first <= MAX_FIRST:
        events["sequence"] = [*range(first, first + len(kinds))]
        told = f"The last {len(kinds):,} of {first - 1 + len(kinds):,} events"
        data.setdefault("sample", told if first > 1 else "")


def _check_sizes(recording: Recording) -> None:
    """Raise SavedRunError unless columns are of equal length and all places that they name exist."""
    spans, events = recording["spans"], recording["events"]
    count, rows = len(spans["id"]), len(events["type"])
    lengths = {len(cast("Any", spans)[name]) == count for name in SpanBlock.__annotations__ if name != "names"}
    lengths |= {len(cast("Any", events)[name]) == rows for name in ("sequence", "time", "path", "step", "text")}
    lengths |= {len(recording["members"]) == count, len(recording["data"]) == rows == len(recording["changes"])}
    if lengths != {True}:
        raise SavedRunError("its columns are not of the same length")
    words = [
        (spans, name) for name in ("kind", "path", "step", "type", "label", "item", "given", "came", "status", "note")
    ]
    places = [place for block, name in words for place in cast("Any", block)[name]]
    is_sound = all(0 <= place < len(spans["names"]) for place in places)
    named = (place for name in ("type", "path", "step", "text") for place in cast("Any", events)[name])
    is_sound &= all(0 <= place < len(events["names"]) for place in named)
    is_sound &= all(0 < one < other for one, other in pairwise([*events["sequence"], MAX_FIRST]))
    is_sound &= all(0 <= one < other for one, other in pairwise([*spans["id"], recording["total"]]))
    if not is_sound:
        raise SavedRunError("its parts contradict each other")
    for change in (change for event in recording["changes"] for change in event):
        _check_change(change)


def _check_change(change: list[Any]) -> None:
    """Raise SavedRunError unless a change is of a part that states have, and leaves them whole."""
    if len(change) not in (2, 3) or not all(isinstance(part, str) for part in change[:2]):
        raise SavedRunError("one of its changes has the wrong form")
    (part, name), value = change[:2], change[2:]
    if part in WHOLE and (name or not value):
        raise SavedRunError(f"one of its changes takes {part} away")
    kind = PARTS.get(part)
    if kind is None:
        raise SavedRunError(f"one of its changes is of {one_line(part, 40)!r}, which states do not have")
    for new in value:
        checked(new, kind)
