"""Export of a run as one self-contained HTML page, which shows the run step by step and contains its log.

The page has a readable first script and parts (`divebook.stores.embedded`): the viewer, which is that of saved runs in
JupyterLab, the long texts, the shown data, and the log. The shown data is a recording as in notebooks
(`divebook.widgets.recording`), so that the browser applies differences of states and computes no states itself. The
content security policy of the page forbids it to load anything. Secrets are left out of all parts by
`divebook.text.redaction`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from divebook.errors import InvalidEventError, StoreError
from divebook.events.codec import event_to_dict, tagged_form
from divebook.events.event import Event
from divebook.events.recorded import CONTAINERS, TAG
from divebook.report.html import safe
from divebook.runtime.run import Run
from divebook.stores.embedded import (
    LOG,
    RUN,
    TEXTS,
    VIEWER,
    LongTexts,
    columns_of,
    decoded,
    pack,
    part_of,
    script_of,
    sealed,
)
from divebook.stores.transfer import new_file
from divebook.text.colours import COLOURS
from divebook.text.passwords import REDACTED as HIDDEN
from divebook.text.redaction import Redactor, shared
from divebook.widgets.protocol import PackedRun, Recording
from divebook.widgets.recording import FORMAT, MADE_BY_THE_ENGINE, WHOLE_FORMAT, CleanRun, attempts, without_recording
from divebook.widgets.views import built

LEAST_PACKED = 16
"""Minimum length of a base64 text that is decoded to search it for secrets."""


def clean_log(events: Sequence[Event], redactor: Redactor) -> list[dict[str, Any]]:
    """Return the payload of each event as plain JSON data from which secrets were removed. Valid events can still be
    built from these data.

    The redactor first learns the secrets of all events.

    Raises
    ------
    InvalidEventError
        An event is invalid without its secrets.
    """
    # Secrets can be replaced anywhere in plain JSON data.
    plain: list[dict[str, Any]] = [tagged_form(event.data.to_data()) for event in events]
    # All events are learned before the first is cleaned, so that a secret which becomes known late is also removed from
    # earlier events.
    for data in plain:
        redactor.learn({name: data[name] for name in data if name not in MADE_BY_THE_ENGINE})
    return [_clean(event, data, redactor) for event, data in zip(events, plain, strict=True)]


def _clean(event: Event, data: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return `data`, the plain data of an event's payload, without its secrets."""
    clean = {}
    for name, part in data.items():
        if name in MADE_BY_THE_ENGINE:
            clean[name] = part
        else:
            clean[name] = redactor.under(name, _opaque(part, redactor))
    # Most events have no secrets, and checking builds an event again.
    if clean != data:
        _check(event, clean)
    return clean


def _check(event: Event, data: dict[str, Any]) -> None:
    """Check that a valid event can still be built from data without secrets. If not, raise InvalidEventError, because
    the page could not be opened as a run.
    """
    try:
        decoded({**event_to_dict(event), "data": data}, f"event {event.sequence} without its secrets")
    except InvalidEventError as error:
        raise InvalidEventError(
            f"{error}; export the log as JSON lines (run.jsonl), which does not remove secrets"
        ) from error


def _opaque(value: Any, redactor: Redactor) -> Any:
    """Return plain data in which encoded values, such as bytes and frames, are replaced by `HIDDEN` if they contain a
    secret.
    """
    if isinstance(value, list):
        return [_opaque(part, redactor) for part in value]
    if not isinstance(value, dict):
        return value
    if value.get(TAG) in CONTAINERS:  # a tuple or mapping is cleaned part by part
        return {**value, "value": _opaque(value.get("value"), redactor)}
    if TAG in value and (_hides_secret(value.get("value"), redactor) or redactor.value(value) != value):
        return HIDDEN
    return {name: _opaque(part, redactor) for name, part in value.items()}


def _hides_secret(value: Any, redactor: Redactor) -> bool:
    if isinstance(value, dict):
        return any(_hides_secret(part, redactor) for part in value.values())
    if isinstance(value, list):
        return any(_hides_secret(part, redactor) for part in value)
    if not isinstance(value, str) or len(value) < LEAST_PACKED:
        return False
    try:
        # A secret inside bytes or a frame is invisible in its base64 text, so the decoded text is searched.
        text = base64.b64decode(value, validate=True).decode("utf-8", "replace")
    except ValueError:
        return False  # not base64: an ordinary text, which is cleaned as such
    return redactor.text(text) != text


