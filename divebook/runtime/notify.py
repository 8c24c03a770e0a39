"""Notification hook for new questions to people: calls a function, runs a command, or sends messages to mail and chat
addresses.

The process that records a question calls the hook once the question is durable. Other processes do not call it, so it
is called once. The data it receives contains no secrets. It runs in another thread and cannot delay or break the
execution; its errors are logged. A process that exits waits for running hooks.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeAlias

from divebook.errors import SetupError
from divebook.events import Event
from divebook.events.catalog import InterruptRaised, InterruptResolved
from divebook.events.codec import encode
from divebook.text.format import in_shell
from divebook.text.redaction import cut, logger, one_line, shared, silence

# --- addresses -------------------------------------------------------------------------------------------------------
#
# Questions are sent to mail, chat, phones and web hooks with Apprise. Only this part uses Apprise.
#
# Addresses contain passwords, so neither they nor Apprise's own log messages are shown. An address that fails is named
# once, by its position and scheme (`tests/runtime/test_addresses.py`).


LIBRARY = "apprise"
MOST_TEXT = 2_000
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_log = logger(__name__)


def are_addresses(words: Sequence[str]) -> bool:
    """Return whether all words are addresses such as ``mailto://...``. Otherwise the words are a command.

    >>> are_addresses(["mailto://me:word@example.org"]), are_addresses(["curl", "https://example.org"])
    (True, False)
    """
    return bool(words) and all(_ADDRESS.match(word) for word in words)


class Addresses:
    """Notification hook that sends every new question to several mail or chat addresses.

    An address that fails is logged once and does not delay others.

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
        self._addresses = tuple(addresses)
        self._failed = set[int]()
        self._lock = threading.Lock()

    def __call__(self, question: Mapping[str, Any]) -> None:
        """Send a question to all addresses. An address that fails is logged once."""
        title = title_of(question)
        body = text_of(question)
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


def title_of(question: Mapping[str, Any]) -> str:
    """Return the title of a notification about a question. It contains the name of the workflow that asks."""
    return f"{one_line(str(question.get('workflow') or 'A run'), 80)} asks"


def text_of(question: Mapping[str, Any]) -> str:
    """Return the text of a notification about a question: the question, and the shell command with which to
    answer it.
    """
    answer = in_shell("answer", [f"{question['interrupt_id']}@{question['execution_id']}", "ANSWER"])
    parts = [question.get("question"), question.get("message"), f"To answer: {answer}"]
    return cut("\n\n".join(str(part) for part in parts if part), MOST_TEXT)


def _sent(address: str, title: str, body: str) -> bool:
    import apprise

    silence(LIBRARY)  # its log messages contain addresses
    service = apprise.Apprise()
    return bool(service.add(address)) and bool(service.notify(title=title, body=body))


VARIABLE = "DIVEBOOK_NOTIFY"
PATIENCE = 60
"""Time limit of a command in seconds."""

Hook: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Receives a question: ``execution_id``, ``interrupt_id``, ``kind``, ``question``, ``message``,
``data``, ``step`` ..."""


class Notices:
    """Listener on a store that calls the notification hook for every question that this process records.

    Parameters
    ----------
    hook
        A function, or a command: a list of its words, or a string that is split like in a shell. A command gets the
        question as JSON on its standard input. If all words are addresses (``mailto://...``), questions are sent to
        them.
    workflow_of
        Return the name of an execution's workflow.
    """

    def __init__(
        self,
        hook: Hook | Sequence[str] | str,
        executor: Executor | None = None,
        workflow_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._hook = hook if callable(hook) else _hook_of(hook)
        # One thread: notifications arrive in the order of the questions.
        self._executor = executor or ThreadPoolExecutor(1, "divebook-notices")
        self._workflow_of = workflow_of

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Call the notification hook for each new question among some events. A question that is already answered in
        the same events is left out.
        """
        # A what-if, for example, records the answer of its source directly after the question.
        settled = {event.data.interrupt_id for event in events if isinstance(event.data, InterruptResolved)}
        for event in events:
            if isinstance(event.data, InterruptRaised) and event.data.interrupt_id not in settled:
                question = {
                    "execution_id": execution_id,
                    "path": event.path,
                    "step": event.step,
                    **event.data.to_data(),
                }
                self._executor.submit(self._tell, question)

    def close(self) -> None:
        """Wait until the hook has been called for all questions recorded so far."""
        self._executor.shutdown()

    def _tell(self, question: Mapping[str, Any]) -> None:
        try:
            self._hook(shared().value({"workflow": self._workflow_of(question["execution_id"]), **question}))
        except Exception:  # noqa: BLE001 - the question is valid whether the hook works or not
            _log.exception(
                "the notify hook failed for question %s of %s", question["interrupt_id"], question["execution_id"]
            )


def _hook_of(words: Sequence[str] | str) -> Hook:
    command = shlex.split(words) if isinstance(words, str) else list(words)
    if not command:
        raise SetupError(
            "notify is an empty command; give a function, a command such as ['notify-send', 'divebook'], or addresses "
            "such as mailto://USER:PASSWORD@example.org"
        )
    if are_addresses(command):
        return Addresses(command)

    def call(question: Mapping[str, Any]) -> None:
        subprocess.run(command, input=encode(question), check=True, timeout=PATIENCE)

    return call
