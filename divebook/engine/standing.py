"""How rules that people make for calls to come change the state."""

from __future__ import annotations

from divebook.engine.changes import Draft
from divebook.engine.rules import StandingRule
from divebook.events import catalog


def rule_added(draft: Draft, data: catalog.ApprovalRuleAdded) -> None:
    """Note a rule, in place of one with its id."""
    rule = StandingRule(
        data.rule_id,
        data.outcome,
        data.tool,
        data.kind or "tool",
        data.agent,
        data.server,
        data.arguments,
        data.scope or "run",
        data.expires_at,
        data.question,
        data.by,
        draft.moment,
    )
    draft.rules = draft.rules.set(rule.rule_id, rule)


def rule_revoked(draft: Draft, data: catalog.ApprovalRuleRevoked) -> None:
    """Forget a rule, if it is known."""
    if data.message is not None:
        draft.taken = max(draft.taken, data.message)
    if data.rule_id in draft.rules:
        draft.rules = draft.rules.delete(data.rule_id)
