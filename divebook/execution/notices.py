"""Calls a hook for every new question: a function, a command that reads it as JSON, or addresses that it is sent to.

The process that records a question calls the hook once the question is durable, and no other process does: so it is
called once, whichever processes look at the execution later. What it is given is without secrets. It runs beside the
execution and can neither hold it up nor break it; what goes wrong there is logged. A process that ends in between waits
for it.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeAlias

from divebook.errors import SetupError
from divebook.events import Event
from divebook.events.catalog import InterruptRaised, InterruptResolved
from divebook.events.codec import encode
from divebook.execution.addresses import Addresses, are_addresses
from divebook.text.logs import logger
from divebook.text.redaction import shared

VARIABLE = "DIVEBOOK_NOTIFY"
PATIENCE = 60
"""Seconds that a command may take."""

Hook: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Takes a question: ``execution_id``, ``interrupt_id``, ``kind``, ``question``, ``message``, ``data``, ``step`` ..."""

_log = logger(__name__)


class Notices:
    """Listens to a store and calls a hook for every question that this process records.

    Parameters
    ----------
    hook
        A function; or a command: a list of its words, or a text that is split as a shell splits it. A command gets the
        question as JSON on its standard input. Where all words are addresses (``mailto://...``), it is sent to those.
    workflow_of
        Returns the name of an execution's workflow.
    """

    def __init__(
        self,
        hook: Hook | Sequence[str] | str,
        executor: Executor | None = None,
        workflow_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._hook = hook if callable(hook) else _hook_of(hook)
        self._executor = executor or ThreadPoolExecutor(1, "divebook-notices")
        self._workflow_of = workflow_of

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Hear of events that were written; of a question that was answered with them nobody needs to know."""
        settled = {event.data.interrupt_id for event in events if isinstance(event.data, InterruptResolved)}
        for event in events:
            if isinstance(event.data, InterruptRaised) and event.data.interrupt_id not in settled:
                told = {"execution_id": execution_id, "path": event.path, "step": event.step, **event.data.to_data()}
                self._executor.submit(self._tell, told)

    def close(self) -> None:
        """Return when every hook has been called."""
        self._executor.shutdown()

    def _tell(self, told: Mapping[str, Any]) -> None:
        try:
            self._hook(shared().value({"workflow": self._workflow_of(told["execution_id"]), **told}))
        except Exception:  # noqa: BLE001 - the question stands, whether the hook works or not
            _log.exception("the notify hook failed for question %s of %s", told["interrupt_id"], told["execution_id"])


def _hook_of(words: Sequence[str] | str) -> Hook:
    listed = shlex.split(words) if isinstance(words, str) else list(words)
    if not listed:
        raise SetupError(
            "notify is an empty command; give a function, a command such as ['notify-send', 'divebook'], or addresses "
            "such as mailto://USER:PASSWORD@example.org"
        )
    if are_addresses(listed):
        return Addresses(listed)

    def call(told: Mapping[str, Any]) -> None:
        subprocess.run(listed, input=encode(told), check=True, timeout=PATIENCE)

    return call
