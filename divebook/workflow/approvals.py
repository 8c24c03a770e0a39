"""Which calls of tools need a person's yes: a table of rules, and the modes that hold where no rule does.

A rule is a definition: ``{Tool: read_file, Arguments: {path: docs/**}, Outcome: allow}``. What a table says of one call
is for `divebook.engine.approvals` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self

from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.events.event import to_microseconds
from divebook.workflow import kinds
from divebook.workflow.stored_form import Definition, json_value
from divebook.workflow.table import Key

ALLOW, ASK, DENY = "allow", "ask", "deny"
OUTCOMES: Final = (ALLOW, ASK, DENY)
"""What a rule may say, from the mildest to the strictest."""
ALWAYS, IF_NOT_READ_ONLY, IF_DESTRUCTIVE, NEVER = "always", "if-not-read-only", "if-destructive", "never"
CONFIRMATION_MODES: Final = (ALWAYS, IF_NOT_READ_ONLY, IF_DESTRUCTIVE, NEVER)
"""When a person is asked, where no rule decides."""
READ_ONLY, DESTRUCTIVE, UNKNOWN = "read-only", "destructive", "unknown"
EFFECTS: Final = (READ_ONLY, DESTRUCTIVE, UNKNOWN)
"""What a tool may say of itself, for `When`."""


@dataclass(frozen=True, slots=True)
class ApprovalRule(Definition):
    """What becomes of the calls of some tools; of several rules that match, the strictest decides.

    ``divebook keys ApprovalRule`` says what each of its fields means.

    A rule that allows is read narrowly: capitals, types and unicode forms count, ``*`` stands for any text without
    ``/`` and ``**`` for any text, and a call with an argument that `Arguments` does not name is not allowed by it. A
    rule that asks or denies is read widely: it holds as soon as a call could be meant.

    Examples
    --------
    >>> ApprovalRule("fetch", arguments={"url": "https://docs.python.org/**"}).outcome
    'allow'
    """

    tool: Annotated[
        str, Key("The tool, or `server/tool` of an MCP server; `*` stands for any characters.", example="fetch")
    ] = "*"
    agent: Annotated[
        str | None, Key("Only calls of this agent; `*` stands for any characters.", example="researcher")
    ] = None
    server: Annotated[
        str | None, Key("Only tools of this MCP server; `*` stands for any characters.", example="files")
    ] = None
    arguments: Annotated[
        Mapping[str, Any] | None,
        Key(
            "What its arguments must be: values, texts with `*` or `**`, or `{equals: value}`; without it, anything.",
            example="{url: 'https://docs.python.org/*'}",
        ),
    ] = None
    when: Annotated[
        str | None,
        Key(
            "Only tools that say this of themselves.",
            kind=kinds.Text(choices=EFFECTS, complaint="invalid effect of a tool: {}"),
            example="destructive",
        ),
    ] = None
    outcome: Annotated[
        str,
        Key(
            "What becomes of such a call.",
            kind=kinds.Text(choices=OUTCOMES, complaint="invalid outcome of an approval rule: {}"),
            example="ask",
        ),
    ] = ALLOW
    reason: Annotated[
        str, Key("Why, for the person and the model that hear of it.", example="the manual may be read")
    ] = ""
    expires: Annotated[
        str | None, Key("When it ceases to hold: 2026-12-31, or with the time and its zone.", example="2027-12-31")
    ] = None

    def __post_init__(self) -> None:
        for name, value, choices in (("Outcome", self.outcome, OUTCOMES), ("When", self.when, EFFECTS)):
            if value is not None and value not in choices:
                raise _wrong(name, value, did_you_mean(value, choices) or f"one of {', '.join(choices)}")
        for name in ("tool", "agent", "server"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise _wrong(name.capitalize(), value, "write a name; * stands for any characters")
        if self.arguments is not None:
            if not isinstance(self.arguments, Mapping):
                raise _wrong("Arguments", self.arguments, "write a mapping: {path: docs/**}")
            self._put(arguments=json_value(self.arguments, "Arguments"))
        if self.expires is not None:
            self._put(expires=_moment(self.expires).isoformat())

    @property
    def expires_us(self) -> int | None:
        """When it ceases to hold, microseconds since 1970."""
        return None if self.expires is None else to_microseconds(_moment(self.expires))

    @property
    def in_words(self) -> str:
        """The rule in a few words, for people and for the log."""
        parts = {"agent": self.agent, "server": self.server, "arguments": self.arguments, "when": self.when}
        said = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        return f"{self.outcome} {self.tool}{f' ({said})' if said else ''}"


def _moment(value: Any) -> datetime:
    """Return a time as a rule states it; without a zone it is UTC, and a date is its first moment."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _wrong("Expires", value, "write a date or a time: 2026-12-31, 2026-12-31T12:00:00+01:00") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _wrong(key: str, value: Any, hint: str) -> DefinitionError:
    return DefinitionError([Problem(f"{key} of an approval rule cannot be {value!r}", key=key, hint=hint)])


@dataclass(frozen=True, slots=True)
class Approvals:
    """The whole policy of an environment, or of one agent in it."""

    rules: tuple[ApprovalRule, ...] = ()
    mode: str = ""
    """The mode of all tools; empty leaves it to each tool."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """Modes of the tools of single MCP servers, by name."""
    stricter: Approvals | None = None
    """Rules and modes of definitions for which no person vouches: they can turn allowing into asking or denying, and
    never the reverse."""

    def __post_init__(self) -> None:
        for mode in (self.mode, *self.servers.values()):
            if mode and mode not in CONFIRMATION_MODES:
                hint = did_you_mean(mode, CONFIRMATION_MODES) or f"one of {', '.join(CONFIRMATION_MODES)}"
                raise DefinitionError([Problem(f"invalid confirmation mode: {mode}", hint=hint)])

    @property
    def relaxations(self) -> list[str]:
        """What could allow a call that would be asked about otherwise, in words."""
        modes = (self.mode, *self.servers.values())
        found = [f"the mode {mode}" for mode in modes if mode in (IF_DESTRUCTIVE, NEVER)]
        return found + [f"the rule: {rule.in_words}" for rule in self.rules if rule.outcome == ALLOW]

    def mode_for(self, server: str) -> str:
        """Return the mode of the tools of a server, of no server for an empty name; empty leaves it to each tool."""
        return self.servers.get(server) or self.mode

    def plus(self, rules: Iterable[ApprovalRule | Mapping[str, Any]], agent: str | None = None) -> Self:
        """Return it with more rules, which hold for one agent only if that is named."""
        more = (ApprovalRule.of(rule) for rule in rules)
        return replace(self, rules=(*self.rules, *(rule if agent is None else rule.like(agent=agent) for rule in more)))
