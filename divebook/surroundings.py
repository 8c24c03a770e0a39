"""What an environment is given beside what it holds: it goes along wherever that is run, on another store too."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self, TypeAlias

from divebook.documents import DocumentRepository, Policy
from divebook.execution.notices import VARIABLE, Hook, Notices
from divebook.execution.surrounded import SurroundedCalls
from divebook.history.formatter import Formatter, Formatting
from divebook.scripting import Interpreter
from divebook.store import EventStore
from divebook.store.codec import Codec
from divebook.store.durability import Durability

if TYPE_CHECKING:
    from divebook.telemetry import Telemetry

GivenTelemetry: TypeAlias = "Telemetry | bool"
TELEMETRY = "DIVEBOOK_TELEMETRY"


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
            given["policy"] = Policy(*(self.policy.allowed & given["policy"].allowed))
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
        wanted = self.telemetry if self.telemetry is not None else os.environ.get(TELEMETRY, "") not in ("", "0")
        if wanted:
            from divebook.telemetry import Telemetry  # its libraries may be missing

            telemetry = wanted if isinstance(wanted, Telemetry) else Telemetry()
            ends += [telemetry.flush if telemetry is wanted else telemetry.close, *telemetry.listen_to(store)]
            calls.surround = telemetry.surround
            ends.append(lambda: setattr(calls, "surround", None))
        return ends[::-1]
