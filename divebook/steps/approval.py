"""Approval policy of an environment: configured rules and modes, and permanent rules that people created in their
answers. `divebook.runtime.calls.approve` applies it to a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from divebook.engine.approvals import StandingRule
from divebook.events.event import to_datetime
from divebook.steps.conversations import DurableLog, Entry
from divebook.text.format import local_time
from divebook.workflow.resources import Approvals


class EnvironmentApprovalPolicy:
    """Approval policy of an environment: its table of rules and modes, and the permanent rules in its store.

    Implements the protocol `divebook.runtime.waiting.ApprovalPolicy`.

    Parameters
    ----------
    table
        Returns the rules and modes for an agent's name. An empty name stands for calls without an agent.
    """

    def __init__(self, table: Callable[[str], Approvals], log: DurableLog) -> None:
        self._table = table
        self._log = log

    def table(self, agent: str) -> Approvals:
        """Return the configured approval rules and modes that apply to the calls of one agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Read from the store the active permanent rules: approval rules that a person created for all executions and
        that are not revoked. Call on the engine's event loop.
        """
        return await self._log.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Store a permanent approval rule, so that it applies to all executions from now on. A rule that was revoked
        stays revoked.
        """
        # The id of the rule is the key of the entry, so keeping a rule twice has no effect.
        entry = {ADDED: rule._asdict()}
        await self._log.on_loop(lambda: self._log.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Read from the store the active permanent approval rules, like `lasting`, but blocking and from any thread."""
        return rules_in(self._log.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Revoke a permanent approval rule, so that it no longer applies to any execution."""
        self._log.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


RULES = "divebook/rules"
"""Start key of the durable log of rules."""


ADDED = "added"


REVOKED = "revoked"


NOBODY = "nobody"


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Compute the permanent approval rules from the entries of their durable log. Return the rules that are not
    revoked, oldest first.
    """
    rules: dict[str, StandingRule] = {}
    revoked_ids: set[str] = set()
    for entry in entries:
        # Another version of divebook may have written further fields.
        if ADDED in entry.value:
            fields = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[fields["rule_id"]] = StandingRule(**fields)
        elif REVOKED in entry.value:
            revoked_ids.add(entry.value[REVOKED])
    # A revocation counts wherever it stands in the log.
    return [rule for rule in rules.values() if rule.rule_id not in revoked_ids]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Describe an approval rule in one sentence for people. `execution_id` is the run that the rule is limited to; None
    for all runs.
    """
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    scope = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {scope}{until}{author}"
