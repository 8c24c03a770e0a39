"""Why a run has failed, in its report: as text for terminals, and as a card of HTML that survives sanitisers."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import NamedTuple

from divebook.events.catalog import FAILED
from divebook.execution.execution import Execution
from divebook.history.failures import Failure, failures_of, kept_in, summary
from divebook.history.read_log import ReadLog
from divebook.text.colours import LIGHT
from divebook.text.redaction import Redactor

PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0 6px 0;padding:0;background:none;color:inherit"
_CARD = f"border-left:4px solid {LIGHT['bad']};padding:4px 0 4px 12px;margin:0 0 10px 0"
_ROW = "margin:2px 0;overflow-wrap:anywhere"


class WhatFailed(NamedTuple):
    """What a report says of failures; nothing is said where nothing has failed."""

    failure: Failure | None = None
    """What ended the run."""
    others: str = ""
    """The others in a line, as far as they are many or the run went on."""
    kept: str = ""


def failed_of(execution: Execution, log: ReadLog) -> WhatFailed:
    """Return what has failed in a run."""
    if execution.damage is not None or not any(span.is_failure for span in log.spans):  # the report says the damage
        return WhatFailed()
    failure, failures = execution.failure_in(log), failures_of(log)
    kept = kept_in(log.spans) if execution.status == FAILED else ""
    return WhatFailed(failure, summary(failures) if len(failures) > 1 or failure is None else "", kept)


def text_lines(failed: WhatFailed, redactor: Redactor) -> Iterator[str]:
    """Yield the lines that follow the error in a text."""
    if failed.failure is not None:
        yield from (f"  {line}" for line in redactor.text(failed.failure.details).splitlines())
    if failed.others:
        yield f"  {redactor.text(failed.others)}"
    if failed.kept:
        yield f"  kept: {failed.kept}"


def card(failed: WhatFailed, hint: str, redactor: Redactor) -> str:
    """Return what failed as HTML: what, where, with which arguments, the line, the calls, what is kept, the way on."""
    if failed.failure is None:
        return f'<p style="margin:6px 0">✕ {_safe(redactor.text(failed.others))}</p>' if failed.others else ""
    shown = failed.failure
    given = "\n".join(f"{name} = {text}" for name, text in (shown.arguments or {}).items())
    rows = [
        ("Means", f" {_safe(redactor.text(shown.means))}"),
        ("Where", f" {_safe(redactor.text(shown.where))}"),
        ("Arguments", _pre(redactor.text(given)) if given else ""),
        (shown.place or "Source", _lines(shown, redactor) if shown.source else ""),
        ("Also", f" {_safe(redactor.text(failed.others))}"),
        ("Kept", f" {_safe(failed.kept)}"),
    ]
    # not a table: front ends give the rows of tables grounds of their own
    body = "".join(
        f'<div style="{_ROW}"><strong>{_safe(word)}</strong>{said}</div>' for word, said in rows if said.strip()
    )
    title = f'<div style="font-weight:bold">✕ {_safe(redactor.text(shown.headline))}</div>'
    return f'<div style="{_CARD}">{title}{body}{_traceback(redactor.text(shown.traceback))}{hint}</div>'


def _lines(shown: Failure, redactor: Redactor) -> str:
    """Return the lines around the place; its own stands out."""
    told = zip(redactor.text(shown.lines).splitlines(), shown.source, strict=True)
    lines = "\n".join(f"<strong>{_safe(text)}</strong>" if n == shown.line else _safe(text) for text, (n, _) in told)
    return f'<pre style="{PRE}">{lines}</pre>'


def _traceback(text: str) -> str:
    summary_ = '<summary style="cursor:pointer;display:list-item">Traceback</summary>'
    return f'<details style="margin:4px 0">{summary_}{_pre(text)}</details>' if text else ""


def _pre(text: str) -> str:
    return f'<pre style="{PRE}">{_safe(text)}</pre>'


def _safe(text: str) -> str:
    return html.escape(text)