MAX_EVENTS = 20_000
"""Maximum number of events that a page shows. Of a longer run, the page shows a sample; the log in the page is
complete.
"""
LONGEST_TEXTS = (20_000, 2_000, 400)
"""Maximum lengths of shown texts. They are tried in order until the page is small enough."""
MAX_SHOWN = 1_350_000
"""Maximum number of characters of the shown parts of a page."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_PAPER, _INK, _WARN = (COLOURS[name] for name in ("paper", "ink", "warn"))
_STYLE = (
    ":root { color-scheme: light dark } "
    f"body {{ margin: 0; padding: 16px; background: {_PAPER.light}; color: {_INK.light}; "
    "font: 14px/1.45 system-ui, sans-serif } "
    "body > header, body > footer { max-width: 1400px; margin: 0 auto; overflow-wrap: anywhere } "
    f"body .fault {{ padding: 6px 10px; border-inline-start: 3px solid {_WARN.light} }} "
    "@media (prefers-color-scheme: dark) { "
    f"body {{ background: {_PAPER.dark}; color: {_INK.dark} }} body .fault {{ border-color: {_WARN.dark} }} }}"
)


def write_page(
    execution: Run,
    file: str | Path,
    *,
    log: bool = True,
    overwrite: bool = False,
    known_secrets: Iterable[str] = (),
) -> Path:
    """Write a run to an HTML file, and return the path of the file.

    Parameters
    ----------
    log
        Whether the page contains the whole log. Without it the page only shows the run, with long texts cut.
    known_secrets
        Secrets to hide in addition to those that `divebook.text.redaction` detects.

    Raises
    ------
    StoreError
        The file exists, or cannot be written; or the log cannot be read.
    """
    content = page_of(execution, execution.history(), log=log, known_secrets=known_secrets)
    with new_file(file, overwrite=overwrite) as stream:
        stream.write(content)
    return Path(file)


def page_of(execution: Run, events: Iterable[Event], *, log: bool, known_secrets: Iterable[str]) -> bytes:
    """Build the HTML page of a run from its events, and return it as bytes. With `log`, the page contains the events,
    so that it can be opened as a run.
    """
    redactor = shared().fresh(known_secrets)
    events = [*events]
    clean_events = clean_log(events, redactor) if log else []
    run = CleanRun(execution, events, redactor, whole=MAX_EVENTS, sampled=MAX_EVENTS)
    saved = without_recording(execution, redactor, "")
    recording, texts, parts = _fitting(run, saved)
    if log:
        # Data that the page shows are not written a second time: the log refers to the shown part.
        rows = dict(zip(recording["events"]["sequence"], recording["data"], strict=True))
        parts[LOG] = part_of(columns_of(events, clean_events, execution.status, rows, texts))
    return _written(saved, {VIEWER: pack(built("viewer.js").encode()), **parts})


def _fitting(run: CleanRun, saved: PackedRun) -> tuple[Recording, LongTexts, dict[str, str]]:
    """Return the data of a run that an HTML page shows, shortened until the page is not too large.

    Returns
    -------
    tuple
        The recording of the run, its long texts, and the encoded parts of the page by name.
    """
    # From complete to coarse: shorter texts first, then fewer events, until the page is small enough.
    for longest, count in attempts(run.length, LONGEST_TEXTS):
        recording = run.recording(events=count, texts=longest)
        shown = {**_described(saved, recording, longest), "view": recording}
        texts = LongTexts(shown)
        parts = {TEXTS: part_of(texts.listed), RUN: part_of(texts.without(shown))}
        if sum(map(len, parts.values())) <= MAX_SHOWN:
            return recording, texts, parts
    raise StoreError(f"run {saved['execution_id']} is too large for a page; export its log as JSON lines (run.jsonl)")


def _described(saved: PackedRun, recording: Recording, texts: int) -> PackedRun:
    form = FORMAT if recording["sample"] else WHOLE_FORMAT
    return {**saved, "format": form, "first": recording["events"]["first"], "texts": texts}


def _written(saved: PackedRun, parts: dict[str, str]) -> bytes:
    name, run_id, status = (safe(saved[key]) for key in ("workflow", "execution_id", "status"))
    # This text would end the script element in the middle of the code.
    script = built("page.js").replace("</script", "<\\/script")
    scripts = "".join(script_of(part, text) for part, text in parts.items())
    return sealed(
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{name} {run_id}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<header id="told"><p>This page shows run {run_id} of {name} ({status}). If you see only this text, the '
        "script of the page did not run: the file is damaged, or scripts are switched off.</p></header>\n"
        f'<main data-parts="{" ".join(parts)}"></main>\n'
        "<footer><p>To open this file in divebook: <code>divebook open FILE</code>, or in a notebook "
        f"<code>%dive open FILE</code>.</p></footer>\n{scripts}<script>{script}</script>\n</body>\n</html>\n"
    )
