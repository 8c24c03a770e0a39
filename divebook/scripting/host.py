"""What a script step may ask of the world, and how the sandbox's questions are put to it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Protocol

from divebook.scripting.prelude import DOCUMENT, MUTATION
from divebook.scripting.values import plain


class Host(Protocol):
    """Answers the questions of one script; called in the thread that runs it.

    What these methods raise reaches the caller of `Interpreter.run_script` unchanged and ends the script; the script
    cannot catch it. The one exception is a FileNotFoundError of `document`, which a script may handle.
    """

    def now(self) -> float:
        """Return the time as seconds since 1970, UTC."""

    def entropy(self) -> bytes:
        """Return at least 16 bytes of chance; every random number of the script follows from them."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def document(self, path: str) -> Mapping[str, Any]:
        """Return the document at `path`, with its text under ``content``."""

    def mutate(self, change: str, key: Any, value: Any) -> None:
        """Take note of a variable that the script ``set`` or ``delete``d."""

    def printed(self, text: str) -> None:
        """Take everything the script printed, once, after it ended."""


_REFUSED = "scripts are sandboxed: {name} is not available; read text with documents.get(path), write it with an action"
_NO_HOST = "the clock, chance and documents are not available here"


class HostAnswers:
    """Puts the sandbox's system calls to a `Host`, as the results Monty expects."""

    def __init__(self, host: Host | None) -> None:
        self._host = host
        self.missing: FileNotFoundError | None = None
        """The last document that the script asked for and that is missing."""

    def answer(self, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Return the result of one system call; what the host raises passes through."""
        question = _QUESTIONS.get(name)
        if question is None:
            return _refusal("PermissionError", _REFUSED.format(name=name))
        if self._host is None:
            return _refusal("RuntimeError", f"{name}: {_NO_HOST}")
        try:
            return {"return_value": question(self._host, *arguments)}
        except FileNotFoundError as error:
            if name != DOCUMENT:
                raise
            self.missing = error
            return _refusal("FileNotFoundError", str(error))


def _refusal(kind: str, message: str) -> dict[str, Any]:
    return {"exc_type": kind, "message": message}


def _time(host: Host, *_: Any) -> float:
    return host.now()


def _now(host: Host, zone: Any = None) -> datetime:
    moment = datetime.fromtimestamp(host.now(), zone or UTC)
    return moment if zone else moment.replace(tzinfo=None)


def _today(host: Host) -> date:
    return _now(host).date()


def _random_bytes(host: Host, count: int) -> bytes:
    return hashlib.shake_256(host.entropy()).digest(count)


def _sleep(host: Host, seconds: float, *_: Any) -> None:
    host.sleep(seconds)


def _document(host: Host, path: str) -> dict[str, Any]:
    return dict(host.document(path))


def _mutation(host: Host, change: str, key: Any, value: Any = None) -> None:
    host.mutate(change, key, plain(value))


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "time.time": _time,
    "datetime.now": _now,
    "date.today": _today,
    "os.urandom": _random_bytes,
    "time.sleep": _sleep,
    "asyncio.sleep": _sleep,
    DOCUMENT: _document,
    MUTATION: _mutation,
}
