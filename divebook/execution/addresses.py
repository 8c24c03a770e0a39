"""Questions sent to addresses: mail, chat, phones and web hooks, whatever Apprise knows; its only door.

Addresses hold passwords, so neither they nor what Apprise itself logs are ever told: an address that takes no question
is named by its place and its kind, once (`tests/execution/test_addresses.py`).
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from divebook.errors import SetupError
from divebook.text.commands import in_shell
from divebook.text.cuts import cut, one_line
from divebook.text.logs import logger, silence

LIBRARY = "apprise"
MOST_TEXT = 2_000
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_log = logger(__name__)


def are_addresses(words: Sequence[str]) -> bool:
    """Tell whether all words are addresses, and not a command.

    >>> are_addresses(["mailto://me:word@example.org"]), are_addresses(["curl", "https://example.org"])
    (True, False)
    """
    return bool(words) and all(_ADDRESS.match(word) for word in words)


class Addresses:
    """Sends every question to each of some addresses; one that takes none is told of once, and holds up nobody.

    Raises
    ------
    SetupError
        The library is not installed.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        if importlib.util.find_spec(LIBRARY) is None:
            raise SetupError(
                "notify names addresses, which the package apprise sends to, and it is not installed: "
                "pip install 'divebook[notify]'"
            )
        self._addresses, self._failed = tuple(addresses), set[int]()
        self._lock = threading.Lock()

    def __call__(self, told: Mapping[str, Any]) -> None:
        """Send a question."""
        title, body = title_of(told), text_of(told)
        for number, address in enumerate(self._addresses, start=1):
            if not _sent(address, title, body):
                self._tell(number, address)

    def _tell(self, number: int, address: str) -> None:
        with self._lock:
            if number in self._failed:
                return
            self._failed.add(number)
        _log.warning(
            "address %s of notify (%s) took no question, and is not told of again: look whether it is right and can be "
            "reached, for instance with apprise -b test ADDRESS; runs and questions are as they were",
            number,
            address.partition("://")[0],
        )


def title_of(told: Mapping[str, Any]) -> str:
    """Return who asks."""
    return f"{one_line(str(told.get('workflow') or 'A run'), 80)} asks"


def text_of(told: Mapping[str, Any]) -> str:
    """Return what is asked, and how it is answered in a shell."""
    answer = in_shell("answer", [f"{told['interrupt_id']}@{told['execution_id']}", "ANSWER"])
    parts = [told.get("question"), told.get("message"), f"To answer: {answer}"]
    return cut("\n\n".join(str(part) for part in parts if part), MOST_TEXT)


def _sent(address: str, title: str, body: str) -> bool:
    import apprise

    silence(LIBRARY)  # it names addresses
    service = apprise.Apprise()
    return bool(service.add(address)) and bool(service.notify(title=title, body=body))
