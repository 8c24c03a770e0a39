"""Text and data of models, users and logs as they may be shown in a terminal: what is there, but no secrets.

Control characters could move the cursor, change colours or titles, or reorder what is read; here they become visible
escapes. Rich's markup cannot do harm, since everything is printed as `rich.text.Text`, which knows none. Secrets are
left out as `divebook.text.redaction` says, unless the command was given ``--show-secrets``: here before anything is
cut, and in `divebook.cli.screen` once more from all that is printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from divebook.events.codec import encode_shown
from divebook.events.readable import readable
from divebook.text.redaction import shared
from divebook.text.shown import UNSAFE, visible

_BREAKS = re.compile(r"[\t\n]")


class Secrets:
    """The secrets that one command knows of."""

    def __init__(self) -> None:
        self._shown = False

    def begin(self, *, shown: bool) -> None:
        """Forget what another command knew; `shown` lets secrets be seen."""
        self._shown = shown
        shared.cache_clear()

    def learn(self, *values: Any) -> None:
        """Take note of the secrets in plain data, such as the inputs of a run."""
        for value in values:
            shared().learn(value)

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        return text if self._shown else shared().text(text)

    def value(self, value: Any, name: str = "") -> Any:
        """Return plain data, which may stand under a name, without the secrets in it."""
        return value if self._shown else shared().under(name, value)


secrets = Secrets()
"""Those of the command that this process carries out."""


def one_line(text: str, width: int | None = None) -> str:
    """Return the text with every control character spelled out, without secrets, cut to `width`."""
    text = secrets.text(text)
    if width is not None and len(text) > width:
        text = f"{text[: width - 3]}..."
    return _BREAKS.sub(lambda match: "\\t" if match[0] == "\t" else "\\n", visible(text))


def as_json(data: Any, *, indent: int | None = None) -> str:
    """Return stored data as JSON without control characters and secrets; parsed, the rest is the same data.

    Frames and the like are described in a few words; ``divebook export`` has them in full.
    """
    plain = secrets.value(json.loads(encode_shown(data, tagged=True)))
    return json_escaped(json.dumps(plain, ensure_ascii=False, indent=indent))


def json_escaped(text: str) -> str:
    """Escape, inside JSON text, the characters that JSON allows and a terminal should not get."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shown(value: Any, name: str = "") -> str:
    """Return a value for people, which may stand under a name: a text as it is, anything else as JSON."""
    clean = secrets.value(value, name)
    return visible(secrets.text(clean)) if isinstance(clean, str) else secrets.text(json_escaped(readable(clean)))


def pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return named values as two columns of text."""
    return [(one_line(name), shown(value, name)) for name, value in values.items()]
