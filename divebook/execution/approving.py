"""What an execution knows of calls that need a person's yes: its own rules, and what its environment says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from divebook.engine.approvals import ToolCall, Verdict, verdict_of
from divebook.engine.cards import ALWAYS, RUN, rules_of_run
from divebook.engine.rules import StandingRule
from divebook.execution.once import Once
from divebook.questions import Question
from divebook.workflow.approvals import ALLOW, ASK, ApprovalRule, Approvals
from divebook.workflow.tools import FileSpellings


class ApprovalPolicy:
    """What is said of calls beside an execution; here nothing. `divebook.Environment` has one that says more."""

    def table(self, _agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent; of no agent for an empty name."""
        return Approvals()

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the rules that people made for every execution, as they stand."""
        return ()

    async def keep(self, rule: StandingRule) -> None:
        """Let a rule hold in every execution; done twice it is done once."""


def _about_files(table: Approvals, files: FileSpellings) -> Approvals:
    """Return a table whose rules are about files, wherever they name paths."""
    rules: list[ApprovalRule] = []
    for rule in table.rules:
        if rule.arguments is None:
            rules.append(rule)
        elif rule.outcome == ALLOW:
            rules.append(rule.like(arguments=files.without_detours(rule.arguments)))
        else:
            rules += [rule, rule.like(arguments=files.with_links_followed(rule.arguments))]
    stricter = None if table.stricter is None else _about_files(table.stricter, files)
    return replace(table, rules=tuple(rules), stricter=stricter)


def _without_detours(rules: Iterable[StandingRule], files: FileSpellings | None) -> Iterable[StandingRule]:
    if files is None:
        return rules
    return [
        rule if rule.arguments is None else rule._replace(arguments=files.without_detours(rule.arguments))
        for rule in rules
    ]


class Approving:
    """Judges the calls of one execution."""

    def __init__(self, once: Once, policy: ApprovalPolicy) -> None:
        self._once, self._policy = once, policy

    async def verdict(self, call: ToolCall) -> Verdict:
        """Return what becomes of a call that the log does not have."""
        table, now = self._policy.table(call.agent), self._once.journal.clock.now()
        files = call.files
        if files is not None:
            call = replace(call, spellings=tuple(files.spellings(call.arguments)))
            table = _about_files(table, files)
        found = verdict_of(table, _without_detours(self.rules, files), call, now)
        if found.outcome != ASK:
            return found
        return verdict_of(table, _without_detours(await self._policy.lasting(), files), call, now)

    @property
    def rules(self) -> list[StandingRule]:
        """The rules that people made in this execution, for it alone."""
        return [rule for rule in self._made if rule.scope == RUN]

    @property
    def _made(self) -> list[StandingRule]:
        state = self._once.journal.state
        return rules_of_run(state.execution_id, state.rules.values())

    async def keep(self, question: Question) -> None:
        """Let the rule that the answer to a question made hold in every execution, if it is to."""
        made = next((rule for rule in self._made if rule.question == question.id), None)
        if made is not None and made.scope == ALWAYS:
            await self._policy.keep(made)
