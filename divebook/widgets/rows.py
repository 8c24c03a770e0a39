"""Spans as columns for the browser: short texts only; what a span was given and what came out is asked for in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from divebook.history.names import PlaceOf, item_name, sleep_name
from divebook.history.spans import Span
from divebook.text.cuts import one_line
from divebook.widgets.previews import given_of
from divebook.widgets.protocol.spans import SpanBlock

NAME_WIDTH, LABEL_WIDTH, NOTE_WIDTH = 120, 60, 160
_TELLING = ("tool_name", "tool", "action_name", "step", "workflow", "agent", "path", "model")
"""Parameters that tell an operation from its neighbours, the most telling first."""


class Labels(NamedTuple):
    """The names of a span."""

    label: str
    """What tells it from its neighbours: the item, the action, the agent, the time that it lets pass ..."""
    item: str
    """The item that it belongs to; empty outside `Each`."""
    given: str = ""
    """What an operation was given, and what came of it: the beginnings, on one line."""
    came: str = ""


def labels_of(span: Span, place_of: PlaceOf) -> Labels:
    """Return the names of a span."""
    item = item_name(span, place_of)
    return Labels(item if span.kind == "item" else _label_of(span), item, given_of(span))


def _label_of(span: Span) -> str:
    given = span.parameters or {}
    if (slept := sleep_name(span)) is not None:
        return one_line(slept, LABEL_WIDTH)
    if span.kind == "event":
        return one_line(span.called or "", LABEL_WIDTH)
    if span.within is not None and isinstance(given.get("request"), int):
        return f"request {given['request']}"
    found = next((given[key] for key in _TELLING if isinstance(given.get(key), str)), "")
    return one_line(found, LABEL_WIDTH)


class BlockNames:
    """The texts of one block of columns, each once, short and on one line."""

    def __init__(self) -> None:
        self._places = {"": 0}
        self._known: dict[tuple[str, int], int] = {}

    def place(self, text: str, width: int = NAME_WIDTH) -> int:
        """Return the place of a text among those of the block."""
        known = self._known.get((text, width))
        if known is None:
            known = self._places.setdefault(one_line(text, width), len(self._places))
            self._known[text, width] = known
        return known

    def listed(self) -> list[str]:
        """Return the texts by place."""
        return list(self._places)


def block_of(spans: Iterable[tuple[Span, Labels]], origin_us: int) -> SpanBlock:
    """Return spans, each with its label, as columns; times count from `origin_us`."""
    names = BlockNames()
    place = names.place
    block = cast("SpanBlock", {name: [] for name in SpanBlock.__annotations__})
    for span, (label, item, given, came) in spans:
        block["id"].append(span.index)
        block["kind"].append(place(span.kind))
        block["path"].append(place(span.path))
        block["step"].append(place(span.step))
        block["type"].append(place(span.type))
        block["label"].append(place(label))
        block["item"].append(place(item))
        block["given"].append(place(given))
        block["came"].append(place(came))
        block["status"].append(place(span.status))
        block["note"].append(place(span.headline, NOTE_WIDTH))
        block["start"].append(span.started_us - origin_us)
        block["end"].append(-1 if span.ended_us is None else span.ended_us - origin_us)
        block["iteration"].append(-1 if span.iteration is None else span.iteration)
        block["visit"].append(span.visit)
        block["attempts"].append(span.attempts)
        usage = span.usage if span.kind == "operation" else {}
        block["tokens"].append(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))
        block["sequence"].append(span.sequences[0])
        block["within"].append(span.holder)
    block["names"] = names.listed()
    return block
