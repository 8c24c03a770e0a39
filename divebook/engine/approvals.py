"""What becomes of a call of a tool: it is allowed, denied, or a person is asked. The only place that decides.

Of all rules that match the strictest holds, in whatever order they stand; where none does, the mode. What a person
allowed on a card turns asking into allowing, and never denying. A call that the log has is never judged again. Rules
and modes of a definition for which no person vouches only make the verdict stricter (`Approvals.stricter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from divebook.engine.argument_patterns import are_met_by, is_allowed_by, is_met_by, is_same
from divebook.engine.rules import StandingRule
from divebook.workflow.approvals import (
    ALLOW,
    ALWAYS,
    ASK,
    DESTRUCTIVE,
    IF_DESTRUCTIVE,
    IF_NOT_READ_ONLY,
    OUTCOMES,
    READ_ONLY,
    UNKNOWN,
    ApprovalRule,
    Approvals,
)
from divebook.workflow.tools import FileSpellings, ToolHints

TOOL = "tool"
BY_PERSON, BY_RULE = "User denied tool call", "A rule denies"
"""How what a model hears of a call begins that was denied, with the reason after it if there is one."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that is about to be made, as its tool has validated it."""

    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    """Who calls; empty where no agent does."""
    server: str = ""
    """The MCP server of the tool, if it has one."""
    hints: ToolHints = field(default_factory=ToolHints)
    """What the tool says of itself; of a server that is not trusted only what makes it stricter."""
    asks: bool = False
    """Whether the tool itself wants a person's yes (``approval=True``)."""
    mode: str = IF_NOT_READ_ONLY
    """The mode that holds where neither a rule nor the table's own modes decide."""
    kind: str = TOOL
    """What is called: ``tool``, ``action`` or ``step``."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What arguments are where a caller says nothing of them: to have that is to be left out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that a definition has fixed; no caller gives them."""
    rule_name: str = ""
    """The name by which rules know the tool, where a definition has renamed it."""
    files: FileSpellings | None = None
    """Which arguments name files, if any do."""
    spellings: tuple[Mapping[str, Any], ...] = ()
    """The arguments with the real paths of the files that they reach; empty where no file is named."""


class Approved(NamedTuple):
    """A call that may be made."""

    arguments: dict[str, Any]
    """Those that were asked for, or what a person made of them."""
    rule: str = ""
    """What decided; empty where the log has the call."""


class Denied(NamedTuple):
    """A call that may not be made."""

    text: str
    """What a model hears."""
    reason: str = ""
    rule: str = ""
    """What decided; empty where a person did."""


class Verdict(NamedTuple):
    """What becomes of a call."""

    outcome: str
    """``allow``, ``ask`` or ``deny``."""
    rule: str
    """What decided, for people and the log: a rule in words, a mode, or the id of a standing rule."""
    reason: str = ""
    """Why, if the rule says it."""


def verdict_of(table: Approvals, standing: Iterable[StandingRule], call: ToolCall, now_us: int) -> Verdict:
    """Return what becomes of a call now."""
    found = _strictest(table, call, now_us)
    if found.outcome != ASK:
        return found
    allowing = (rule for rule in standing if _holds(rule.expires_us, now_us) and _is_covered(rule, call))
    rule = next(allowing, None)
    return found if rule is None else Verdict(ALLOW, rule.rule_id)


def _strictest(table: Approvals, call: ToolCall, now_us: int) -> Verdict:
    stricter = table.stricter or Approvals()
    rules = (*table.rules, *(rule for rule in stricter.rules if rule.outcome != ALLOW))
    matching = (rule for rule in rules if _holds(rule.expires_us, now_us) and _matches(rule, call))
    found = [Verdict(rule.outcome, rule.in_words, rule.reason) for rule in matching]
    if call.asks:
        found.append(Verdict(ASK, ""))
    if found:
        return max(found, key=lambda verdict: OUTCOMES.index(verdict.outcome))
    mode = table.mode_for(call.server) or call.mode
    beside = stricter.mode_for(call.server)
    if beside and asks(beside, call.hints):
        return Verdict(ASK, beside)
    return Verdict(ASK if asks(mode, call.hints) else ALLOW, mode)


def asks(mode: str, hints: ToolHints | None) -> bool:
    """Return whether a mode asks about a tool with these hints; where no tool is known, only ``always`` does."""
    if mode == ALWAYS or hints is None:
        return mode == ALWAYS
    if mode == IF_NOT_READ_ONLY:
        return hints.read_only is not True or hints.destructive is True
    return mode == IF_DESTRUCTIVE and hints.destructive is True


def _holds(expires_us: int | None, now_us: int) -> bool:
    return expires_us is None or now_us < expires_us


def _matches(rule: ApprovalRule, call: ToolCall) -> bool:
    """Return whether a rule is about a call: one that allows must name it, of any other it is enough that it could."""
    fits = is_allowed_by if rule.outcome == ALLOW else is_met_by
    tools = _names_of(call, rule)
    if call.rule_name:  # what is allowed for a name is not allowed for a tool that a definition gives that name
        tools = [call.rule_name] if rule.outcome == ALLOW else [*tools, call.rule_name]
    named = ((rule.agent, call.agent), (rule.server, call.server))
    if not any(fits(rule.tool, tool) for tool in tools):
        return False
    if not all(pattern is None or (name and fits(pattern, name)) for pattern, name in named):
        return False
    return _has_effect(rule, call.hints) and _takes(rule, call)


_NO_SLASH = "\N{DIVISION SLASH}"


def _names_of(call: ToolCall, rule: ApprovalRule) -> list[str]:
    """Return the names by which a rule may mean the tool of a call.

    Servers name their tools, also with ``/``. A rule that allows ``files/read`` means the tool ``read`` of the server
    ``files``, and not one that another server calls so: there the ``/`` of a tool's own name stands for nothing.
    """
    if not call.server:
        return [call.tool]
    names = [call.tool.replace("/", _NO_SLASH), f"{call.server}/{call.tool}"]
    return names if rule.outcome == ALLOW else [*names, call.tool]


def _has_effect(rule: ApprovalRule, hints: ToolHints) -> bool:
    said = {
        None: True,
        READ_ONLY: hints.read_only is True and (rule.outcome != ALLOW or hints.destructive is not True),
        DESTRUCTIVE: hints.destructive is True,
        UNKNOWN: hints.read_only is not True and hints.destructive is not True,
    }
    return said[rule.when]


def _takes(rule: ApprovalRule, call: ToolCall) -> bool:
    if rule.arguments is None:
        return True
    if rule.outcome == ALLOW:
        return _are_exactly(rule.arguments, call)
    return any(are_met_by(rule.arguments, {**call.fixed, **given}) for given in (call.arguments, *call.spellings))


def _are_exactly(wanted: Mapping[str, Any], call: ToolCall) -> bool:
    """Return whether the arguments are those that are wanted, and no more; files are judged by their real paths."""
    return any(_is_exactly(wanted, given, call.defaults) for given in call.spellings or (call.arguments,))


def _is_exactly(wanted: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    more = [name for name in given if name not in wanted]
    return all(name in given and is_allowed_by(wanted[name], given[name]) for name in wanted) and all(
        name in defaults and is_same(defaults[name], given[name]) for name in more
    )


def _is_covered(rule: StandingRule, call: ToolCall) -> bool:
    names = (rule.kind, rule.tool, rule.agent or "", rule.server or "")
    if rule.outcome != ALLOW or rule.arguments is None or names != (call.kind, call.tool, call.agent, call.server):
        return False
    return _are_exactly(rule.arguments, call)
