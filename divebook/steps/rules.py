"""What an environment says of calls that need a person's yes: its table, and a book of the rules that people made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from divebook.engine.rules import StandingRule
from divebook.events.event import to_datetime
from divebook.execution.approving import ApprovalPolicy
from divebook.steps.books import Books, Entry
from divebook.text.times import local_time
from divebook.workflow.approvals import Approvals

RULES = "divebook/rules"
"""Start key of the book of rules."""
ADDED, REVOKED = "added", "revoked"
NOBODY = "nobody"


class StandingPolicy(ApprovalPolicy):
    """The rules and modes of an environment, and what people allowed for every execution.

    Parameters
    ----------
    table
        Gives the rules and modes for the calls of an agent, of no agent for an empty name.
    """

    def __init__(self, table: Callable[[str], Approvals], books: Books) -> None:
        self._table, self._books = table, books

    def table(self, agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the rules that people made for every execution, as the store has them at this moment."""
        return await self._books.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Let a rule hold in every execution; one that was revoked since stays revoked."""
        entry = {ADDED: rule._asdict()}
        await self._books.on_loop(lambda: self._books.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Return what `lasting` does, in any thread."""
        return rules_in(self._books.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Let a rule that holds in every execution hold no more."""
        self._books.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Return the rules of the book that nobody has revoked, oldest first."""
    rules: dict[str, StandingRule] = {}
    revoked: set[str] = set()
    for entry in entries:
        if ADDED in entry.value:
            known = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[known["rule_id"]] = StandingRule(**known)
        elif REVOKED in entry.value:
            revoked.add(entry.value[REVOKED])
    return [rule for rule in rules.values() if rule.rule_id not in revoked]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Return a rule for people; `execution_id` is the run that it holds in, None for every run."""
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    where = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {where}{until}{author}"
