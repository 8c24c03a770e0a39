"""What becomes of a call: the table, the modes, and rules that a person made."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.definitions.resources import AgentDefinition, ApprovalRule, Approvals
from divebook.definitions.tools import ToolHints
from divebook.engine import approvals
from divebook.engine.approvals import StandingRule, ToolCall, Verdict, asks, verdict_of
from divebook.errors import DefinitionError

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


def test_an_argument_that_is_what_it_would_be_by_default_need_not_be_named() -> None:
    rule = {"tool": "write_file", "arguments": {"command": "pytest**"}, "outcome": "allow"}
    defaults = {"timeout": None, "count": 1}
    given = {"command": "pytest -q", "timeout": None, "count": 1}
    assert judged(rule, arguments=given, defaults=defaults).outcome == "allow"
    for other in ({"timeout": 5}, {"count": True}, {"cwd": None}):
        assert judged(rule, arguments={**given, **other}, defaults=defaults).outcome == "ask"
    assert judged(rule, arguments={"timeout": None}, defaults=defaults).outcome == "ask"


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


@pytest.mark.parametrize(
    ("named", "server", "expected"),
    [
        ("git/push", "git", True),
        ("git/*", "git", True),
        ("push", "git", True),
        ("*/push", "git", True),
        ("git/push", "github", False),
        ("git/push", "", False),
    ],
)
@pytest.mark.parametrize("outcome", ["allow", "deny"])
def test_a_tool_of_a_server_can_be_named_as_agents_name_it(
    named: str, server: str, expected: bool, outcome: str
) -> None:
    """Such a rule was about no call at all, so that what it denied was done."""
    found = judged({"tool": named, "outcome": outcome}, tool="push", server=server).outcome
    assert found == (outcome if expected else "ask")


@pytest.mark.parametrize("name", ["*", "a*"])
def test_the_rules_of_one_agent_cannot_hold_for_others(name: str) -> None:
    with pytest.raises(DefinitionError, match="would match other agents too"):
        AgentDefinition(name, approvals=[{"tool": "erase"}])


def test_a_rule_may_be_about_an_argument_of_any_name() -> None:
    rule = {"tool": "*", "arguments": {"equals": "x"}, "outcome": "deny"}
    assert judged(rule, arguments={"equals": "x"}).outcome == "deny"
    assert judged(rule, arguments={"equals": "y"}).outcome == "ask"


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ({"path": "/etc/*"}, {"path": "//etc/passwd"}),
        ({"path": "/etc/*"}, {"path": "file:///etc/passwd"}),
        ({"path": "/etc/*"}, {"path": "file://localhost/../etc/passwd"}),
        ({"path": "*.env"}, {"path": {"name": "x/.env"}}),
        ({"path": "*.env"}, {"path": [{"name": ["x/.env"]}]}),
        ({"path": {"name": "*.env"}}, {"path": [{"name": "a"}, {"NAME": "x/.env"}]}),
        ({"path": "key"}, {"PATH": "key"}),
        ({"path": "key"}, {"path": "other", "Path": "key"}),
        ({"url": "http://evil.com/*"}, {"url": "http://evil.com"}),
        ({"url": "http://evil.com"}, {"url": "http://evil.com/"}),
        ({"url": "http://evil.com"}, {"url": "http://EVIL\u3002com."}),
        ({"url": "*evil.com*"}, {"url": "http://evil\uff61com/x"}),
        ({"n": 5}, {"n": 10**5000}),
        ({"n": "5*"}, {"n": 10**5000}),
    ],
)
def test_a_rule_that_denies_means_all_ways_to_say_it(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for outcome in ("deny", "ask"):
        rule = {"tool": "*", "arguments": wanted, "outcome": outcome}
        assert judged(rule, mode="never", arguments=given).outcome == outcome


@pytest.mark.parametrize("text", ["/a" * 50_000, "~/" + "b/" * 50_000, "a" * 200_000, "%25" * 50_000])
def test_a_long_argument_is_read_as_often_as_a_short_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder of a long path was one more reading of it, all of which the whole process waited for."""
    readings: list[int] = []
    made_of = approvals._is_made_of

    def counted(pieces: list[str], reading: str) -> bool:
        readings.append(len(reading))
        return made_of(pieces, reading)

    monkeypatch.setattr(approvals, "_is_made_of", counted)
    assert (
        judged({"tool": "*", "arguments": {"path": "secrets/*"}, "outcome": "deny"}, arguments={"path": text}).outcome
        == "ask"
    )
    assert len(readings) < 30


WAYS = (
    str.upper,
    str.title,
    lambda text: f" {text}\t",
    lambda text: text.replace("/", "//"),
    lambda text: text.replace("/", "/./"),
    lambda text: text.replace("/", "\\"),
    lambda text: text.replace("/", "/x/../"),
    lambda text: text.replace("e", "\uff45"),
    "\u200b".join,
    lambda text: text.replace("s", "%73"),
    lambda text: text.replace("s", "%2573"),
    lambda text: f"/home/{text}",
    lambda text: f"../../{text}",
)
QUOTED = (lambda text: f'"{text}"', lambda text: f"`{text}`")
"""Around the whole: inside a path a quote is a character of a name, and the path another one."""
NESTED = (lambda text: [text], lambda text: {"any": text}, lambda text: [{"deep": ["other", text]}])


@given(
    name=st.sampled_from(["secrets/key", "data/users.db", "private/*"]),
    ways=st.lists(st.sampled_from(WAYS), max_size=3),
    around=st.lists(st.sampled_from(QUOTED), max_size=2),
    nested=st.lists(st.sampled_from(NESTED), max_size=1),
    more=st.dictionaries(st.sampled_from(["mode", "size"]), st.integers() | st.text(max_size=5), max_size=2),
    rest=st.lists(st.sampled_from([{"tool": "*"}, {"tool": "read", "arguments": {"path": "**"}}]), max_size=2),
)
def test_no_way_to_say_a_path_passes_a_rule_that_denies_it(
    name: str,
    ways: list[Callable[[str], str]],
    around: list[Callable[[str], str]],
    nested: list[Callable[[Any], Any]],
    more: dict[str, Any],
    rest: list[Mapping[str, Any]],
) -> None:
    """However it is written, nested, put beside others, and whatever else is allowed."""
    said: Any = name.replace("*", "letter")
    for way in (*ways, *around, *nested):
        said = way(said)
    rules = [*rest, {"tool": "read", "arguments": {"path": name}, "outcome": "deny"}]
    for order in (rules, rules[::-1]):
        found = judged(*order, mode="never", tool="read", arguments={"path": said, **more})
        assert found.outcome == "deny", said


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
