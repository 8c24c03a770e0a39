"""Text and data of models, users and logs as they may be shown in a terminal: what a reader sees is what is there.

Control characters could move the cursor, change colours or titles, or reorder what is read; here they become visible
escapes. Rich's markup is no concern, since everything is printed as `rich.text.Text`, which knows none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from divebook.events.codec import encode_shown
from divebook.events.readable import readable
from divebook.text.shown import UNSAFE, visible

_BREAKS = re.compile(r"[\t\n]")


def one_line(text: str, width: int | None = None) -> str:
    """Return the text with every control character spelled out, cut to `width`."""
    if width is not None and len(text) > width:
        text = f"{text[: width - 3]}..."
    return _BREAKS.sub(lambda match: "\\t" if match[0] == "\t" else "\\n", visible(text))


def as_json(data: Any, *, indent: int | None = None) -> str:
    """Return stored data as JSON without control characters; parsed, it is the same data, but for frames and the like.

    Those are described in a few words; ``divebook export`` has them in full.
    """
    return json_escaped(json.dumps(json.loads(encode_shown(data, tagged=True)), ensure_ascii=False, indent=indent))


def json_escaped(text: str) -> str:
    """Escape, inside JSON text, the characters that JSON allows and a terminal should not get."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(value: Any) -> str:
    """Return a value for people: a text as it is, anything else as JSON."""
    return visible(value) if isinstance(value, str) else json_escaped(readable(value))


def pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return named values as two columns of text."""
    return [(one_line(name), shown(value)) for name, value in values.items()]
