"""What becomes of a call: the table, the modes, and rules that a person made."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from divebook.engine.approvals import ToolCall, Verdict, asks, verdict_of
from divebook.engine.rules import StandingRule
from divebook.errors import DefinitionError
from divebook.workflow.approvals import ApprovalRule, Approvals
from divebook.workflow.tools import ToolHints

NOW = 1_700_000_000_000_000
READS, WRITES, DESTROYS = ToolHints(read_only=True), ToolHints(), ToolHints(destructive=True)


def judged(
    *rules: Mapping[str, Any], mode: str = "always", made: tuple[StandingRule, ...] = (), **call: Any
) -> Verdict:
    table = Approvals(mode=mode).plus(rules)
    return verdict_of(table, made, ToolCall(**{"tool": "write_file", "arguments": {}, **call}), NOW)


def test_of_several_rules_the_strictest_decides_in_any_order() -> None:
    rules = (
        {"tool": "write_*", "outcome": "allow"},
        {"tool": "write_file", "outcome": "ask"},
        {"tool": "*", "outcome": "deny", "reason": "closed"},
    )
    for order in itertools.permutations(rules):
        assert judged(*order) == Verdict("deny", "deny *", "closed")
    for order in itertools.permutations(rules[:2]):
        assert judged(*order).outcome == "ask"
    assert judged(rules[0]).outcome == "allow"


def test_a_mode_decides_where_no_rule_does() -> None:
    assert judged({"tool": "other", "outcome": "deny"}, mode="never").outcome == "allow"
    assert judged(mode="never", asks=True).outcome == "ask", "a tool that asks by itself"
    assert judged(mode="", hints=READS) == Verdict("allow", "if-not-read-only")
    assert judged(mode="").outcome == "ask"
    assert judged(mode="", hints=DESTROYS).outcome == "ask"
    assert verdict_of(
        Approvals(mode="never", servers={"git": "always"}), (), ToolCall("log", {}, server="git"), NOW
    ) == (Verdict("ask", "always"))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("always", [True, True, True, True]),
        ("if-not-read-only", [False, True, True, False]),
        ("if-destructive", [False, False, True, False]),
        ("never", [False, False, False, False]),
    ],
)
def test_the_modes_are_those_of_the_old_system(mode: str, expected: list[bool]) -> None:
    assert [asks(mode, hints) for hints in (READS, WRITES, DESTROYS, None)] == expected


def test_a_tool_that_says_both_is_taken_as_destructive() -> None:
    both = ToolHints(read_only=True, destructive=True)
    assert asks("if-not-read-only", both)
    assert judged({"when": "read-only", "outcome": "allow"}, hints=both).outcome == "ask"
    assert judged({"when": "read-only", "outcome": "allow"}, hints=READS).outcome == "allow"
    assert judged({"when": "destructive", "outcome": "deny"}, hints=both).outcome == "deny"
    assert judged({"when": "unknown", "outcome": "deny"}, hints=WRITES).outcome == "deny"


def test_a_rule_that_allows_needs_every_argument_named() -> None:
    rule = {"tool": "write_file", "arguments": {"path": "docs/**"}, "outcome": "allow"}
    assert judged(rule, arguments={"path": "docs/a.md"}).outcome == "allow"
    assert judged(rule, arguments={"path": "docs/a.md", "mode": "w"}).outcome == "ask"
    assert judged(rule, arguments={}).outcome == "ask"
    assert judged({**rule, "arguments": {}}, arguments={}).outcome == "allow"
    assert judged({**rule, "arguments": {}}, arguments={"path": "docs/a.md"}).outcome == "ask"


def test_a_rule_that_denies_needs_what_it_names_only() -> None:
    rule = {"arguments": {"path": "/etc/**"}, "outcome": "deny"}
    assert judged(rule, mode="never", arguments={"path": "/etc/passwd", "mode": "w"}).outcome == "deny"
    assert judged(rule, mode="never", arguments={"text": "/etc/passwd"}).outcome == "allow"


def test_a_rule_for_servers_or_agents_is_not_about_calls_without_one() -> None:
    rule = {"server": "*", "outcome": "allow"}
    assert judged(rule, server="git").outcome == "allow"
    assert judged(rule).outcome == "ask"
    assert judged({"agent": "critic", "outcome": "allow"}, agent="Critic").outcome == "ask"
    assert judged({"agent": "critic", "outcome": "deny"}, agent="Critic").outcome == "deny"


def test_rules_expire() -> None:
    rule = {"outcome": "allow", "expires": "2023-11-14T22:13:20Z"}
    assert judged(rule).outcome == "ask", "that is now"
    assert judged({**rule, "expires": "2023-11-14T22:13:21+00:00"}).outcome == "allow"
    assert judged({**rule, "expires": "2023-11-15"}).outcome == "allow"
    assert judged({**rule, "expires": "2023-11-14T23:13:20+01:00"}).outcome == "ask"


def test_what_a_person_allowed_turns_asking_into_allowing_and_never_denying() -> None:
    made = StandingRule("rule_1", "allow", "write_file", arguments={"path": "a.txt"})
    call = {"arguments": {"path": "a.txt"}}
    assert judged(made=(made,), **call) == Verdict("allow", "rule_1")
    assert judged({"outcome": "deny"}, made=(made,), **call).outcome == "deny"
    assert judged(made=(made,), asks=True, **call).outcome == "allow"
    for other in (
        made._replace(tool="write_*"),
        made._replace(kind="action"),
        made._replace(agent="critic"),
        made._replace(server="git"),
        made._replace(expires_us=NOW),
        made._replace(arguments={}),
        made._replace(arguments=None),
        made._replace(outcome="ask"),
        made._replace(arguments={"path": "A.txt"}),
    ):
        assert judged(made=(other,), **call).outcome == "ask", other


def test_a_wrong_rule_says_what_to_write() -> None:
    for wrong in (
        {"outcome": "allowed"},
        {"when": "readonly"},
        {"tool": ""},
        {"expires": "tomorrow"},
        {"arguments": ["path"]},
    ):
        with pytest.raises(DefinitionError, match="approval rule") as raised:
            ApprovalRule.of(wrong)
        assert raised.value.problems[0].hint
    with pytest.raises(DefinitionError, match="invalid confirmation mode: sometimes"):
        Approvals(mode="sometimes")
