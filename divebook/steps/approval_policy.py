"""Approval policy of an environment: its table of rules, and the rules that people made for every execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from divebook.engine.approvals import (
    StandingRule,
)
from divebook.events.event import to_datetime
from divebook.runtime.waiting import ApprovalPolicy
from divebook.steps.durable_log import DurableLog, Entry
from divebook.text.format import local_time
from divebook.workflow.servers import Approvals

RULES = "divebook/rules"
"""Start key of the durable log of rules."""


ADDED = "added"


REVOKED = "revoked"


NOBODY = "nobody"


class EnvironmentApprovalPolicy(ApprovalPolicy):
    """Approval policy with the rules and modes of an environment, and the rules that people made for every execution.

    Parameters
    ----------
    table
        Gives the rules and modes for the calls of an agent, of no agent for an empty name.
    """

    def __init__(self, table: Callable[[str], Approvals], log: DurableLog) -> None:
        self._table = table
        self._log = log

    def table(self, agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the current rules that people made for every execution."""
        return await self._log.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Apply a rule to every execution from now on. A rule that was revoked stays revoked."""
        entry = {ADDED: rule._asdict()}
        await self._log.on_loop(lambda: self._log.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Return the same rules as `lasting`. Callable from any thread."""
        return rules_in(self._log.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Revoke a rule for every execution."""
        self._log.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Return the rules in a durable log that are not revoked, oldest first."""
    rules: dict[str, StandingRule] = {}
    revoked: set[str] = set()
    for entry in entries:
        if ADDED in entry.value:
            fields = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[fields["rule_id"]] = StandingRule(**fields)
        elif REVOKED in entry.value:
            revoked.add(entry.value[REVOKED])
    return [rule for rule in rules.values() if rule.rule_id not in revoked]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Describe a rule for people. `execution_id` is the run that it applies to; None for every run."""
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    where = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {where}{until}{author}"
