"""Spans as columns for the browser: short texts only; what a span was given and what came out is asked for singly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from divebook.events.readable import readable
from divebook.history.spans import Span
from divebook.text.cuts import one_line
from divebook.widgets.protocol import SpanBlock

NAME_WIDTH, LABEL_WIDTH, NOTE_WIDTH = 120, 60, 160
_TELLING = ("tool_name", "tool", "action_name", "step", "workflow", "agent", "path", "model")
"""Parameters that tell an operation from its neighbours, the most telling first."""
_TEXT_LOOKED_AT = 500


def label_of(span: Span) -> str:
    """Return what tells a span from its neighbours: the item, the action, the agent ..."""
    given = span.parameters or {}
    if span.kind == "item":
        item = span.item if span.item_key is None else span.item_key
        text = item[:_TEXT_LOOKED_AT] if isinstance(item, str) else readable(item)
        return one_line(text, LABEL_WIDTH)
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


def block_of(spans: Iterable[tuple[Span, str]], origin_us: int) -> SpanBlock:
    """Return spans, each with its label, as columns; times count from `origin_us`."""
    names = BlockNames()
    place = names.place
    block = cast("SpanBlock", {name: [] for name in SpanBlock.__annotations__})
    for span, label in spans:
        block["id"].append(span.index)
        block["kind"].append(place(span.kind))
        block["path"].append(place(span.path))
        block["step"].append(place(span.step))
        block["type"].append(place(span.type))
        block["label"].append(place(label))
        block["status"].append(place(span.status))
        block["note"].append(place(span.error or "", NOTE_WIDTH))
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
