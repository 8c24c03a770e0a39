"""What an environment is given beside what it holds: it goes along wherever that is run, on another store too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self, TypeAlias

from divebook.documents import DocumentRepository, Policy
from divebook.errors import SetupError
from divebook.execution.notices import VARIABLE, Hook, Notices
from divebook.execution.surrounded import SurroundedCalls
from divebook.history.formatter import Formatter, Formatting
from divebook.scripting import Interpreter
from divebook.store import EventStore
from divebook.store.codec import Codec
from divebook.store.durability import Durability

if TYPE_CHECKING:
    from divebook.telemetry import Telemetry

GivenTelemetry: TypeAlias = "Telemetry | bool | str"
TELEMETRY = "DIVEBOOK_TELEMETRY"
_OFF, _ON = frozenset({"", "0", "false", "no", "off", "none"}), frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings of `divebook.Environment`; what is None was not given."""

    documents: DocumentRepository | None = None
    interpreter: Interpreter | None = None
    policy: Policy | None = None
    durability: Durability | None = None
    notify: Hook | Sequence[str] | str | None = None
    formatter: Formatter | None = None
    codec: Codec | None = None
    telemetry: GivenTelemetry | None = None

    def plus(self, other: Self) -> Self:
        """Return both in one: what the other was given wins, and policies allow what both allow."""
        given = {field.name: value for field in fields(self) if (value := getattr(other, field.name)) is not None}
        if self.policy is not None and other.policy not in (None, self.policy):
            given["policy"] = self.policy.both(given["policy"])
        return replace(self, **given)

    def listen_to(self, store: EventStore, calls: SurroundedCalls) -> list[Callable[[], object]]:
        """Let formatter, hook and telemetry hear what happens in a store; return what ends that, the last one first."""
        ends: list[Callable[[], object]] = []
        if self.formatter is not None:
            ends.append(store.subscribe(Formatting(self.formatter)))
        hook = self.notify if self.notify is not None else os.environ.get(VARIABLE)
        if hook:
            notices = Notices(hook, workflow_of=lambda execution_id: store.record(execution_id).workflow_name)
            ends += [notices.close, store.subscribe(notices)]
        wanted = _wanted(os.environ.get(TELEMETRY, "") if self.telemetry is None else self.telemetry)
        if wanted:
            from divebook.telemetry import Telemetry  # its libraries may be missing

            telemetry = (
                wanted if isinstance(wanted, Telemetry) else Telemetry(address=None if wanted is True else wanted)
            )
            ends += [telemetry.flush if telemetry is wanted else telemetry.close, *telemetry.listen_to(store)]
            calls.surround = telemetry.surround
            ends.append(lambda: setattr(calls, "surround", None))
        return ends[::-1]


def _wanted(given: object) -> Telemetry | str | bool:
    """Return the telemetry that was asked for: what tells, the address of a collector, or whether there is any.

    Raises
    ------
    SetupError
        It was asked for with something else.
    """
    text = given.strip() if isinstance(given, str) else ""
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and text.lower() in _OFF | _ON:
        return text.lower() in _ON
    if text.startswith(("http://", "https://")):
        return text
    if (module := sys.modules.get("divebook.telemetry")) is not None and isinstance(given, module.Telemetry):
        found: Telemetry = given
        return found
    raise SetupError(
        f"telemetry is True, False, the address of a collector (http://HOST:4318) or a divebook.telemetry.Telemetry, "
        f"in {TELEMETRY} 1, 0 or an address, not {given!r}"
    )
